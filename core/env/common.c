/* Where the ranks meet: the same in every profile. */
#include "core/env/profile.h"

#include <stdarg.h>
#include <stdio.h>

void tern_env_let(struct tern_env_answer *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(a->value, sizeof a->value, fmt, ap);
    va_end(ap);
    a->set = n >= 0 && n < (int)sizeof a->value;
}

void tern_env_say(struct tern_env_answer *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
}

/* Two ports a job: jobs that run at the same time have ids closer than 4000 to each other, or are
 * long gone. */
int tern_env_port(const struct tern_env_facts *f)
{
    return TERN_ENV_PORT_FIRST + 2 * (int)(f->job % TERN_ENV_PORT_JOBS);
}

const char *tern_env_master(const struct tern_env_facts *f)
{
    return f->master[0] ? f->master : "127.0.0.1";
}

void tern_env_rule_master(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    tern_env_let(a, "%s", tern_env_master(f));
    if (f->master[0])
        tern_env_say(a, "torch.distributed meets at rank 0's node, the job's first");
    else
        tern_env_say(a, "outside a job all ranks are on this machine");
}

void tern_env_rule_port(const struct tern_env_facts *f, struct tern_env_answer *a)
{
    tern_env_let(a, "%d", tern_env_port(f));
    if (f->job && !f->master[0])
        tern_env_say(a, "no job: by the number of `tern run`'s process; below the ephemeral ports");
    else if (f->job)
        tern_env_say(a,
                     "%d + 2 x (job %% %d): jobs that share a node differ; below the ephemeral "
                     "ports",
                     TERN_ENV_PORT_FIRST, TERN_ENV_PORT_JOBS);
    else
        tern_env_say(a, "no job; below the ephemeral ports. Two runs at a time on one machine: "
                        "give one of them another port.");
}
