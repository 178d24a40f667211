/* Memory that holds the slices of a save while their arrays change. */
#include "core/ckpt/save.h"

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct tern_ckpt_staging {
    char *at;
    uint64_t bytes;
};

static uint64_t data_bytes(const struct tern_ckpt_array *a)
{
    uint64_t bytes = 0;

    tern_ckpt_shape_bytes(a->shape, a->ndim, a->type, &bytes);
    return bytes;
}

uint64_t tern_ckpt_staging_bytes(const struct tern_ckpt_array *arrays, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += arrays[i].owner && !arrays[i].constant ? data_bytes(&arrays[i]) : 0;
    return sum;
}

struct tern_ckpt_staging *tern_ckpt_staging_new(uint64_t bytes, struct tern_err *err)
{
    struct tern_ckpt_staging *staging = tern_alloc(1, sizeof *staging, "staging", err);
    char text[32];

    if (!staging)
        return NULL;
    staging->bytes = bytes;
    if (bytes == 0)
        return staging;
    staging->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (staging->at != MAP_FAILED)
        return staging;
    tern_err_sys(err, "no memory for %s of a save's staging",
                 tern_str_bytes(text, sizeof text, bytes));
    free(staging);
    return NULL;
}

void tern_ckpt_staging_free(struct tern_ckpt_staging *staging)
{
    if (staging && staging->bytes)
        munmap(staging->at, staging->bytes);
    free(staging);
}

int tern_ckpt_save_stage(struct tern_ckpt_saving *s, struct tern_ckpt_staging *staging,
                         struct tern_err *err)
{
    const int64_t from = tern_clock_boot_ns();
    struct tern_ckpt_array *arrays = (struct tern_ckpt_array *)s->o.arrays;
    const uint64_t need = tern_ckpt_staging_bytes(arrays, s->o.n);
    uint64_t at = 0;

    if (need > staging->bytes)
        return tern_err_set(err, TERN_FAILED, "a save of %llu bytes, with a staging of %llu",
                            (unsigned long long)need, (unsigned long long)staging->bytes);
    for (size_t i = 0; i < s->o.n; i++) {
        const uint64_t bytes = data_bytes(&arrays[i]);
        if (!arrays[i].owner || arrays[i].constant || bytes == 0)
            continue;
        memcpy(staging->at + at, arrays[i].data, bytes);
        arrays[i].data = staging->at + at;
        at += bytes;
    }
    tern_assert_cmp(at, ==, need);
    s->mine.copy_ns = tern_clock_boot_ns() - from;
    return 0;
}
