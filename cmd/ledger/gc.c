/* tern ledger gc: what of a ledger's files, and beside its checkpoints, is surely garbage. */
#include "cmd/ledger/show.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"
#include "core/ledger/gc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DAY_S = 86400 };

static struct {
    bool go, dry_run;
    int64_t bad_days;
} gc;

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

struct tally {
    json_t *rows; /* with --json */
    unsigned n, kept;
    uint64_t bytes;
    const char **folders; /* of checkpoints: done already */
    size_t n_folders;
    int rc; /* of the first that could not be removed */
    struct tern_err *err;
};

static void tell(void *ctx, const struct tern_ledger_garbage *g)
{
    struct tally *t = ctx;
    char bytes[32];

    t->n += !g->kept;
    t->kept += g->kept != NULL;
    t->bytes += g->kept ? 0 : g->bytes;
    if (t->rows) {
        json_t *j = json_pack("{s:o, s:I, s:o}", "path", show_json_text(g->path), "bytes",
                              (json_int_t)g->bytes, "what", show_json_text(g->what));
        json_object_set_new(j, "kept", g->kept ? show_json_text(g->kept) : json_null());
        json_array_append_new(t->rows, j);
        return;
    }
    tern_cmd_say("%10s  %s: %s%s%s",
                 g->kept ? "kept" : tern_str_bytes(bytes, sizeof bytes, g->bytes), g->what, g->path,
                 g->kept ? ": " : "", g->kept ? g->kept : "");
    fflush(stdout); /* named before it is removed */
}

static void failed(struct tally *t, const struct tern_err *why)
{
    if (t->rc == 0)
        *t->err = *why;
    t->rc = -1;
}

/* ---------------------------------------------------------------- beside checkpoints */

static uint64_t tree_bytes(const char *path)
{
    struct tern_tree tree = {0};
    uint64_t bytes = tern_tree_list_files(path, &tree, NULL) == 0 ? tree.bytes : 0;

    tern_tree_free(&tree);
    return bytes;
}

static void tell_checkpoint(void *ctx, const char *path, enum tern_ckpt_state state)
{
    const struct tern_ledger_garbage g = {
        path, tree_bytes(path),
        state == TERN_CKPT_TEMP ? "checkpoint whose writer died" : "half-deleted checkpoint", NULL};

    tell(ctx, &g);
}

static void count(void *ctx, const char *path, enum tern_ckpt_state state)
{
    (void)path, (void)state;
    ++*(unsigned *)ctx;
}

/* By the rules of `tern ckpt prune`, with all good checkpoints kept, and under the same lease,
 * which is not held while files are deleted. So a run may begin meanwhile. */
static void sweep_checkpoints(struct tally *t, const char *dir)
{
    unsigned n = 0;
    struct tern_ckpt_prune_how how = {
        .keep = UINT_MAX, .best = -1, .dry_run = true, .stop = &stopped, .each = count, .ctx = &n};
    struct tern_err why = {0};

    if (tern_ckpt_prune(dir, &how, /* removed= */ NULL, &why) < 0 || n == 0)
        return;
    how.each = tell_checkpoint;
    how.ctx = t;
    how.dry_run = !gc.go;
    how.later = gc.go;
    if (gc.go &&
        tern_ckpt_lease_acquire(dir, /* attempt= */ 0, "tern ledger gc", &how.lease, &why) < 0) {
        tell(t, &(struct tern_ledger_garbage){dir, 0, "unfinished checkpoints", why.text});
        return;
    }
    if (tern_ckpt_prune(dir, &how, /* removed= */ NULL, &why) < 0)
        failed(t, &why);
    tern_ckpt_lease_withdraw(how.lease);
    if (gc.go && tern_ckpt_empty_trash(dir, &stopped, &why) < 0)
        failed(t, &why);
}

/* ".NAME.RUN.trash": of retention of external checkpoints, whose supervisor has ended. */
static void sweep_external(struct tally *t, const char *dir, const char *run_id)
{
    char *end = tern_strf(".%s.trash", run_id);
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    struct tern_err why = {0};

    for (struct dirent *e; d && !stopped && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] != '.' || !tern_str_ends(e->d_name, end) ||
            TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) < 0 ||
            st.st_uid != geteuid())
            continue;
        char *path = tern_fs_join(dir, e->d_name);
        tell_checkpoint(t, path, TERN_CKPT_BROKEN);
        if (gc.go && tern_fs_remove_tree(path, &why) < 0)
            failed(t, &why);
        free(path);
    }
    if (d)
        closedir(d);
    free(end);
}

static bool is_done(struct tally *t, const char *dir)
{
    for (size_t i = 0; i < t->n_folders; i++)
        if (strcmp(t->folders[i], dir) == 0)
            return true;
    return false;
}

/* The caller's own folder, as a path from the root: a record may name any. */
static bool may_sweep(const char *dir)
{
    struct stat st;

    return dir[0] == '/' && TERN_AGAIN(lstat(dir, &st)) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

static void sweep_folder(struct tally *t, char *dir, const char *run_id)
{
    sweep_external(t, dir, run_id);
    if (is_done(t, dir)) { /* two runs may share it, one after the other */
        free(dir);
        return;
    }
    const char **more = realloc(t->folders, (t->n_folders + 1) * sizeof *more);
    if (!more)
        abort();
    t->folders = more;
    t->folders[t->n_folders++] = dir;
    sweep_checkpoints(t, dir);
}

static void sweep_run(struct tally *t, const char *run_id)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger *l = NULL;
    char *last = tern_strdup("");

    /* The error of a run that cannot be read was reported before. */
    if (tern_ledger_gc_rests(show.ledger, run_id, NULL) > 0 &&
        (l = tern_ledger_open_run(show.ledger, run_id, NULL)) &&
        tern_ledger_checkpoints(l, &rows, NULL) < 0)
        tern_ledger_rows_free(&rows);
    for (size_t i = 0; i < rows.n && !stopped; i++) {
        char *dir = tern_fs_dirname(rows.checkpoints[i].path);
        if (strcmp(dir, last) != 0 && may_sweep(dir))
            sweep_folder(t, tern_strdup(dir), run_id);
        free(last);
        last = dir;
    }
    free(last);
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}

static int sweep_runs(struct tally *t, struct tern_err *err)
{
    struct tern_ledger_rows ids = {0};

    if (tern_ledger_ids(show.ledger, &ids, err) < 0)
        return -1;
    for (size_t i = 0; i < ids.n && !stopped; i++)
        sweep_run(t, ids.names[i]);
    tern_ledger_rows_free(&ids);
    return 0;
}

/* ---------------------------------------------------------------- the command */

static int print(struct tally *t, struct tern_err *err)
{
    char bytes[32];

    if (t->rows)
        return show_json(json_incref(t->rows), err);
    if (t->n == 0)
        printf("nothing %s\n", gc.go ? "is to be removed" : "would go");
    else
        printf("%u %s, %s%s\n", t->n, gc.go ? "removed" : "would go",
               tern_str_bytes(bytes, sizeof bytes, t->bytes),
               gc.go ? "" : ". To remove them: tern ledger gc --remove");
    return 0;
}

static void clean(struct tally *t)
{
    const struct tern_ledger_gc_how how = {
        .remove = gc.go, .bad_s = gc.bad_days * DAY_S, .stop = &stopped, .each = tell, .ctx = t};
    struct tern_err why = {0};

    tern_progress_begin("runs", "%s", show.ledger);
    if (tern_ledger_gc(show.ledger, &how, &why) < 0)
        failed(t, &why);
    if (!stopped && sweep_runs(t, &why) < 0)
        failed(t, &why);
    tern_progress_end();
    if (gc.go && t->n && !stopped && tern_ledger_fold_catalog(show.ledger, &why) < 0)
        failed(t, &why);
}

static int run(int n_args, char **args, struct tern_err *err)
{
    const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct tern_ledger_rows homes = {0};
    struct tally t = {.err = err};

    (void)n_args, (void)args;
    if (gc.go && gc.dry_run)
        return tern_err_set(err, TERN_USAGE, "give --remove or --dry-run, not both");
    if (gc.bad_days < 0 || gc.bad_days > 100000)
        return tern_err_set(err, TERN_USAGE, "--bad-older takes 0 to 100000 days");
    if (show_need_ledger(err) < 0 ||
        tern_ledger_homes(show.ledger, /* all= */ false, &homes, err) < 0)
        return -1;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    t.rows = show.json ? json_array() : NULL;
    for (size_t i = 0; i < homes.n && !stopped; i++) {
        show.ledger = homes.names[i];
        clean(&t);
    }
    int rc = print(&t, err) < 0 ? -1 : t.rc;
    for (size_t i = 0; i < t.n_folders; i++)
        free((char *)t.folders[i]);
    free(t.folders);
    json_decref(t.rows);
    show.ledger = NULL;
    tern_ledger_rows_free(&homes);
    if (rc < 0 && stopped) {
        tern_error("%s", err->text);
        return 128 + stopped;
    }
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"remove", 0, TERN_OPT_FLAG, .to.flag = &gc.go, .help = "remove what is listed"},
    {"dry-run", 'n', TERN_OPT_FLAG, .to.flag = &gc.dry_run,
     .help = "print what would go, and remove nothing: so it is without --remove"},
    {"bad-older", 0, TERN_OPT_INT, "DAYS", .def = "30", .to.integer = &gc.bad_days,
     .help = "age of a damaged run.db, kept aside as run.db.bad, that may go"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};

const struct tern_cmd ledger_gc = {
    .name = "gc",
    .summary = "list what is surely garbage of a ledger, and remove it on demand",
    .about = "Looks through the caller's runs, and only at files of the caller. It finds temporary "
             "files of folds and merges that were killed. It finds folders of runs without any "
             "record, left when a part is deleted by hand. It finds run.db.bad, a damaged run.db "
             "that a fold has put aside, once the run verifies and the spools have all its "
             "records. It finds folders of merges that were ended, once the run has all of it. "
             "Beside checkpoints that runs recorded, it finds half-deleted ones and those whose "
             "writer died. Nothing of a run that goes on is touched, and what may be the only copy "
             "of something is kept, with the reason. Without --remove nothing is changed.",
    .examples = "  tern ledger gc\n"
                "  tern ledger gc --remove\n",
    .opts = opts,
    .run = run,
};
