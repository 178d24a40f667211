/* tern finds tern-<name> beside itself and runs it, as git does. */
#include "cmd/cmd.h"

#include "cmd/tern/help.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/page.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/base/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct program {
    const char *name, *summary;
};

/* In the order of a researcher's day; a NULL summary is a heading. */
static const struct program programs[] = {
    {"prepare and run", NULL},
    {"fetch", "fetch models and data from hubs and object storage"},
    {"data", "build, inspect and check token sets"},
    {"ckpt", "list, verify and export checkpoints"},
    {"submit", "write and submit the right sbatch line for a recipe"},
    {"run", "supervise a training run inside a job or on one machine"},
    {"env", "the variables that this node, its fabric and the trainer want"},
    {"train", "tern's own trainer: `tern run` starts one on every rank"},
    {"task", "run one rank's program, keep its output and its metrics"},
    {"inside", "the same inside a container without tern"},
    {"eval", "perplexity of a checkpoint on held-out sets"},
    {"generate", "text that a checkpoint goes on with"},
    {"look back", NULL},
    {"ledger", "list, show, plot and query runs"},
    {"logs", "print the output of a run's ranks, merged by time"},
    {"metric", "record a value from a workload's trainer"},
    {"administer", NULL},
    {"cluster", "check, render and apply layouts, run them as a virtual cluster"},
    {"health", "check nodes, drain the bad ones, have them replaced"},
    {"orphan", "queue a job again whose batch script's node does not answer"},
    {"link", "measure the links between nodes, for `tern health fabric`"},
    {"fabric", "networks of the ranks, reports of failed or hung operations"},
    {"bench", "measure tokenising, the fabric, matrix products and the trainer"},
    {NULL, NULL},
};

/* The folder of the other programs; the caller frees it. */
static char *programs_folder(void)
{
    const char *where = tern_var("TERN_EXEC_PATH");
    char *dir = where ? tern_strdup(where) : tern_fs_self_dir();

    return dir ? dir : tern_strdup(".");
}

/* A tern that was built without the trainer lacks some. */
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
    const struct topic *t;

    fputs("usage: tern [--config FILE] NAME [VERB] [OPTION...] [ARGUMENT...]\n\n"
          "Continual pre-training of Llama models on Slurm clusters: layouts, launch,\n"
          "training, ledger. NeuronCores are used by the trainers made for them, launched\n"
          "through `workload.command`; tern's own trainer computes on CPUs.\n",
          stdout);
    for (const struct program *p = programs; p->name; p++) {
        if (p->summary)
            printf("  %-10s %s\n%s", p->name, p->summary,
                   is_there(folder, p) ? "" : "             (not installed)\n");
        else
            printf("\n%s\n", p->name);
    }
    for (size_t i = 0; (t = topic_at(i)); i++) {
        if (t->heading)
            printf("\n%s\n", t->heading);
        printf("  %-14s %s\n", t->name, t->summary);
    }
    fputs("\n`tern help TOPIC` prints a topic, `tern NAME -h` a program's verbs and options,\n"
          "`tern NAME VERB -h` a verb's options. `tern --config FILE NAME ...` takes site\n"
          "settings from FILE. `tern --version` prints the version.\n",
          stdout);
    free(folder);
    return 0;
}

/* The page that ties the others together; theirs come from their option tables. */
static int man_page(void)
{
    struct tern_page page = {.to = stdout};
    const struct topic *t;

    tern_page_title(&page, "tern", 1, "continual pre-training on Slurm clusters");
    tern_page_heading(&page, "SYNOPSIS");
    tern_page_code(&page, "tern [--config FILE] NAME [VERB] [OPTION...] [ARGUMENT...]\n"
                          "tern help [TOPIC | NAME [VERB]]\n");
    tern_page_text(&page, "# DESCRIPTION\n"
                          "Layouts, launch, training and a ledger of runs. NeuronCores are used by "
                          "the trainers made for them, launched through `workload.command`; tern's "
                          "own trainer computes on CPUs.\n"
                          "# PROGRAMS\n");
    for (const struct program *p = programs; p->name; p++) {
        char *name = tern_strf("tern-%s(1)", p->name);
        if (p->summary)
            tern_page_item(&page, name, p->summary);
        free(name);
    }
    tern_page_heading(&page, "TOPICS");
    for (size_t i = 0; (t = topic_at(i)); i++) {
        char *name = tern_strf("tern-%s(%d)", t->name, t->section);
        tern_page_item(&page, name, t->summary);
        free(name);
    }
    tern_page_text(&page,
                   "# OPTIONS\n"
                   "--config FILE :: Take site settings from FILE, not /etc/tern/tern.yaml.\n"
                   "--version :: Print the version.\n"
                   "-h, --help :: List programs and topics.\n"
                   "# EXAMPLES\n"
                   "    tern help parallel\n"
                   "    tern help ledger list\n"
                   "    tern data build --tokenizer models/my-llama -o pubmed.tds pubmed.jsonl\n"
                   "    tern submit run.yaml -N 4\n"
                   "    tern ledger list\n");
    tern_opt_man_end(stdout, "tern");
    tern_page_text(&page, "# SEE ALSO\ntern-environment(7) lists the TERN_* variables.\n");
    return 0;
}

/* The man pages that topics are: "tern-parallel.7", one a line. */
static int list_topics(void)
{
    const struct topic *t;

    for (size_t i = 0; (t = topic_at(i)); i++)
        printf("tern-%s.%d\n", t->name, t->section);
    return 0;
}

/* One of them, by that name. */
static int man_topic(const char *page)
{
    const struct topic *t;

    for (size_t i = 0; (t = topic_at(i)); i++) {
        char *name = tern_strf("tern-%s.%d", t->name, t->section);
        bool is = strcmp(name, page) == 0;
        free(name);
        if (is) {
            topic_print(stdout, t, /* columns= */ 0);
            return 0;
        }
    }
    tern_error("'%s' is no page of a topic", page);
    return TERN_USAGE;
}

/* Say why there is no such program, or (`help`) topic; the exit status. */
static int say_missing(const char *name, const char *program, bool help)
{
    const char *names[128];
    const struct topic *t;
    size_t n = 0;

    for (const struct program *p = programs; p->name; p++)
        if (p->summary)
            names[n++] = p->name;
    size_t n_programs = n;
    for (size_t i = 0; help && (t = topic_at(i)); i++)
        names[n++] = t->name;
    names[n] = NULL;
    const char *near = tern_str_nearest(name, names);
    for (size_t i = 0; i < n_programs; i++) {
        if (strcmp(names[i], name) == 0) {
            tern_error("%s: not there: this tern was built without it (make WITH_TRAINER=no), or "
                       "installed without it%s",
                       program,
                       strcmp(name, "bench") == 0 ? " (make install WITH_BENCH=yes has it)" : "");
            return TERN_FAILED;
        }
    }
    tern_error("'%s' is %s%s%s%s `tern -h` lists them.", name,
               help ? "neither a topic nor a tern program" : "not a tern program",
               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
    return TERN_USAGE;
}

/* Does not return when the program is there. */
static int exec_program(char **argv, bool help)
{
    char *folder = programs_folder();
    char *program = tern_strf("%s/tern-%s", folder, argv[0]);
    int rc;

    errno = ENOENT;
    if (!strchr(argv[0], '/'))
        execv(program, argv);
    if (errno == ENOENT) {
        rc = say_missing(argv[0], program, help);
    } else {
        tern_error("%s: cannot run: %s", program, strerror(errno));
        rc = TERN_FAILED;
    }
    free(program);
    free(folder);
    return rc;
}

/* Take `--config FILE` before the name: TERN_CONFIG hands it to the program and its children.  The
 * number of words taken, or -1. */
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

/* `tern help WORD...`: a topic, else the help of a program or of its verb. */
static int help(char **words)
{
    const struct topic *t = words[1] ? NULL : topic_find(words[0]);
    int columns = tern_cmd_columns();

    if (!t) {
        char *ask[] = {words[0], words[1] ? words[1] : "-h", words[1] ? "-h" : NULL, NULL};
        return exec_program(ask, /* help= */ true);
    }
    topic_print(stdout, t, columns < 60 ? 60 : columns > 100 ? 100 : columns);
    return 0;
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
    if (strcmp(argv[1], "help") == 0)
        return argc > 2 ? help(argv + 2) : list();
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)
        return list();
    if (strcmp(argv[1], "--help-man") == 0)
        return argc > 2 ? man_topic(argv[2]) : man_page();
    if (strcmp(argv[1], "--help-topics") == 0)
        return list_topics();
    if (strcmp(argv[1], "--version") == 0) {
        printf("tern %s\n", TERN_VERSION);
        return 0;
    }
    return exec_program(argv + 1, /* help= */ false);
}
