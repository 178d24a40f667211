/* tern: finds tern-<name> beside itself and runs it, as git does. */
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/base/version.h"
#include "core/recipe/recipe.h"
#include "core/site/site.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct program {
    const char *name, *summary;
};

/* In the order of a researcher's day; a NULL summary is a heading. */
static const struct program programs[] = {
    {"prepare", NULL},
    {"data", "build, inspect and check token sets"},
    {"ckpt", "list, verify and export checkpoints"},
    {"submit", "write and submit the right sbatch line for a recipe"},
    {"run", "supervise a training run inside a job or on one machine"},
    {"env", "the variables that this node, its fabric and the trainer want"},
    {"train", "train: what `tern run` launches on every rank"},
    {"task", "run one rank's program, keep its output and its metrics"},
    {"inside", "the same inside a container, whose image needs nothing of tern"},
    {"eval", "perplexity of a checkpoint on held-out sets"},
    {"look back", NULL},
    {"ledger", "list, show, plot and query runs"},
    {"logs", "what the ranks of a run printed, merged by time"},
    {"metric", "record a value from somebody else's trainer"},
    {"administer", NULL},
    {"cluster", "check and render layouts, run them as a virtual cluster"},
    {"health", "check nodes, drain the bad ones, have them replaced"},
    {"orphan", "queue a job again whose batch script's node does not answer"},
    {"link", "measure the ways between nodes: what `tern health fabric` runs on each"},
    {"fabric", "what ranks speak over; who was missing where when they failed"},
    {"bench", "measure the fabric and the trainer"},
    {NULL, NULL},
};

/* Where the other programs lie; the caller frees it. */
static char *programs_folder(void)
{
    const char *where = tern_var("TERN_EXEC_PATH");
    char *dir = where ? tern_strdup(where) : tern_fs_self_dir();

    return dir ? dir : tern_strdup(".");
}

/* A tern built without the trainer lacks some. */
static bool is_there(const char *folder, const struct program *p)
{
    char *path = tern_strf("%s/tern-%s", folder, p->name);
    bool there = access(path, X_OK) == 0;

    free(path);
    return there;
}

static int list(void)
{
    char *folder = programs_folder();

    fputs("usage: tern [--config FILE] NAME [VERB] [OPTION...] [ARGUMENT...]\n\n"
          "Continual pre-training of Llama models on Slurm clusters: layouts, launch, training,\n"
          "ledger. NeuronCores are used by the trainers made for them, launched through\n"
          "`workload.command`; tern's own trainer computes on CPUs.\n",
          stdout);
    for (const struct program *p = programs; p->name; p++) {
        if (p->summary)
            printf("  %-10s %s%s\n", p->name, p->summary,
                   is_there(folder, p) ? "" : " (not installed)");
        else
            printf("\n%s\n", p->name);
    }
    fputs("\n  help environment   the TERN_* variables\n"
          "  help recipe        the keys of run.yaml\n"
          "  help site          the keys of /etc/tern/tern.yaml, the site settings\n\n"
          "`tern --config FILE NAME ...` takes site settings from FILE.\n"
          "`tern NAME -h` tells about each; `tern --version` which tern this is.\n",
          stdout);
    free(folder);
    return 0;
}

/* The page that ties the others together; theirs come from their option tables. */
static int man_page(void)
{
    printf(".TH tern 1 \"\" \"tern %s\" \"tern manual\"\n.SH NAME\n"
           "tern \\- continual pre-training on Slurm clusters\n"
           ".SH SYNOPSIS\n.B tern\nNAME [VERB] [OPTION...] [ARGUMENT...]\n.SH PROGRAMS\n",
           TERN_VERSION);
    for (const struct program *p = programs; p->name; p++)
        if (p->summary)
            printf(".TP\n.BR tern\\-%s (1)\n%s\n", p->name, p->summary);
    fputs(".SH ENVIRONMENT\n", stdout);
    for (const struct tern_var *v = tern_vars; v->name; v++)
        printf(".TP\n.B %s\n%s\n", v->name, v->help);
    return 0;
}

static int list_variables(void)
{
    for (const struct tern_var *v = tern_vars; v->name; v++)
        printf("%-22s %s%s%s%s\n", v->name, v->help, *v->def ? " [" : "", v->def,
               *v->def ? "]" : "");
    return 0;
}

/* Why there is no such program, in words; the exit status. */
static int say_missing(const char *name, const char *program)
{
    const char *names[32];
    size_t n = 0;

    for (const struct program *p = programs; p->name; p++)
        if (p->summary)
            names[n++] = p->name;
    names[n] = NULL;
    const char *near = tern_str_nearest(name, names);
    if (near && strcmp(near, name) == 0) {
        tern_error("%s: not there: this tern was built without it (make WITH_TRAINER=no), or "
                   "installed without it%s",
                   program,
                   strcmp(name, "bench") == 0 ? " (make install WITH_BENCH=yes has it)" : "");
        return TERN_FAILED;
    }
    tern_error("'%s' is not a tern program%s%s%s `tern -h` lists them.", name,
               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
    return TERN_USAGE;
}

/* Does not return when the program is there. */
static int exec_program(char **argv)
{
    char *folder = programs_folder();
    char *program = tern_strf("%s/tern-%s", folder, argv[0]);
    int rc;

    errno = ENOENT;
    if (!strchr(argv[0], '/'))
        execv(program, argv);
    if (errno == ENOENT) {
        rc = say_missing(argv[0], program);
    } else {
        tern_error("%s: cannot run: %s", program, strerror(errno));
        rc = TERN_FAILED;
    }
    free(program);
    free(folder);
    return rc;
}

/* `--config FILE` before the name: for the program, and for what it starts elsewhere.  The words it
 * took, or -1. */
static int take_config(int argc, char **argv)
{
    static const char option[] = "--config";
    size_t len = sizeof option - 1;

    if (argc < 2 || strncmp(argv[1], option, len) != 0 || (argv[1][len] && argv[1][len] != '='))
        return 0;
    const char *file = argv[1][len] ? argv[1] + len + 1 : argc > 2 ? argv[2] : "";
    char *path = *file ? realpath(file, NULL) : NULL;
    if (!path) {
        tern_error("--config %s: %s", file, *file ? strerror(errno) : "give the file's path");
        return -1;
    }
    setenv("TERN_CONFIG", path, 1);
    free(path);
    return argv[1][len] ? 1 : 2;
}

int main(int argc, char **argv)
{
    int taken = take_config(argc, argv);

    if (taken < 0)
        return TERN_USAGE;
    argc -= taken;
    argv += taken;
    if (argc < 2) {
        list();
        return TERN_USAGE;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (help && argc > 2 && strcmp(argv[2], "environment") == 0)
        return list_variables();
    if (help && argc > 2 && strcmp(argv[2], "recipe") == 0) {
        tern_recipe_describe(stdout);
        return 0;
    }
    if (help && argc > 2 && strcmp(argv[2], "site") == 0) {
        tern_site_describe(stdout);
        return 0;
    }
    if (help && argc > 2) {
        char *ask[] = {argv[2], "-h", NULL};
        return exec_program(ask);
    }
    if (help || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)
        return list();
    if (strcmp(argv[1], "--help-man") == 0)
        return man_page();
    if (strcmp(argv[1], "--version") == 0) {
        printf("tern %s\n", TERN_VERSION);
        return 0;
    }
    return exec_program(argv + 1);
}
