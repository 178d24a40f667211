/* Was a process killed for its memory limit?  Read from the kernel's cgroups. */
#ifndef TERN_TASK_MEMORY_H
#define TERN_TASK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_task_memory {
    const char *root; /* that it was read below; borrowed */
    int64_t kills;    /* of the cgroup that this process is in, so far; -1: not known */
    int64_t limit;    /* bytes; -1: none, or not known */
};

/* By cgroup v2 (memory.events, memory.max) or v1 (memory.oom_control, memory.limit_in_bytes) in
 * ROOT/proc/self/cgroup and ROOT/sys/fs/cgroup; `root` is "" but in tests. */
struct tern_task_memory tern_task_memory_read(const char *root);

/* Why a rank's program ended, into `to` and to the log, when its cgroup has killed for memory since
 * `before`.  The cgroup killed the program, or a process that it needed, after which it ended by
 * itself.  Such a process is a data loader's worker, or a child of torchrun or of a script.  `to`
 * is unchanged otherwise, and after a good end. `wait_status`: wait(2)'s; `told`: it had got a
 * signal to end. */
void tern_task_memory_words(const struct tern_task_memory *before, int wait_status, bool told,
                            int64_t rank, const char *node, char *to, size_t size);

#endif
