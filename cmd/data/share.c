/* A build that several processes share, or that goes on after it was killed. */
#include "cmd/data/share.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SHARES = 1024,        /* of large files: enough for many tasks, few enough to list */
    SHARE_MIN = 16 << 20, /* a third of a second of one core: a part's fsync is less */
    WAIT_MS = 20,         /* between looks at what others do, longer with each, up to */
    WAIT_MAX_MS = 1000,
    LATE_S = 10, /* for tasks of the step that have not come yet */
};

struct sharing {
    const struct data_build *build;
    const struct data_step *step;
    struct data_folder folder;
    struct tern_data_shares *shares;
    char inputs[TERN_SHA256_HEX];
    uint64_t n;        /* shares */
    uint64_t first;    /* this process looks for work from there on */
    const char *claim; /* being worked on, or NULL */
    struct data_progress progress;
    uint64_t elsewhere; /* bytes of shares that are built */
    int64_t beat_ns, listed_ns;
    bool resumed; /* some shares were there when it began */
};

struct data_step data_step_here(void)
{
    const char *id = getenv("SLURM_STEP_ID"), *rank = getenv("SLURM_PROCID"),
               *tasks = getenv("SLURM_STEP_NUM_TASKS"), *job = getenv("SLURM_JOB_ID"),
               *restart = getenv("SLURM_RESTART_COUNT");
    struct data_step s = {.tasks = 1};
    char host[64] = "";
    int64_t n, r;

    gethostname(host, sizeof host - 1);
    host[strcspn(host, "-/.")] = '\0';
    snprintf(s.name, sizeof s.name, "%.40s.%d", host, (int)getpid());
    /* The numbers of batch scripts and interactive steps are above any of srun's. */
    if (!id || !rank || !tasks || !job || strtoul(id, NULL, 10) >= 0xfffffff0UL ||
        tern_str_int(tasks, 2, 1 << 24, &n) < 0 || tern_str_int(rank, 0, n - 1, &r) < 0)
        return s;
    s.rank = (int)r;
    s.tasks = (int)n;
    snprintf(s.name, sizeof s.name, "%.20s.%.20s.%.10s", job, id, restart ? restart : "0");
    return s;
}

bool data_share_begun(const char *out)
{
    struct data_folder f = {.path = data_folder_name(out), .task_fd = -1};
    bool begun = data_folder_is_there(&f);

    data_folder_close(&f);
    return begun;
}

/* ---- names of files ---- */

static char *part_name(uint64_t k)
{
    return tern_strf("%04" PRIu64 ".tds", k + 1);
}

static char *claim_name(uint64_t k)
{
    return tern_strf("%04" PRIu64 ".claim", k + 1);
}

static bool is_built(const struct sharing *s, uint64_t k)
{
    char *name = part_name(k), *path = data_folder_file(&s->folder, name);
    struct stat st;
    bool built = stat(path, &st) == 0;

    free(path);
    free(name);
    return built;
}

/* "done" may be left of a build that was killed while it cleaned up, and its set may be gone. */
static bool is_done(const struct sharing *s)
{
    char *path = data_folder_file(&s->folder, "done");
    bool done = tern_fs_exists(path) && tern_fs_exists(s->build->out);

    free(path);
    return done || !data_folder_is_there(&s->folder);
}

/* ---- failures ---- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* The exit status of a step of which a task has failed, 0 while none has. */
static int step_failed(const struct sharing *s)
{
    char *path = data_folder_file(&s->folder, "failed"), *data = NULL, *mine;
    size_t len;
    int code = 0;

    mine = tern_strf(" %s\n", s->step->name);
    if (s->step->tasks > 1 && tern_fs_read(path, 1 << 20, &data, &len, NULL) == 0) {
        const char *nl = strchr(data, '\n'); /* behind the owner: "CODE STEP" */
        if (nl && strstr(nl, mine))
            code = (int)strtol(nl + 1, NULL, 10);
    }
    free(mine);
    free(data);
    free(path);
    return code;
}

/* Tell the others.  The first of a step to fail says why; the exit status of those after it. */
static int fail(const struct sharing *s, struct tern_err *err)
{
    char *text = tern_strf("%d %s\n%s\n", err->code, s->step->name, err->text);
    int rc = -1, code;

    if (data_folder_put_new(&s->folder, "failed", text, NULL) == 0) {
        if ((code = step_failed(s)) != 0) {
            rc = code;
        } else {
            data_folder_remove(&s->folder, "failed"); /* of a build before */
            data_folder_put_new(&s->folder, "failed", text, NULL);
        }
    }
    free(text);
    return rc;
}

static int interrupted(const struct sharing *s, struct tern_err *err)
{
    uint64_t built = 0;

    for (uint64_t k = 0; k < s->n; k++)
        built += is_built(s, k);
    return tern_err_set(err, TERN_FAILED,
                        "%s: interrupted (signal %d); %" PRIu64 " of %" PRIu64
                        " parts are in %s, and the same command goes on with them",
                        s->build->out, __atomic_load_n(s->build->stop, __ATOMIC_RELAXED), built,
                        s->n, s->folder.path);
}

static bool told_to_stop(const struct sharing *s)
{
    return __atomic_load_n(s->build->stop, __ATOMIC_RELAXED) != 0;
}

/* ---- progress and signs of life ---- */

static int place_of(const struct sharing *s, uint64_t k, struct data_share *ret_share,
                    struct tern_err *err)
{
    *ret_share = (struct data_share){.part = k, .parts = s->n, .inputs = s->inputs};
    return tern_data_shares_place(s->shares, k, s->n, &ret_share->from, err) < 0
               ? -1
               : tern_data_shares_place(s->shares, k + 1, s->n, &ret_share->to, err);
}

/* Shares are of about the same size: their number tells how much was done. */
static void list_built(struct sharing *s)
{
    uint64_t built = 0;

    for (uint64_t k = 0; k < s->n; k++)
        built += is_built(s, k);
    s->elsewhere = tern_data_shares_bytes(s->shares) / s->n * built;
    s->listed_ns = tern_clock_boot_ns();
}

static void show(struct sharing *s, uint64_t done)
{
    enum { LIST_MS = 1000 };
    char of[64] = "";

    if (!data_progress_due(&s->progress))
        return;
    if (tern_clock_boot_ns() - s->listed_ns > LIST_MS * INT64_C(1000000))
        list_built(s);
    if (s->step->tasks > 1)
        snprintf(of, sizeof of, "%d tasks, ", s->step->tasks);
    data_progress(&s->progress, s->elsewhere + done, tern_data_shares_bytes(s->shares),
                  /* text= */ 0, of);
}

static void beat(struct sharing *s)
{
    const int64_t now = tern_clock_boot_ns();

    if (now - s->beat_ns > DATA_BEAT_MS * INT64_C(1000000)) {
        data_folder_beat(&s->folder, s->claim);
        s->beat_ns = now;
    }
}

static int tick(void *arg, uint64_t done, uint64_t all, const struct data_sums *sums,
                struct tern_err *err)
{
    (void)all;
    (void)sums;
    (void)err;
    beat(arg);
    show(arg, done);
    return 0;
}

static int merge_tick(void *arg, uint64_t done, uint64_t all, const struct data_sums *sums,
                      struct tern_err *err)
{
    struct sharing *s = arg;

    (void)err;
    beat(s);
    data_progress(&s->progress, done, all, sums->bytes, "");
    return 0;
}

/* ---- work ---- */

static int build_share(struct sharing *s, uint64_t k, struct tern_err *err)
{
    const struct data_tick ticks = {tick, s};
    struct data_share share;
    struct data_sums sums = {0};
    char *name = part_name(k), *path = data_folder_file(&s->folder, name);
    int rc = -1;

    if (place_of(s, k, &share, err) == 0 &&
        data_sums_open(&sums, s->build->paths, s->build->n_paths, err) == 0)
        rc = data_write(s->build, &share, path, &sums, &ticks, err);
    data_sums_free(&sums);
    free(path);
    free(name);
    return rc;
}

enum work { DONE, SOME, NONE, ENDED, FAILED };

/* Take a share that no task has, and build it. */
static enum work work_once(struct sharing *s, struct tern_err *err)
{
    uint64_t left = 0;

    for (uint64_t i = 0; i < s->n; i++) {
        const uint64_t k = (s->first + i) % s->n;
        if (is_built(s, k))
            continue;
        left++;
        char *name = claim_name(k);
        enum data_claim claim = data_folder_claim(&s->folder, name, err);
        int rc = 0;
        if (claim == DATA_CLAIM_OURS && !is_built(s, k)) {
            s->claim = name;
            rc = build_share(s, k, err);
            s->claim = NULL;
        }
        if (claim == DATA_CLAIM_OURS)
            data_folder_remove(&s->folder, name);
        free(name);
        if (rc < 0 && !told_to_stop(s) && is_done(s))
            return ENDED; /* others had taken it over, and have merged */
        if (rc < 0 || claim == DATA_CLAIM_FAILED)
            return FAILED;
        if (claim == DATA_CLAIM_GONE)
            return ENDED;
        if (claim == DATA_CLAIM_OURS)
            return SOME;
    }
    return left ? NONE : DONE;
}

/* Tasks that start late find the set done: give them time to see it. */
static void await_tasks(const struct sharing *s)
{
    const int64_t until = tern_clock_boot_ns() + LATE_S * INT64_C(1000000000);

    while (data_folder_tasks(&s->folder) < s->step->tasks && tern_clock_boot_ns() < until &&
           !told_to_stop(s))
        pause_ms(WAIT_MS);
}

static int merge(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    char **parts = tern_alloc(s->n, sizeof *parts, "parts", err);
    const struct data_tick ticks = {merge_tick, s};
    int rc;

    if (!parts)
        return -1;
    for (uint64_t k = 0; k < s->n; k++) {
        char *name = part_name(k);
        parts[k] = data_folder_file(&s->folder, name);
        free(name);
    }
    data_progress_end(&s->progress);
    data_progress_begin(&s->progress, s->build->out, "merging, ", /* quiet= */ false);
    s->claim = "merge.claim";
    rc = data_merge(&(struct data_merge){.parts = parts,
                                         .n_parts = s->n,
                                         .out = s->build->out,
                                         .stop = s->build->stop,
                                         .tick = &ticks},
                    ret_sums, err);
    data_progress_end(&s->progress);
    s->claim = NULL;
    for (uint64_t k = 0; k < s->n; k++)
        free(parts[k]);
    free(parts);
    if (rc < 0)
        data_folder_remove(&s->folder, "merge.claim");
    if (rc == 0 && s->step->tasks > 1) {
        data_folder_put_new(&s->folder, "done", "", NULL);
        await_tasks(s);
    }
    if (rc == 0)
        data_folder_remove_all(&s->folder);
    return rc;
}

/* Until all is done, by whomever: the exit status, or -1. */
static int work(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    int code, wait = WAIT_MS;

    for (;;) {
        if (told_to_stop(s))
            return interrupted(s, err);
        if ((code = step_failed(s)) != 0)
            return code;
        if (is_done(s))
            return 0;
        enum work w = work_once(s, err);
        enum data_claim claim =
            w == DONE ? data_folder_claim(&s->folder, "merge.claim", err) : DATA_CLAIM_OTHERS;
        if (told_to_stop(s))
            return interrupted(s, err);
        if (claim == DATA_CLAIM_OURS && !is_done(s)) {
            if (merge(s, ret_sums, err) == 0 || (!told_to_stop(s) && is_done(s)))
                return 0;
            return told_to_stop(s) ? interrupted(s, err) : fail(s, err);
        }
        if (w == FAILED || claim == DATA_CLAIM_FAILED)
            return fail(s, err);
        if (w == SOME) {
            wait = WAIT_MS;
            continue;
        }
        pause_ms(wait);
        wait = wait < WAIT_MAX_MS ? wait + wait / 2 : WAIT_MAX_MS;
        beat(s);
        show(s, 0);
    }
}

/* ---- beginning ---- */

static char *plan_of(const struct sharing *s)
{
    char hash[TERN_SHA256_HEX];
    json_t *j =
        json_pack("{s:s, s:s, s:s, s:o, s:I}", "tern", TERN_VERSION, "vocabulary",
                  tern_hex(hash, s->build->kind.vocab_hash, TERN_SHA256_BYTES), "inputs", s->inputs,
                  "options", data_build_options(s->build), "shares", (json_int_t)s->n);
    char *plan = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    json_decref(j);
    return plan;
}

static uint64_t count_shares(uint64_t bytes, uint64_t share_bytes)
{
    uint64_t each = share_bytes ? share_bytes : bytes / SHARES;

    if (!share_bytes && each < SHARE_MIN)
        each = SHARE_MIN;
    const uint64_t n = bytes / each + (bytes % each > 0);
    return n < 1 ? 1 : n > TERN_DATA_SHARES_MAX ? TERN_DATA_SHARES_MAX : n;
}

static int join(struct sharing *s, struct tern_err *err)
{
    char *plan = plan_of(s);
    int rc = plan ? 0 : tern_err_set(err, TERN_FAILED, "%s: no memory", s->build->out);

    while (plan && (rc = data_folder_open(&s->folder, plan, err)) == 0 && !told_to_stop(s))
        pause_ms(WAIT_MS);
    free(plan);
    if (rc < 0)
        return -1;
    data_folder_tidy(&s->folder, s->build->out);
    list_built(s);
    if (s->elsewhere && s->step->rank == 0)
        tern_info("%s: going on with the parts that are there (%.0f %%)", s->folder.path,
                  100.0 * (double)s->elsewhere / (double)tern_data_shares_bytes(s->shares));
    s->progress.before = s->elsewhere;
    s->resumed = s->elsewhere > 0;
    return 0;
}

int data_share_build(const struct data_build *b, const struct data_step *step, uint64_t share_bytes,
                     struct data_sums *ret_sums, struct tern_err *err)
{
    struct tern_data_share_how how = {.paths = b->paths, .n_paths = b->n_paths};
    struct sharing s = {.build = b,
                        .step = step,
                        .folder = {.path = data_folder_name(b->out), .step = step, .task_fd = -1}};
    int rc = -1;

    *ret_sums = (struct data_sums){0};
    if (data_text_how(&b->text, &how.text, err) < 0)
        goto out;
    how.text.records = b->records != NULL; /* files' formats are found by the same rules */
    s.shares = tern_data_shares_open(&how, err);
    if (!s.shares)
        goto out;
    tern_data_shares_digest(s.shares, s.inputs);
    s.n = count_shares(tern_data_shares_bytes(s.shares), share_bytes);
    s.first = s.n * (uint64_t)step->rank / (uint64_t)step->tasks;
    data_progress_begin(&s.progress, b->out, "", /* quiet= */ step->rank != 0);
    if (join(&s, err) == 0)
        rc = work(&s, ret_sums, err);
    ret_sums->resumed = s.resumed;
    data_progress_end(&s.progress);
    if (step->tasks == 1 && s.folder.task)
        unlink(s.folder.task);
out:
    tern_data_shares_close(s.shares);
    data_folder_close(&s.folder);
    return rc;
}
