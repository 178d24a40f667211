/* core/slurm on a job: slurm_job ID shows what it knows; slurm_job ID requeue|hold puts it back. */
#include "core/slurm/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};
    uint32_t id = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    int rc;

    if (argc > 2)
        rc = tern_slurm_job_requeue(id, strcmp(argv[2], "hold") == 0, &err);
    else if ((rc = tern_slurm_job_load(id, &job, &err)) == 0)
        printf("%s %d nodes=%s restarts=%u requeue=%d name=%s partition=%s comment=%s\n", job->word,
               (int)job->state, job->nodes, job->restarts, job->requeue, job->name, job->partition,
               job->comment);
    if (rc < 0)
        fprintf(stderr, "%d: %s\n", (int)err.code, err.text);
    tern_slurm_job_free(job);
    return rc < 0;
}
