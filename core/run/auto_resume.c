#include "core/run/auto_resume.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/check/check.h"
#include "core/health/health.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* The name of the variable by which commands inside a job inherit its --auto-resume, malloc'ed;
 * NULL without the option.  It holds the name of HyperPod's SPANK plugin, too. */
static char *job_option(void)
{
    for (char **v = environ; *v; v++) {
        const char *value = strchr(*v, '=');
        char *name = value && tern_str_starts(*v, "SLURM_SPANK__SLURM_SPANK_OPTION_")
                         ? tern_strf("%.*s", (int)(value - *v), *v)
                         : NULL;
        if (name && tern_str_ends(name, "_auto_resume") && strcmp(value, "=0") != 0)
            return name;
        free(name);
    }
    return NULL;
}

/* Was the step around this process typed with the option? */
static bool step_option(const struct tern_place *p)
{
    struct tern_err err = {0};
    char *line = NULL;

    if (tern_slurm_step_load_line(p->job, p->step, &line, &err) < 0)
        tern_debug("%s", err.text);
    bool has = line && tern_check_has_auto_resume(line);
    free(line);
    return has;
}

void tern_run_auto_resume_tell(int64_t restarts)
{
    if (!tern_health_on_hyperpod())
        return;
    if (restarts > 0)
        tern_info("HyperPod: tern restarts this run (launch.restarts: %" PRId64
                  "), and its srun has no --auto-resume",
                  restarts);
    else
        tern_info("HyperPod: launch.restarts is 0, and srun has no --auto-resume: nothing restarts "
                  "this run. `srun --auto-resume=1 -N1 -n1 tern run` leaves that to HyperPod");
}

int64_t tern_run_auto_resume(struct tern_place *place, bool trainer, int64_t restarts)
{
    char *option = place->slurm ? job_option() : NULL;

    place->auto_resume = place->slurm && place->in_step && (option || step_option(place));
    if (place->auto_resume) {
        tern_warn("srun --auto-resume has started tern run: HyperPod restarts this run, and tern "
                  "does not (launch.restarts: %" PRId64 " is off). Without srun, tern restarts it",
                  restarts);
        restarts = 0;
    } else if (option && restarts == 0 && !trainer) {
        tern_info("the job has --auto-resume: HyperPod restarts this run, and tern does not "
                  "(launch.restarts: 0)");
    } else if (option) {
        tern_warn("tern restarts this run (launch.restarts: %" PRId64 "): the job's --auto-resume "
                  "is off for the ranks' srun",
                  restarts);
    } else {
        tern_run_auto_resume_tell(restarts);
    }
    if (option && (restarts > 0 || trainer || place->auto_resume))
        unsetenv(option);
    free(option);
    return restarts;
}
