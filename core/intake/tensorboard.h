/* Reads values from TensorBoard's event files while a workload's trainer writes them.
 *
 * A file is a row of records: u64 length, u32 masked CRC-32C of it, the bytes, u32 masked CRC-32C
 * of them.  It is TFRecord's form: little-endian; mask: rotate right by 15, add 0xa282ead8.  The
 * bytes are an Event in protobuf's encoding: 1 wall time (double), 2 step, 5 Summary{1 Value{1 tag,
 * 2 float, 8 tensor}}, 7 SessionLog{1 status}.  The source is tensorboard/compat/proto/event.proto
 * and summary.proto.
 */
#ifndef TERN_INTAKE_TENSORBOARD_H
#define TERN_INTAKE_TENSORBOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_intake_tb_value {
    double wall_s; /* seconds since 1970 */
    int64_t step;
    bool restart;  /* no value: later events begin at this step again (SessionLog START; torch's
                      SummaryWriter(purge_step=N)) */
    char tag[201]; /* control characters and spaces as '_' */
    double value;
};
typedef void tern_intake_tb_take(void *self, const struct tern_intake_tb_value *v);

/* The records at the beginning of `data`: each scalar and restart goes to `take`.  *used: bytes of
 * whole records, which the next call leaves out.  *bad counts records whose bytes are damaged; they
 * are stepped over.  -1: the framing is damaged, and no later record can be found. */
int tern_intake_tb_parse(const char *data, size_t len, tern_intake_tb_take *take, void *self,
                         size_t *used, uint64_t *bad);

/* The event files under a folder, which need not exist yet, that this task writes.  It is known by
 * the process in a file's name, or because one of its processes has the file open (writers.h).  A
 * closed file of this node that tells no process is taken, too.  When none is known to be its own
 * at the end of the trainer, the files of a single writer are taken. */
struct tern_intake_tb;
/* Events before `since_s` are passed over: earlier attempts have recorded them. */
struct tern_intake_tb *tern_intake_tb_open(const char *dir, double since_s);
/* Take the records added since the last look; a value's tag is its metric's name (tags.h).  `end`:
 * the trainer has ended. */
void tern_intake_tb_look(struct tern_intake_tb *t, tern_intake_tb_take *take, void *self, bool end);
/* Are files left out since their writer is not known? */
bool tern_intake_tb_is_unsure(const struct tern_intake_tb *t);
/* The folder. */
const char *tern_intake_tb_dir(const struct tern_intake_tb *t);
void tern_intake_tb_close(struct tern_intake_tb *t);

#endif
