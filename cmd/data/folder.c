/* The folder in which processes share a build: its files. */
#include "cmd/data/share.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLAN_MAX = 1 << 20, CLAIM_MAX = 4096 };

char *data_folder_name(const char *out)
{
    return tern_strf("%s.parts", out);
}

char *data_folder_file(const struct data_folder *f, const char *name)
{
    return tern_fs_join(f->path, name);
}

/* Is `name` one of tern's, of this folder? */
static bool is_known(const char *name)
{
    size_t digits = strspn(name, "0123456789");

    return strcmp(name, "plan.json") == 0 || strcmp(name, "failed") == 0 ||
           strcmp(name, "done") == 0 || strcmp(name, "merge.claim") == 0 ||
           strcmp(name, "discard.claim") == 0 || tern_str_starts(name, "task-") ||
           tern_str_starts(name, ".tern-") || strstr(name, ".tmp-") ||
           (digits && (strcmp(name + digits, ".tds") == 0 || strcmp(name + digits, ".claim") == 0));
}

/* Call `each` with the names in it that are tern's: whether there were others. */
static bool look_through(const struct data_folder *f,
                         void (*each)(const struct data_folder *f, const char *name, void *arg),
                         void *arg)
{
    DIR *d = TERN_AGAIN_PTR(opendir(f->path));
    const struct dirent *e;
    bool others = false;

    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!is_known(e->d_name))
            others = true;
        else if (each)
            each(f, e->d_name, arg);
    }
    if (d)
        closedir(d);
    return others;
}

/* Opening asks a file server, where stat may remember. */
static bool is_there(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    free(path);
    return fd >= 0;
}

bool data_folder_is_there(const struct data_folder *f)
{
    return is_there(f, "plan.json");
}

/* ---- files that appear whole ---- */

int data_folder_put_new(const struct data_folder *f, const char *name, const char *text,
                        struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    struct tern_fs_new file = {.fd = -1};
    struct stat st;
    int rc = -1;

    if (tern_fs_new_open(&file, path, 0644, err) < 0)
        goto out;
    /* The temporary name tells machine and process: others ask whether it is alive. */
    char *whole = tern_strf("%s\n%s", tern_fs_basename(file.temp), text);
    rc = tern_fs_write(file.fd, whole, strlen(whole), path, err);
    free(whole);
    if (rc == 0 && link(file.temp, path) == 0)
        rc = 1;
    else if (rc == 0 && TERN_AGAIN(fstat(file.fd, &st)) == 0 && st.st_nlink == 2)
        rc = 1; /* NFS: the answer was lost, the link was made */
    else if (rc == 0 && errno != EEXIST && TERN_AGAIN(stat(path, &st)) < 0)
        rc = tern_err_sys(err, "%s: cannot create", path);
    tern_fs_new_abort(&file);
out:
    free(path);
    return rc;
}

/* The text of such a file, malloc'ed, behind its first line; NULL: it is not there. */
static char *get(const struct data_folder *f, const char *name, char **ret_owner)
{
    char *path = data_folder_file(f, name), *data = NULL, *text = NULL;
    size_t len;

    if (tern_fs_read(path, PLAN_MAX, &data, &len, NULL) == 0) {
        char *nl = strchr(data, '\n');
        text = tern_strdup(nl ? nl + 1 : "");
        if (ret_owner) {
            data[nl ? nl - data : 0] = '\0';
            *ret_owner = tern_strdup(data);
        }
    }
    free(data);
    free(path);
    return text;
}

void data_folder_remove(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name);

    TERN_AGAIN(unlink(path));
    free(path);
}

/* ---- claims ---- */

void data_folder_beat(const struct data_folder *f, const char *name)
{
    futimens(f->task_fd, NULL);
    if (name) {
        char *path = data_folder_file(f, name);
        utimensat(AT_FDCWD, path, NULL, 0);
        free(path);
    }
}

/* Without a sign of life of its process, by the clock of the file system. */
static bool is_lost(const struct data_folder *f, const char *name)
{
    char *path = data_folder_file(f, name), *owner = NULL, *text;
    struct stat claim, now;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool lost = false;

    if (fd >= 0 && fstat(fd, &claim) == 0) {
        futimens(f->task_fd, NULL);
        lost = fstat(f->task_fd, &now) == 0 && now.st_mtime > claim.st_mtime + DATA_LOST_S;
        text = get(f, name, &owner);
        lost = lost || (owner && tern_fs_temp_left(owner));
        free(text);
        free(owner);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return lost;
}

/* Put a claim of our own in the place of a lost one. */
static enum data_claim take_over(const struct data_folder *f, const char *name,
                                 struct tern_err *err)
{
    char *path = data_folder_file(f, name);
    struct tern_fs_new file = {.fd = -1};
    enum data_claim claim = DATA_CLAIM_FAILED;

    if (tern_fs_new_open(&file, path, 0644, err) == 0) {
        char *whole = tern_strf("%s\n", tern_fs_basename(file.temp));
        if (tern_fs_write(file.fd, whole, strlen(whole), path, err) == 0)
            claim = tern_fs_rename(file.temp, path, /* only_new= */ false) == 0
                        ? DATA_CLAIM_OURS
                        : (tern_err_sys(err, "%s: cannot claim", path), DATA_CLAIM_FAILED);
        free(whole);
        tern_fs_new_abort(&file);
    }
    free(path);
    return claim;
}

enum data_claim data_folder_claim(const struct data_folder *f, const char *name,
                                  struct tern_err *err)
{
    struct tern_err why = {0};
    int rc = is_there(f, name) ? 0 : data_folder_put_new(f, name, "", &why);
    enum data_claim claim = rc > 0 ? DATA_CLAIM_OURS : DATA_CLAIM_OTHERS;

    if (rc == 0 && is_lost(f, name)) {
        tern_info("%s: %s was left by a process that is gone; it is done again", f->path, name);
        claim = take_over(f, name, &why);
        rc = claim == DATA_CLAIM_OURS ? 1 : -1;
    }
    if (rc >= 0)
        return claim;
    if (!data_folder_is_there(f))
        return DATA_CLAIM_GONE;
    if (err)
        *err = why;
    return DATA_CLAIM_FAILED;
}

/* ---- opening ---- */

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

static void remove_part(const struct data_folder *f, const char *name, void *arg)
{
    (void)arg;
    if (isdigit((unsigned char)*name))
        data_folder_remove(f, name);
}

static bool is_plan(const struct data_folder *f, const char *plan)
{
    char *now = get(f, "plan.json", NULL);
    const bool same = now && strcmp(now, plan) == 0;

    free(now);
    return same;
}

/* A build that ended on bad input cannot go on once that was mended: begin anew in its folder.
 * 1; 0 where another process does it. */
static int discard(const struct data_folder *f, const char *there, const char *plan,
                   struct tern_err *err)
{
    enum data_claim claim = data_folder_claim(f, "discard.claim", err);
    struct tern_fs_new file = {.fd = -1};
    char *path;
    int rc = -1;

    if (claim != DATA_CLAIM_OURS)
        return claim == DATA_CLAIM_FAILED ? -1 : 0;
    if (!is_plan(f, there)) { /* another process was faster */
        data_folder_remove(f, "discard.claim");
        return 0;
    }
    tern_info("%s: parts of a build that failed on its input are removed: this one differs",
              f->path);
    look_through(f, remove_part, NULL);
    path = data_folder_file(f, "plan.json");
    if (tern_fs_new_open(&file, path, 0644, err) == 0) {
        char *whole = tern_strf("\n%s", plan);
        rc = tern_fs_write(file.fd, whole, strlen(whole), path, err);
        free(whole);
        rc = rc < 0 ? (tern_fs_new_abort(&file), -1) : tern_fs_new_commit(&file, err);
    }
    free(path);
    data_folder_remove(f, "failed");
    data_folder_remove(f, "discard.claim");
    return rc < 0 ? -1 : 1;
}

static int other_plan(const struct data_folder *f, const char *there, const char *plan,
                      struct tern_err *err)
{
    char *failed = get(f, "failed", NULL);
    const bool input = failed && strtol(failed, NULL, 10) == TERN_USAGE;

    free(failed);
    if (input)
        return discard(f, there, plan, err);
    if (!is_plan(f, there)) /* another process has begun anew meanwhile */
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: holds parts of another build: %s. Remove the folder, or name another "
                        "set to write.",
                        f->path, difference(plan, there));
}

static int open_task(struct data_folder *f, struct tern_err *err)
{
    char *name = tern_strf("task-%s-%d", f->step->name, f->step->rank);

    f->task = data_folder_file(f, name);
    free(name);
    f->task_fd = TERN_AGAIN(open(f->task, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return f->task_fd < 0 ? tern_err_sys(err, "%s: cannot create", f->task) : 0;
}

int data_folder_open(struct data_folder *f, const char *plan, struct tern_err *err)
{
    char *there;
    int rc;

    if (TERN_AGAIN(mkdir(f->path, 0777)) < 0 && errno != EEXIST)
        return tern_err_sys(err, "%s: cannot create", f->path);
    there = get(f, "plan.json", NULL);
    if (!there && look_through(f, NULL, NULL))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is there and is not tern's. Parts of the set go there: move it, "
                            "or name another set to write.",
                            f->path);
    if (!there) {
        rc = data_folder_put_new(f, "plan.json", plan, err);
        if (rc < 0)
            return -1;
        there = get(f, "plan.json", NULL);
    }
    rc = !there ? 0 : strcmp(there, plan) != 0 ? other_plan(f, there, plan, err) : 1;
    free(there);
    return rc > 0 && open_task(f, err) < 0 ? -1 : rc;
}

void data_folder_close(struct data_folder *f)
{
    if (f->task_fd >= 0)
        close(f->task_fd);
    free(f->task);
    free(f->path);
    *f = (struct data_folder){.task_fd = -1};
}

/* ---- the end ---- */

static void remove_one(const struct data_folder *f, const char *name, void *arg)
{
    (void)arg;
    if (strcmp(name, "plan.json") != 0)
        data_folder_remove(f, name);
}

void data_folder_remove_all(const struct data_folder *f)
{
    look_through(f, remove_one, NULL);
    data_folder_remove(f, "plan.json"); /* last: it says whose folder this is */
    look_through(f, remove_one, NULL);
    if (rmdir(f->path) < 0 && errno != ENOENT)
        tern_warn("%s: cannot be removed: %s", f->path, strerror(errno));
}

static void count_task(const struct data_folder *f, const char *name, void *arg)
{
    char *prefix = tern_strf("task-%s-", f->step->name);

    *(int *)arg += tern_str_starts(name, prefix);
    free(prefix);
}

int data_folder_tasks(const struct data_folder *f)
{
    int n = 0;

    look_through(f, count_task, &n);
    return n;
}

static void remove_left(const struct data_folder *f, const char *name, void *arg)
{
    (void)arg;
    if (tern_fs_temp_left(name))
        data_folder_remove(f, name);
}

/* The set as a merge that was killed left it. */
static void tidy_beside(const char *out)
{
    char *dir = tern_fs_dirname(out), *prefix = tern_strf("%s.tmp-", tern_fs_basename(out));
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (tern_str_starts(e->d_name, prefix) && tern_fs_temp_left(e->d_name)) {
            char *path = tern_fs_join(dir, e->d_name);
            TERN_AGAIN(unlink(path));
            free(path);
        }
    if (d)
        closedir(d);
    free(prefix);
    free(dir);
}

void data_folder_tidy(const struct data_folder *f, const char *out)
{
    look_through(f, remove_left, NULL);
    tidy_beside(out);
}
