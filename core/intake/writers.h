/* Is an event file written by this task?
 *
 * Runs may share a folder (lightning_logs), and a file is then read only by the run that wrote it.
 * Its name says which process made it, as torch, TensorFlow and Keras have it:
 *
 *     events.out.tfevents.TIME.HOST.PID.N[.v2]
 *
 * tensorboardX and TensorFlow 1 end it after HOST; those keep the file open.
 */
#ifndef TERN_INTAKE_WRITERS_H
#define TERN_INTAKE_WRITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct tern_intake_writer {
    int64_t time_s; /* when the file was made; -1: not known */
    int64_t pid;    /* -1: not known */
    char host[256]; /* "": not known */
};

/* Whose is a file?  OTHERS: of another process of this node, or of another user. */
enum tern_intake_owner { TERN_INTAKE_UNKNOWN, TERN_INTAKE_OURS, TERN_INTAKE_OTHERS };

/* `name`: of a file, without its folder. */
void tern_intake_writer_read(struct tern_intake_writer *w, const char *name);
bool tern_intake_writer_same(const struct tern_intake_writer *a,
                             const struct tern_intake_writer *b);
/* Does the name tell this node? */
bool tern_intake_writer_is_local(const struct tern_intake_writer *w);
/* Does it tell a process of this node that still runs? */
bool tern_intake_writer_runs(const struct tern_intake_writer *w);

/* The processes of this task, and the event files that they and other processes have open. They are
 * this one, those below it, and those with its TERN_METRIC_FILE. */
struct tern_intake_writers;
struct tern_intake_writers *tern_intake_writers_open(void);
/* Look at the processes that run now; those of the task that have ended are remembered. */
void tern_intake_writers_look(struct tern_intake_writers *p);
/* By the last look; `st`: of the file. */
enum tern_intake_owner tern_intake_writers_owner(const struct tern_intake_writers *p,
                                                 const struct tern_intake_writer *w,
                                                 const struct stat *st);
void tern_intake_writers_close(struct tern_intake_writers *p);

#endif
