/* Findings of a layout.  One run of the lint names every one. */
#ifndef TERN_LAYOUT_NOTES_H
#define TERN_LAYOUT_NOTES_H

#include "core/base/yaml.h"
#include "core/layout/layout.h"

/* Findings kept of one layout; a reader needs no more.  All errors are counted. */
enum { TERN_LAYOUT_MAX_NOTES = 1000 };

/* Note a finding at a node: what is wrong, and what to do.  `id` is a word of its kind, for
 * programs.  The same finding is never noted twice. */
void tern_layout_error(struct tern_layout *l, const char *id, const struct tern_yaml_node *n,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void tern_layout_warn(struct tern_layout *l, const char *id, const struct tern_yaml_node *n,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same at a line of `file`; `where` is how the value is reached, "" for none. */
void tern_layout_note(struct tern_layout *l, bool error, const char *id, const char *file, int line,
                      const char *where, const char *text);

/* All of them go. */
void tern_layout_notes_free(struct tern_layout *l);
/* Into the order of lines. */
void tern_layout_sort_notes(struct tern_layout *l);

/* The parts of reading a layout whose mistakes are noted. */
void tern_layout_read_queues(struct tern_layout *l, const struct tern_yaml_node *queues);
/* The file cluster.tern.yaml beside cluster.yaml, if there is one. */
int tern_layout_read_sidecar(struct tern_layout *l, struct tern_err *err);
/* CustomSlurmSettings: a map, or a list of maps. */
void tern_layout_read_settings(const struct tern_yaml_node *n, struct tern_layout_settings *out);

#endif
