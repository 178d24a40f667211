/* The part of loops.h that multiplies few rows by a matrix, and sums rows by weights. It belongs to
 * that file, and alone it is nothing. */
#ifdef KERNELS
/* LANES elements of bf16, widened. */
typedef uint16_t vec_u16 __attribute__((vector_size(2 * REGISTER / sizeof(tern_real))));
typedef uint32_t vec_u32 __attribute__((vector_size(4 * REGISTER / sizeof(tern_real))));
typedef float vec_narrow __attribute__((vector_size(4 * REGISTER / sizeof(tern_real))));

static inline vec load_bf16(const uint16_t *x, int n)
{
    vec_u16 half = {0};

    memcpy(&half, x, (size_t)n * sizeof(*x));
    return __builtin_convertvector((vec_narrow)(__builtin_convertvector(half, vec_u32) << 16), vec);
}

/* Products of ROWS rows with x, read once for all of them.  A row's sum runs in ADDENDS lanes, in
 * blocks of BLOCK elements, whatever ROWS is. */
#define DOTS(NAME, TYPE, LOAD, LOAD_PART)                                                          \
    __attribute__((always_inline)) static inline void NAME(tern_real *y, const tern_real *x,       \
                                                           const TYPE *w, size_t ld,               \
                                                           const int rows, int n, bool add_)       \
    {                                                                                              \
        vec total[4][PARTS] = {{{0}}};                                                             \
        for (int start = 0; start < n; start += BLOCK) {                                           \
            int end = n - start > BLOCK ? start + BLOCK : n, i = start;                            \
            vec sum[4][PARTS] = {{{0}}};                                                           \
            for (; i + ADDENDS <= end; i += ADDENDS)                                               \
                for (int p = 0; p < (int)PARTS; p++) {                                             \
                    int at = i + p * (int)LANES;                                                   \
                    vec xv = load(x + at);                                                         \
                    for (int r = 0; r < rows; r++)                                                 \
                        sum[r][p] += LOAD(w + (size_t)r * ld + at) * xv;                           \
                }                                                                                  \
            for (int p = 0; p < (int)PARTS && i < end; p++, i += LANES) {                          \
                int left = end - i < (int)LANES ? end - i : (int)LANES;                            \
                vec xv = load_part(x + i, left);                                                   \
                for (int r = 0; r < rows; r++)                                                     \
                    sum[r][p] += LOAD_PART(w + (size_t)r * ld + i, left) * xv;                     \
            }                                                                                      \
            for (int r = 0; r < rows; r++)                                                         \
                for (int p = 0; p < (int)PARTS; p++)                                               \
                    total[r][p] += sum[r][p];                                                      \
        }                                                                                          \
        for (int r = 0; r < rows; r++) {                                                           \
            tern_real sums[ADDENDS];                                                               \
            for (int p = 0; p < (int)PARTS; p++)                                                   \
                store(sums + p * (int)LANES, total[r][p]);                                         \
            y[r] = (add_ ? y[r] : 0) + add_lanes(sums);                                            \
        }                                                                                          \
    }
#define LOAD_BF16(x) load_bf16(x, LANES)
DOTS(dots_real, tern_real, load, load_part)
DOTS(dots_half, uint16_t, LOAD_BF16, load_bf16)

static void dots(tern_real *y, const tern_real *x, const tern_real *w, size_t ld, int rows, int n,
                 bool add_)
{
    for (; rows >= 4; rows -= 4, y += 4, w += 4 * ld)
        dots_real(y, x, w, ld, 4, n, add_);
    for (; rows > 0; rows--, y++, w += ld)
        dots_real(y, x, w, ld, 1, n, add_);
}

static void dots_bf16(tern_real *y, const tern_real *x, const uint16_t *w, size_t ld, int rows,
                      int n, bool add_)
{
    for (; rows >= 4; rows -= 4, y += 4, w += 4 * ld)
        dots_half(y, x, w, ld, 4, n, add_);
    for (; rows > 0; rows--, y++, w += ld)
        dots_half(y, x, w, ld, 1, n, add_);
}

/* Columns in the registers, rows in order. */
static void mix(tern_real *y, const tern_real *x, const tern_real *by, int rows, int n)
{
    int c = 0;

    for (; c + ADDENDS <= n; c += ADDENDS) {
        vec sum[PARTS] = {{0}};

        for (int r = 0; r < rows; r++)
            for (int p = 0; p < (int)PARTS; p++)
                sum[p] += load(x + (size_t)r * (size_t)n + c + p * (int)LANES) * splat(by[r]);
        for (int p = 0; p < (int)PARTS; p++)
            store(y + c + p * (int)LANES, sum[p]);
    }
    for (; c < n; c++) {
        y[c] = 0;
        for (int r = 0; r < rows; r++)
            y[c] += x[(size_t)r * (size_t)n + (size_t)c] * by[r];
    }
}
#endif
