/* The files of a run, and how far they are written. */
#include "core/tensorboard/tensorboard.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/tensorboard/record.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define POSITION ".tern-position"
enum {
    PIECE = 1 << 20,         /* written at once */
    POSITION_MAX = 64 << 20, /* 65,536 names of 200 bytes in a few attempts */
    NAME_MAX_BYTES = 100,    /* of a folder, for the run's part */
    ID_END = 6,              /* letters of the id behind it */
};

/* Rows of the run, and the folder that they go to. */
struct writer {
    struct tern_ledger *run;
    const char *folder;
    json_t *attempts; /* by number: {file, bytes, tags: {tag: [last step, values, last time]}} */
    struct tern_ledger_rows runs, rows, metrics, evals;
    bool any; /* an earlier attempt has values */
    uint64_t values;
};

/* What is written of a tag. */
struct written {
    int64_t step; /* the greatest; -1: nothing */
    uint64_t n;
    int64_t wall_ns; /* the latest */
};

/* One attempt's file. */
struct file {
    struct writer *w;
    const struct tern_ledger_attempt *a;
    char *path;
    int fd;
    json_t *tags;
    int64_t bytes;
    struct tern_buf piece;
    char tag[TERN_TENSORBOARD_TAG_MAX + 1];
    struct written written; /* of `tag` */
};

static void rows_free(struct writer *w)
{
    tern_ledger_rows_free(&w->runs);
    tern_ledger_rows_free(&w->rows);
    tern_ledger_rows_free(&w->metrics);
    tern_ledger_rows_free(&w->evals);
}

static int rows_load(struct writer *w, struct tern_err *err)
{
    if (tern_ledger_runs(w->run, &w->runs, err) < 0 ||
        tern_ledger_attempts(w->run, &w->rows, err) < 0 ||
        tern_ledger_metrics(w->run, &w->metrics, err) < 0 ||
        tern_ledger_evals(w->run, &w->evals, err) < 0)
        return -1;
    return w->runs.n == 1 ? 0 : tern_err_set(err, TERN_USAGE, "the run has no records yet");
}

/* ---- names ---- */

/* A part of a file's name: what could lead elsewhere or trouble a shell becomes '_'. */
static void make_plain(char *s)
{
    for (char *c = s; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-+=", *c))
            *c = '_';
    if (*s == '.')
        *s = '_';
}

static char *folder_name(const struct tern_ledger_run *r)
{
    const size_t len = strlen(r->id);
    char *name = tern_strf("%.*s-%s", (int)NAME_MAX_BYTES, r->name && *r->name ? r->name : "run",
                           r->id + (len > ID_END ? len - ID_END : 0));

    make_plain(name);
    return name;
}

/* TensorBoard reads a folder's files in the order of their names: by the time they began. */
static char *file_name(const struct tern_ledger_attempt *a)
{
    char *name = tern_strf("events.out.tfevents.%010" PRId64 ".%.64s.%" PRId64 ".%04" PRIu32,
                           a->begin_ns / 1000000000, a->host && *a->host ? a->host : "host", a->pid,
                           a->attempt);

    make_plain(name);
    return name;
}

/* ---- an attempt's file ---- */

static int flush(struct file *f, struct tern_err *err)
{
    if (tern_buf_check(&f->piece, f->path, err) < 0 ||
        tern_fs_write_at(f->fd, (uint64_t)f->bytes, f->piece.data, f->piece.len, f->path, err) < 0)
        return -1;
    f->bytes += (int64_t)f->piece.len;
    tern_buf_clear(&f->piece);
    return 0;
}

static int take_point(void *self, const struct tern_ledger_point *p, struct tern_err *err)
{
    struct file *f = self;
    struct written *w = &f->written;

    tern_tensorboard_put_scalar(&f->piece, p->wall_ns, p->step, f->tag, p->value);
    w->step = p->step > w->step ? p->step : w->step;
    w->wall_ns = p->wall_ns > w->wall_ns ? p->wall_ns : w->wall_ns;
    w->n++;
    f->w->values++;
    return f->piece.len < PIECE ? 0 : flush(f, err);
}

/* Go on with another tag. */
static void begin_tag(struct file *f, const char *before, const char *name, const char *behind)
{
    const int room = TERN_TENSORBOARD_TAG_MAX - (int)(strlen(before) + strlen(behind));

    snprintf(f->tag, sizeof f->tag, "%s%.*s%s", before, room, name, behind);
    tern_str_mask(f->tag);
    const json_t *v = json_object_get(f->tags, f->tag);
    f->written = (struct written){.step = -1};
    if (json_array_size(v) == 3)
        f->written = (struct written){.step = json_integer_value(json_array_get(v, 0)),
                                      .n = (uint64_t)json_integer_value(json_array_get(v, 1)),
                                      .wall_ns = json_integer_value(json_array_get(v, 2))};
}

static void end_tag(struct file *f)
{
    const struct written *w = &f->written;

    if (w->n)
        json_object_set_new(
            f->tags, f->tag,
            json_pack("[I, I, I]", (json_int_t)w->step, (json_int_t)w->n, (json_int_t)w->wall_ns));
}

/* Points come in order of step but for a few: evaluations of older checkpoints, say.  They are
 * those up to the last step that are more than what is written. */
static int put_metric(struct file *f, const char *name, struct tern_err *err)
{
    struct tern_ledger_points which = {
        .metric = name, .attempt = f->a->attempt, .later_ns = INT64_MAX};
    uint64_t n = 0;

    begin_tag(f, "", name, "");
    which.behind = f->written.step;
    if (f->written.n && tern_ledger_points_count(f->w->run, &which, &n, err) < 0)
        return -1;
    if (n > f->written.n)
        which.later_ns = f->written.wall_ns;
    int rc = tern_ledger_points(f->w->run, &which, take_point, f, err);
    end_tag(f);
    return rc;
}

static int put_metrics(struct file *f, struct tern_err *err)
{
    const struct tern_ledger_rows *metrics = &f->w->metrics;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < metrics->n; i++)
        rc = put_metric(f, metrics->names[i], err);
    return rc;
}

static int put_eval(struct file *f, const struct tern_ledger_eval *e, const char *what,
                    double value, struct tern_err *err)
{
    struct tern_ledger_point p = {.step = e->step, .value = value, .wall_ns = e->wall_ns};
    int rc = 0;

    begin_tag(f, "held_out/", e->set, what);
    if (e->step > f->written.step || e->wall_ns > f->written.wall_ns)
        rc = take_point(f, &p, err);
    end_tag(f);
    return rc;
}

static int put_evals(struct file *f, struct tern_err *err)
{
    const struct tern_ledger_rows *evals = &f->w->evals;

    for (size_t i = 0; i < evals->n; i++) {
        const struct tern_ledger_eval *e = &evals->evals[i];
        if (e->attempt != f->a->attempt)
            continue;
        if (put_eval(f, e, "/perplexity_token", e->ppl_token, err) < 0 ||
            (e->bytes && put_eval(f, e, "/perplexity_byte", e->ppl_byte, err) < 0))
            return -1;
    }
    return 0;
}

static bool has_values(const struct writer *w, const struct tern_ledger_attempt *a)
{
    bool any = a->first_step >= 0;

    for (size_t i = 0; i < w->evals.n && !any; i++)
        any = w->evals.evals[i].attempt == a->attempt;
    return any;
}

/* The file as long as the position says; one that is shorter (a crash) is written from the start.
 */
static int open_file(struct file *f, json_t *entry, struct tern_err *err)
{
    struct stat st;

    f->path = tern_fs_join(f->w->folder, json_string_value(json_object_get(entry, "file")));
    f->bytes = json_integer_value(json_object_get(entry, "bytes"));
    f->tags = json_object_get(entry, "tags");
    f->fd = TERN_AGAIN(open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (f->fd < 0 || TERN_AGAIN(fstat(f->fd, &st)) < 0)
        return tern_err_sys(err, "%s: cannot be written", f->path);
    if (f->bytes < 0 || st.st_size < f->bytes) {
        f->bytes = 0;
        json_object_clear(f->tags);
    }
    if (TERN_AGAIN(ftruncate(f->fd, f->bytes)) < 0 || lseek(f->fd, f->bytes, SEEK_SET) < 0)
        return tern_err_sys(err, "%s: cannot be written", f->path);
    return 0;
}

static void put_head(struct file *f)
{
    const struct tern_ledger_attempt *a = f->a;
    int64_t next = a->resumed_step >= 0 ? a->resumed_step + 1 : a->first_step;

    tern_tensorboard_put_version(&f->piece, a->begin_ns);
    if (f->w->any)
        tern_tensorboard_put_start(&f->piece, a->begin_ns, next > 0 ? next : 0);
}

/* An attempt's part of the position; a file keeps the name that it began with. */
static json_t *entry_of(struct writer *w, const struct tern_ledger_attempt *a)
{
    char key[16];

    snprintf(key, sizeof key, "%" PRIu32, a->attempt);
    json_t *entry = json_object_get(w->attempts, key);
    const char *file = json_string_value(json_object_get(entry, "file"));
    if (!file || strchr(file, '/') || !json_is_object(json_object_get(entry, "tags"))) {
        char *name = file_name(a);
        entry = json_pack("{s:s, s:i, s:{}}", "file", name, "bytes", 0, "tags");
        json_object_set_new(w->attempts, key, entry);
        free(name);
    }
    return entry;
}

static int write_attempt(struct writer *w, const struct tern_ledger_attempt *a,
                         struct tern_err *err)
{
    struct file f = {.w = w, .a = a, .fd = -1};
    json_t *entry = entry_of(w, a);
    int rc = -1;

    if (open_file(&f, entry, err) < 0)
        goto out;
    const int64_t before = f.bytes;
    if (before == 0)
        put_head(&f);
    if (put_metrics(&f, err) < 0 || put_evals(&f, err) < 0 || flush(&f, err) < 0)
        goto out;
    if (f.bytes > before && tern_fs_sync(f.fd) < 0) {
        tern_err_sys(err, "%s: cannot be made durable", f.path);
        goto out;
    }
    json_object_set_new(entry, "bytes", json_integer(f.bytes));
    rc = 0;
out:
    if (f.fd >= 0)
        close(f.fd);
    tern_buf_free(&f.piece);
    free(f.path);
    return rc;
}

static int write_attempts(struct writer *w, struct tern_err *err)
{
    for (size_t i = 0; i < w->rows.n; i++) {
        const struct tern_ledger_attempt *a = &w->rows.attempts[i];
        if ((a->kind && strcmp(a->kind, "train") != 0) || !has_values(w, a))
            continue;
        if (write_attempt(w, a, err) < 0)
            return -1;
        w->any = true;
    }
    return 0;
}

/* ---- a run's folder ---- */

/* The position in a folder; NULL: none that can be read. */
static json_t *load_position(const char *folder)
{
    char *path = tern_fs_join(folder, POSITION);
    json_t *j = tern_fs_exists(path) ? tern_json_load(path, POSITION_MAX, NULL) : NULL;

    free(path);
    if (json_is_object(j) && json_is_object(json_object_get(j, "attempts")))
        return j;
    json_decref(j);
    return NULL;
}

static bool is_of_run(const char *folder, const char *run_id)
{
    json_t *j = load_position(folder);
    const char *id = json_string_value(json_object_get(j, "run"));
    const bool is = id && strcmp(id, run_id) == 0;

    json_decref(j);
    return is;
}

/* The run's folder under `dir`: the one that it began with, whatever the run is called now. */
static char *find_folder(const char *dir, const struct tern_ledger_run *r)
{
    char *name = folder_name(r), *folder = tern_fs_join(dir, name);
    const char *end = strrchr(name, '-');
    DIR *d = tern_fs_exists(folder) ? NULL : TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_ends(e->d_name, end))
            continue;
        char *other = tern_fs_join(dir, e->d_name);
        const bool is = is_of_run(other, r->id);
        free(is ? folder : other);
        if (is) {
            folder = other;
            break;
        }
    }
    if (d)
        closedir(d);
    free(name);
    return folder;
}

static int save_position(const struct writer *w, struct tern_err *err)
{
    json_t *j = json_pack("{s:s, s:O}", "run", w->runs.runs[0].id, "attempts", w->attempts);
    char *path = tern_fs_join(w->folder, POSITION), *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int rc = text ? tern_fs_replace(path, text, strlen(text), 0644, err)
                  : tern_err_set(err, TERN_FAILED, "%s: cannot be written as JSON", path);

    json_decref(j);
    free(text);
    free(path);
    return rc;
}

/* Held until it is closed, where the storage has locks.  -1 with `*busy`: another process has it.
 */
static int lock_folder(const char *folder, bool *busy, struct tern_err *err)
{
    int fd = TERN_AGAIN(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    *busy = false;
    if (fd < 0)
        return tern_err_sys(err, "%s: cannot be opened", folder);
    if (TERN_AGAIN(flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK) {
        *busy = true;
        close(fd);
        return -1;
    }
    return fd;
}

int tern_tensorboard_update(struct tern_ledger *run, const char *dir, struct tern_err *err)
{
    struct writer w = {.run = run};
    json_t *position = NULL;
    char *folder = NULL;
    bool busy = false;
    int rc = -1, lock = -1;

    if (rows_load(&w, err) < 0)
        goto out;
    w.folder = folder = find_folder(dir, &w.runs.runs[0]);
    if (tern_fs_mkdirs(folder, 0777, err) < 0)
        goto out;
    lock = lock_folder(folder, &busy, err);
    if (lock < 0) {
        rc = busy ? 0 : -1;
        goto out;
    }
    /* Without a position the files are written from the start. */
    position = load_position(folder);
    w.attempts = position ? json_incref(json_object_get(position, "attempts")) : json_object();
    rc = write_attempts(&w, err);
    if (rc == 0 && w.values)
        rc = save_position(&w, err);
out:
    if (lock >= 0)
        close(lock);
    json_decref(w.attempts);
    json_decref(position);
    rows_free(&w);
    free(folder);
    return rc;
}

int tern_tensorboard_export(struct tern_ledger *run, const char *dir, char **ret_folder,
                            uint64_t *ret_values, struct tern_err *err)
{
    struct writer w = {.run = run};
    char *name = NULL, *folder = NULL, *temp = NULL;
    int rc = -1;

    if (rows_load(&w, err) < 0)
        goto out;
    name = folder_name(&w.runs.runs[0]);
    folder = tern_fs_join(dir, name);
    if (tern_fs_mkdirs(dir, 0777, err) < 0)
        goto out;
    if (tern_fs_exists(folder)) {
        tern_err_set(err, TERN_USAGE, "%s: is there already", folder);
        goto out;
    }
    w.folder = temp = tern_fs_folder_beside(folder, err);
    w.attempts = json_object();
    if (!temp || write_attempts(&w, err) < 0 || tern_fs_sync_dir(temp, err) < 0)
        goto out;
    if (tern_fs_rename(temp, folder, /* only_new= */ true) < 0) {
        tern_err_sys(err, "%s: cannot be put in place", folder);
        goto out;
    }
    free(temp);
    temp = NULL; /* it has its name now */
    rc = tern_fs_sync_parent(folder, err);
out:
    if (temp) {
        tern_fs_remove_tree(temp, NULL);
        free(temp);
    }
    json_decref(w.attempts);
    rows_free(&w);
    free(name);
    if (rc == 0) {
        *ret_folder = folder;
        *ret_values = w.values;
    } else {
        free(folder);
    }
    return rc;
}
