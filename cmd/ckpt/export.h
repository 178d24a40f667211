/* tern ckpt export and merge. */
#ifndef TERN_CMD_CKPT_EXPORT_H
#define TERN_CMD_CKPT_EXPORT_H

#include "cmd/cmd.h"

#include "core/convert/convert.h"

extern const struct tern_cmd ckpt_export_cmd, ckpt_merge_cmd;

/* Values of --dtype and --max-shard-size.  "5GB" and "1.5GB" are decimal, as on the Hub; "5G" and
 * "5GiB" are binary, as everywhere in tern. */
#define CKPT_MAX_SHARD "5GB"
int ckpt_parse_dtype(const char *word, enum tern_convert_dtype *ret_dtype, struct tern_err *err);
int ckpt_parse_max_shard(const char *text, uint64_t *ret_bytes, struct tern_err *err);

#endif
