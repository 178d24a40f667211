/* The folder SET.parts, in which processes share a build.
 *
 *     plan.json         files, options, tokenizer and number of shares: a later process compares
 *     0007-PLAN.lease   share 7 is being built; its mtime is a heartbeat; merge-PLAN.lease
 *                       likewise
 *     0007-PLAN.tds     share 7 is built: it appeared whole, by a rename
 *     task-...          a process that takes part; its mtime tells the file system's time
 *     failed            why the tasks of a step end
 *     done              the set is in place: what is left in the folder is being removed
 *
 * Until 0.5, *.claim counts as *.lease does: tern before 0.4 calls it so.
 *
 * PLAN is the beginning of the plan's SHA-256, so a late process of another plan changes nothing of
 * this one's.  No process works in a folder with "done" of its plan any more; "done" is the last
 * file that goes.
 *
 * Leases are made with link(2), which is atomic on NFS, too; there are no locks.  A thread sends
 * heartbeats for as long as its process lives.  A lease whose process is gone, or that has none for
 * DATA_LOST_S, is taken over.  Its process may be frozen, so its unfinished files are removed
 * first.  Then it finds nothing to put in place when it wakes.
 */
#ifndef TERN_CMD_DATA_SHARE_H
#define TERN_CMD_DATA_SHARE_H

#include "cmd/data/build.h"

#include <pthread.h>

enum {
    DATA_LOST_S = 60, /* ten times what a signature takes on a busy NFS */
    DATA_HEARTBEAT_MS = 3000,
    DATA_PLAN_HEX = 17, /* of a plan's SHA-256, in names: 64 bits and a NUL */
};

struct data_folder {
    char *path;
    const char *out; /* the set */
    const struct data_step *step;
    const char *text; /* of the plan */
    char plan[DATA_PLAN_HEX];
    char *task; /* file of this process; NULL before it has joined */

    /* The lease that is held, shared with the thread of its heartbeats. */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool heartbeats, quit;
    char *lease, *owner; /* its path, and its first line, which no other lease has; NULL: none */
};

/* ---- the folder: folder.c ---- */

/* `out`, `step` and `plan` (JSON text) are kept. */
void data_folder_init(struct data_folder *f, const char *out, const struct data_step *step,
                      const char *plan);
void data_folder_close(struct data_folder *f);
/* malloc'ed: "SET.parts"; a file in it; the part of share `k`, and its lease. */
char *data_folder_name(const char *out);
char *data_folder_file(const struct data_folder *f, const char *name);
char *data_folder_part(const struct data_folder *f, uint64_t k);
char *data_folder_lease_of(const struct data_folder *f, uint64_t k);

enum data_join {
    DATA_JOIN_FAILED = -1,
    DATA_JOIN_LATER, /* it is in the making, or being removed: try again */
    DATA_JOIN_DONE,  /* the step of this process has finished the set */
    DATA_JOINED,
};
/* Make the folder, or join the processes that work in it with the same plan. */
enum data_join data_folder_join(struct data_folder *f, struct tern_err *err);
/* Is there one, of a build that has not ended? */
bool data_folder_is_there(const struct data_folder *f);

enum data_folder_state {
    DATA_FOLDER_OURS,
    DATA_FOLDER_DONE,  /* the set is in place */
    DATA_FOLDER_GONE,  /* the same, and the folder with it; or a user removed it */
    DATA_FOLDER_OTHER, /* a build of another plan works in it */
};
enum data_folder_state data_folder_state(const struct data_folder *f);

/* A file that appears whole, unless there is one of that name: 1, 0, -1.  Its first line is
 * *ret_owner (malloc'ed; NULL: not wanted), and no other file's. */
int data_folder_put_new(const struct data_folder *f, const char *name, const char *text,
                        char **ret_owner, struct tern_err *err);
/* The text of such a file behind its first line, malloc'ed; NULL: it is not there. */
char *data_folder_get(const struct data_folder *f, const char *name);
void data_folder_remove(const struct data_folder *f, const char *name);
/* Remove the temporary files whose names hold `mark`, here and beside the set. */
void data_folder_remove_temps(const struct data_folder *f, const char *mark);
/* Remove those of processes of this machine that have ended. */
void data_folder_tidy(const struct data_folder *f);

/* Say that the set is in place.  The holder of the lease to merge calls it. */
void data_folder_put_done(const struct data_folder *f);
/* Remove all that is tern's in a folder that is done, and the folder; gives the lease back. */
void data_folder_remove_all(struct data_folder *f);
/* How many of a step's tasks came. */
int data_folder_tasks(const struct data_folder *f);

/* ---- leases: lease.c ---- */

enum data_lease {
    DATA_LEASE_OURS,
    DATA_LEASE_OTHERS,
    DATA_LEASE_GONE, /* the folder is: another process has merged */
    DATA_LEASE_FAILED,
};
/* Take the lease `name`, from a process that was lost, too.  One at a time is held. */
enum data_lease data_folder_acquire(struct data_folder *f, const char *name, struct tern_err *err);
/* Is the lease still that of this process?  Not where others took this process for lost. */
bool data_folder_holds(const struct data_folder *f);
/* Give it back; fine where none is held, or no more. */
void data_folder_release(struct data_folder *f);
/* malloc'ed: the lease to merge the parts of `plan`, and to remove them. */
char *data_folder_merge_lease(const char *plan);

#endif
