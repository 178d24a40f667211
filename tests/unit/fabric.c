/* The pieces of core/fabric that need no second process; tests/multi/fabric.sh has the rest. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/rand.h"
#include "core/fabric/fabric.h"
#include "core/coll/reduce.h"
#include "core/fabric/state.h"

#include <math.h>
#include <sys/mman.h>
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
    ok(wrong_halves == 0, "sums of bf16 have the same values as in fp32 (%d wrong)", wrong_halves);
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
        ok(kb >= 2048, "a large buffer is made of huge pages (%ld kB)", kb);
    tern_fabric_free(f, p);
}

static void alone(void)
{
    struct tern_err err = {0};
    struct tern_fabric_options o = {.wireup = TERN_WIREUP_ALONE};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    float in[3] = {1, 2, 3}, out[3] = {0};
    struct tern_comm *half;

    if (!ok(f != NULL, "a fabric of one rank opens"))
        return;
    struct tern_comm *w = tern_fabric_world(f);
    ok(tern_fabric_size(f) == 1 && tern_fabric_nodes(f) == 1, "a fabric of one rank has one node");
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
    f->coll.owner = f;
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
    is(err.text, "begun", "64 ranks broadcast 1 TiB but four bytes");
    tern_fabric_all_reduce(c, &v, most + 1, TERN_F32, TERN_SUM, &err);
    is(err.text,
       "all_reduce of 274877906944 f32: 274877906943 are the most (less than 1 TiB): do it in "
       "parts",
       "one element more is refused, and the error names the limit");
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
    ok(first == -1 && again == -1, "a second wait for a failed operation fails too (%d, %d)", first,
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
    has(b.data, "ranks 0-95,", "the explanation names all 96 ranks of a node");
    tern_buf_free(&b);
    free(peers);
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
    return tap_done();
}
