/* Pieces of the room: lines of Slurm's files, and the comparison. */
#ifndef TERN_APPLY_PARTS_H
#define TERN_APPLY_PARTS_H

#include "core/apply/apply.h"

enum { TERN_APPLY_MAX_FILE = 16 << 20 };

/* The next line at *at without its comment, lines that end with a backslash joined: malloc'ed.
 * *line is the number of the last one, and counts on.  NULL at the end. */
char *tern_apply_line(const char **at, int *line);
/* The value of `key` in "Key=value Key=value", whatever the case of its letters: malloc'ed; NULL
 * without it. */
char *tern_apply_value(const char *line, const char *key);
/* Is `word` in the list with commas between, as it is or before a colon? */
bool tern_apply_listed(const char *list, const char *word);

/* The nodes and partitions of `text`, the content of `path`. */
int tern_apply_read(const char *text, const char *path, struct tern_apply_expected *ret,
                    struct tern_err *err);
void tern_apply_expected_free(struct tern_apply_expected *w);

/* From what slurmctld has to `want`.  What it has and no file defines would go with its next
 * start: it is a REMOVE.  Nodes of other files that it has not would come: they are an ADD, for a
 * new name is what ends an older slurmctld.  `def`: [n_def], of other files. */
int tern_apply_compare(const struct tern_apply_expected *want, const struct tern_apply_def *def,
                       size_t n_def, const struct tern_slurm_nodes *nodes,
                       const struct tern_slurm_partitions *partitions,
                       struct tern_apply_changes *ret, struct tern_err *err);
void tern_apply_changes_free(struct tern_apply_changes *c);

/* The same, asked of slurmctld now. */
int tern_apply_collect(const struct tern_apply *a, const struct tern_apply_expected *want,
                       struct tern_apply_changes *ret, struct tern_err *err);

/* Does another file define one of the nodes or partitions, or gres.conf lack their devices?
 * TERN_USAGE with file and line. */
int tern_apply_check_files(const struct tern_apply *a, struct tern_err *err);

/* The newest backup's number; 0: there is none.  And its path, malloc'ed. */
int tern_apply_backup_newest(const char *file);
char *tern_apply_backup_path(const char *file, int number);

#endif
