/* Reading a layout: typed reads that note a mistake and go on, so that one run of the lint
 * names every mistake. */
#ifndef TERN_LAYOUT_NOTES_H
#define TERN_LAYOUT_NOTES_H

#include "core/base/yaml.h"
#include "core/layout/layout.h"

/* Notes kept of one layout; a reader needs no more. */
enum { TERN_LAYOUT_MAX_NOTES = 200 };

/* "file:line: where: text" for a node; the same text is never noted twice. */
void tern_layout_error(struct tern_layout *l, const struct tern_yaml_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void tern_layout_warn(struct tern_layout *l, const struct tern_yaml_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* An error that a tern_yaml_* call wrote. */
void tern_layout_note(struct tern_layout *l, const struct tern_err *err);

/* The value of `key`; absent and `required` is an error.  NULL when absent. */
struct tern_yaml_node *tern_layout_get(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, bool required);
/* The same, of the given kind; NULL also when it is another. */
struct tern_yaml_node *tern_layout_map(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, bool required);
struct tern_yaml_node *tern_layout_list(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool required);
/* The value node read, or NULL when it is absent or wrong; *out then stays. */
struct tern_yaml_node *tern_layout_text(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool required, char **out);
struct tern_yaml_node *tern_layout_bool(struct tern_layout *l, const struct tern_yaml_node *map,
                                        const char *key, bool *out);
struct tern_yaml_node *tern_layout_int(struct tern_layout *l, const struct tern_yaml_node *map,
                                       const char *key, int64_t lo, int64_t hi, int64_t *out);

/* Mark the NULL-ended `keys` of `map` and all below them as known: what the real schema has and
 * tern does not use. */
void tern_layout_accept(const struct tern_yaml_node *map, const char *const *keys);
/* Note the unknown keys of `map` and below. */
void tern_layout_no_others(struct tern_layout *l, const struct tern_yaml_node *map);

/* The parts. */
void tern_layout_read_queues(struct tern_layout *l, const struct tern_yaml_node *queues);
/* `denied`: keys (lower case, NULL-ended) that ParallelCluster writes itself and refuses. */
void tern_layout_read_settings(struct tern_layout *l, const struct tern_yaml_node *n,
                               const char *const *denied, struct tern_layout_settings *out);

#endif
