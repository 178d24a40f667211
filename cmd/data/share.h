/* The folder SET.parts, in which processes share a build.
 *
 *     plan.json     files, options, tokenizer and number of shares: a later process compares
 *     0007.claim    share 7 is being built; its mtime is a sign of life; merge.claim likewise
 *     0007.tds      share 7 is built: it appeared whole, by a rename
 *     task-...      a process that takes part; its mtime tells the file system's time
 *     failed        why the tasks of a step end
 *     done          the set is in place
 *
 * Claims are made with link(2), which is atomic on NFS, too; there are no locks.  A claim whose
 * process is gone, or that shows no life for LOST_S, is taken over.  Two processes that build the
 * same share do it for nothing, not wrongly: parts are the same bytes and appear by a rename.
 */
#ifndef TERN_CMD_DATA_SHARE_H
#define TERN_CMD_DATA_SHARE_H

#include "cmd/data/build.h"

enum {
    DATA_LOST_S = 60, /* ten times what a signature takes on a busy NFS */
    DATA_BEAT_MS = 3000,
};

struct data_folder {
    char *path;
    const struct data_step *step;
    char *task; /* file of this process */
    int task_fd;
};

enum data_claim {
    DATA_CLAIM_OURS,
    DATA_CLAIM_OTHERS,
    DATA_CLAIM_GONE, /* the folder is: another process has merged */
    DATA_CLAIM_FAILED,
};

/* malloc'ed: "SET.parts", a file in it. */
char *data_folder_name(const char *out);
char *data_folder_file(const struct data_folder *f, const char *name);

/* Make the folder, or join the processes that work in it with the same plan.  1; 0 where it is in
 * the making; -1. */
int data_folder_open(struct data_folder *f, const char *plan, struct tern_err *err);
void data_folder_close(struct data_folder *f);
bool data_folder_is_there(const struct data_folder *f);
/* A file that appears whole, unless there is one of that name: 1, 0, -1. */
int data_folder_put_new(const struct data_folder *f, const char *name, const char *text,
                        struct tern_err *err);
/* Claim `name`, from a process that was lost, too. */
enum data_claim data_folder_claim(const struct data_folder *f, const char *name,
                                  struct tern_err *err);
/* A sign of life of this process and of its claim (NULL: none). */
void data_folder_beat(const struct data_folder *f, const char *name);
void data_folder_remove(const struct data_folder *f, const char *name);
/* Remove all that is tern's in it, and the folder. */
void data_folder_remove_all(const struct data_folder *f);
/* How many of a step's tasks came. */
int data_folder_tasks(const struct data_folder *f);
/* Remove unfinished files of processes of this machine that have ended, here and beside `out`. */
void data_folder_tidy(const struct data_folder *f, const char *out);

#endif
