#include "tests/provider/srd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum value { COUNT, CHANCE, PEER };

/* The random numbers of an endpoint begin with the seed and its place in the address table.  Those
 * for its n-th send and its n-th receive (put off how often, failed) are the same in every run;
 * what happens to packets and completions is drawn as they move, and so depends on timing. */
static const struct {
    const char *name;
    enum value value;
    size_t at;
    double least, most, otherwise;
} names[] = {
#define AT(field) offsetof(struct srd_faults, field)
    /* shape */
    {"msg", COUNT, AT(msg), 64, SRD_MSG_MAX, 1 << 20}, /* longest message and write */
    {"mtu", COUNT, AT(mtu), 16, SRD_MTU_MAX, 8192},    /* bytes of it in a packet */
    {"tx", COUNT, AT(tx), 1, 1 << 20, 512},            /* sends at once; beyond, EAGAIN */
    {"rx", COUNT, AT(rx), 1, 1 << 20, 8192},           /* receives at once */
    {"cq", COUNT, AT(cq), 1, 1 << 20, 8192},           /* a full queue stops all progress */
    {"mr", COUNT, AT(mr), 0, 1 << 30, 1 << 30},        /* regions at once; beyond, ENOMEM */
    {"rails", COUNT, AT(rails), 1, 4, 1},              /* as if so many interfaces */
    {"job", COUNT, AT(job), 0, 4294967295.0, 0},       /* part of the sockets' names */
    /* faults */
    {"seed", COUNT, AT(seed), 0, 1e15, 1},
    {"reorder", COUNT, AT(reorder), 1, SRD_POOL, 1},       /* packets that overtake each other */
    {"delay", COUNT, AT(delay_us), 0, 1e7, 0},             /* microseconds at most, a packet */
    {"shuffle", COUNT, AT(shuffle), 1, 1 << 20, 1},        /* completions read in any order */
    {"late", COUNT, AT(late_us), 0, 1e7, 0},               /* microseconds at most, a completion */
    {"dup", CHANCE, AT(dup), 0, 1, 0},                     /* packets sent twice */
    {"dupdata", CHANCE, AT(dupdata), 0, 1, 0},             /* a write's data is reported twice */
    {"eagain", CHANCE, AT(eagain), 0, 0.999, 0},           /* sends and writes refused for now */
    {"recv_eagain", CHANCE, AT(recv_eagain), 0, 0.999, 0}, /* receives */
    {"fail", CHANCE, AT(fail), 0, 1, 0},                   /* sends that end with an error */
    {"lie", CHANCE, AT(lie), 0, 1, 0},                     /* the same, though they came */
    /* PEER@N: when that endpoint has sent N messages, it is cut off without a word, or goes. */
    {"drop", PEER, 0, 0, 1e6, 0},
    {"die", PEER, 0, 0, 1e6, 0},
    {"only", COUNT, AT(only), 0, 4,
     0}, /* fail, lie, drop, die on this rail alone, from 1; 0: all */
#undef AT
};
enum { NAMES = sizeof names / sizeof *names };

static void set(struct srd_faults *f, int i, double v)
{
    char *at = (char *)f + names[i].at;

    if (names[i].value == CHANCE)
        *(double *)at = v;
    else if (names[i].at == offsetof(struct srd_faults, seed))
        f->seed = (uint64_t)v;
    else
        *(uint32_t *)at = (uint32_t)v;
}

static bool take(struct srd_faults *f, const char *item)
{
    size_t n = strcspn(item, "=");
    char *end;

    for (int i = 0; i < NAMES && item[n]; i++) {
        if (strlen(names[i].name) != n || strncmp(names[i].name, item, n) != 0)
            continue;
        double v = strtod(item + n + 1, &end);
        if (names[i].value == PEER && *end == '@') {
            f->lose = (int)v;
            f->dies = strncmp(item, "die", n) == 0;
            f->lose_after = strtoull(end + 1, &end, 10);
        } else if (names[i].value == PEER) {
            return false;
        }
        if (end == item + n + 1 || *end || !(v >= names[i].least && v <= names[i].most))
            return false;
        if (names[i].value != PEER)
            set(f, i, v);
        return true;
    }
    return false;
}

int srd_faults_read(struct srd_faults *f)
{
    const char *spec = getenv("TERNSRD");
    char *copy = strdup(spec ? spec : ""), *rest, *item;
    int rc = 0;

    *f = (struct srd_faults){.lose = -1};
    for (int i = 0; i < NAMES; i++)
        if (names[i].value != PEER)
            set(f, i, names[i].otherwise);
    for (item = copy ? strtok_r(copy, ",", &rest) : NULL; item && !rc;
         item = strtok_r(NULL, ",", &rest))
        if (!take(f, item))
            rc = srd_refuse(-FI_EINVAL, "TERNSRD has '%s'", item);
    free(copy);
    return rc;
}

uint64_t srd_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t srd_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((srd_random(state) >> 32) * n >> 32);
}

bool srd_chance(uint64_t *state, double p)
{
    return p > 0 && (double)(srd_random(state) >> 11) * 0x1p-53 < p;
}

int64_t srd_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int srd_refuse(int code, const char *format, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    dprintf(2, "ternsrd: refused: %s\n", text);
    return code;
}
