/* tern ledger merge: runs of another ledger, taken into this one. */
#include "cmd/ledger/show.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool dry_run;

struct merging {
    char *to;                            /* the home that runs go to */
    unsigned runs, failed, same, behind; /* behind: taken, not folded */
};

static bool is_same_folder(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool same = x && y && strcmp(x, y) == 0;

    free(x);
    free(y);
    return same;
}

/* A run that cannot be taken is reported, and the other runs are taken. */
static void merge_run(struct merging *g, const char *from, const char *id)
{
    struct tern_ledger_merged m = {.new_run = false};
    struct tern_err err = {0};
    char bytes[32];

    g->runs++;
    tern_progress_begin(NULL, "%s", id);
    int rc = tern_ledger_merge(from, g->to, id, dry_run, &m, &err);
    tern_progress_end();
    if (rc < 0) {
        g->failed++;
        tern_warn("%s", err.text);
        return;
    }
    /* Also one that is here whole: a merge that was killed has not folded it. */
    if (!dry_run && tern_ledger_fold(g->to, id, &err) < 0) {
        g->behind++;
        tern_warn("%s", err.text);
    }
    if (m.files == 0) {
        g->same++;
        return;
    }
    printf("%s  %s: %" PRIu64 " files, %s", id, m.new_run ? "new" : "grown", m.files,
           tern_str_bytes(bytes, sizeof bytes, m.bytes));
    if (!m.new_run)
        printf(" (%" PRIu64 " of them have grown)", m.grown);
    putchar('\n');
    fflush(stdout);
}

static int merge_home(struct merging *g, const char *from, struct tern_err *err)
{
    struct tern_ledger_rows ids = {0};

    if (is_same_folder(from, g->to))
        return tern_err_set(err, TERN_USAGE, "%s: is the ledger itself", from);
    if (tern_ledger_ids(from, &ids, err) < 0)
        return -1;
    for (size_t i = 0; i < ids.n; i++)
        merge_run(g, from, ids.names[i]);
    tern_ledger_rows_free(&ids);
    return 0;
}

static int merge_all(struct merging *g, const char *other, struct tern_err *err)
{
    struct tern_ledger_rows homes = {0};
    int rc = tern_ledger_homes(other, show.all, &homes, err);

    for (size_t i = 0; i < homes.n && rc == 0; i++)
        rc = merge_home(g, homes.names[i], err);
    tern_ledger_rows_free(&homes);
    return rc;
}

/* Those that the user names, by what they are called in the other ledger. */
static int merge_named(struct merging *g, const char *other, int n, char **names,
                       struct tern_err *err)
{
    char id[TERN_ULID_SIZE];

    for (int i = 0; i < n; i++) {
        show.ledger = other;
        if (show_find(names[i], id, err) < 0)
            return -1;
        if (is_same_folder(show.ledger, g->to))
            return tern_err_set(err, TERN_USAGE, "%s: is the ledger itself", show.ledger);
        merge_run(g, show.ledger, id);
    }
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct merging g = {.to = NULL};
    char *runs = tern_fs_join(args[0], "runs"), *users = tern_fs_join(args[0], "u");
    int rc = -1;

    if (show_need_ledger(err) < 0)
        goto out;
    if (!tern_fs_exists(runs) && !tern_fs_exists(users)) {
        tern_err_set(err, TERN_USAGE, "%s: is no ledger: it has no folder 'runs'", args[0]);
        goto out;
    }
    if (tern_fs_check_folder(show.ledger, /* or_none= */ true, err) < 0)
        goto out;
    if (tern_ledger_home(show.ledger, TERN_LEDGER_UMASK, &g.to, err) < 0)
        goto out;
    rc = n_args > 1 ? merge_named(&g, args[0], n_args - 1, args + 1, err)
                    : merge_all(&g, args[0], err);
    if (rc == 0 && !dry_run)
        rc = tern_ledger_fold_catalog(g.to, err);
    if (rc == 0 && g.same)
        tern_info("%u of %u runs are here already, whole", g.same, g.runs);
    if (rc == 0 && g.behind)
        rc = tern_err_set(err, TERN_TEMPFAIL,
                          "%u of %u runs are here, but not yet in run.db: tern ledger fold",
                          g.behind, g.runs);
    if (rc == 0 && g.failed)
        rc = tern_err_set(err, TERN_FAILED, "%u of %u runs could not be taken", g.failed, g.runs);
out:
    free(g.to);
    free(runs);
    free(users);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"all-users", 'a', TERN_OPT_FLAG, .to.flag = &show.all,
     .help = "if OTHER is shared: runs of all its users, not only the caller's"},
    {"dry-run", 'n', TERN_OPT_FLAG, .to.flag = &dry_run,
     .help = "print what would be taken, and change nothing"},
    {0},
};

const struct tern_cmd ledger_merge = {
    .name = "merge",
    .args = "OTHER [RUN...]",
    .summary = "take runs of another ledger into this one",
    .about =
        "Copies the records and logs of all runs in the ledger OTHER, or of those named. A run "
        "that is in both ledgers gets what OTHER has beyond it, so the command may be "
        "repeated while runs go on there. Where both have records that contradict each "
        "other, nothing of that run is taken, and the status is 1. OTHER is not changed; "
        "checkpoints stay where they are. The runs become the caller's.",
    .examples = "  tern ledger merge /cluster-b/ledger\n"
                "  tern ledger merge -n old-ledger pubmed-cpt\n",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};
