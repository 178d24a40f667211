#include "core/run/precompile.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/run/environ.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_DIGITS = 16, /* of the folder's name: two keys of a site collide once in 2^32 */
    CONFIG_BYTES = 1 << 20,
    MARK_BYTES = 1 << 20,
    GRACE_NS = 500000000, /* for a child to end that has said all, or was killed */
    VERSION_S = 120,      /* the compiler starts Python from shared, busy storage */
};

/* ------------------------------------------------------------------ the key */

/* The first line with a version: warnings may come before it. */
static int pick_version(char *text, char *to, size_t size)
{
    char *at = NULL;

    for (char *line = strtok_r(text, "\r\n", &at); line; line = strtok_r(NULL, "\r\n", &at))
        for (const char *dot = strchr(line, '.'); dot; dot = strchr(dot + 1, '.'))
            if (dot > line && isdigit((unsigned char)dot[-1]) && isdigit((unsigned char)dot[1])) {
                snprintf(to, size, "%s", line);
                return 0;
            }
    return -1;
}

/* Read what the process at the other end writes until it ends; -1: it did not end in time. */
static int read_all(int from, char *to, size_t size, int64_t deadline)
{
    struct pollfd in = {.fd = from, .events = POLLIN};
    size_t n = 0;
    ssize_t got = 1;

    while (got && n + 1 < size) {
        int64_t left = (deadline - tern_clock_boot_ns()) / 1000000;
        int rc = poll(&in, 1, left > 0 ? (int)left : 0);
        if (rc == 0 && left <= 0)
            return -1;
        if (rc <= 0)
            continue;
        got = TERN_AGAIN(read(from, to + n, size - 1 - n));
        if (got < 0)
            break;
        n += (size_t)got;
    }
    to[n] = '\0';
    return 0;
}

/* Wait until `deadline`; false when it still runs then. */
static bool ended(pid_t pid, int64_t deadline, int *status)
{
    pid_t got;

    while ((got = waitpid(pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (tern_clock_boot_ns() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

int tern_run_compiler_version(char *to, size_t size, int seconds, struct tern_err *err)
{
    int64_t deadline = tern_clock_boot_ns() + (int64_t)seconds * 1000000000;
    char text[4096] = "";
    int ends[2], status = 0;

    if (TERN_AGAIN(pipe2(ends, O_CLOEXEC)) < 0)
        return tern_err_sys(err, "cannot get the version of neuronx-cc");
    pid_t pid = tern_again_fork();
    if (pid == 0) {
        int null = TERN_AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(null, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("neuronx-cc", "neuronx-cc", "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    int rc = pid < 0 ? -1 : read_all(ends[0], text, sizeof text, deadline);
    close(ends[0]);
    if (pid < 0)
        return tern_err_sys(err, "cannot get the version of neuronx-cc");
    *to = '\0';
    const bool found = rc == 0 && pick_version(text, to, size) == 0;
    if (rc < 0 || !ended(pid, found ? tern_clock_boot_ns() + GRACE_NS : deadline, &status)) {
        kill(pid, SIGKILL);
        /* A process that hangs in a file system cannot be killed: it is left behind. */
        ended(pid, tern_clock_boot_ns() + GRACE_NS, &status);
        status = 0;
    }
    if (rc < 0)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "neuronx-cc --version: no answer within %d s, so the compile cache for "
                            "it is not known. Does its storage answer?",
                            seconds);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) { /* it is not installed */
        *to = '\0';
        return 0;
    }
    if (!found)
        return tern_err_set(err, TERN_FAILED,
                            "neuronx-cc --version: prints no version (wait status %d), so the "
                            "compile cache for it is not known. Try it by hand.",
                            status);
    return 0;
}

static void add_words(struct tern_buf *b, const char *what, char *const *words)
{
    for (; words && *words; words++) {
        json_t *j = json_string(*words);
        char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
        tern_buf_printf(b, "%s %s\n", what, text ? text : "?");
        free(text);
        json_decref(j);
    }
}

static int add_model(struct tern_buf *b, const struct tern_recipe *r, struct tern_err *err)
{
    char hex[TERN_SHA256_HEX], *path = NULL, *from = NULL;
    uint8_t digest[TERN_SHA256_BYTES];
    int rc = 0;

    if (r->model.config)
        path = tern_strdup(r->model.config);
    else if ((from = tern_inputs_model_from(r)))
        path = tern_strf("%s/config.json", from);
    if (path && tern_fs_exists(path)) {
        rc = tern_sha256_file(path, digest, err);
        if (rc == 0)
            tern_buf_printf(b, "config.json %s\n", tern_hex(hex, digest, sizeof digest));
    }
    free(path);
    free(from);
    return rc;
}

enum { FLAGS, N_VARIABLES = 3 };
static const char *const variables[N_VARIABLES] = {
    [FLAGS] = "NEURON_CC_FLAGS", "XLA_USE_BF16", "XLA_DOWNCAST_BF16"};

/* 0 when it is no file but an image of a registry. */
static uint64_t file_bytes(const char *path)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static int make_key(struct tern_run_precompile *p, const struct tern_run_attempt *a,
                    char *const *values, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    struct tern_buf b = {.max = 4 << 20};
    uint8_t digest[TERN_SHA256_BYTES];
    char version[200];

    add_words(&b, "command", r->workload.command);
    add_words(&b, "precompile", r->workload.precompile.command);
    tern_buf_printf(&b, "steps %" PRId64 "\n", r->workload.precompile.steps);
    if (r->workload.container)
        tern_buf_printf(&b, "container %s %" PRIu64 "\n", r->workload.container,
                        file_bytes(r->workload.container));
    tern_buf_printf(&b,
                    "nodes %" PRId64 "\ntasks_per_node %" PRId64 "\nworkers_per_node %" PRId64
                    "\ntensor %" PRId64 "\npipeline %" PRId64 "\n",
                    a->place.nodes, a->place.ranks_per_node, r->workload.workers_per_node,
                    r->parallel.tensor, r->parallel.pipeline);
    tern_buf_printf(&b, "global %" PRId64 "\nmicro %" PRId64 "\nseq_len %" PRId64 "\n",
                    r->batch.global, r->batch.micro, r->batch.seq_len);
    if (add_model(&b, r, err) < 0 ||
        /* the name and size of an image stand for its compiler */
        (!r->workload.container &&
         tern_run_compiler_version(version, sizeof version, VERSION_S, err) < 0)) {
        tern_buf_free(&b);
        return -1;
    }
    if (!r->workload.container) {
        tern_buf_printf(&b, "neuronx-cc %s\n", version);
    }
    for (size_t i = 0; i < N_VARIABLES; i++)
        tern_buf_printf(&b, "%s %s\n", variables[i], values[i]);
    if (tern_buf_check(&b, "the key of the compile cache", err) < 0)
        return -1;
    tern_sha256(b.data, b.len, digest);
    tern_hex(p->key, digest, sizeof digest);
    p->words = b.data;
    return 0;
}

/* ------------------------------------------------------------------ the folder */

static char *mark_path(const struct tern_run_precompile *p)
{
    return tern_strf("%s/complete.json", p->dir);
}

/* A damaged mark does not count. */
static bool read_mark(const struct tern_run_precompile *p)
{
    char *path = mark_path(p);
    struct tern_err err = {0};
    json_t *j = tern_fs_exists(path) ? tern_json_load(path, MARK_BYTES, &err) : NULL;
    const char *key = json_string_value(json_object_get(j, "key"));
    bool good = key && strcmp(key, p->key) == 0;

    if (!good && (j || err.code))
        tern_warn("%s: is no mark of this cache%s%s; compiling again", path, err.code ? ": " : "",
                  err.text);
    json_decref(j);
    free(path);
    return good;
}

static void name_it(const struct tern_run_precompile *p, const struct tern_recipe *r,
                    const char *flags)
{
    const char *other = getenv("NEURON_COMPILE_CACHE_URL");
    char steps[24];

    if (other && strcmp(other, p->dir) != 0 && !getenv("TERN_COMPILE_CACHE"))
        tern_info("NEURON_COMPILE_CACHE_URL: %s in place of %s (workload.precompile.cache)", p->dir,
                  other);
    if (strstr(flags, "--cache_dir"))
        tern_warn("NEURON_CC_FLAGS has --cache_dir, which wins over workload.precompile.cache: "
                  "graphs are kept there, and the recipe does not find them. Remove it.");
    snprintf(steps, sizeof steps, "%" PRId64, r->workload.precompile.steps);
    setenv("TERN_COMPILE_CACHE", p->dir, 1);
    setenv("NEURON_COMPILE_CACHE_URL", p->dir, 1);
    setenv("TERN_PRECOMPILE_STEPS", steps, 1);
}

static int open_folder(struct tern_run_precompile *p, const struct tern_recipe *r,
                       struct tern_err *err)
{
    char *cache = NULL;
    if (tern_fs_mkdirs(r->workload.precompile.cache, 0777, err) == 0) {
        cache = realpath(r->workload.precompile.cache, NULL); /* the ranks may start elsewhere */
        if (!cache)
            tern_err_sys(err, "%s: cannot be used", r->workload.precompile.cache);
    }
    p->dir = cache ? tern_strf("%s/%.*s", cache, (int)KEY_DIGITS, p->key) : NULL;
    free(cache);
    return p->dir ? tern_fs_mkdirs(p->dir, 0777, err) : -1;
}

int tern_run_precompile_open(struct tern_run_precompile *p, const struct tern_run_attempt *a,
                             struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    char *values[N_VARIABLES] = {NULL};

    *p = (struct tern_run_precompile){0};
    if (!r->workload.precompile.command)
        return 0;
    if (tern_run_environ_predict(a, variables, N_VARIABLES, values, err) < 0)
        return -1;
    int rc = make_key(p, a, values, err);
    if (rc == 0)
        rc = open_folder(p, r, err);
    if (rc == 0) {
        p->complete = read_mark(p);
        name_it(p, r, values[FLAGS]);
    } else {
        tern_run_precompile_free(p);
    }
    for (size_t i = 0; i < N_VARIABLES; i++)
        free(values[i]);
    return rc;
}

int tern_run_precompile_mark(struct tern_run_precompile *p, const char *run_id, unsigned attempt,
                             struct tern_err *err)
{
    char when[32], *path = mark_path(p);
    json_t *made = json_array();

    for (const char *s = p->words; *s;) {
        size_t len = strcspn(s, "\n");
        json_array_append_new(made, json_stringn(s, len));
        s += len + (s[len] == '\n');
    }
    json_t *j =
        json_pack("{s:i,s:s,s:s,s:i,s:s,s:o}", "version", 1, "key", p->key, "run", run_id,
                  "attempt", (int)attempt, "time",
                  tern_clock_iso8601(when, sizeof when, tern_clock_wall_ns()), "made_of", made);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    int rc = text ? tern_fs_replace(path, text, strlen(text), 0644, err)
                  : tern_err_set(err, TERN_FAILED, "%s: cannot be written", path);

    p->complete = rc == 0;
    free(text);
    json_decref(j);
    free(path);
    return rc;
}

void tern_run_precompile_free(struct tern_run_precompile *p)
{
    free(p->dir);
    free(p->words);
    *p = (struct tern_run_precompile){0};
}
