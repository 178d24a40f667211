/* The folder in which processes share a build: its files. */
#include "cmd/data/share.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20 }; /* bytes of a plan */

/* The beginning of a plan's SHA-256. */
static void name_plan(const char *text, char ret_plan[DATA_PLAN_HEX])
{
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];

    tern_sha256(text, strlen(text), digest);
    snprintf(ret_plan, DATA_PLAN_HEX, "%s", tern_hex(hex, digest, sizeof digest));
}

void data_folder_init(struct data_folder *f, const char *out, const struct data_step *step,
                      const char *plan)
{
    pthread_condattr_t attr;

    *f =
        (struct data_folder){.path = data_folder_name(out), .out = out, .step = step, .text = plan};
    name_plan(plan, f->plan);
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->wake, &attr);
    pthread_condattr_destroy(&attr);
}

void data_folder_close(struct data_folder *f)
{
    data_folder_release(f);
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (f->heartbeats)
        pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f->task);
    free(f->path);
    *f = (struct data_folder){0};
}

char *data_folder_name(const char *out)
{
    return tern_strf("%s.parts", out);
}

char *data_folder_file(const struct data_folder *f, const char *name)
{
    return tern_fs_join(f->path, name);
}

char *data_folder_part(const struct data_folder *f, uint64_t k)
{
    return tern_strf("%s/%04" PRIu64 "-%s.tds", f->path, k + 1, f->plan);
}

char *data_folder_lease_of(const struct data_folder *f, uint64_t k)
{
    return tern_strf("%04" PRIu64 "-%s.lease", k + 1, f->plan);
}

/* ---- names ---- */

/* Leases are *.claim in folders of tern before 0.4: read until 0.5. */
static bool is_lease(const char *end)
{
    return strcmp(end, ".lease") == 0 || strcmp(end, ".claim") == 0;
}

/* "0007-PLAN.tds", and its lease; "0007.tds" is of an older tern. */
static bool is_share(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    const char *at = name + digits;

    if (*at == '-')
        at += 1 + strspn(at + 1, "0123456789abcdef");
    return digits && (strcmp(at, ".tds") == 0 || is_lease(at));
}

/* Is `name` one of tern's, of this folder?  NFS calls a file that was removed while it was open
 * ".nfs...". */
static bool is_known(const char *name)
{
    const char *end = strrchr(name, '.');

    return strcmp(name, "plan.json") == 0 || strcmp(name, "failed") == 0 ||
           strcmp(name, "done") == 0 ||
           ((tern_str_starts(name, "discard") || tern_str_starts(name, "merge")) && end &&
            is_lease(end)) ||
           tern_str_starts(name, "task-") || tern_str_starts(name, ".tern-") ||
           tern_str_starts(name, ".nfs") || strstr(name, ".tmp-") || is_share(name);
}

/* Call `each` with the names in folder `dir` (closed in the end) that are tern's: whether there
 * were others. */
static bool look_through(int dir, void (*each)(int dir, const char *name, void *arg), void *arg)
{
    DIR *d = dir < 0 ? NULL : fdopendir(dir);
    const struct dirent *e;
    bool others = false;

    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!is_known(e->d_name))
            others = true;
        else if (each)
            each(dir, e->d_name, arg);
    }
    if (d)
        closedir(d);
    else if (dir >= 0)
        close(dir);
    return others;
}

static int open_dir(const char *path)
{
    return TERN_AGAIN(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* The same folder, from its first name on. */
static int open_again(int dir)
{
    return TERN_AGAIN(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static bool is_gone(const struct data_folder *f)
{
    const int dir = open_dir(f->path);
    const bool gone = dir < 0 && errno == ENOENT;

    if (dir >= 0)
        close(dir);
    return gone;
}

/* ---- files that appear whole ---- */

int data_folder_put_new(const struct data_folder *f, const char *name, const char *text,
                        char **ret_owner, struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    struct tern_fs_new file = {.fd = -1};
    struct stat st;
    int rc = -1;

    if (tern_fs_new_open(&file, path, 0644, err) < 0)
        goto out;
    /* The temporary name tells machine and process: others ask whether it is alive. */
    char *whole = tern_strf("%s\n%s", tern_fs_basename(file.temp), text);
    rc = tern_fs_write_at(file.fd, 0, whole, strlen(whole), path, err);
    free(whole);
    if (rc == 0 && link(file.temp, path) == 0)
        rc = 1;
    else if (rc == 0 && TERN_AGAIN(fstat(file.fd, &st)) == 0 && st.st_nlink == 2)
        rc = 1; /* NFS: the answer was lost, the link was made */
    else if (rc == 0 && errno != EEXIST && TERN_AGAIN(stat(path, &st)) < 0)
        rc = tern_err_sys(err, "%s: cannot create", path);
    if (rc > 0 && ret_owner)
        *ret_owner = tern_strdup(tern_fs_basename(file.temp));
    tern_fs_new_abort(&file);
out:
    free(path);
    return rc;
}

/* The text of such a file of folder `dir`. */
static char *get_at(int dir, const char *name)
{
    const int fd = TERN_AGAIN(openat(dir, name, O_RDONLY | O_CLOEXEC));
    char *data = NULL, *text = NULL;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < FILE_MAX &&
        (data = tern_alloc((size_t)st.st_size + 1, 1, name, NULL)) &&
        tern_fs_pread(fd, data, (size_t)st.st_size, 0, name, NULL) == 0) {
        const char *nl = strchr(data, '\n');
        text = tern_strdup(nl ? nl + 1 : "");
    }
    free(data);
    if (fd >= 0)
        close(fd);
    return text;
}

char *data_folder_get(const struct data_folder *f, const char *name)
{
    const int dir = open_dir(f->path);
    char *text = dir < 0 ? NULL : get_at(dir, name);

    if (dir >= 0)
        close(dir);
    return text;
}

void data_folder_remove(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name);

    TERN_AGAIN(unlink(path));
    free(path);
}

/* ---- the plan, and the end ---- */

static bool is_plan(const struct data_folder *f, const char *plan)
{
    char *now = data_folder_get(f, "plan.json");
    const bool same = now && strcmp(now, plan) == 0;

    free(now);
    return same;
}

/* Does "done", which has a set's plan and the step that finished it, name `plan`?  NULL: the
 * folder's own plan, or none. */
static bool is_done_at(int dir, const char *plan)
{
    char *done = get_at(dir, "done"), *text = plan ? NULL : get_at(dir, "plan.json");
    char own[DATA_PLAN_HEX] = "";

    if (text)
        name_plan(text, own);
    plan = plan ? plan : own;
    const bool is = done && (!*plan || tern_str_starts(done, plan));
    free(text);
    free(done);
    return is;
}

void data_folder_put_done(const struct data_folder *f)
{
    char *text = tern_strf("%s %s\n", f->plan, f->step->name);

    if (data_folder_put_new(f, "done", text, /* ret_owner= */ NULL, NULL) == 0) {
        data_folder_remove(f, "done"); /* of another plan */
        data_folder_put_new(f, "done", text, /* ret_owner= */ NULL, NULL);
    }
    free(text);
}

bool data_folder_is_there(const struct data_folder *f)
{
    char *plan = data_folder_get(f, "plan.json"), *done = data_folder_get(f, "done");
    const bool there = plan || done;

    free(done);
    free(plan);
    return there;
}

enum data_folder_state data_folder_state(const struct data_folder *f)
{
    const int dir = open_dir(f->path);
    char *plan = dir < 0 ? NULL : get_at(dir, "plan.json");
    enum data_folder_state state = DATA_FOLDER_OURS; /* also where a disk fails to answer */

    if (dir < 0 && errno == ENOENT)
        state = DATA_FOLDER_GONE;
    else if (dir >= 0 && !plan && faccessat(dir, "plan.json", F_OK, 0) < 0 && errno == ENOENT)
        state = DATA_FOLDER_GONE;
    else if (plan && strcmp(plan, f->text) != 0)
        state = DATA_FOLDER_OTHER;
    if (dir >= 0 && state != DATA_FOLDER_OTHER && is_done_at(dir, f->plan))
        state = DATA_FOLDER_DONE;
    free(plan);
    if (dir >= 0)
        close(dir);
    return state;
}

/* ---- joining ---- */

/* What differs between two plans. */
static const char *difference(const char *a, const char *b)
{
    static const char *const words[][2] = {
        {"tern", "tern's version differs"},
        {"vocabulary", "the tokenizer differs"},
        {"inputs", "the files' names, sizes or times differ"},
        {"options", "the options differ"},
        {"shares", "--share-size differs"},
    };
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    const char *what = "something differs";

    for (size_t i = sizeof words / sizeof words[0]; i-- > 0;)
        if (x && y && !json_equal(json_object_get(x, words[i][0]), json_object_get(y, words[i][0])))
            what = words[i][1];
    json_decref(x);
    json_decref(y);
    return what;
}

/* Parts, leases and unfinished files of plans that are not this process's. */
static void remove_other(int dir, const char *name, void *arg)
{
    const struct data_folder *f = arg;
    const bool work = isdigit((unsigned char)*name) || tern_str_starts(name, "merge");

    if (work && !strstr(name, f->plan))
        TERN_AGAIN(unlinkat(dir, name, 0));
}

/* Begin anew in the place of the build that `failed` tells of: its parts, and then its plan. */
static int replace_plan(const struct data_folder *f, const char *failed, struct tern_err *err)
{
    struct tern_fs_new file = {.fd = -1};
    char *path = data_folder_file(f, "plan.json"), *now;
    int rc = -1;

    tern_info("%s: parts of a build that failed on its input are removed: this one differs",
              f->path);
    look_through(open_dir(f->path), remove_other, (void *)f);
    if (tern_fs_new_open(&file, path, 0644, err) == 0) {
        char *whole = tern_strf("\n%s", f->text);
        rc = tern_fs_write_at(file.fd, 0, whole, strlen(whole), path, err);
        free(whole);
        rc = rc < 0 ? (tern_fs_new_abort(&file), -1) : tern_fs_new_commit(&file, err);
    }
    free(path);
    now = data_folder_get(f, "failed"); /* the new build's may be there already */
    if (rc == 0 && now && strcmp(now, failed) == 0)
        data_folder_remove(f, "failed");
    free(now);
    return rc;
}

/* A build that ended on bad input cannot go on once that was mended. */
static enum data_join discard(struct data_folder *f, const char *there, const char *failed,
                              struct tern_err *err)
{
    const enum data_lease lease = data_folder_acquire(f, "discard.lease", err);
    enum data_join join = DATA_JOIN_LATER;

    if (lease != DATA_LEASE_OURS)
        return lease == DATA_LEASE_FAILED ? DATA_JOIN_FAILED : DATA_JOIN_LATER;
    if (is_plan(f, there) && replace_plan(f, failed, err) < 0) /* else another was faster */
        join = DATA_JOIN_FAILED;
    data_folder_release(f);
    return join;
}

static enum data_join other_plan(struct data_folder *f, const char *there, struct tern_err *err)
{
    char *failed = data_folder_get(f, "failed");
    const bool input = failed && strtol(failed, NULL, 10) == TERN_USAGE;
    enum data_join join = DATA_JOIN_LATER;

    if (input)
        join = discard(f, there, failed, err);
    else if (is_plan(f, there)) { /* else another process has begun anew meanwhile */
        tern_err_set(err, TERN_USAGE,
                     "%s: holds parts of another build: %s. Remove the folder, or name another set "
                     "to write.",
                     f->path, difference(f->text, there));
        join = DATA_JOIN_FAILED;
    }
    free(failed);
    return join;
}

static int open_task(struct data_folder *f, struct tern_err *err)
{
    char *task = tern_strf("%s/task-%s-%d", f->path, f->step->name, f->step->rank);
    const int fd = TERN_AGAIN(open(task, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));

    if (fd < 0) {
        tern_err_sys(err, "%s: cannot create", task);
        free(task);
        return -1;
    }
    close(fd);
    free(f->task);
    f->task = task;
    return 0;
}

/* The folder is done: a task that comes late has nothing to do.  For another command it was left by
 * a process that was killed while it removed the folder, or that still does. */
static enum data_join join_done(struct data_folder *f, const char *done, struct tern_err *err)
{
    char plan[DATA_PLAN_HEX];
    char *step = tern_strf(" %s\n", f->step->name);
    const bool late = f->step->tasks > 1 && strstr(done, step) && tern_fs_exists(f->out);

    free(step);
    if (late) {
        open_task(f, NULL); /* it is waited for */
        return DATA_JOIN_DONE;
    }
    snprintf(plan, sizeof plan, "%.*s", (int)strcspn(done, " "), done);
    char *name = data_folder_merge_lease(plan);
    const enum data_lease lease = data_folder_acquire(f, name, err);
    free(name);
    if (lease == DATA_LEASE_OURS)
        data_folder_remove_all(f);
    return lease == DATA_LEASE_FAILED ? DATA_JOIN_FAILED : DATA_JOIN_LATER;
}

/* The text of "done", malloc'ed; NULL: the folder is alive. */
static char *get_done(const struct data_folder *f)
{
    const int dir = open_dir(f->path);
    char *done = dir >= 0 && is_done_at(dir, /* plan= */ NULL) ? get_at(dir, "done") : NULL;

    if (dir >= 0)
        close(dir);
    return done;
}

/* The plan of the folder, malloc'ed, or this process's where there is none; NULL with `err`. */
static char *make_plan(const struct data_folder *f, struct tern_err *err)
{
    char *there = data_folder_get(f, "plan.json");

    if (!there && look_through(open_dir(f->path), NULL, NULL)) {
        tern_err_set(err, TERN_USAGE,
                     "%s: is there and is not tern's. Parts of the set go there: move it, or name "
                     "another set to write.",
                     f->path);
        return NULL;
    }
    if (!there && data_folder_put_new(f, "plan.json", f->text, /* ret_owner= */ NULL, err) >= 0)
        there = data_folder_get(f, "plan.json");
    return there;
}

enum data_join data_folder_join(struct data_folder *f, struct tern_err *err)
{
    struct tern_err why = {0};
    enum data_join join = DATA_JOINED;

    if (TERN_AGAIN(mkdir(f->path, 0777)) < 0 && errno != EEXIST) {
        tern_err_sys(err, "%s: cannot create", f->path);
        return DATA_JOIN_FAILED;
    }
    char *done = get_done(f), *there = done ? NULL : make_plan(f, &why);
    if (done)
        join = join_done(f, done, &why);
    else if (!there)
        join = why.text[0] ? DATA_JOIN_FAILED : DATA_JOIN_LATER;
    else if (strcmp(there, f->text) != 0)
        join = other_plan(f, there, &why);
    else if (open_task(f, &why) < 0)
        join = DATA_JOIN_FAILED;
    if (join == DATA_JOIN_FAILED && is_gone(f)) /* removed meanwhile: begin again */
        join = DATA_JOIN_LATER;
    else if (join == DATA_JOIN_FAILED && err)
        *err = why;
    free(there);
    free(done);
    return join;
}

/* ---- removing ---- */

/* In a folder that is dead, by the folder itself: another of its name may be alive. */
static void remove_dead(int dir, const char *name, void *arg)
{
    (void)arg;
    if (strcmp(name, "plan.json") != 0 && strcmp(name, "done") != 0 &&
        !tern_str_starts(name, "merge") && faccessat(dir, "done", F_OK, 0) == 0)
        TERN_AGAIN(unlinkat(dir, name, 0));
}

/* What came while the rest was removed: files of late tasks, leases. */
static void remove_late(int dir, const char *name, void *arg)
{
    (void)arg;
    if (!tern_str_starts(name, "plan.json") && strcmp(name, "done") != 0)
        TERN_AGAIN(unlinkat(dir, name, 0));
}

/* "done" goes last, so that a task that comes late never begins anew; its own file may come
 * meanwhile. */
void data_folder_remove_all(struct data_folder *f)
{
    enum { TRIES = 10 };
    const int dir = open_dir(f->path);
    int rc = -1;

    if (dir >= 0 && is_done_at(dir, /* plan= */ NULL)) {
        look_through(open_again(dir), remove_dead, NULL);
        TERN_AGAIN(unlinkat(dir, "plan.json", 0));
        data_folder_release(f);
        TERN_AGAIN(unlinkat(dir, "done", 0));
    }
    data_folder_release(f);
    if (dir < 0)
        return;
    for (int i = 0; i < TRIES && (rc = rmdir(f->path)) < 0 && errno == ENOTEMPTY &&
                    faccessat(dir, "plan.json", F_OK, 0) < 0;
         i++)
        look_through(open_again(dir), remove_late, NULL);
    if (rc < 0 && errno != ENOENT && look_through(open_dir(f->path), NULL, NULL))
        tern_warn("%s: cannot be removed: it holds files that are not tern's", f->path);
    close(dir);
}

struct count {
    const char *prefix;
    int n;
};

static void count_task(int dir, const char *name, void *arg)
{
    struct count *c = arg;

    (void)dir;
    c->n += tern_str_starts(name, c->prefix);
}

int data_folder_tasks(const struct data_folder *f)
{
    char *prefix = tern_strf("task-%s-", f->step->name);
    struct count c = {.prefix = prefix};

    look_through(open_dir(f->path), count_task, &c);
    free(prefix);
    return c.n;
}

/* ---- temporary files ---- */

/* Those with `mark`; NULL: of processes of this machine that have ended. */
static bool is_left(const char *name, const char *mark)
{
    return mark ? strstr(name, mark) != NULL : tern_fs_temp_left(name);
}

static void remove_left(int dir, const char *name, void *arg)
{
    if (is_left(name, arg))
        TERN_AGAIN(unlinkat(dir, name, 0));
}

/* The unfinished set of a merge that died. */
static void tidy_beside(const char *out, const char *mark)
{
    char *path = tern_fs_dirname(out), *prefix = tern_strf("%s.tmp-", tern_fs_basename(out));
    const int dir = open_dir(path);
    DIR *d = dir < 0 ? NULL : fdopendir(dir);
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (tern_str_starts(e->d_name, prefix) && is_left(e->d_name, mark))
            TERN_AGAIN(unlinkat(dir, e->d_name, 0));
    if (d)
        closedir(d);
    else if (dir >= 0)
        close(dir);
    free(prefix);
    free(path);
}

void data_folder_remove_temps(const struct data_folder *f, const char *mark)
{
    look_through(open_dir(f->path), remove_left, (void *)mark);
    tidy_beside(f->out, mark);
}

void data_folder_tidy(const struct data_folder *f)
{
    data_folder_remove_temps(f, /* mark= */ NULL);
}
