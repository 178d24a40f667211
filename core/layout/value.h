/* Values of a layout, as ParallelCluster's reader takes them: PyYAML decides the type of a plain
 * scalar by YAML 1.1 (`yes` is true, 010 is 8, 1:30 is 90). Then marshmallow turns that into the
 * type of the key (the text "4" into 4, 1 into true).
 */
#ifndef TERN_LAYOUT_VALUE_H
#define TERN_LAYOUT_VALUE_H

#include "core/base/yaml.h"

enum tern_layout_kind {
    TERN_LAYOUT_NULL,
    TERN_LAYOUT_BOOL,
    TERN_LAYOUT_INT,
    TERN_LAYOUT_REAL,
    TERN_LAYOUT_TEXT,
    TERN_LAYOUT_DATE, /* 2026-01-31, which no key takes */
    TERN_LAYOUT_EQUAL /* a lone `=`, which PyYAML cannot read */
};

/* The type that YAML 1.1 gives the text node `n`. */
enum tern_layout_kind tern_layout_kind(const struct tern_yaml_node *n);
/* "a number", "true or false": what a user would call it; of maps and lists, too. */
const char *tern_layout_kind_name(const struct tern_yaml_node *n);

/* Reads by a key's type: false, and *ret untouched, where the value is none.  `n` NULL is none. */
bool tern_layout_as_bool(const struct tern_yaml_node *n, bool *ret_value);
/* *ret_exact: false where digits after the point are cut off (4.7 is 4).  Values beyond int64_t
 * are its ends. */
bool tern_layout_as_int(const struct tern_yaml_node *n, int64_t *ret_value, bool *ret_exact);
bool tern_layout_as_real(const struct tern_yaml_node *n, double *ret_value);
/* The text, or NULL. */
const char *tern_layout_as_text(const struct tern_yaml_node *n);

/* Does the extended regular expression hold somewhere in `text`? */
bool tern_layout_matches(const char *pattern, const char *text);

/* Of a map, without a word about what is wrong: the schema has reported that.  NULL or `other`
 * where the key is absent or has a value of another type. */
const struct tern_yaml_node *tern_layout_map(const struct tern_yaml_node *map, const char *key);
const struct tern_yaml_node *tern_layout_list(const struct tern_yaml_node *map, const char *key);
const char *tern_layout_text(const struct tern_yaml_node *map, const char *key);
bool tern_layout_bool(const struct tern_yaml_node *map, const char *key, bool other);
int64_t tern_layout_int(const struct tern_yaml_node *map, const char *key, int64_t other);
/* Members of a list, keys of a map; 0 of anything else. */
size_t tern_layout_count(const struct tern_yaml_node *list);
size_t tern_layout_count_keys(const struct tern_yaml_node *map);

#endif
