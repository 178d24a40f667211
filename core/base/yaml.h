/* Strict YAML (libyaml events): one document of maps, lists and plain text, with line numbers.
 *
 * Refused, with file:line: duplicate keys, anchors, aliases, tags, keys that are no text, several
 * documents. Refused, too: more than 1 MiB, 32 levels or 100,000 nodes (a cluster of 50 queues with
 * 50 resources each needs a tenth of that).
 *
 * A reader gets the keys it knows and then calls tern_yaml_no_others().  That names the first
 * unread key and the nearest known one: a typo never passes silently.
 */
#ifndef TERN_BASE_YAML_H
#define TERN_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

enum tern_yaml_kind { TERN_YAML_TEXT, TERN_YAML_MAP, TERN_YAML_LIST };

struct tern_yaml;      /* a document */
struct tern_yaml_node; /* a value in it; lives as long as the document */

struct tern_yaml *tern_yaml_load(const char *path, struct tern_err *err);
/* `name` stands for the path in messages. */
struct tern_yaml *tern_yaml_parse(const char *text, size_t len, const char *name,
                                  struct tern_err *err);
void tern_yaml_free(struct tern_yaml *doc);

/* The same for files of other programs, as PyYAML's safe loader reads YAML 1.1.  Anchors, aliases,
 * merge keys (<<) and the tags of YAML's own types are taken.  An alias is a copy of its value, and
 * counts as that within the limits above.  A value's line is that of its alias; of members of an
 * aliased map, their own.  Keys that are given twice (the first counts) and other tags do not end
 * the reading; they are remarks. */
struct tern_yaml *tern_yaml_load_1_1(const char *path, struct tern_err *err);

enum tern_yaml_remark_kind { TERN_YAML_TAG, TERN_YAML_TWICE, TERN_YAML_MERGE };

struct tern_yaml_remark {
    enum tern_yaml_remark_kind kind;
    int line;
    char *text; /* "!Sub"; "'Tags' is given twice (first on line 3)"; "<<" */
};
/* Of such a file: *n remarks, at most 100, in file order. */
const struct tern_yaml_remark *tern_yaml_remarks(const struct tern_yaml *doc, size_t *n);

/* The root; an empty document is an empty map. */
struct tern_yaml_node *tern_yaml_root(struct tern_yaml *doc);
const char *tern_yaml_path(const struct tern_yaml *doc);

enum tern_yaml_kind tern_yaml_kind(const struct tern_yaml_node *n);
int tern_yaml_line(const struct tern_yaml_node *n);
/* The path of the document that has it, as given. */
const char *tern_yaml_file(const struct tern_yaml_node *n);
/* "batch.micro" or "data.train[1].path": how the value is reached. */
const char *tern_yaml_where(const struct tern_yaml_node *n);
/* NULL unless text. */
const char *tern_yaml_text(const struct tern_yaml_node *n);
/* Text without quotes (and without the tag !!str): `4` and not `"4"`. */
bool tern_yaml_is_plain(const struct tern_yaml_node *n);
/* Unquoted `null`, `~` or nothing at all. */
bool tern_yaml_is_null(const struct tern_yaml_node *n);

/* Members of a list, or values of a map in file order. */
size_t tern_yaml_count(const struct tern_yaml_node *n);
struct tern_yaml_node *tern_yaml_at(const struct tern_yaml_node *n, size_t i);
/* The key of a map's i-th value, marked as known. */
const char *tern_yaml_key(const struct tern_yaml_node *map, size_t i);

/* The value of `key`, marked as known; NULL when it is absent or `map` is NULL. */
struct tern_yaml_node *tern_yaml_get(const struct tern_yaml_node *map, const char *key);

/* Put another text, as if in quotes, into a text node. */
void tern_yaml_set_text(struct tern_yaml_node *n, const char *text);

/* Fail with "file:line: <key>: <text>"; returns -1. */
int tern_yaml_fail(const struct tern_yaml_node *n, struct tern_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Typed reads.  `n` NULL leaves *out as it is (the default) and succeeds. */
int tern_yaml_read_text(const struct tern_yaml_node *n, char **out, struct tern_err *err);
int tern_yaml_read_bool(const struct tern_yaml_node *n, bool *out, struct tern_err *err);
int tern_yaml_read_int(const struct tern_yaml_node *n, int64_t lo, int64_t hi, int64_t *out,
                       struct tern_err *err);
int tern_yaml_read_real(const struct tern_yaml_node *n, double lo, double hi, double *out,
                        struct tern_err *err);
/* One of a NULL-ended list of words; *out is its index. */
int tern_yaml_read_word(const struct tern_yaml_node *n, const char *const *words, int *out,
                        struct tern_err *err);
int tern_yaml_expect(const struct tern_yaml_node *n, enum tern_yaml_kind kind,
                     struct tern_err *err);

/* Refuse the first key of `map` (and of maps below it) that was never read. */
int tern_yaml_no_others(const struct tern_yaml_node *map, struct tern_err *err);

/* Set `a.b.c` to the YAML text `value` (`--set`): replaces or adds; makes maps on the way; null
 * and ~ take the key away.  Its line is reported as "--set". */
int tern_yaml_override(struct tern_yaml *doc, const char *dotted, const char *value,
                       struct tern_err *err);

/* A value as YAML on one line.  A document as YAML that reads back as the same values, with each
 * key of the root on one line where that fits `columns`.  Comments are not kept. */
void tern_yaml_write(struct tern_buf *to, const struct tern_yaml_node *n);
void tern_yaml_write_document(struct tern_buf *to, const struct tern_yaml *doc, size_t columns);
/* Are two values equal, with texts quoted alike? */
bool tern_yaml_same(const struct tern_yaml_node *a, const struct tern_yaml_node *b);

/* "KEY='text'" for tern_yaml_override or --set, whatever is in `text`; malloc'ed. */
char *tern_yaml_setting(const char *key, const char *text);

#endif
