/* A build's part of the line of progress. */
#include "cmd/data/build.h"

#include "core/base/progress.h"

int data_show(void *unused, uint64_t done, uint64_t all, const struct data_sums *s,
              struct tern_err *err)
{
    (void)unused;
    (void)err;
    /* The share is that of bytes as stored, which may be compressed; the rate is of text. */
    tern_progress_set(s->bytes,
                      done ? (uint64_t)((double)all * (double)s->bytes / (double)done) : 0);
    return 0;
}
