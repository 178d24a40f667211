#include "cmd/ckpt/external.h"

#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/retain/external.h"
#include "core/retain/offline.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_about(const char *file, const char *path)
{
    struct tern_retain_record r = {0};
    bool match = tern_retain_record_read(file, &r, NULL, NULL) == 0 && (r.verified || r.deleted) &&
                 (strcmp(r.path, path) == 0 || (r.mirror && strcmp(r.mirror, path) == 0));

    tern_retain_record_free(&r);
    return match;
}

/* The record of `path`, or of the checkpoint that it is a copy of; malloc'ed; NULL for none. */
static char *find_record(const char *dir, const char *path)
{
    char *file = tern_retain_record_path(dir, path);
    DIR *d;

    if (is_about(file, path))
        return file;
    free(file);
    file = NULL;
    d = opendir(dir);
    for (struct dirent *e; d && !file && (e = readdir(d));) {
        if (!tern_str_ends(e->d_name, ".json"))
            continue;
        char *one = tern_strf("%s/%s", dir, e->d_name);
        if (is_about(one, path))
            file = one;
        else
            free(one);
    }
    if (d)
        closedir(d);
    return file;
}

static int find_run(const char *run, const char *ledger, char **home, char id[TERN_ULID_SIZE],
                    struct tern_err *err)
{
    if (!ledger)
        return tern_err_set(err, TERN_USAGE,
                            "run %s: of which ledger? Give --ledger, or set TERN_LEDGER", run);
    return tern_ledger_locate(ledger, run, /* job= */ NULL, home, id, err);
}

static char *record_of_run(const char *path, const char *run, const char *ledger,
                           struct tern_err *err)
{
    char id[TERN_ULID_SIZE], *file = NULL, *home;

    if (find_run(run, ledger, &home, id, err) < 0)
        return NULL;
    char *dir = tern_retain_external_dir(home, id), *real = realpath(path, NULL);
    if (!real)
        tern_err_sys(err, "%s", path);
    else if (!(file = find_record(dir, real)))
        tern_err_set(err, TERN_USAGE, "%s: was not verified in run %s", path, id);
    if (err && !real)
        err->code = TERN_USAGE;
    free(real);
    free(dir);
    free(home);
    return file;
}

int ckpt_verify_external(const char *path, const char *manifest, const char *run,
                         const char *ledger, struct tern_err *err)
{
    struct tern_retain_record r = {0};
    struct tern_tree t = {0};
    char *file = manifest ? tern_strdup(manifest) : record_of_run(path, run, ledger, err);
    int rc = -1;

    tern_progress_begin(/* unit= */ NULL, "%s", path);
    if (file && tern_retain_record_read(file, &r, &t, err) == 0)
        rc = tern_tree_verify(path, &t, true, err);
    tern_progress_end();
    if (rc == 0)
        printf("%s: good, every byte of %zu files, digest %.12s\n", path, t.n, t.digest);
    tern_retain_record_free(&r);
    tern_tree_free(&t);
    free(file);
    return rc;
}

int ckpt_mirror(const char *run, const char *ledger, struct tern_err *err)
{
    struct tern_retain_offline did = {0};
    char id[TERN_ULID_SIZE], *home;
    uint32_t uid;

    if (find_run(run, ledger, &home, id, err) < 0)
        return -1;
    /* The run's folder says which files are copied, and where: another user may have written it. */
    bool theirs = tern_ledger_home_uid(home, &uid) && uid != geteuid();
    tern_progress_begin(/* unit= */ NULL, "%s", run ? run : id);
    int made =
        theirs
            ? tern_err_set(err, TERN_USAGE,
                           "%s: run %s belongs to another user, and only that user can mirror it",
                           home, id)
            : tern_retain_run_offline(home, id, &did, err);
    tern_progress_end();
    free(home);
    if (made < 0)
        return -1;
    if (did.mirror)
        printf("%s: %zu copied to %s\n", id, did.copied, did.mirror);
    int rc = did.left ? tern_err_set(err, TERN_TEMPFAIL,
                                     "%zu checkpoints of run %s are not verified%s; why stands "
                                     "above. Those that are done stay; try again.",
                                     did.left, id, did.mirror ? " and copied" : "")
                      : 0;
    if (rc == 0)
        printf("%s: every checkpoint is %s\n", id,
               did.mirror ? "verified and has its copy"
                          : "verified (the recipe has no "
                            "checkpoint.mirror)");
    tern_retain_offline_free(&did);
    return rc;
}
