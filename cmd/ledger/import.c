/* tern ledger import: a run of another trainer, from its event files of TensorBoard.
 *
 * The run is written to a ledger of its own in a temporary folder and then merged. So a command
 * that is killed leaves nothing in the ledger. */
#include "cmd/ledger/show.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/le.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/tree.h"
#include "core/intake/metric.h"
#include "core/intake/tensorboard.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WINDOW = 8 << 20, /* read at once; longer records are graphs and pictures, stepped over */
    FRAME = 16,       /* bytes of a record beside its data */
    ATTEMPTS = 1000,  /* a trainer restarts some dozens of times */
    NAME_BYTES = 200, /* of a metric */
};

static const char *run_name;

struct import {
    char *aside; /* the ledger of its own */
    char id[TERN_ULID_SIZE];
    const char *from;
    struct tern_ledger_spool *spool; /* of the file, in its attempt; NULL: no value yet */
    char prefix[NAME_BYTES];         /* the file's folder, with a slash; or empty */
    unsigned attempt;                /* of the file, from 0 */
    struct {
        int64_t first_ns, last_ns, resumed; /* first_ns 0: it has no values */
    } attempts[ATTEMPTS];
    bool one_folder; /* all files are in one */
    uint64_t values, unfit;
    int rc; /* of the first record that the ledger did not take */
    struct tern_err *err;
};

/* Is the time one that a trainer may have had?  What is not cannot be placed on any axis of time.
 */
static bool is_time(double seconds, int64_t *ret_ns)
{
    const double now = (double)tern_clock_wall_ns() / 1e9;
    const bool good = seconds > 0 && seconds < now + 86400;

    if (good)
        *ret_ns = (int64_t)(seconds * 1e9);
    return good;
}

static const char *user_name(void)
{
    const struct passwd *pw = getpwuid(getuid());

    return pw ? pw->pw_name : "";
}

static int close_spool(struct import *i)
{
    struct tern_ledger_spool *s = i->spool;

    i->spool = NULL;
    return tern_ledger_spool_close(s, i->err);
}

/* What follows supersedes what was there from this step on. */
static void restart(struct import *i, int64_t step)
{
    i->rc = close_spool(i);
    if (i->attempt + 1 < ATTEMPTS)
        i->attempt++;
    i->attempts[i->attempt].resumed = step > 0 ? step - 1 : 0;
}

static void take(void *self, const struct tern_intake_tb_value *v)
{
    struct import *i = self;
    char name[NAME_BYTES + sizeof v->tag];
    int64_t ns;

    if (i->rc < 0)
        return;
    if (v->restart) {
        restart(i, v->step);
        return;
    }
    snprintf(name, sizeof name, "%s%s", i->prefix, v->tag);
    if (strlen(name) > NAME_BYTES || !tern_intake_metric_name_is_good(name, strlen(name)) ||
        v->step < 0 || v->step > TERN_LEDGER_STEP_MAX || !is_time(v->wall_s, &ns)) {
        i->unfit++;
        return;
    }
    if (!i->spool)
        i->spool = tern_ledger_spool_open(i->aside, i->id, i->attempt + 1, "import", i->err);
    if (!i->spool) {
        i->rc = -1;
        return;
    }
    struct tern_ledger_value value = {name, v->value};
    tern_ledger_spool_set_time(i->spool, ns);
    i->rc = tern_ledger_spool_step(i->spool, v->step, &value, 1, i->err);
    i->values += i->rc == 0;
    int64_t *first = &i->attempts[i->attempt].first_ns, *last = &i->attempts[i->attempt].last_ns;
    *first = *first && *first < ns ? *first : ns;
    *last = *last > ns ? *last : ns;
}

/* All whole records before the first damaged one are taken; damage is reported. */
static int read_records(struct import *i, int fd, const char *path, uint64_t bytes, char *window,
                        struct tern_err *err)
{
    uint64_t at = 0, bad = 0;

    while (i->rc == 0 && at + FRAME <= bytes) {
        size_t len = bytes - at < WINDOW ? (size_t)(bytes - at) : WINDOW, used;
        if (tern_fs_pread(fd, window, len, at, path, err) < 0)
            return -1;
        int rc = tern_intake_tb_parse(window, len, take, i, &used, &bad);
        if (rc < 0) {
            tern_warn("%s: damaged at byte %" PRIu64 ": nothing behind it can be read", path,
                      at + used);
            break;
        }
        if (used == 0 && len < WINDOW)
            break; /* a record that is being written */
        uint64_t longer = tern_le_get64(window) + FRAME;
        at += used ? used : longer < bytes ? longer : bytes;
        tern_progress_set(at, bytes);
    }
    if (bad)
        tern_warn("%s: %" PRIu64 " records are damaged, and left out", path, bad);
    return i->rc;
}

static int read_file(struct import *i, const char *dir, const struct tern_tree_file *f,
                     char *window, struct tern_err *err)
{
    char *path = tern_fs_join(dir, f->name);
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    int rc = fd < 0 ? tern_err_sys(err, "%s: cannot be read", path) : 0;

    if (rc == 0) {
        tern_progress_begin(NULL, "%s", f->name);
        rc = read_records(i, fd, path, f->bytes, window, err);
        if (close_spool(i) < 0)
            rc = -1;
        tern_progress_end();
        close(fd);
    }
    free(path);
    return rc;
}

static bool is_event_file(const struct tern_tree_file *f)
{
    const char *last = strrchr(f->name, '/');

    return strstr(last ? last : f->name, ".tfevents.");
}

/* Files come by folder, and within one in the order of their times.  Each folder counts its own
 * restarts: trainers write one folder for training and one for evaluation, say. */
static int read_files(struct import *i, const char *dir, struct tern_err *err)
{
    struct tern_tree t = {0};
    char *window = tern_alloc(WINDOW, 1, "event files", err);
    size_t n = 0;
    int rc = window && tern_tree_list_files(dir, &t, err) == 0 ? 0 : -1;

    for (size_t k = 0; rc == 0 && k < t.n; k++) {
        const char *slash = strrchr(t.file[k].name, '/');
        int len = slash ? (int)(slash - t.file[k].name) + 1 : 0;
        if (!is_event_file(&t.file[k]))
            continue;
        n++;
        if (len >= NAME_BYTES) {
            rc = tern_err_set(err, TERN_USAGE, "%s/%s: the path is too long for a metric's name",
                              dir, t.file[k].name);
            break;
        }
        if ((int)strlen(i->prefix) != len || strncmp(i->prefix, t.file[k].name, (size_t)len) != 0) {
            i->one_folder &= n == 1;
            i->attempt = 0;
        }
        snprintf(i->prefix, sizeof i->prefix, "%.*s", len, t.file[k].name);
        rc = read_file(i, dir, &t.file[k], window, err);
    }
    if (rc == 0 && n == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: has no event files (*.tfevents.*)", dir);
    tern_tree_free(&t);
    free(window);
    return rc;
}

/* Where one folder of several began again, only its own metrics did: then the ledger decides for
 * each metric by its first value. */
static int write_attempt(struct import *i, unsigned k, struct tern_err *err)
{
    struct tern_ledger_run run = {.name = run_name,
                                  .user = user_name(),
                                  .recipe_path = i->from,
                                  .created_ns = i->attempts[k].first_ns};
    struct tern_ledger_attempt a = {.resumed_step = k == 0          ? 0
                                                    : i->one_folder ? i->attempts[k].resumed
                                                                    : -1};
    struct tern_ledger_end end = {.outcome = "imported",
                                  .cause = "its values were imported from event files"};
    struct tern_ledger_spool *s = tern_ledger_spool_open(i->aside, i->id, k + 1, "run", err);

    if (!s)
        return -1;
    tern_ledger_spool_set_time(s, i->attempts[k].first_ns);
    int rc = tern_ledger_spool_run(s, &run, err) < 0 ||
                     tern_ledger_spool_attempt_begin(s, &a, err) < 0 ||
                     tern_ledger_spool_param(s, "imported_from", i->from, err) < 0
                 ? -1
                 : 0;
    tern_ledger_spool_set_time(s, i->attempts[k].last_ns);
    if (rc == 0)
        rc = tern_ledger_spool_attempt_end(s, &end, err);
    if (tern_ledger_spool_close(s, rc < 0 ? NULL : err) < 0)
        rc = -1;
    return rc;
}

static int write_attempts(struct import *i, struct tern_err *err)
{
    int rc = 0;

    for (unsigned k = 0; rc == 0 && k < ATTEMPTS; k++)
        if (i->attempts[k].first_ns)
            rc = write_attempt(i, k, err);
    return rc;
}

/* The run is there once it is merged, whatever comes behind that. */
static int put_in_place(const struct import *i, struct tern_err *err)
{
    struct tern_ledger_merged m;
    struct tern_err why = {0};
    char *home = NULL;
    int rc = tern_ledger_home(show.ledger, TERN_LEDGER_UMASK, &home, err);

    if (rc == 0)
        rc = tern_ledger_merge(i->aside, home, i->id, /* dry_run= */ false, &m, err);
    if (rc == 0 &&
        (tern_ledger_fold(home, i->id, &why) < 0 || tern_ledger_fold_catalog(home, &why) < 0))
        tern_warn("the run is in the ledger, but run.db is behind (tern ledger fold): %s",
                  why.text);
    free(home);
    return rc;
}

/* The folder's name; where that is no run's name, one like it, with a word. */
static char *default_name(const char *dir)
{
    char *whole = realpath(dir, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    char *folder = tern_strdup(slash && slash[1] ? slash + 1 : "imported");
    const char *fault = tern_str_run_name_fault(folder);
    struct tern_buf name = {0};

    free(whole);
    if (!fault)
        return folder;
    for (const char *s = folder; *s;) { /* a dash for each character that a name may not have */
        const size_t n = tern_str_utf8(s, strlen(s));
        const char one[] = {'x', *s, '\0'};
        tern_buf_add(&name, tern_str_run_name_fault(one) ? "-" : s, 1);
        s += n ? n : 1;
    }
    if (tern_str_run_name_fault(name.data)) {
        char *whole_name = tern_strf("imported-%.50s", name.data);
        tern_buf_clear(&name);
        tern_buf_puts(&name, whole_name);
        free(whole_name);
    }
    tern_str_mask(folder);
    tern_warn("the folder's name '%s' %s The run is called '%s': --name gives it another", folder,
              fault, name.data);
    free(folder);
    return name.data;
}

static int check_name(struct tern_err *err)
{
    const char *fault = run_name ? tern_str_run_name_fault(run_name) : NULL;

    if (!fault)
        return 0;
    char *name = tern_strdup(run_name);
    tern_str_mask(name);
    tern_err_set(err, TERN_USAGE, "--name: '%.200s' %s", name, fault);
    free(name);
    return -1;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static struct import i;
    const char *temp = getenv("TMPDIR");
    char *aside = tern_strf("%s/tern-import-XXXXXX", temp && *temp ? temp : "/tmp");
    char *name = NULL;
    int rc = -1;

    (void)n_args;
    if (check_name(err) < 0 || show_need_ledger(err) < 0)
        goto out;
    name = run_name ? NULL : default_name(args[0]);
    i.err = err;
    i.one_folder = true;
    i.from = args[0];
    run_name = run_name ? run_name : name;
    if (!mkdtemp(aside)) {
        tern_err_sys(err, "%s: cannot be made", aside);
        goto out;
    }
    i.aside = aside;
    tern_ledger_ulid_new(i.id);
    rc = read_files(&i, args[0], err);
    if (rc == 0)
        rc = write_attempts(&i, err);
    if (rc == 0 && i.values == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: its event files have no scalars", args[0]);
    if (rc == 0)
        rc = put_in_place(&i, err);
    tern_fs_remove_tree(aside, NULL);
    if (rc == 0 && i.unfit)
        tern_warn("%" PRIu64 " values are left out: a name of more than %d bytes or with control "
                  "characters, a step below 0 or above 2^53, or a time that cannot be",
                  i.unfit, (int)NAME_BYTES);
    if (rc == 0)
        tern_cmd_say("%s  %s: %" PRIu64 " values", i.id, run_name, i.values);
out:
    free(aside);
    free(name);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"name", 0, TERN_OPT_TEXT, "NAME", .to.text = &run_name,
     .help = "the run's name, as a recipe may have it (default: the folder's)"},
    {0},
};

const struct tern_cmd ledger_import = {
    .name = "import",
    .args = "DIR",
    .summary = "make a run of TensorBoard's event files",
    .about = "Takes the scalars of all event files under DIR, with their steps and times, into a "
             "new run of the ledger. The files are those of PyTorch's and TensorFlow's writers. A "
             "tag of a file in a folder of DIR has the folder's name before it. Where a trainer "
             "went on from a checkpoint (a session's start, PyTorch's purge_step), a new attempt "
             "begins. It supersedes the values that were there from that step on. Damaged records "
             "are reported and left out. The run's state is 'imported'.",
    .examples = "  tern ledger import lightning_logs/version_0 --name nxd-70b\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};
