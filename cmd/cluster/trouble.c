#include "cmd/cluster/trouble.h"

#include "core/base/str.h"
#include "core/vcluster/vcluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *how, *cluster;

#define OPT_CLUSTER                                                                                \
    {                                                                                              \
        "cluster", 'c', TERN_OPT_TEXT, "NAME", .to.text = &cluster,                                \
                                               .help = "of which cluster; else of the only one"    \
    }

static const struct tern_opt break_opts[] = {
    {"how", 0, TERN_OPT_TEXT, "HOW", "kill", .to.text = &how,
     .help = "kill: its power is cut; freeze: its processes are stopped; slow: they run a tenth of "
             "the time; partition: no message reaches it or leaves it, without an error; one-way: "
             "it sends, and receives nothing; read-only: its /tmp and the shared storage take no "
             "more writes from it, but to files that are open; disk-full: its /tmp is full; "
             "no-capacity: once off, it cannot be started; spot-reclaim: kill and no-capacity"},
    OPT_CLUSTER,
    {0},
};
static const struct tern_opt mend_opts[] = {OPT_CLUSTER, {0}};

static int read_how(enum tern_vcluster_trouble *trouble, struct tern_err *err)
{
    struct tern_buf words = {0};

    for (int i = TERN_VCLUSTER_KILL; i < TERN_VCLUSTER_TROUBLES; i++) {
        *trouble = (enum tern_vcluster_trouble)i;
        if (strcmp(tern_vcluster_trouble_word(*trouble), how) == 0) {
            tern_buf_free(&words);
            return 0;
        }
        tern_buf_printf(&words, "%s%s", words.len ? ", " : "",
                        tern_vcluster_trouble_word(*trouble));
    }
    tern_err_set(err, TERN_USAGE, "--how: '%s' is not one of: %s.", how, words.data);
    tern_buf_free(&words);
    return -1;
}

static int run_break(int n, char **args, struct tern_err *err)
{
    enum tern_vcluster_trouble trouble;

    (void)n;
    if (read_how(&trouble, err) < 0)
        return -1;
    char *name = tern_vcluster_find(cluster, err);
    int rc = name ? tern_vcluster_break(name, args[0], trouble, err) : -1;
    if (rc == 0)
        printf("%s: %s\n", args[0], tern_vcluster_trouble_about(trouble));
    free(name);
    return rc;
}

static int run_mend(int n, char **args, struct tern_err *err)
{
    enum tern_vcluster_trouble was;
    char *name = tern_vcluster_find(cluster, err);
    int rc = name ? tern_vcluster_mend(name, args[0], &was, err) : -1;

    (void)n;
    if (rc == 0)
        printf("%s: mended (%s)\n", args[0],
               tern_vcluster_trouble_word(was) ? tern_vcluster_trouble_word(was) : "-");
    free(name);
    return rc;
}

const struct tern_cmd break_cmd = {
    .name = "break",
    .args = "NODE",
    .summary = "bring trouble upon a node of a virtual cluster",
    .about = "One trouble a node, until `tern cluster mend NODE`; a power cut ends all but "
             "no-capacity. Slurm notices by itself, as it would elsewhere. disk-full wants a /tmp "
             "of limited size: 'virtual: {tmp_mib: 256}' in cluster.tern.yaml. In plain mode a "
             "node has kill, no-capacity and spot-reclaim alone.",
    .examples = "  tern cluster break trn1-st-trn1-2 --how partition\n"
                "  tern cluster mend trn1-st-trn1-2\n",
    .opts = break_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_break,
};

const struct tern_cmd mend_cmd = {
    .name = "mend",
    .args = "NODE",
    .summary = "undo what `break` did",
    .opts = mend_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_mend,
};
