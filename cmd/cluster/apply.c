/* tern cluster apply and drift: a layout's nodes in a Slurm that is there already. */
#include "cmd/cluster/apply.h"

#include "cmd/cluster/layout.h"
#include "core/apply/apply.h"
#include "core/base/diff.h"
#include "core/base/fs.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool dry_run, undo, init;
static const char *restart_command, *apply_vars, *drift_vars;
static double timeout_s = 30;
static const struct tern_opt apply_opts[] = {
    {"dry-run", 'n', TERN_OPT_FLAG, .to.flag = &dry_run,
     .help = "print what would change, and write nothing; needs no rights. An apply that would be "
             "refused fails here, too"},
    {"init", 0, TERN_OPT_FLAG, .to.flag = &init,
     .help = "add the line 'include tern-nodes.conf' to slurm.conf if it is not there"},
    {"restart", 0, TERN_OPT_TEXT, "COMMAND", .to.text = &restart_command,
     .help = "what restarts slurmctld, such as 'systemctl restart slurmctld'. It is run only if "
             "nodes come or go and Slurm is older than 23.11, which takes them at its start only"},
    {"undo", 0, TERN_OPT_FLAG, .to.flag = &undo,
     .help = "put the newest backup back, without LAYOUT; a second one takes that back"},
    {"timeout", 0, TERN_OPT_REAL, "SECONDS", "30", .to.real = &timeout_s,
     .help = "until slurmctld must have the layout's nodes"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &apply_vars, .help = cluster_vars_help},
    {0},
};
static const struct tern_opt drift_opts[] = {
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &drift_vars, .help = cluster_vars_help},
    {0},
};

/* Is the default partition another than the layout's? */
static bool has_other_default(const struct tern_apply *a, const struct tern_layout *l)
{
    bool ours = false;

    for (size_t i = 0; a->other_default && i < l->n_queues; i++)
        ours = ours || strcmp(l->queues[i].name, a->other_default) == 0;
    return a->other_default && !ours;
}

/* The text of the layout's nodes, from the newest backup where `l` is NULL. */
static int make_text(struct tern_apply *a, const struct tern_layout *l, struct tern_err *err)
{
    return l ? tern_layout_nodes_text(l, !has_other_default(a, l), &a->text, err)
             : tern_apply_use_backup(a, err);
}

static void print_changes(const struct tern_apply *a)
{
    for (size_t i = 0; i < a->changes.n; i++) {
        char *line = tern_apply_change_text(&a->changes.at[i]);
        tern_str_mask(line);
        printf("%s\n", line);
        free(line);
    }
}

static void print_diff(const struct tern_apply *a, const char *from)
{
    const struct tern_diff d = {
        .to = stdout,
        .clean = isatty(STDOUT_FILENO),
        .old_name = a->file,
        .new_name = from,
        .old = a->old,
        .old_len = a->old ? strlen(a->old) : 0,
        .new = a->text.data,
        .new_len = a->text.len,
    };

    tern_diff_print(&d);
}

/* "Slurm has all 4 nodes and 1 partition of PATH". */
static void print_has(const struct tern_apply *a, const char *before)
{
    const size_t nodes = a->want.nodes.n, partitions = a->want.partitions.n;

    printf("%sSlurm has all %zu node%s and %zu partition%s of %s\n", before, nodes,
           nodes == 1 ? "" : "s", partitions, partitions == 1 ? "" : "s", a->file);
}

static void print_done(const struct tern_apply *a, const struct tern_apply_done *done)
{
    const struct tern_apply_changes *c = &a->changes;
    bool names = false;

    for (size_t i = 0; i < c->n; i++)
        names = names || (!c->at[i].partition && c->at[i].kind != TERN_APPLY_CHANGE);
    if (done->added_line)
        printf("%s includes %s now\n", a->conf, tern_fs_basename(a->file));
    if (*done->backup)
        printf("%s is written; the earlier one is %s\n", a->file, done->backup);
    print_has(a, "");
    if (a->other_default)
        printf("%s stays the default partition\n", a->other_default);
    if (names && done->restarted)
        printf("restart slurmd on every node, too: its way to the others is as old as its start\n");
}

static int apply(struct tern_apply *a, const struct tern_layout *l, struct tern_err *err)
{
    const struct tern_apply_options o = {
        .init = init, .restart = restart_command, .timeout_s = timeout_s};
    struct tern_apply_done done;

    if (make_text(a, l, err) < 0 || tern_apply_plan(a, err) < 0)
        return -1;
    if (tern_apply_is_done(a)) {
        print_has(a, "nothing to do: ");
        return 0;
    }
    if (dry_run)
        print_diff(a, l ? l->path : "the newest backup");
    print_changes(a);
    fflush(stdout);
    if (tern_apply_check(a, &o, err) < 0)
        return -1;
    if (dry_run)
        return 0;
    if (tern_apply_commit(a, &o, &done, err) < 0)
        return -1;
    print_done(a, &done);
    return 0;
}

static int run_apply(int n, char **args, struct tern_err *err)
{
    struct tern_apply a;

    if (undo ? n != 0 : n != 1)
        return tern_err_set(err, TERN_USAGE,
                            undo ? "--undo takes no LAYOUT." : "which LAYOUT? Or give --undo.");
    struct tern_layout *l = undo ? NULL : cluster_load_layout(args[0], apply_vars, err);
    if (!undo && !l)
        return -1;
    int rc = tern_apply_open(&a, /* lock= */ !dry_run, err);
    if (rc == 0) {
        rc = apply(&a, l, err);
        tern_apply_close(&a);
    }
    tern_layout_free(l);
    return rc;
}

static int run_drift(int n, char **args, struct tern_err *err)
{
    struct tern_layout *l = cluster_load_layout(args[0], drift_vars, err);
    struct tern_apply a;
    int rc = -1;

    (void)n;
    if (!l)
        return -1;
    if (tern_apply_open(&a, /* lock= */ false, err) < 0)
        goto out;
    if (make_text(&a, l, err) == 0 && tern_apply_compare_now(&a, err) == 0) {
        print_changes(&a);
        rc = a.changes.n ? TERN_FAILED : 0;
    }
    tern_apply_close(&a);
out:
    tern_layout_free(l);
    return rc;
}

const struct tern_cmd apply_cmd = {
    .name = "apply",
    .args = "LAYOUT",
    .summary = "put a layout's nodes and partitions into the Slurm of this machine",
    .about =
        "Writes tern-nodes.conf beside slurm.conf, which must include it, has slurmctld read its "
        "configuration, and compares its nodes and partitions with the layout. All else in "
        "slurm.conf stays the site's. Runs on the machine of slurmctld.\n\n"
        "The file appears whole; the earlier one is kept as tern-nodes.conf.N. If slurmctld does "
        "not take it, the earlier one is put back, in the file and in Slurm. A second apply of the "
        "same layout does nothing; after a kill it ends what was begun.\n\n"
        "Refused, with nothing written: a layout with errors; a node or partition that another "
        "file defines, too; lines that libslurm does not read; Neuron devices that gres.conf does "
        "not have; nodes or partitions that would go and have jobs. topology.conf and gres.conf "
        "are the site's: `tern cluster render` has their lines.\n\n"
        "`tern cluster drift LAYOUT` compares, and changes nothing.",
    .examples = "  tern cluster apply cluster.yaml -n\n"
                "  tern cluster apply cluster.yaml --init --restart 'systemctl restart slurmctld'\n"
                "  tern cluster apply --undo\n",
    .opts = apply_opts,
    .args_max = 1,
    .run = run_apply,
};

const struct tern_cmd drift_cmd = {
    .name = "drift",
    .args = "LAYOUT",
    .summary = "print how Slurm's nodes and partitions differ from a layout's",
    .about = "Asks slurmctld by libslurm: CPUs, sockets, cores, threads, memory, weight, features, "
             "devices and service of nodes; nodes, time limit, default, state and sharing of "
             "partitions. Every user may. A node or partition that slurmctld has and no file "
             "defines is one to remove. Exit status 1 if something differs.",
    .examples = "  tern cluster drift cluster.yaml\n",
    .opts = drift_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_drift,
};
