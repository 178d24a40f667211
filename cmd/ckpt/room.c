/* tern ckpt du and prune: the room that checkpoints take, and making some. */
#include "cmd/ckpt/room.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ sizes */

/* Bytes on disk of a folder's files (there are no folders in a checkpoint).  A link with a
 * checkpoint's name has none: it is no checkpoint. */
static int folder_bytes(const char *path, uint64_t *ret_bytes, struct tern_err *err)
{
    struct stat st;

    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        tern_err_sys(err, "%s: cannot open folder", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *ret_bytes = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) == 0 &&
            S_ISREG(st.st_mode))
            *ret_bytes += (uint64_t)st.st_size;
    closedir(d);
    return 0;
}

enum part { WEIGHTS, OPTIMIZER, OTHER, PARTS };

static enum part part_of(const char *array)
{
    static const struct {
        const char *prefix;
        enum part part;
    } parts[] = {{"model/", WEIGHTS},    {"base/", WEIGHTS},      {"lora/", WEIGHTS},
                 {"master/", OPTIMIZER}, {"exp_avg/", OPTIMIZER}, {"exp_avg_sq/", OPTIMIZER}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (tern_str_starts(array, parts[i].prefix))
            return parts[i].part;
    return OTHER;
}

static bool add_parts(const char *path, uint64_t bytes, uint64_t parts[PARTS])
{
    struct tern_ckpt *c = tern_ckpt_open(path, NULL);
    struct tern_ckpt_info info;

    if (!c)
        return false;
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        uint64_t n = tern_ckpt_type_bytes(info.type);
        for (int d = 0; d < info.ndim; d++)
            n *= info.shape[d];
        parts[part_of(info.name)] += n;
    }
    const uint64_t arrays = parts[WEIGHTS] + parts[OPTIMIZER];
    /* headers, manifest, tokenizer; of a folder that loses files at this moment nothing */
    parts[OTHER] = bytes > arrays ? bytes - arrays : 0;
    tern_ckpt_close(c);
    return true;
}

/* ------------------------------------------------------------------ du */

static bool du_json;

static void print_sizes(const char *name, uint64_t bytes, const uint64_t *parts)
{
    char all[32], part[PARTS][32];

    for (int i = 0; i < PARTS; i++)
        snprintf(part[i], sizeof part[i], "%s", "");
    for (int i = 0; parts && i < PARTS; i++)
        tern_str_bytes(part[i], sizeof part[i], parts[i]);
    printf("%10s  %10s  %10s  %10s  %s\n", tern_str_bytes(all, sizeof all, bytes), part[WEIGHTS],
           part[OPTIMIZER], part[OTHER], name);
}

static json_t *sizes_json(const char *name, uint64_t bytes, const uint64_t *parts)
{
    json_t *j = json_pack("{s:o, s:I}", "name", tern_json_text(name), "bytes", (json_int_t)bytes);

    if (parts) {
        json_object_set_new(j, "weights", json_integer((json_int_t)parts[WEIGHTS]));
        json_object_set_new(j, "optimizer", json_integer((json_int_t)parts[OPTIMIZER]));
        json_object_set_new(j, "other", json_integer((json_int_t)parts[OTHER]));
    }
    return j;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

/* Names of checkpoints of any state, and of trash, in order; for names_free. */
static int names_of(const char *dir, char ***ret_names, size_t *ret_n, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    char **names = NULL;
    size_t n = 0;

    if (!d) {
        tern_err_sys(err, "%s: cannot open folder", dir);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        return -1;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (!tern_str_starts(e->d_name, "step-") && !tern_str_starts(e->d_name, ".trash-step-"))
            continue;
        if ((n & (n - 1)) == 0) { /* room for the next power of two */
            char **more = realloc(names, (n ? 2 * n : 1) * sizeof *names);
            if (!more) {
                closedir(d);
                names_free(names, n);
                return tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for %zu names", dir, n);
            }
            names = more;
        }
        names[n++] = tern_strdup(e->d_name);
    }
    closedir(d);
    if (n)
        qsort(names, n, sizeof *names, by_name);
    *ret_names = names;
    *ret_n = n;
    return 0;
}

static int refuse_one(const char *dir, struct tern_err *err)
{
    return tern_ckpt_is_ours(dir)
               ? tern_err_set(err, TERN_USAGE,
                              "%s: is one checkpoint; give the folder that holds it", dir)
               : 0;
}

static int du_run(int n_args, char **args, struct tern_err *err)
{
    const char *dir = n_args ? args[0] : "checkpoints";
    json_t *rows = du_json ? json_array() : NULL;
    uint64_t all = 0;
    char **names = NULL;
    size_t n = 0;
    int rc = 0;

    if (refuse_one(dir, err) < 0 || names_of(dir, &names, &n, err) < 0) {
        json_decref(rows);
        return -1;
    }
    if (!rows && n)
        printf("%10s  %10s  %10s  %10s  %s\n", "SIZE", "WEIGHTS", "OPTIMIZER", "OTHER", "NAME");
    for (size_t i = 0; i < n; i++) {
        char *path = tern_fs_join(dir, names[i]);
        uint64_t bytes, parts[PARTS] = {0};
        /* One that goes at this moment is passed over. */
        if (rc == 0 && folder_bytes(path, &bytes, NULL) == 0) {
            const bool whole = add_parts(path, bytes, parts);
            tern_str_mask(names[i]);
            if (rows)
                json_array_append_new(rows, sizes_json(names[i], bytes, whole ? parts : NULL));
            else
                print_sizes(names[i], bytes, whole ? parts : NULL);
            all += bytes;
        }
        free(path);
    }
    names_free(names, n);
    if (rows)
        rc = tern_json_print(stdout, rows, err);
    else
        print_sizes("in all", all, NULL);
    json_decref(rows);
    return rc;
}

static const struct tern_opt du_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &du_json, .help = "print JSON, sizes in bytes"},
    {0},
};

const struct tern_cmd ckpt_du_cmd = {
    .name = "du",
    .args = "[DIR]",
    .args_max = 1,
    .summary = "tell the room that checkpoints take",
    .about = "Lists each checkpoint in DIR (default `checkpoints`), unfinished, refused and "
             "half-deleted ones, too. It prints the size, and of a good one the part of weights "
             "and of the optimizer's state.",
    .examples = "  tern ckpt du run1/checkpoints\n",
    .opts = du_opts,
    .run = du_run,
};

/* ------------------------------------------------------------------ prune */

static struct {
    int64_t keep, keep_every;
    bool dry_run;
} prune;

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

struct freed {
    uint64_t bytes;
    unsigned checkpoints, left_over; /* by writers and pruners that died */
};

static void tell(void *ctx, const char *path, enum tern_ckpt_state state)
{
    struct freed *f = ctx;
    uint64_t bytes = 0;
    char text[32];

    folder_bytes(path, &bytes, NULL);
    f->bytes += bytes;
    f->checkpoints += state == TERN_CKPT_GOOD;
    f->left_over += state != TERN_CKPT_GOOD;
    printf("%10s  %s\n", tern_str_bytes(text, sizeof text, bytes), path);
    fflush(stdout); /* named before it is removed */
}

static void print_freed(const struct freed *f)
{
    char text[32];

    if (f->checkpoints + f->left_over == 0) {
        printf("nothing %s\n", prune.dry_run ? "would go" : "is to be removed");
        return;
    }
    printf("%u checkpoint%s", f->checkpoints, f->checkpoints == 1 ? "" : "s");
    if (f->left_over)
        printf(" and %u unfinished", f->left_over);
    printf(" %s, %s\n", prune.dry_run ? "would go" : "removed",
           tern_str_bytes(text, sizeof text, f->bytes));
}

/* The step that DIR/best stands for; -1 where no evaluation was called the best.  What cannot be
 * read now may be of the best one: an error. */
static int find_best(const char *dir, int64_t *ret_step, struct tern_err *err)
{
    char *typed = tern_fs_join(dir, "best"), *path = NULL;
    struct tern_err why = {0};
    int rc = 0;

    *ret_step = -1;
    if (tern_ckpt_resolve(typed, &path, &why) == 0) {
        struct tern_ckpt *c = tern_ckpt_open(path, err);
        if (c)
            *ret_step = (int64_t)tern_ckpt_step(c);
        else
            rc = -1;
        tern_ckpt_close(c);
    } else if (why.code != TERN_USAGE) {
        rc = tern_err_set(err, why.code, "%s", why.text);
    }
    free(typed);
    free(path);
    return rc;
}

static int prune_run(int n_args, char **args, struct tern_err *err)
{
    const char *dir = n_args ? args[0] : "checkpoints";
    struct tern_err why = {0};
    struct freed freed = {0};
    struct tern_ckpt_prune_how how = {.keep = (unsigned)prune.keep,
                                      .keep_every = (uint64_t)prune.keep_every,
                                      .dry_run = prune.dry_run,
                                      .later = !prune.dry_run,
                                      .stop = &stopped,
                                      .each = tell,
                                      .ctx = &freed};
    const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (prune.keep < 2 || prune.keep > 1000000)
        return tern_err_set(err, TERN_USAGE,
                            "--keep %" PRId64 "; allowed are 2 to 1000000: the newest one may turn "
                            "out damaged",
                            prune.keep);
    if (prune.keep_every < 0)
        return tern_err_set(err, TERN_USAGE, "--keep-every %" PRId64 "; it takes steps, above 0",
                            prune.keep_every);
    if (refuse_one(dir, err) < 0)
        return -1;
    if (!tern_fs_exists(dir))
        return tern_err_set(err, TERN_USAGE, "%s: there is no such folder", dir);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    /* A run that goes on prunes for itself. */
    if (!prune.dry_run &&
        tern_ckpt_lease_acquire(dir, /* attempt= */ 0, "tern ckpt prune", &how.lease, err) < 0)
        return -1;
    int rc = find_best(dir, &how.best, err);
    if (rc == 0)
        rc = tern_ckpt_prune(dir, &how, /* removed= */ NULL, err);
    tern_ckpt_lease_withdraw(how.lease); /* a run may begin while files are deleted */
    if (!prune.dry_run && tern_ckpt_empty_trash(dir, &stopped, &why) < 0 && rc == 0) {
        *err = why;
        rc = -1;
    }
    if (rc < 0 && stopped) {
        fprintf(stderr, "tern ckpt: %s\n", err->text);
        return 128 + stopped;
    }
    if (rc == 0)
        print_freed(&freed);
    return rc;
}

static const struct tern_opt prune_opts[] = {
    {"keep", 'k', TERN_OPT_INT, "N", .def = "2", .to.integer = &prune.keep,
     .help = "the newest ones that stay"},
    {"keep-every", 0, TERN_OPT_INT, "STEPS", .def = "0", .to.integer = &prune.keep_every,
     .help = "those whose step is a multiple of it stay, too; 0: none"},
    {"dry-run", 'n', TERN_OPT_FLAG, .to.flag = &prune.dry_run,
     .help = "print what would go, and remove nothing"},
    {0},
};

const struct tern_cmd ckpt_prune_cmd = {
    .name = "prune",
    .args = "[DIR]",
    .args_max = 1,
    .summary = "remove old checkpoints of a run that has ended",
    .about = "The newest checkpoints in DIR (default `checkpoints`) stay, and that of the best "
             "evaluation. Refused and damaged ones stay for people. What a writer that died has "
             "left goes, too. A run that goes on holds its folder, and prunes by its recipe "
             "(checkpoint.keep).",
    .examples = "  tern ckpt prune -n --keep 3 run1/checkpoints\n",
    .opts = prune_opts,
    .run = prune_run,
};
