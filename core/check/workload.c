#include "core/check/workload.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool runs(const char *path)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0 && S_ISREG(st.st_mode) &&
           TERN_AGAIN(access(path, X_OK)) == 0;
}

static int check_program(const struct tern_recipe *r, const char *key, char *const *command,
                         struct tern_err *err)
{
    if (!command || strchr(command[0], '{') || (strchr(command[0], '/') && runs(command[0])) ||
        tern_fs_on_path(command[0], true))
        return 0;
    if (strchr(command[0], '/'))
        return tern_recipe_fail(
            r, key, err, "'%s': %s. It is looked for from the job's folder.", command[0],
            tern_fs_exists(command[0]) ? "cannot be executed" : "no such program");
    return tern_recipe_fail(r, key, err,
                            "'%s' is not on the PATH of this node. Activate its environment in "
                            "the batch script before `tern run`, or give its whole path.",
                            command[0]);
}

static int check_image(const struct tern_recipe *r, struct tern_err *err)
{
    const char *image = r->workload.container;

    if (!image || (*image != '/' && strncmp(image, "./", 2) != 0) || tern_fs_exists(image))
        return 0;
    return tern_recipe_fail(r, "workload.container", err, "%s: there is no such image.", image);
}

/* The value behind an option's name, here or in the next word, as transformers reads it: an option
 * alone says true. */
static bool is_said(const char *after, const char *next)
{
    static const char *const no[] = {"false", "f", "no", "n", "0"};
    const char *value = *after == '=' ? after + 1 : after + strspn(after, " \t");
    const char *word = *after || !next ? value : next;

    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strncasecmp(word, no[i], strlen(no[i])) == 0 &&
            !isalnum((unsigned char)word[strlen(no[i])]))
            return false;
    return true;
}

/* Has the command the option of transformers that takes away the progress bar, as a word or in one
 * that is a script for a shell? */
static bool bar_is_off(char *const *command)
{
    static const char *const options[] = {"--disable_tqdm", "--disable-tqdm"};
    bool off = false;

    for (; command && *command; command++)
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            const char *at = strstr(*command, options[i]);
            const char *after = at ? at + strlen(options[i]) : "-";
            if (!*after || strchr("= \t", *after))
                off = is_said(after, command[1]);
        }
    return off;
}

/* Warnings of possible mistakes. */
static void warn_of_metrics(const struct tern_recipe *r)
{
    const struct tern_recipe_metrics *m = &r->workload.metrics;

    for (size_t i = 0; i < m->n; i++) {
        bool step = !m->v[i].pattern;
        for (size_t k = 0; k < m->v[i].n_names; k++)
            step |= strcmp(m->v[i].names[k], "step") == 0;
        if (!step)
            tern_warn("%s: workload.metrics: pattern '%s': none of its names is 'step', so that "
                      "nothing tells the step of its values: they are not recorded",
                      r->path, m->v[i].pattern);
        if (m->v[i].known && strcmp(m->v[i].known, "lightning") == 0)
            tern_warn("%s: workload.metrics: lightning: its progress bar counts batches, not "
                      "steps. Values come from a bar that shows global_step, and from the lines of "
                      "NeuronX Distributed's module; {tensorboard: lightning_logs} reads what its "
                      "logger writes",
                      r->path);
        if (m->v[i].known && strcmp(m->v[i].known, "hf") == 0 && bar_is_off(r->workload.command))
            tern_warn("%s: workload.metrics: hf: its values get their step from the progress bar, "
                      "and --disable_tqdm takes that away: they are not recorded. Leave it out; or "
                      "report_to: tensorboard and {tensorboard: DIR}",
                      r->path);
    }
}

/* ------------------------------------------------------------------ HyperPod's own restart */

/* "--auto-resume=1" and not "=0".  Trainers have a flag of that name without a value. */
static bool is_on(const char *at)
{
    static const char option[] = "--auto-resume=";

    return strncmp(at, option, sizeof option - 1) == 0 && at[sizeof option - 1] != '0';
}

bool tern_check_has_auto_resume(const char *line)
{
    const char *srun = strstr(line, "srun");

    for (const char *at = srun; at && (at = strstr(at, "--auto-resume=")); at++)
        if (is_on(at))
            return true;
    return false;
}

/* As a word of its own behind srun's, or in a word that is a script for a shell. */
static bool command_has(char *const *command)
{
    bool srun = false;

    for (; command && *command; command++) {
        if ((srun && is_on(*command)) || tern_check_has_auto_resume(*command))
            return true;
        srun |= tern_str_ends(*command, "srun");
    }
    return false;
}

int tern_check_restarts(const struct tern_recipe *r, int64_t restarts, struct tern_err *err)
{
    const bool command = command_has(r->workload.command);

    if (restarts == 0 || (!command && !command_has(r->workload.precompile.command)))
        return 0;
    return tern_recipe_fail(r, command ? "workload.command" : "workload.precompile.command", err,
                            "srun --auto-resume lets HyperPod restart the ranks, and tern restarts "
                            "them, too (launch.restarts: %" PRId64
                            "). Leave the option out, or say launch.restarts: 0.",
                            restarts);
}

/* ------------------------------------------------------------------ the whole */

int tern_check_workload(const struct tern_recipe *r, const struct tern_check_options *options,
                        struct tern_err *err)
{
    warn_of_metrics(r);
    if (tern_check_restarts(r, r->launch.restarts, err) < 0)
        return -1;
    /* The job's environment may differ from that of sbatch. */
    if (options->submission || !r->workload.command)
        return 0;
    if (check_image(r, err) < 0)
        return -1;
    if (r->workload.container) /* its programs are the image's */
        return 0;
    if (check_program(r, "workload.command", r->workload.command, err) < 0)
        return -1;
    return check_program(r, "workload.precompile.command", r->workload.precompile.command, err);
}
