/* Was a process killed for its memory limit?  Read from the kernel's cgroups. */
#ifndef TERN_TASK_MEMORY_H
#define TERN_TASK_MEMORY_H

#include <stdint.h>

struct tern_task_memory {
    int64_t kills; /* of the cgroup that this process is in, so far; -1: not known */
    int64_t limit; /* bytes; -1: none, or not known */
};

/* By cgroup v2 (memory.events, memory.max) or v1 (memory.oom_control, memory.limit_in_bytes). */
struct tern_task_memory tern_task_memory_read(void);

#endif
