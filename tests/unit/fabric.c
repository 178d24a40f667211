/* The pieces of core/fabric that need no second process; tests/multi/fabric.sh has the rest. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/fabric/fabric.h"
#include "core/coll/reduce.h"
#include "core/wire/rendezvous.h"
#include "core/wire/rendezvous_frame.h"
#include "core/fabric/state.h"
#include "core/wire/wireup.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void reduces_in_a_tree(void)
{
    enum { N = 20011, R = 7 }; /* more than is worked on at once */
    static float v[R][N], got[N], copy[N];
    const void *src[R];
    void *dst[2] = {got, copy};
    struct tern_coll_reduce sum = {TERN_F32, TERN_F32, TERN_SUM, 0};
    int wrong = 0;

    for (int r = 0; r < R; r++) {
        src[r] = v[r];
        for (int i = 0; i < N; i++)
            v[r][i] = (float)tern_rand_normal(1, (uint64_t)r, (uint64_t)i) * 1e3f;
    }
    tern_coll_reduce(&sum, dst, 2, src, R, N, false);
    for (int i = 0; i < N; i++) {
        float want = ((v[0][i] + v[1][i]) + (v[2][i] + v[3][i])) + ((v[4][i] + v[5][i]) + v[6][i]);
        wrong += got[i] != want || copy[i] != want;
    }
    ok(wrong == 0, "seven sources are summed in the order of the header, at both places");
    memset(got, 0, sizeof got);
    dst[0] = got + 1; /* on no cache line's begin */
    tern_coll_reduce(&sum, dst, 1, src, R, N - 1, true);
    ok(memcmp(got + 1, copy, (N - 1) * sizeof *got) == 0 && got[0] == 0,
       "they are the same past the caches, and nothing beside them is written");
    sum.op = TERN_AVG;
    sum.divide_by = R;
    dst[0] = v[3];
    dst[1] = v[0];
    tern_coll_reduce(&sum, dst, 2, src, R, N, false);
    for (int i = 0; i < N; i++)
        wrong += v[0][i] != copy[i] / R || v[3][i] != v[0][i];
    ok(wrong == 0, "an average divides once, and may replace two of the sources (%d wrong)", wrong);
}

enum { WIDTH = 2560 };

static double tree_of(float (*v)[WIDTH], int lo, int n, int i)
{
    int h = 1;

    while (2 * h < n)
        h *= 2;
    return n == 1 ? v[lo][i] : (float)(tree_of(v, lo, h, i) + tree_of(v, lo + h, n - h, i));
}

/* However many there are, with what does not fill a register, and for bf16 in fp32. */
static void reduces_any_number(void)
{
    enum { N = 2507, R = 40 };
    static float v[R][WIDTH], got[WIDTH];
    static uint16_t half[R][WIDTH];
    const void *src[R], *halves[R];
    void *dst[] = {got};
    const struct tern_coll_reduce sum = {TERN_F32, TERN_F32, TERN_SUM, 0},
                                  wide = {TERN_BF16, TERN_F32, TERN_SUM, 0};
    int wrong = 0, wrong_halves = 0;

    for (int r = 0; r < R; r++) {
        src[r] = v[r];
        halves[r] = half[r];
        for (int i = 0; i < N; i++) {
            v[r][i] = (float)tern_rand_normal(1, (uint64_t)r, (uint64_t)i) * 1e3f;
            memcpy(&half[r][i], (char *)&v[r][i] + 2, 2);
        }
    }
    for (int n = 1; n <= R; n++) {
        tern_coll_reduce(&sum, dst, 1, src, n, N, false);
        for (int i = 0; i < N; i++)
            wrong += got[i] != (float)tree_of(v, 0, n, i);
    }
    for (int r = 0; r < R; r++)
        for (int i = 0; i < N; i++)
            memset(&v[r][i], 0, 2); /* what bf16 keeps of it */
    for (int n = 1; n <= R; n++) {
        tern_coll_reduce(&wide, dst, 1, halves, n, N, false);
        for (int i = 0; i < N; i++)
            wrong_halves += got[i] != (float)tree_of(v, 0, n, i);
    }
    static uint16_t rounded[2][WIDTH];
    const struct tern_coll_reduce both = {TERN_BF16, TERN_BF16, TERN_SUM, 0};
    for (int past = 0; past < 2; past++)
        tern_coll_reduce(&both, (void *[]){rounded[past]}, 1, halves, 3, N, past);
    ok(rounded[0][N - 1] && memcmp(rounded[0], rounded[1], sizeof rounded[0]) == 0,
       "bf16 is the same past the caches");
    ok(wrong == 0, "1 to 40 sources are summed in that order (%d wrong)", wrong);
    ok(wrong_halves == 0, "and of bf16 the same values as in fp32 (%d wrong)", wrong_halves);
}

static void reduces_bf16(void)
{
    /* 1 + 2^-8 + 2^-8: a sum in bf16 would lose both, fp32 keeps them. */
    uint16_t a[1] = {0x3f80}, b[1] = {0x3b80}, c[1] = {0x3b80}, out[1];
    uint16_t nan[1] = {0x7f81};
    const void *src[] = {a, b, c}, *bad[] = {a, nan};
    void *dst[] = {out};
    struct tern_coll_reduce sum = {TERN_BF16, TERN_BF16, TERN_SUM, 0};

    tern_coll_reduce(&sum, dst, 1, src, 3, 1, false);
    ok(out[0] == 0x3f81, "bf16 is summed in fp32 (%04x)", out[0]);
    tern_coll_reduce(&sum, dst, 1, bad, 2, 1, false);
    ok((out[0] & 0x7f80) == 0x7f80 && (out[0] & 0x7f), "a NaN stays one in bf16");
}

static void nan_wins(void)
{
    float a[2] = {NAN, 1}, b[2] = {1, NAN}, out[2];
    const void *src[] = {a, b};
    void *dst[] = {out};
    struct tern_coll_reduce max = {TERN_F32, TERN_F32, TERN_MAX, 0};

    tern_coll_reduce(&max, dst, 1, src, 2, 2, false);
    ok(isnan(out[0]) && isnan(out[1]), "NaN wins a maximum from either side");
}

/* kB of the mapping at `p` that /proc/self/smaps gives under `key`; -1: not there. */
static long mapped(const void *p, const char *key)
{
    char line[512], want[40];
    bool here = false;
    long kb = -1;
    FILE *f = fopen("/proc/self/smaps", "re");

    snprintf(want, sizeof want, "%lx-", (unsigned long)(uintptr_t)p);
    while (f && kb < 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, want, strlen(want)) == 0)
            here = true;
        else if (here && strncmp(line, key, strlen(key)) == 0)
            kb = strtol(line + strlen(key), NULL, 10);
    }
    if (f)
        fclose(f);
    return kb;
}

/* Can huge pages be had for shared memory here?  As the fabric asks for them. */
static bool huge_here(void)
{
    enum { HUGE = 2 << 20, COLLAPSE = 25 };
    int fd = memfd_create("probe", MFD_CLOEXEC);
    char *p = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    bool good = fd >= 0 && p != MAP_FAILED && ftruncate(fd, HUGE) == 0 &&
                mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at;

    if (good)
        *(volatile char *)at = 0;
    good = good && madvise(at, HUGE, COLLAPSE) == 0;
    if (p != MAP_FAILED)
        munmap(p, 2 * HUGE);
    if (fd >= 0)
        close(fd);
    return good;
}

static void huge_pages(struct tern_fabric *f)
{
    const size_t bytes = (5 << 20) + 100;
    char *p = tern_fabric_alloc(f, bytes, NULL);
    size_t sum = 0;

    for (size_t i = 0; p && i < bytes; i++)
        sum += (unsigned char)p[i];
    ok(p && sum == 0 && (uintptr_t)p % (2 << 20) == 0, "shared memory is zeroed and well placed");
    long kb = p ? mapped(p, "ShmemPmdMapped:") : 0;
    if (huge_here())
        ok(kb >= 2048, "and made of huge pages (%ld kB)", kb);
    tern_fabric_free(f, p);
}

static void alone(void)
{
    struct tern_err err = {0};
    struct tern_fabric_options o = {.wireup = TERN_WIREUP_ALONE};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    float in[3] = {1, 2, 3}, out[3] = {0};
    struct tern_comm *half;

    if (!ok(f != NULL, "one rank opens alone"))
        return;
    struct tern_comm *w = tern_fabric_world(f);
    ok(tern_fabric_size(f) == 1 && tern_fabric_nodes(f) == 1, "it is the whole world");
    ok(tern_fabric_reduce_scatter(w, in, out, 3, TERN_F32, TERN_AVG, &err) == 0 && out[2] == 3,
       "operations of one rank copy");
    char *p = tern_fabric_alloc(f, 100, &err);
    ok(p && p[99] == 0, "shared memory comes zeroed");
    tern_fabric_free(f, p);
    huge_pages(f);
    ok(tern_fabric_comm_split(w, -1, 0, &half, &err) == 0 && !half,
       "colour -1 gives no communicator");
    struct tern_comm *some[40] = {NULL};
    struct tern_comm_part parts[40];
    for (int i = 0; i < 40; i++)
        parts[i] = (struct tern_comm_part){i % 3 - 1, 0, &some[i]};
    ok(tern_fabric_comm_splits(w, parts, 40, &err) == 0 && !some[0] && some[1] && some[2] &&
           some[1] != some[2] && tern_fabric_comm_size(some[1]) == 1,
       "several splits at once");
    ok(tern_fabric_comm_splits(w, parts, 40, &err) < 0 && strstr(err.text, "64") &&
           tern_fabric_barrier(some[1], &err) == 0,
       "too many at once are refused, and break nothing");
    for (int i = 0; i < 40; i++)
        tern_fabric_comm_free(some[i]);
    int n = 0;
    while (n < 100 && tern_fabric_comm_split(w, 0, 0, &half, &err) == 0)
        n++;
    ok(n == 63 && strstr(err.text, "64"), "the 65th communicator is refused: %s", err.text);
    ok(tern_fabric_broadcast(w, in, 1, TERN_F32, 1, &err) < 0,
       "a root that is no member is refused");
    tern_fabric_close(f);
}

static void calls_pack(void)
{
    char text[80];

    is(tern_call_text(text, sizeof text,
                      tern_call_pack(TERN_CALL_ALL_REDUCE, TERN_BF16, TERN_AVG, 0, 1ull << 39)),
       "all_reduce bf16 avg 549755813888", "a call and its words");
    is(tern_call_text(text, sizeof text,
                      tern_call_pack(TERN_CALL_BROADCAST, TERN_U8, TERN_SUM, 65535, 3)),
       "broadcast u8 3 from 65535", "the highest root");
    tern_call_text(text, sizeof text, ~0ull);
    ok(text[0] != '\0', "a call that cannot be still has words");
}

/* Rank 0 of `size`, on a fabric that fails whatever begins: what is refused before that says so. */
static struct tern_comm *failing(struct tern_fabric *f, int size)
{
    static struct tern_comm c;
    static struct tern_flight_recorder recorder;

    *f = (struct tern_fabric){.wire = {.size = size}, .broken = true};
    f->coll.wire = &f->wire;
    f->coll.recorder = &recorder;
    tern_err_set(&f->why, TERN_TEMPFAIL, "begun");
    c = (struct tern_comm){.coll = &f->coll, .shape = {.size = size}};
    return &c;
}

static void limits_counts(void)
{
    static struct tern_fabric f;
    struct tern_comm *c = failing(&f, 64);
    struct tern_err err = {0};
    size_t most = (1ull << 38) - 1; /* of four bytes, below 2^40 */
    char v;

    tern_fabric_all_reduce(c, &v, most, TERN_F32, TERN_SUM, &err);
    is(err.text, "begun", "64 ranks all-reduce 1 TiB but one element");
    tern_fabric_broadcast(c, &v, 4 * most, TERN_U8, 0, &err);
    is(err.text, "begun", "and broadcast as much");
    tern_fabric_all_reduce(c, &v, most + 1, TERN_F32, TERN_SUM, &err);
    is(err.text,
       "all_reduce of 274877906944 f32: 274877906943 are the most (less than 1 TiB): do it in "
       "parts",
       "one more is refused, and the limit told");
    tern_fabric_all_gather(c, &v, &v, 1ull << 32, TERN_F32, &err);
    has(err.text, "all_gather of 4294967296 f32 a rank: 4294967295 are the most",
        "where a count is a rank's, all ranks' blocks are within it");
}

static void waits_again(void)
{
    static struct tern_fabric f;
    struct tern_comm *c = failing(&f, 2);
    struct tern_pending p = {c, 1};
    struct tern_err err = {0};

    c->begun = 1;
    int first = tern_fabric_wait(&p, &err), again = tern_fabric_wait(&p, &err);
    ok(first == -1 && again == -1, "who waits again for what failed is told again (%d, %d)", first,
       again);
}

static void explains_wide_nodes(void)
{
    enum { SIZE = 96 };
    struct tern_wire_rank *peers = calloc(SIZE, sizeof *peers);
    int sorted[SIZE];
    struct tern_fabric f = {.wire = {.size = SIZE, .nodes = 1, .peers = peers},
                            .mismatch = {.sorted = sorted}};
    struct tern_buf b = {0};

    tern_fabric_explain(&f, &b);
    has(b.data, "ranks 0-95,", "all 96 ranks of a node are told");
    tern_buf_free(&b);
    free(peers);
}

/* ---------------------------------------------------------------- rendezvous */

static int dial(const struct tern_wire_rendezvous *r)
{
    const char *colon = strchr(tern_wire_rendezvous_address(r), ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(colon + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void serve(struct tern_wire_rendezvous *r, int times)
{
    while (times--) {
        struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};
        poll(&p, 1, 5);
        tern_wire_rendezvous_step(r, NULL);
    }
}

static bool is_closed(int fd)
{
    char c;
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 1000) == 1 && recv(fd, &c, 1, MSG_DONTWAIT) <= 0;
}

static void frame(struct rendezvous_frame *h, const struct tern_wire_rendezvous *r, uint32_t kind,
                  uint32_t rank, uint32_t size, uint32_t bytes)
{
    const char *key = strchr(tern_wire_rendezvous_address(r), '/') + 1;

    *h = (struct rendezvous_frame){RENDEZVOUS_MAGIC, kind, rank, size, 0, bytes, {0}};
    for (int i = 0; i < RENDEZVOUS_KEY; i++)
        sscanf(key + 2 * i, "%2hhx", &h->key[i]);
}

static void says(struct tern_wire_rendezvous *r, int fd, const char *want, const char *name)
{
    char got[sizeof(struct rendezvous_frame) + RENDEZVOUS_TEXT + 1] = "";

    serve(r, 3);
    ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    has(n > (ssize_t)sizeof(struct rendezvous_frame) ? got + sizeof(struct rendezvous_frame) : "",
        want, "%s", name);
}

static void refuses_strangers(void)
{
    struct tern_err err = {0};
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, &err);
    struct rendezvous_frame h;
    int fd, closed = 0, rounds = 300;

    if (!ok(r != NULL, "a rendezvous opens: %s", err.text))
        return;
    for (int i = 0; i < rounds; i++) {
        unsigned char junk[700];
        size_t n = tern_rand_below(3, 0, (uint64_t)i, sizeof junk);
        for (size_t k = 0; k < sizeof junk; k++)
            junk[k] = (unsigned char)tern_rand_u64(4, (uint64_t)i, k);
        if (i % 3) { /* right up to some field */
            frame(&h, r, 1 + (uint32_t)i % 4, 0, 2, i % 2 ? 0xffffffff : 0);
            if (i % 3 == 2)
                h.key[i % 16] ^= 1;
            memcpy(junk, &h, sizeof h);
            n = sizeof h + n / 2;
        }
        if ((fd = dial(r)) < 0)
            break;
        send(fd, junk, n, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        serve(r, 2);
        closed += is_closed(fd);
        close(fd);
        serve(r, 1);
    }
    ok(closed == rounds, "hostile bytes end the connection (%d of %d) and nothing else", closed,
       rounds);
    fd = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 3, 0);
    send(fd, &h, sizeof h, 0);
    says(r, fd, "rank 1 of 3 came where 2 ranks are expected", "a rank of another size is told so");
    close(fd);
    serve(r, 2);
    fd = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 2, 0);
    send(fd, &h, sizeof h, 0);
    serve(r, 3);
    struct pollfd p = {fd, POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "which is nothing to one of the right size that comes later");
    close(fd);
    tern_wire_rendezvous_close(r);
}

static void tells_who_left(void)
{
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, NULL);
    struct rendezvous_frame h;
    static uint8_t blob[TERN_WIRE_BLOB];
    int a = dial(r), b = dial(r);

    frame(&h, r, RENDEZVOUS_HELLO, 0, 2, 0);
    send(a, &h, sizeof h, 0);
    frame(&h, r, RENDEZVOUS_HELLO, 1, 2, 0);
    send(b, &h, sizeof h, 0);
    serve(r, 4);
    frame(&h, r, RENDEZVOUS_BLOB, 0, 2, TERN_WIRE_BLOB);
    send(a, &h, sizeof h, 0);
    send(a, blob, sizeof blob, 0);
    serve(r, 3);
    close(b);
    says(r, a, "rank 1 left while the ranks were meeting", "who leaves is named to the others");
    serve(r, 2);
    ok(is_closed(a), "and they are let go");
    close(a);
    serve(r, 3);
    a = dial(r);
    frame(&h, r, RENDEZVOUS_HELLO, 0, 2, 0);
    send(a, &h, sizeof h, 0);
    serve(r, 3);
    struct pollfd p = {a, POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "the next attempt may meet at the same place");
    close(a);
    tern_wire_rendezvous_close(r);
}

/* A rank of `size` comes. */
static int come(struct tern_wire_rendezvous *r, uint32_t rank, uint32_t size)
{
    struct rendezvous_frame h;
    int fd = dial(r);

    frame(&h, r, RENDEZVOUS_HELLO, rank, size, 0);
    send(fd, &h, sizeof h, MSG_NOSIGNAL);
    serve(r, 3);
    return fd;
}

static void give(struct tern_wire_rendezvous *r, int fd, uint32_t rank, uint32_t size,
                 uint32_t round)
{
    struct {
        struct rendezvous_frame h;
        uint8_t blob[TERN_WIRE_BLOB];
    } m = {0};

    frame(&m.h, r, RENDEZVOUS_BLOB, rank, size, TERN_WIRE_BLOB);
    m.h.round = round;
    send(fd, &m, sizeof m, MSG_NOSIGNAL);
    serve(r, 3);
}

/* Has everybody's blob come? */
static bool all_of(int fd, uint32_t size)
{
    static char got[sizeof(struct rendezvous_frame) + 8 * TERN_WIRE_BLOB];
    struct rendezvous_frame h;
    ssize_t n = recv(fd, got, sizeof got, MSG_DONTWAIT);

    memcpy(&h, got, sizeof h);
    return n == (ssize_t)(sizeof h + size * TERN_WIRE_BLOB) && h.kind == RENDEZVOUS_ALL;
}

static void tells_of_missing_files(void)
{
    struct rlimit was, r = {0};
    struct tern_err err = {0};

    getrlimit(RLIMIT_NOFILE, &was);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, was.rlim_max});
    struct tern_wire_rendezvous *many = tern_wire_rendezvous_open("127.0.0.1", 300, &err);
    getrlimit(RLIMIT_NOFILE, &r);
    ok(many && r.rlim_cur > 300 && r.rlim_max == was.rlim_max,
       "for many ranks more files may be open");
    tern_wire_rendezvous_close(many);

    struct tern_wire_rendezvous *few = tern_wire_rendezvous_open("127.0.0.1", 3, &err);
    int first = come(few, 0, 3), second = dial(few);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)second + 1, was.rlim_max});
    ok(tern_wire_rendezvous_step(few, &err) < 0, "a rank for which there is no file is an error");
    has(err.text, "Too many open files", "that says so");
    struct pollfd p = {tern_wire_rendezvous_fd(few), POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "who waits at the door does not keep it busy");
    says(few, first, "one cannot be let in: Too many open files", "and the ranks are told");
    setrlimit(RLIMIT_NOFILE, &was);
    close(first);
    serve(few, 2);
    usleep(1100000);
    serve(few, 3);
    close(second);
    first = come(few, 0, 3);
    p.fd = first;
    ok(poll(&p, 1, 0) == 0, "a second later ranks may come again");
    close(first);
    tern_wire_rendezvous_close(few);
}

static void tells_who_left_between(void)
{
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 3, NULL);
    int fd[3];

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    close(fd[0]);
    serve(r, 3);
    says(r, fd[1], "rank 0 left while", "who leaves before anyone has given a blob is named");
    close(fd[1]);
    close(fd[2]);
    serve(r, 4);

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    for (uint32_t i = 0; i < 3; i++)
        give(r, fd[i], i, 3, 0);
    ok(all_of(fd[0], 3) && all_of(fd[1], 3) && all_of(fd[2], 3), "a further attempt meets");
    close(fd[2]);
    serve(r, 3);
    struct pollfd p = {fd[0], POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "who leaves between two rounds may be done");
    give(r, fd[0], 0, 3, 1);
    says(r, fd[0], "rank 2 left while", "else it is named to the next that gives a blob");
    says(r, fd[1], "rank 2 left while", "and to those who have given none");
    close(fd[0]);
    close(fd[1]);
    serve(r, 4);

    for (uint32_t i = 0; i < 3; i++)
        fd[i] = come(r, i, 3);
    for (uint32_t i = 0; i < 3; i++)
        give(r, fd[i], i, 3, 0);
    ok(all_of(fd[0], 3) && all_of(fd[1], 3) && all_of(fd[2], 3), "one more attempt meets");
    give(r, fd[2], 2, 3, 1);
    close(fd[2]);
    serve(r, 3);
    give(r, fd[1], 1, 3, 1);
    says(r, fd[1], "rank 2 left while", "the only giver that leaves is named too");
    close(fd[0]);
    close(fd[1]);
    tern_wire_rendezvous_close(r);
}

static void strangers_give_way(void)
{
    enum { PLACES = 2 + 64 };
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, NULL);
    int strangers[PLACES], a, b;

    for (int i = 0; i < PLACES; i++) {
        strangers[i] = dial(r);
        serve(r, 1);
    }
    a = come(r, 0, 2);
    b = come(r, 1, 2);
    give(r, a, 0, 2, 0);
    give(r, b, 1, 2, 0);
    ok(all_of(a, 2) && all_of(b, 2), "ranks meet where strangers have taken every place");
    ok(is_closed(strangers[0]) && is_closed(strangers[1]), "the oldest of them give way");
    struct pollfd p = {strangers[2], POLLIN, 0};
    ok(poll(&p, 1, 0) == 0, "and no more than need be");
    for (int i = 0; i < PLACES; i++)
        close(strangers[i]);
    close(a);
    close(b);
    tern_wire_rendezvous_close(r);
}

static void bad_addresses(void)
{
    static const char *const bad[] = {"",
                                      "host",
                                      "host:1",
                                      "host:1/ff",
                                      ":1/00112233445566778899aabbccddeeff",
                                      "h:1234567/00112233445566778899aabbccddeeff",
                                      "h:1/zz112233445566778899aabbccddeeff"};
    int refused = 0;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tern_err err = {0};
        struct tern_fabric_options o = {
            .wireup = TERN_WIREUP_SOCKET, .socket = bad[i], .size = 2, .deadline_s = 0.2};
        struct tern_fabric *f = tern_fabric_open(&o, &err);
        refused += !f && err.code == TERN_USAGE;
        tern_fabric_close(f);
    }
    ok(refused == sizeof bad / sizeof *bad, "an address that is none is refused (%d)", refused);
}

int main(void)
{
    reduces_in_a_tree();
    reduces_any_number();
    reduces_bf16();
    nan_wins();
    alone();
    calls_pack();
    limits_counts();
    waits_again();
    explains_wide_nodes();
    refuses_strangers();
    tells_who_left();
    tells_who_left_between();
    tells_of_missing_files();
    strangers_give_way();
    bad_addresses();
    return tap_done();
}
