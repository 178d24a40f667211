/* manifest.json: a JSON object on one line, but for its last member:
 *
 *     {"format":"tern checkpoint","version":1,"step":1500,"written":"2026-...","attempt":3,
 *      "meta":{...},
 *      "files":[{"name":"config.json","bytes":640,"sha256":"..."}],
 *      "shards":[{"name":"shard-00000-of-00002.safetensors","bytes":...,"header_bytes":...,
 *                 "header_sha256":"..."}],
 *      "arrays":{"model/...":{"dtype":"F32","shape":[4096,64],"slices":[
 *                 {"shard":0,"offset":4264,"start":[0,0],"shape":[2048,64],"sha256":"..."}]}}
 *     ,"digest":"<64 hex digits>"}
 *
 * The digest is the SHA-256 of every byte before the last line break.  So `head -n -1 manifest.json
 * | head -c -1 | sha256sum` agrees with it.  Every byte of a shard is covered by the digest of its
 * header or of a slice.  Do not rename a key; a version is a whole number that a reader refuses
 * when it is higher than its own.
 */
#ifndef TERN_CKPT_MANIFEST_H
#define TERN_CKPT_MANIFEST_H

#include "core/ckpt/table.h"

/* The bytes of the file for `body` (which has no "digest"), malloc'ed; `digest` is set. */
int tern_ckpt_manifest_seal(const json_t *body, char **text, size_t *len,
                            char digest[TERN_SHA256_HEX], struct tern_err *err);

/* Read `c->path`/manifest.json and fill `c`: digest, sense, bounds and tiling are checked; files
 * are not looked at.  On error `c` holds what tern_ckpt_table_clear() frees. */
int tern_ckpt_manifest_read(struct tern_ckpt *c, struct tern_err *err);

/* The same of `text`, the bytes of the manifest `path`. */
int tern_ckpt_manifest_parse(struct tern_ckpt *c, const char *path, const char *text, size_t len,
                             struct tern_err *err);

/* A plain file's name that cannot lead out of the folder. */
bool tern_ckpt_name_is_plain(const char *name);

#endif
