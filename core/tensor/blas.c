/* OpenBLAS: loaded at run time, because its kernels are chosen while it loads, by an environment
 * variable that must be there before. */
#include "core/tensor/kernels.h"

#include "core/base/vars.h"

#include <dlfcn.h>
#include <glob.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The builds of OpenBLAS under their usual names.  The OpenMP build shares our threads.  A build
 * with threads of its own is kept to one.  A serial build does not promise that several threads may
 * call it at once, so one does at a time. */
static const char *const names[] = {
    "libopenblaso.so.0",                           /* OpenMP: Fedora, EPEL, SUSE */
    "libopenblas.so.0",                            /* Debian: update-alternatives' choice, or
                                                      the rpath's */
    "/usr/lib/*/openblas-openmp/libopenblas.so.0", /* OpenMP: Debian, Ubuntu */
    "libopenblasp.so.0",                           /* threads: Fedora, EPEL, SUSE */
    "/usr/lib/*/openblas-pthread/libopenblas.so.0",
};
static const char to_install[] = "Install libopenblas0-openmp (Debian, Ubuntu) or openblas-openmp "
                                 "(Fedora, EPEL), or name a library by TERN_BLAS.";
enum parallel { SERIAL, THREADS, OPENMP }; /* openblas_get_parallel */
static const char core_variable[] = "OPENBLAS_CORETYPE";

/* Rows and columns from which our own products are as fast as OpenBLAS's. */
enum { OWN_MIN = 16 };
/* Columns or steps up to which our own for AVX2 are: at 288 they are 3 to 5 % faster, at 768 none.
 */
enum { NARROW = 512 };
/* Of a matrix in bf16 that OpenBLAS multiplies by: 1 MiB of floats, a second-level cache; and on
 * the stack, where there is no memory for more. */
enum { PIECE = 512, SMALL_PIECE = 64 };

/* CBLAS's numbers. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static struct {
    void *handle;
    void (*sgemm)(int order, int ta, int tb, int M, int N, int K, float alpha, const float *A,
                  int lda, const float *B, int ldb, float beta, float *C, int ldc);
    void (*dgemm)(int order, int ta, int tb, int M, int N, int K, double alpha, const double *A,
                  int lda, const double *B, int ldb, double beta, double *C, int ldc);
    char *(*corename)(void);
    char *(*config)(void);
    int (*parallel)(void);
    void (*set_threads)(int n);
} blas;

static char library[256]; /* the one that was chosen; "": not yet */
static bool one_at_a_time;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char blas_name[64] = "no BLAS", blas_core[64] = "";
static const struct tern_tensor_products *own; /* our products, where they pay; NULL: OpenBLAS's */
static bool own_all;                           /* for all shapes */

const char *tern_tensor_blas(void)
{
    return blas_name;
}

const char *tern_tensor_core(void)
{
    return blas_core;
}

/* The vectors that a core type's sgemm uses.  OpenBLAS's names (driver/others/dynamic.c); those of
 * other processors and older ones are all "plain" here. */
static enum tern_tensor_cpu core_uses(const char *core)
{
    static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    static const char *const avx2[] = {"Haswell", "Zen", "Excavator", NULL};

    for (int i = 0; avx512[i]; i++)
        if (strcasecmp(core, avx512[i]) == 0)
            return TERN_TENSOR_CPU_AVX512;
    for (int i = 0; avx2[i]; i++)
        if (strcasecmp(core, avx2[i]) == 0)
            return TERN_TENSOR_CPU_AVX2;
    return TERN_TENSOR_CPU_PLAIN;
}

/* The core type to request where OpenBLAS takes a CPU for less than it is. */
static const char *const wanted[] = {
    [TERN_TENSOR_CPU_AVX2] = "Haswell", [TERN_TENSOR_CPU_AVX512] = "SkylakeX"};

static void close_it(void)
{
    if (blas.handle)
        dlclose(blas.handle);
    blas.handle = NULL;
}

static int open_it(const char *name, struct tern_err *err)
{
    struct {
        const char *name;
        void **to;
    } functions[] = {
        {"cblas_sgemm", (void **)&blas.sgemm},
        {"cblas_dgemm", (void **)&blas.dgemm},
        {"openblas_get_corename", (void **)&blas.corename},
        {"openblas_get_config", (void **)&blas.config},
        {"openblas_get_parallel", (void **)&blas.parallel},
        {"openblas_set_num_threads", (void **)&blas.set_threads},
    };

    blas.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!blas.handle)
        return tern_err_set(err, TERN_FAILED, "cannot load OpenBLAS: %s. %s", dlerror(),
                            to_install);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!(*functions[i].to = dlsym(blas.handle, functions[i].name))) {
            close_it();
            return tern_err_set(err, TERN_FAILED, "%s has no %s: it is not OpenBLAS. %s", name,
                                functions[i].name, to_install);
        }
    return 0;
}

/* Take `name` if it is better than the library found before; its kind, or `best`.  The best kind
 * stays open. */
static int better(const char *name, int best)
{
    if (open_it(name, NULL) < 0)
        return best;
    int kind = blas.parallel();
    if (kind > best && strlen(name) < sizeof library) {
        snprintf(library, sizeof library, "%s", name);
        best = kind;
    }
    if (best != OPENMP)
        close_it();
    return best;
}

static void choose(void)
{
    int best = -1;

    for (size_t i = 0; i < sizeof names / sizeof *names && best < OPENMP; i++) {
        glob_t g;
        if (names[i][0] != '/') {
            best = better(names[i], best);
        } else if (glob(names[i], 0, NULL, &g) == 0) {
            for (size_t k = 0; k < g.gl_pathc && best < OPENMP; k++)
                best = better(g.gl_pathv[k], best);
            globfree(&g);
        }
    }
    if (best < 0)
        snprintf(library, sizeof library, "%s", names[1]);
}

static int load(struct tern_err *err)
{
    const char *named = tern_var("TERN_BLAS");

    if (!*library && named && strlen(named) >= sizeof library)
        return tern_err_set(err, TERN_USAGE, "TERN_BLAS: the name is too long");
    if (!*library && named)
        snprintf(library, sizeof library, "%s", named);
    if (!*library)
        choose();
    return blas.handle ? 0 : open_it(library, err);
}

/* Set the texts, and leave the threads to us. */
static void describe(void)
{
    const char *config = blas.config(); /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
    size_t word = strcspn(config, " "), words = word + strspn(config + word, " ");

    words += strcspn(config + words, " ");
    snprintf(blas_name, sizeof(blas_name), "%.*s", (int)words, config);
    snprintf(blas_core, sizeof(blas_core), "%s", blas.corename());
    one_at_a_time = blas.parallel() == SERIAL;
    tern_tensor_gemm_use(NULL);
    if (blas.parallel() == THREADS) /* of its own, which would multiply ours */
        blas.set_threads(1);
}

int tern_tensor_blas_reload(const char *core, struct tern_err *err)
{
    int rc;

    close_it();
    setenv(core_variable, core, 1);
    rc = load(err);
    unsetenv(core_variable);
    if (rc < 0)
        return -1;
    describe();
    if (strcasecmp(blas_core, core) != 0)
        return tern_err_set(err, TERN_FAILED, "OpenBLAS has no kernels for %s", core);
    return 0;
}

int tern_tensor_blas_load(char *why, size_t why_size, struct tern_err *err)
{
    const char *user = getenv(core_variable);
    enum tern_tensor_cpu cpu = tern_tensor_cpu();
    char first[sizeof(blas_core)];
    bool slow;

    if (user && !*user) {
        unsetenv(core_variable);
        user = NULL;
    }
    if (load(err) < 0)
        return -1;
    describe();
    slow = core_uses(blas_core) < cpu;
    if (user) {
        snprintf(why, why_size, " as %s says%s", core_variable,
                 slow ? " (unset it: this CPU can do better)" : "");
    } else if (slow) {
        snprintf(first, sizeof(first), "%s", blas_core);
        if (tern_tensor_blas_reload(wanted[cpu], NULL) == 0)
            snprintf(why, why_size, " (by itself it takes this CPU for a %s)", first);
        else if (!blas.handle)
            return tern_err_set(err, TERN_FAILED, "cannot load OpenBLAS a second time");
        else
            snprintf(why, why_size, " (slow: start with %s=%s)", core_variable, wanted[cpu]);
    }
    if (one_at_a_time) {
        size_t n = strlen(why);
        snprintf(why + n, why_size - n, ", a serial build: one thread at a time");
    }
    return 0;
}

const char *tern_tensor_blas_advice(char *ret_taken_for, size_t size)
{
    enum tern_tensor_cpu cpu = tern_tensor_cpu();
    const char *core = NULL;
    bool loaded = blas.handle != NULL;

    if (getenv(core_variable) || tern_tensor_cpu_well_known() || (!loaded && load(NULL) < 0))
        return NULL;
    if (core_uses(blas.corename()) < cpu) {
        snprintf(ret_taken_for, size, "%s", blas.corename());
        core = wanted[cpu];
    }
    if (!loaded)
        close_it();
    return core;
}

uint64_t tern_tensor_room_bytes(int threads, bool half)
{
    enum { OWN_BYTES = 2 << 20, BLAS_BYTES = 1 << 20 }; /* ours lie in one huge page */
    const char *user = getenv(core_variable);
    enum tern_tensor_cpu cpu = tern_tensor_cpu();
    bool ours = sizeof(tern_real) == sizeof(float) && cpu != TERN_TENSOR_CPU_PLAIN &&
                (!user || !*user || core_uses(user) == cpu);
    if (blas.handle) /* started */
        ours = own != NULL;
    bool theirs = !ours || cpu != TERN_TENSOR_CPU_AVX512;

    ours = ours || (half && strcmp(tern_tensor_bf16_unit_expected(), "fp32") != 0);
    return (uint64_t)threads * ((ours ? OWN_BYTES : 0) + (theirs ? BLAS_BYTES : 0) +
                                (theirs && half ? PIECE * PIECE * sizeof(tern_real) : 0));
}

/* Packing must be small beside the product. */
static bool pays(int M, int N, int K)
{
    return M >= OWN_MIN && N >= OWN_MIN && K > 0;
}

/* Our own kernel, or NULL for OpenBLAS.  The whole product's shape decides, so that the number of
 * threads does not change it.  On AVX2 OpenBLAS is as fast except where its packing and edges
 * weigh, and faster with a transposed A. */
static const struct tern_tensor_products *kernel_for(const struct tern_tensor_gemm *g)
{
    if (g->rounded && tern_tensor_pairs) /* of any size: it rounds, too */
        return tern_tensor_pairs;
    return own_all || (!g->ta && (g->N <= NARROW || g->K <= NARROW)) ? own : NULL;
}

int tern_tensor_gemm_use(const char *name)
{
    static const struct tern_tensor_products *const all[] = {
        [TERN_TENSOR_CPU_PLAIN] = NULL,
#ifdef __x86_64__
        [TERN_TENSOR_CPU_AVX2] = &tern_tensor_products_avx2,
        [TERN_TENSOR_CPU_AVX512] = &tern_tensor_products_avx512,
#endif
    };
    enum tern_tensor_cpu cpu = tern_tensor_cpu();
    bool can = sizeof(tern_real) == sizeof(float);

    own = NULL;
    own_all = name || one_at_a_time || cpu == TERN_TENSOR_CPU_AVX512;
    if (!name && can && core_uses(blas_core) == cpu)
        own = all[cpu];
    for (int i = 0; name && can && i <= (int)cpu; i++)
        if (all[i] && strcmp(name, all[i]->name) == 0)
            own = all[i];
    return name && !own && strcmp(name, "openblas") != 0 ? -1 : 0;
}

static void by_blas(const struct tern_tensor_gemm *g, const void *A, const void *B, void *C)
{
    int opa = g->ta ? TRANS : NO_TRANS, opb = g->tb ? TRANS : NO_TRANS;

    if (one_at_a_time)
        pthread_mutex_lock(&turn);
    if (sizeof(tern_real) == sizeof(float))
        blas.sgemm(ROW_MAJOR, opa, opb, g->M, g->N, g->K, (float)g->alpha, A, g->lda, B, g->ldb,
                   (float)g->beta, C, g->ldc);
    else
        blas.dgemm(ROW_MAJOR, opa, opb, g->M, g->N, g->K, (double)g->alpha, A, g->lda, B, g->ldb,
                   (double)g->beta, C, g->ldc);
    if (one_at_a_time)
        pthread_mutex_unlock(&turn);
}

/* This thread's room for a widened piece of B, allocated once; NULL: no memory.  It goes with the
 * thread: the key is for that alone. */
static pthread_key_t with_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&with_thread, free);
}

static tern_real *room(void)
{
    static __thread tern_real *piece;
    void *p = NULL;

    if (!piece && posix_memalign(&p, 64, (size_t)PIECE * PIECE * sizeof(tern_real)) == 0) {
        pthread_once(&once, make_key);
        pthread_setspecific(with_thread, p);
        piece = p;
    }
    return piece;
}

/* OpenBLAS knows one type: op(B) is widened a square of PIECE at a time. */
static void by_blas_half(const struct tern_tensor_gemm *g, const tern_real *A, const uint16_t *B,
                         tern_real *C)
{
    tern_real small[SMALL_PIECE * SMALL_PIECE], *piece = room();
    int side = piece ? PIECE : SMALL_PIECE;
    size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb;
    struct tern_tensor_gemm part = *g;

    piece = piece ? piece : small;
    for (int j = 0; j < g->N; j += side)
        for (int k = 0; k == 0 || k < g->K; k += side) {
            part.N = g->N - j < side ? g->N - j : side;
            part.K = g->K - k < side ? g->K - k : side;
            int rows = g->tb ? part.N : part.K, columns = g->tb ? part.K : part.N;
            const uint16_t *b =
                B + (g->tb ? (size_t)j * ldb + (size_t)k : (size_t)k * ldb + (size_t)j);

            for (int r = 0; r < rows; r++)
                tern_tensor_k->from_bf16(piece + (size_t)r * (size_t)columns, b + (size_t)r * ldb,
                                         (size_t)columns);
            part.ldb = columns > 0 ? columns : 1;
            part.beta = k ? 1 : g->beta;
            by_blas(&part, A + (g->ta ? (size_t)k * lda : (size_t)k), piece, C + j);
        }
}

static void product(const struct tern_tensor_products *by, const struct tern_tensor_gemm *g,
                    const tern_real *A, struct tern_tensor_matrix B, tern_real *C)
{
    bool any = g->M > 0 && g->N > 0 && g->K > 0;

    if (by && (by == tern_tensor_pairs ? any : pays(g->M, g->N, g->K)) && by->ready())
        by->gemm(g, (const float *)(const void *)A, B, (float *)(void *)C);
    else if (B.half)
        by_blas_half(g, A, B.at, C);
    else
        by_blas(g, A, B.at, C);
}

/* Where thread p of P begins, at a multiple of 16: the width of the micro-kernels. */
static int cut(int n, int p, int P)
{
    return p == P ? n : (int)((int64_t)n * p / P / 16 * 16);
}

/* The share of thread p of P: rows of C, or columns, whichever are more. */
static void share(const struct tern_tensor_products *by, struct tern_tensor_gemm g,
                  const tern_real *A, struct tern_tensor_matrix B, tern_real *C, int p, int P)
{
    if (g.M >= g.N) {
        size_t m = (size_t)cut(g.M, p, P);

        g.M = cut(g.M, p + 1, P) - (int)m;
        if (g.M > 0)
            product(by, &g, A + (g.ta ? m : m * (size_t)g.lda), B, C + m * (size_t)g.ldc);
    } else {
        size_t n = (size_t)cut(g.N, p, P);

        g.N = cut(g.N, p + 1, P) - (int)n;
        if (g.N > 0)
            product(by, &g, A, tern_tensor_from(B, g.tb ? n * (size_t)g.ldb : n), C + n);
    }
}

/* The distance between rows of `columns` where a caller gives none. */
static int distance(int given, int columns)
{
    return given ? given : columns > 0 ? columns : 1;
}

/* Among the threads. */
static void gemm(const struct tern_tensor_gemm *given, const tern_real *A,
                 struct tern_tensor_matrix B, tern_real *C)
{
    const struct tern_tensor_products *by = kernel_for(given);
    struct tern_tensor_gemm g = *given;

    g.lda = distance(g.lda, g.ta ? g.M : g.K);
    g.ldb = distance(g.ldb, g.tb ? g.K : g.N);
    g.ldc = distance(g.ldc, g.N);
    if (omp_in_parallel()) {
        product(by, &g, A, B, C);
        return;
    }
#pragma omp parallel
    share(by, g, A, B, C, omp_get_thread_num(), omp_get_num_threads());
}

void tern_tensor_gemm(const struct tern_tensor_gemm *g, const tern_real *A, const tern_real *B,
                      tern_real *C)
{
    gemm(g, A, (struct tern_tensor_matrix){B, false}, C);
}

void tern_tensor_gemm_bf16(const struct tern_tensor_gemm *g, const tern_real *A, const uint16_t *B,
                           tern_real *C)
{
    gemm(g, A, (struct tern_tensor_matrix){B, true}, C);
}

void tern_tensor_gemm_near(const struct tern_tensor_gemm *g, const tern_real *A, const tern_real *B,
                           tern_real *C)
{
    if (own)
        own->near(g, (const float *)(const void *)A, (const float *)(const void *)B,
                  (float *)(void *)C);
    else
        by_blas(g, A, B, C);
}

void tern_tensor_turn(tern_real *to, int ld_to, const tern_real *from, int ld, int rows,
                      int columns)
{
    if (own) {
        own->turn((float *)(void *)to, ld_to, (const float *)(const void *)from, ld, rows, columns);
        return;
    }
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < columns; k++)
            to[(size_t)k * (size_t)ld_to + (size_t)i] = from[(size_t)i * (size_t)ld + (size_t)k];
}
