#include "core/ledger/gc.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ledger/db.h"
#include "core/ledger/files.h"
#include "core/ledger/fold.h"
#include "core/ledger/ledger.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct gc {
    const char *home;
    const struct tern_ledger_gc_how *how;
    int rc; /* of the first that could not be removed */
    struct tern_err *err;
};

/* ---------------------------------------------------------------- what is there */

/* Is it the caller's own, and of that kind?  No link is followed. */
static bool is_own(const char *path, mode_t type, struct stat *st)
{
    return TERN_AGAIN(lstat(path, st)) == 0 && (st->st_mode & S_IFMT) == type &&
           st->st_uid == geteuid();
}

static bool is_old(time_t then, int64_t seconds)
{
    return time(NULL) - then >= seconds;
}

static size_t count_if(const char *s, int (*is)(int))
{
    size_t n = 0;

    while (s[n] && is((unsigned char)s[n]))
        n++;
    return n;
}

/* "FILE.tmp-HOST-NAMESPACE-PID-XXXXXX", as fs.c makes it? */
static bool is_temp_name(const char *name)
{
    const char *at = strstr(name, ".tmp-");

    if (!at || at == name)
        return false;
    at += strlen(".tmp-");
    size_t n = strcspn(at, "-");
    if (!n || at[n] != '-')
        return false;
    at += n + 1;
    for (int i = 0; i < 2; i++) {
        n = count_if(at, isdigit);
        if (!n || at[n] != '-')
            return false;
        at += n + 1;
    }
    return count_if(at, isalnum) == 6 && !at[6];
}

static bool is_left(const char *name, const struct stat *st)
{
    return tern_fs_temp_left(name) || is_old(st->st_mtime, TERN_LEDGER_GC_REST_S);
}

/* ---------------------------------------------------------------- telling and removing */

static void failed(struct gc *g, const struct tern_err *why)
{
    if (g->rc == 0 && g->err)
        *g->err = *why;
    g->rc = -1;
}

/* Tell it, and remove it; -1: stopped. */
static int take(struct gc *g, const char *path, uint64_t bytes, const char *what, const char *kept)
{
    const struct tern_ledger_garbage it = {path, bytes, what, kept};
    struct tern_err why = {0};

    if (g->how->stop && *g->how->stop) {
        tern_err_set(&why, TERN_FAILED, "interrupted; what is not listed stays");
        failed(g, &why);
        return -1;
    }
    g->how->each(g->how->ctx, &it);
    if (!kept && g->how->remove && tern_fs_remove_tree(path, &why) < 0)
        failed(g, &why);
    return 0;
}

/* Names in `dir` that `is` takes; `each` gets their paths. */
static int each_name(struct gc *g, const char *dir, bool (*is)(const char *name),
                     int (*each)(struct gc *g, const char *path))
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int rc = 0;

    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        if (!is(e->d_name))
            continue;
        char *path = tern_fs_join(dir, e->d_name);
        rc = each(g, path);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

static int take_temp(struct gc *g, const char *path)
{
    struct stat st;

    if (!is_own(path, S_IFREG, &st) || !is_left(tern_fs_basename(path), &st))
        return 0;
    return take(g, path, (uint64_t)st.st_size, "temporary file", NULL);
}

/* Everywhere in a run's folder: a merge's, too, lie beside the files that they were to become. */
static int take_temps(struct gc *g, const char *run, const struct tern_tree *tree)
{
    int rc = 0;

    for (size_t i = 0; i < tree->n && rc == 0; i++) {
        if (tree->file[i].link || !is_temp_name(tern_fs_basename(tree->file[i].name)))
            continue;
        char *path = tern_fs_join(run, tree->file[i].name);
        rc = take_temp(g, path);
        free(path);
    }
    return rc;
}

/* ---------------------------------------------------------------- a run.db kept aside */

/* The run verifies: every record of its spools is sound, and its run.db says all of them. */
static bool is_whole(struct gc *g, const char *run_id)
{
    struct tern_ledger_check c = {0};
    struct tern_buf findings = {0};
    bool whole = tern_ledger_verify(g->home, run_id, &c, &findings, NULL) == 0 && !c.damaged &&
                 !c.unfolded && c.files;

    tern_buf_free(&findings);
    return whole;
}

static bool is_bad_name(const char *name)
{
    int64_t n;

    return strcmp(name, "run.db.bad") == 0 ||
           (tern_str_starts(name, "run.db.bad.") &&
            tern_str_int(name + strlen("run.db.bad."), 2, 999, &n) == 0);
}

static int take_bad(struct gc *g, const char *path)
{
    char *dir = tern_fs_dirname(path);
    const char *run_id = tern_fs_basename(dir);
    struct stat st;
    int rc = 0;

    /* Its change is when it got this name: the content is older. */
    if (is_own(path, S_IFREG, &st) && is_old(st.st_ctime, g->how->bad_s))
        rc = take(g, path, (uint64_t)st.st_size, "damaged run.db, kept aside",
                  is_whole(g, run_id) ? tern_ledger_aside_only_copy(g->home, run_id, path)
                                      : "the run does not verify: see tern ledger verify");
    free(dir);
    return rc;
}

/* ---------------------------------------------------------------- folders */

/* Has anything in the folder changed in the last day?  Empty folders in it do not matter. */
static bool is_tree_old(const char *dir, const struct tern_tree *tree)
{
    struct stat st;
    bool old = TERN_AGAIN(lstat(dir, &st)) == 0 && is_old(st.st_mtime, TERN_LEDGER_GC_REST_S);

    for (size_t i = 0; i < tree->n && old; i++) {
        char *path = tern_fs_join(dir, tree->file[i].name);
        old = TERN_AGAIN(lstat(path, &st)) == 0 && is_old(st.st_mtime, TERN_LEDGER_GC_REST_S);
        free(path);
    }
    return old;
}

/* A run without records: what its folder holds beside settings of retention, which serve the run.
 */
static int take_half(struct gc *g, const char *run, const struct tern_tree *tree)
{
    char *kept = NULL;
    int rc = 0;

    if (!is_tree_old(run, tree))
        return 0;
    for (size_t i = 0; i < tree->n && !kept; i++) {
        const struct tern_tree_file *f = &tree->file[i];
        if (f->bytes && !is_temp_name(tern_fs_basename(f->name)) && strcmp(f->name, "keep.json"))
            kept = tern_strf("nothing else has its %s", f->name);
    }
    rc = take(g, run, tree->bytes, "folder of a run without records", kept);
    free(kept);
    return rc;
}

/* "RUN.tmp-XXXXXX", as tern_fs_folder_beside makes it. */
static bool is_aside_name(const char *name)
{
    char id[TERN_ULID_SIZE] = "";

    if (strlen(name) != TERN_ULID_SIZE - 1 + strlen(".tmp-XXXXXX"))
        return false;
    memcpy(id, name, TERN_ULID_SIZE - 1);
    return tern_ledger_ulid_valid(id) && tern_str_starts(name + TERN_ULID_SIZE - 1, ".tmp-");
}

static int take_aside(struct gc *g, const char *path)
{
    char *run = tern_strf("%.*s", (int)(strlen(path) - strlen(".tmp-XXXXXX")), path), *kept = NULL;
    struct tern_tree tree = {0};
    struct stat st;
    int rc = 0;

    if (!is_own(path, S_IFDIR, &st) || tern_tree_list_files(path, &tree, NULL) < 0 ||
        !is_tree_old(path, &tree))
        goto out;
    for (size_t i = 0; i < tree.n && !kept; i++) {
        char *there = tern_fs_join(run, tree.file[i].name);
        if (!is_temp_name(tern_fs_basename(there)) &&
            (TERN_AGAIN(stat(there, &st)) < 0 || (uint64_t)st.st_size < tree.file[i].bytes))
            kept = tern_strf("the run lacks its %s: repeat the tern ledger merge that was ended",
                             tree.file[i].name);
        free(there);
    }
    rc = take(g, path, tree.bytes, "folder of a merge that was ended", kept);
out:
    tern_tree_free(&tree);
    free(kept);
    free(run);
    return rc;
}

/* ---------------------------------------------------------------- runs */

int tern_ledger_gc_rests(const char *home, const char *run_id, struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open_run(home, run_id, err);
    struct tern_ledger_rows rows = {0};
    int rc = l ? tern_ledger_attempts(l, &rows, err) : -1;

    if (rc == 0)
        rc = (rows.n && rows.attempts[rows.n - 1].outcome) ||
             tern_ledger_silence(home, run_id) >= TERN_LEDGER_GC_REST_S;
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return rc;
}

/* Has the run a record, or a snapshot of records that are gone? */
static int has_records(const char *home, const char *run_id, bool *ret_has, struct tern_err *err)
{
    struct tern_ledger_spool_files files = {0};
    char *db = tern_ledger_run_db(home, run_id);
    struct stat st;
    int rc = tern_ledger_spool_files_list(home, run_id, &files, err);

    *ret_has = TERN_AGAIN(lstat(db, &st)) == 0 || errno != ENOENT;
    for (size_t i = 0; rc == 0 && i < files.n; i++)
        *ret_has = *ret_has || files.files[i].bytes > 0;
    if (rc == 0)
        tern_ledger_spool_files_free(&files);
    free(db);
    return rc;
}

/* -1: stopped, or an error of the run, which `why` has. */
static int gc_run(struct gc *g, const char *run_id, const char *run, struct tern_err *why)
{
    struct tern_tree tree = {0};
    struct stat st;
    bool has;
    int rc = -1;

    if (!is_own(run, S_IFDIR, &st))
        return 0;
    if (has_records(g->home, run_id, &has, why) < 0 || tern_tree_list_files(run, &tree, why) < 0)
        goto out;
    rc = has ? tern_ledger_gc_rests(g->home, run_id, why) : 0;
    if (!has)
        rc = take_half(g, run, &tree);
    else if (rc > 0)
        rc = take_temps(g, run, &tree) < 0 || each_name(g, run, is_bad_name, take_bad) < 0 ? -1 : 0;
out:
    tern_tree_free(&tree);
    return rc;
}

int tern_ledger_gc(const char *home, const struct tern_ledger_gc_how *how, struct tern_err *err)
{
    struct gc g = {.home = home, .how = how, .err = err};
    struct tern_ledger_rows ids = {0};
    char *runs = tern_fs_join(home, "runs");

    if (tern_ledger_ids(home, &ids, err) < 0) {
        free(runs);
        return -1;
    }
    tern_progress_expect(ids.n);
    int rc = each_name(&g, home, is_temp_name, take_temp);
    if (rc == 0)
        rc = each_name(&g, runs, is_aside_name, take_aside);
    for (size_t i = 0; i < ids.n && rc == 0; i++) {
        struct tern_err why = {0};
        char *run = tern_fs_join(runs, ids.names[i]);
        rc = gc_run(&g, ids.names[i], run, &why);
        if (rc < 0 && *why.text) {
            tern_warn("run %s is left out: %s", ids.names[i], why.text);
            rc = 0;
        }
        free(run);
        tern_progress_add(1);
    }
    tern_ledger_rows_free(&ids);
    free(runs);
    return g.rc;
}
