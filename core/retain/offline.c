#include "core/retain/offline.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/retain/look.h"
#include "core/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { NOTE_BYTES = 1 << 16 };

static char *note_path(const char *ledger_dir, const char *run_id)
{
    return tern_strf("%s/runs/%s/keep.json", ledger_dir, run_id);
}

/* A reader may have another working folder, so paths are absolute. */
static void put_path(json_t *j, const char *key, const char *path)
{
    char *cwd = path && *path != '/' && !tern_store_is(path) ? getcwd(NULL, 0) : NULL;
    char *whole = cwd ? tern_fs_join(cwd, path) : path ? tern_strdup(path) : NULL;

    if (whole)
        json_object_set_new(j, key, json_string(whole));
    free(whole);
    free(cwd);
}

int tern_retain_offline_note(const struct tern_retain_options *o, struct tern_err *err)
{
    char *path = note_path(o->ledger_dir, o->run_id), *dir = tern_fs_dirname(path);
    json_t *j = json_pack("{s:i}", "version", 1);

    put_path(j, "glob", o->glob);
    put_path(j, "own_dir", o->own_dir);
    put_path(j, "mirror", o->mirror);
    if (o->marker)
        json_object_set_new(j, "marker", json_string(o->marker));
    char *text = json_dumps(j, JSON_INDENT(1));
    int rc = text ? tern_fs_mkdirs_like(dir, err) : -1;
    if (rc == 0)
        rc = tern_fs_replace(path, text, strlen(text), tern_fs_bits_in(dir), err);
    else if (!text)
        tern_err_set(err, TERN_FAILED, "%s: cannot be written; are the paths UTF-8?", path);
    free(text);
    json_decref(j);
    free(dir);
    free(path);
    return rc;
}

/* Its retention process ended with it. */
static bool has_ended(const char *ledger_dir, const char *run_id)
{
    struct tern_ledger *l = tern_ledger_open_run(ledger_dir, run_id, NULL);
    struct tern_ledger_rows a = {0};
    bool ended =
        l && tern_ledger_attempts(l, &a, NULL) == 0 && a.n && a.attempts[a.n - 1].outcome != NULL;

    tern_ledger_rows_free(&a);
    tern_ledger_close(l);
    return ended;
}

/* Take over half copies of a retention process that has ended. */
static void take_over(const struct tern_retain_options *o)
{
    char *end = tern_strf(".%s.new", o->run_id);
    DIR *d = o->mirror ? TERN_AGAIN_PTR(opendir(o->mirror)) : NULL;

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_ends(e->d_name, end))
            continue;
        char *from = tern_strf("%s/%s", o->mirror, e->d_name);
        char *to = tern_strf("%.*s" TERN_RETAIN_COPY_OFFLINE, (int)(strlen(from) - 3), from);
        tern_fs_rename(from, to,
                       false); /* fails where an earlier call has begun that copy itself */
        free(from);
        free(to);
    }
    if (d)
        closedir(d);
    free(end);
}

static int work(const struct tern_retain_options *o, struct tern_retain_offline *out,
                struct tern_err *err)
{
    struct tern_retain_look k;

    if (has_ended(o->ledger_dir, o->run_id))
        take_over(o);
    if (tern_retain_look_open(&k, o, err) < 0)
        return -1;
    int rc = tern_retain_look_find(&k, err);
    if (rc == 0) {
        tern_retain_work(&k);
        *out = (struct tern_retain_offline){
            .mirror = o->mirror ? tern_strdup(o->mirror) : NULL,
            .copied = k.copied,
            .left = k.left + k.bad,
        };
    }
    tern_retain_look_close(&k);
    if (rc == 0 && (tern_ledger_fold(o->ledger_dir, o->run_id, err) < 0 ||
                    tern_ledger_fold_catalog(o->ledger_dir, err) < 0))
        tern_warn("%s", err->text);
    return rc;
}

int tern_retain_run_offline(const char *ledger_dir, const char *run_id,
                            struct tern_retain_offline *out, struct tern_err *err)
{
    char *path = note_path(ledger_dir, run_id);
    int fd = TERN_AGAIN(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)), rc = -1;
    json_t *j = NULL;

    if (fd < 0 && errno == ENOENT)
        tern_err_set(err, TERN_USAGE,
                     "%s: is not there: the run keeps no checkpoints (checkpoint.mirror, "
                     "workload.progress), or its last attempt was of an older tern",
                     path);
    else if (fd < 0)
        tern_err_sys(err, "%s", path);
    else if (TERN_AGAIN(flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK)
        tern_err_set(err, TERN_TEMPFAIL, "%s: another process mirrors this run at present", path);
    else
        j = tern_json_load(path, NOTE_BYTES, err);
    struct tern_retain_options o = {
        .ledger_dir = ledger_dir,
        .run_id = run_id,
        .glob = json_string_value(json_object_get(j, "glob")),
        .marker = json_string_value(json_object_get(j, "marker")),
        .own_dir = json_string_value(json_object_get(j, "own_dir")),
        .mirror = json_string_value(json_object_get(j, "mirror")),
        .offline = true,
    };
    if (j && tern_ledger_last_attempt(ledger_dir, run_id, &o.attempt, err) == 0)
        rc = work(&o, out, err);
    json_decref(j);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

void tern_retain_offline_free(struct tern_retain_offline *o)
{
    free(o->mirror);
    *o = (struct tern_retain_offline){0};
}
