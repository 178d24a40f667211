/* Event files of TensorBoard, written from a run's records.
 *
 *     DIR/NAME-ID/events.out.tfevents.BEGIN.HOST.PID.ATTEMPT    one file an attempt
 *     DIR/NAME-ID/.tern-position                                how far they are written
 *
 * NAME is the run's, ID the end of its id.  A tag is a metric's name, or
 * held_out/SET/perplexity_token and held_out/SET/perplexity_byte.  An attempt that went on from a
 * checkpoint begins with a session START at the step behind it: TensorBoard then hides what earlier
 * attempts have from there on, as the ledger does.  Values are float32, as in all event files.
 *
 * A record of a file, all numbers little-endian (TFRecord):
 *
 *     u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data
 *
 * The mask is a turn right by 15 bits and + 0xa282ead8.  The data is an Event (tensorboard's
 * compat/proto/event.proto): 1 wall time, 2 step, 3 file version, 5 Summary{1 Value{1 tag, 2
 * float}}, 7 SessionLog{1 status}.
 */
#ifndef TERN_TENSORBOARD_TENSORBOARD_H
#define TERN_TENSORBOARD_TENSORBOARD_H

#include "core/ledger/ledger.h"

/* Write what `run` (a view of one run) has beyond the files under `dir`, which is made where it is
 * not there.  New values are appended, those of earlier steps too.  The folder and the files keep
 * the names that they began with.  A process that is killed leaves files which the next call
 * continues.  Two processes do not write one run: the second returns 0 at once. */
int tern_tensorboard_update(struct tern_ledger *run, const char *dir, struct tern_err *err);

/* Write the run's folder under `dir`, whole or not at all.  TERN_USAGE where it is there already.
 * *ret_folder (malloc'ed) is its path, *ret_values how many values it has. */
int tern_tensorboard_export(struct tern_ledger *run, const char *dir, char **ret_folder,
                            uint64_t *ret_values, struct tern_err *err);

#endif
