#include "core/convert/shards.h"

#include "core/base/str.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

static const unsigned is_open = UINT_MAX; /* in the file that is being filled */

/* The file being filled gets its number. */
static void close_file(unsigned *shard, size_t first, size_t end, unsigned number)
{
    for (size_t i = first; i < end; i++)
        if (shard[i] == is_open)
            shard[i] = number;
}

unsigned tern_convert_deal_shards(const uint64_t *bytes, size_t n, uint64_t max_bytes,
                                  unsigned *shard)
{
    uint64_t filled = 0;
    unsigned files = 0;
    size_t first = 0; /* of the file being filled */
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        if (bytes[i] > max_bytes) {
            shard[i] = files++;
            continue;
        }
        if (any && bytes[i] > max_bytes - filled) {
            close_file(shard, first, i, files++);
            any = false;
        }
        if (!any) {
            first = i;
            filled = 0;
        }
        shard[i] = is_open;
        filled += bytes[i];
        any = true;
    }
    if (any)
        close_file(shard, first, n, files++);
    return files ? files : 1;
}

int tern_convert_sort_shards(struct tern_ckpt_info *tensors, unsigned *shard, size_t n,
                             unsigned n_shards, struct tern_err *err)
{
    struct tern_ckpt_info *sorted = tern_alloc(n, sizeof *sorted, "list of tensors", err);
    size_t *place = tern_alloc((size_t)n_shards + 1, sizeof *place, "list of files", err);

    if (sorted && place) {
        for (size_t i = 0; i < n; i++)
            place[shard[i] + 1]++;
        for (unsigned f = 0; f < n_shards; f++)
            place[f + 1] += place[f];
        for (size_t i = 0; i < n; i++)
            sorted[place[shard[i]]++] = tensors[i];
        /* Each place is now where the next file begins. */
        for (size_t i = 0, f = 0; i < n; i++) {
            while (i == place[f])
                f++;
            tensors[i] = sorted[i];
            shard[i] = (unsigned)f;
        }
    }
    const int rc = sorted && place ? 0 : -1;
    free(sorted);
    free(place);
    return rc;
}
