/* A build that several processes share, or that goes on after it was killed. */
#include "cmd/data/share.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
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
    uint64_t n;         /* shares */
    uint64_t first;     /* this process looks for work from there on */
    uint64_t elsewhere; /* bytes of shares that are built */
    int64_t listed_ns;
    bool resumed; /* some shares were there when it began */
};

struct data_step data_step_local(void)
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
    struct data_folder f = {.path = data_folder_name(out)};
    const bool begun = data_folder_is_there(&f);

    free(f.path);
    return begun;
}

static bool is_built(const struct sharing *s, uint64_t k)
{
    char *path = data_folder_part(&s->folder, k);
    struct stat st;
    const bool built = stat(path, &st) == 0;

    free(path);
    return built;
}

/* ---- failures ---- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* The exit status of a step of which a task has failed, 0 while none has. */
static int step_failed(const struct sharing *s)
{
    char *text = NULL, *mine = tern_strf(" %s\n", s->step->name);
    int code = 0;

    if (s->step->tasks > 1 && (text = data_folder_get(&s->folder, "failed")) && strstr(text, mine))
        code = (int)strtol(text, NULL, 10);
    free(mine);
    free(text);
    return code;
}

/* Tell the others.  The first of a step to fail says why; the exit status of those after it. */
static int fail(const struct sharing *s, struct tern_err *err)
{
    char *text = tern_strf("%d %s\n%s\n", err->code, s->step->name, err->text);
    int rc = -1, code;

    if (data_folder_put_new(&s->folder, "failed", text, /* ret_owner= */ NULL, NULL) == 0) {
        if ((code = step_failed(s)) != 0) {
            rc = code;
        } else {
            data_folder_remove(&s->folder, "failed"); /* of a build before */
            data_folder_put_new(&s->folder, "failed", text, /* ret_owner= */ NULL, NULL);
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

/* A client of NFS may see the set a minute after it has come. */
static int await_set(const struct sharing *s, struct tern_err *err)
{
    const int64_t until = tern_clock_boot_ns() + DATA_LOST_S * INT64_C(1000000000);

    while (!tern_fs_exists(s->build->out) && !told_to_stop(s)) {
        if (tern_clock_boot_ns() > until)
            return tern_err_set(err, TERN_FAILED,
                                "%s: was removed while the set was built in it. Start the build "
                                "again.",
                                s->folder.path);
        pause_ms(WAIT_MAX_MS);
    }
    return 0;
}

/* 1 while there is work in the folder; 0: the set is there; -1. */
static int goes_on(const struct sharing *s, struct tern_err *err)
{
    switch (data_folder_state(&s->folder)) {
    case DATA_FOLDER_OURS:
        return 1;
    case DATA_FOLDER_DONE:
        return 0;
    case DATA_FOLDER_GONE:
        return await_set(s, err);
    case DATA_FOLDER_OTHER:
        break;
    }
    return tern_err_set(err, TERN_FAILED,
                        "%s: another build has begun in it meanwhile, and goes on. This one ends.",
                        s->folder.path);
}

/* ---- progress ---- */

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

    if (!tern_progress_due())
        return;
    if (tern_clock_boot_ns() - s->listed_ns > LIST_MS * INT64_C(1000000))
        list_built(s);
    tern_progress_set(s->elsewhere + done, tern_data_shares_bytes(s->shares));
}

static int tick(void *arg, uint64_t done, uint64_t all, const struct data_sums *sums,
                struct tern_err *err)
{
    (void)all;
    (void)sums;
    (void)err;
    show(arg, done);
    return 0;
}

static bool held(const void *folder)
{
    return data_folder_holds(folder);
}

/* ---- work ---- */

static int build_share(struct sharing *s, uint64_t k, struct tern_err *err)
{
    const struct data_tick ticks = {tick, s};
    struct data_share share;
    struct data_sums sums = {0};
    char *path = data_folder_part(&s->folder, k);
    int rc = -1;

    if (place_of(s, k, &share, err) == 0 &&
        data_sums_open(&sums, s->build->paths, s->build->n_paths, err) == 0)
        rc = data_write(s->build, &share, path, &sums, &ticks, err);
    data_sums_free(&sums);
    free(path);
    return rc;
}

enum work { DONE, SOME, NONE, ENDED, FAILED };

/* Build a share of which this process has the lease. */
static enum work work_on(struct sharing *s, uint64_t k, struct tern_err *err)
{
    const int rc = is_built(s, k) ? 0 : build_share(s, k, err);
    const bool lost = rc < 0 && !data_folder_holds(&s->folder);

    data_folder_release(&s->folder);
    if (rc == 0 || told_to_stop(s))
        return rc == 0 ? SOME : FAILED;
    if (data_folder_state(&s->folder) != DATA_FOLDER_OURS)
        return ENDED; /* others had taken it over, and have merged */
    return lost ? SOME : FAILED;
}

/* Take a share that no task has, and build it. */
static enum work work_once(struct sharing *s, struct tern_err *err)
{
    uint64_t left = 0;

    for (uint64_t i = 0; i < s->n; i++) {
        const uint64_t k = (s->first + i) % s->n;
        if (is_built(s, k))
            continue;
        left++;
        char *name = data_folder_lease_of(&s->folder, k);
        const enum data_lease lease = data_folder_acquire(&s->folder, name, err);
        free(name);
        if (lease == DATA_LEASE_OURS)
            return work_on(s, k, err);
        if (lease != DATA_LEASE_OTHERS)
            return lease == DATA_LEASE_GONE ? ENDED : FAILED;
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

/* 0: this process has put the set in place. */
static int merge_parts(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    char **parts = tern_alloc(s->n, sizeof *parts, "parts", err);
    const struct data_tick ticks = {data_show, NULL};

    if (!parts)
        return -1;
    for (uint64_t k = 0; k < s->n; k++)
        parts[k] = data_folder_part(&s->folder, k);
    tern_progress_begin(/* unit= */ NULL, "%s, merging", s->build->out);
    const int rc = data_merge(&(struct data_merge){.parts = parts,
                                                   .n_parts = s->n,
                                                   .out = s->build->out,
                                                   .stop = s->build->stop,
                                                   .tick = &ticks,
                                                   .held = held,
                                                   .held_arg = &s->folder},
                              ret_sums, err);
    tern_progress_end();
    for (uint64_t k = 0; k < s->n; k++)
        free(parts[k]);
    free(parts);
    return rc;
}

/* Of a process that has the lease to merge. */
static enum work merge(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    const int rc = merge_parts(s, ret_sums, err);
    const bool lost = !data_folder_holds(&s->folder); /* another process merges, too */

    if (rc == 0 && !lost) {
        data_folder_put_done(&s->folder);
        if (s->step->tasks > 1)
            await_tasks(s);
        data_folder_remove_all(&s->folder);
    }
    data_folder_release(&s->folder);
    if (rc == 0 || told_to_stop(s))
        return rc == 0 ? DONE : FAILED;
    return lost || data_folder_state(&s->folder) != DATA_FOLDER_OURS ? ENDED : FAILED;
}

/* Once all shares are built: DONE with the set in place. */
static enum work merge_once(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    char *name = data_folder_merge_lease(s->folder.plan);
    const enum data_lease lease = data_folder_acquire(&s->folder, name, err);

    free(name);
    if (lease == DATA_LEASE_OURS && data_folder_state(&s->folder) == DATA_FOLDER_OURS)
        return merge(s, ret_sums, err);
    data_folder_release(&s->folder);
    return lease == DATA_LEASE_FAILED ? FAILED : lease == DATA_LEASE_OTHERS ? NONE : ENDED;
}

/* Until all is done, by whomever: the exit status, or -1. */
static int work(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    int code, rc, wait = WAIT_MS;

    for (;;) {
        if (told_to_stop(s))
            return interrupted(s, err);
        if ((code = step_failed(s)) != 0)
            return code;
        if ((rc = goes_on(s, err)) <= 0)
            return told_to_stop(s) ? interrupted(s, err) : rc;
        enum work w = work_once(s, err);
        if (w == DONE && (w = merge_once(s, ret_sums, err)) == DONE)
            return 0;
        if (w == FAILED && told_to_stop(s))
            return interrupted(s, err);
        if (w == FAILED && data_folder_state(&s->folder) == DATA_FOLDER_OURS)
            return fail(s, err);
        if (w == SOME) {
            wait = WAIT_MS;
            continue;
        }
        pause_ms(wait);
        wait = wait < WAIT_MAX_MS ? wait + wait / 2 : WAIT_MAX_MS;
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

static enum data_join join(struct sharing *s, struct tern_err *err)
{
    enum data_join join;

    while ((join = data_folder_join(&s->folder, err)) == DATA_JOIN_LATER && !told_to_stop(s))
        pause_ms(WAIT_MS);
    if (join == DATA_JOIN_LATER) {
        interrupted(s, err);
        return DATA_JOIN_FAILED;
    }
    if (join != DATA_JOINED)
        return join;
    data_folder_tidy(&s->folder);
    list_built(s);
    if (s->elsewhere && s->step->rank == 0)
        tern_info("%s: going on with the parts that are there (%.0f %%)", s->folder.path,
                  100.0 * (double)s->elsewhere / (double)tern_data_shares_bytes(s->shares));
    tern_progress_set(s->elsewhere, tern_data_shares_bytes(s->shares));
    s->resumed = s->elsewhere > 0;
    return join;
}

static void begin_progress(const struct sharing *s)
{
    if (s->step->tasks > 1)
        tern_progress_begin(/* unit= */ NULL, "%s, %d tasks", s->build->out, s->step->tasks);
    else
        tern_progress_begin(/* unit= */ NULL, "%s", s->build->out);
}

static int take_part(struct sharing *s, struct data_sums *ret_sums, struct tern_err *err)
{
    char *plan = plan_of(s);
    int rc = -1;

    if (!plan)
        return tern_err_set(err, TERN_FAILED, "%s: no memory", s->build->out);
    data_folder_init(&s->folder, s->build->out, s->step, plan);
    if (s->step->rank == 0)
        begin_progress(s);
    const enum data_join joined = join(s, err);
    if (joined == DATA_JOINED)
        rc = work(s, ret_sums, err);
    else if (joined == DATA_JOIN_DONE)
        rc = 0;
    ret_sums->resumed = s->resumed;
    tern_progress_end();
    if (s->step->tasks == 1 && s->folder.task)
        unlink(s->folder.task);
    data_folder_close(&s->folder);
    free(plan);
    return rc;
}

int data_share_build(const struct data_build *b, const struct data_step *step, uint64_t share_bytes,
                     struct data_sums *ret_sums, struct tern_err *err)
{
    struct tern_data_share_how how = {.paths = b->paths, .n_paths = b->n_paths};
    struct sharing s = {.build = b, .step = step};
    int rc = -1;

    *ret_sums = (struct data_sums){0};
    if (data_text_how(&b->text, &how.text, err) < 0)
        goto out;
    tern_data_feed_read_records(b->records, &how.text); /* formats are found by the same rules */
    s.shares = tern_data_shares_open(&how, err);
    if (!s.shares)
        goto out;
    tern_data_shares_digest(s.shares, s.inputs);
    s.n = count_shares(tern_data_shares_bytes(s.shares), share_bytes);
    s.first = s.n * (uint64_t)step->rank / (uint64_t)step->tasks;
    rc = take_part(&s, ret_sums, err);
out:
    tern_data_shares_close(s.shares);
    return rc;
}
