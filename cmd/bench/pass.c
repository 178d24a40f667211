#include "cmd/bench/pass.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096 };

/* Set by a signal: the pass under way is ended, so that its set is removed. */
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

void bench_pass_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

static double seconds(void)
{
    return (double)tern_clock_boot_ns() * 1e-9;
}

/* In the child: one core, and libraries that know it; or all of them. */
static void take_cores(bool all)
{
    static const char *const threads[] = {"RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM",
                                          "OMP_NUM_THREADS", NULL};
    cpu_set_t may, one;

    for (const char *const *v = threads; *v; v++)
        unsetenv(*v);
    if (all || sched_getaffinity(0, sizeof may, &may) < 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET(cpu, &may)) { /* the last: the first has more interrupts */
            CPU_SET(cpu, &one);
            break;
        }
    sched_setaffinity(0, sizeof one, &one);
    setenv("RAYON_NUM_THREADS", "1", 1);
    setenv("TOKENIZERS_PARALLELISM", "false", 1);
}

/* Start argv[0] with `out` as its standard output (-1: ours). */
static pid_t start(char **argv, bool all_cores, int out, struct tern_err *err)
{
    fflush(stdout);
    pid_t pid = tern_again_fork();

    if (pid < 0)
        tern_err_sys(err, "cannot start %s", argv[0]);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_cores(all_cores);
    setenv("TERN_LOG_LEVEL", "error", 1);
    if (out >= 0)
        dup2(out, STDOUT_FILENO);
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* The words of argv: `first` (NULL-ended), then the files; malloc'ed. */
static char **words(const char *const *first, const struct bench_pass_options *o)
{
    size_t n = 0;

    while (first[n])
        n++;
    char **argv = tern_alloc(n + (size_t)o->n_files + 1, sizeof *argv, "arguments", NULL);
    if (!argv)
        return NULL;
    memcpy(argv, first, n * sizeof *argv);
    memcpy(argv + n, o->files, (size_t)o->n_files * sizeof *argv);
    return argv;
}

/* Wait for the process `pid`; its CPU time.  -1 when it failed; TERN_USAGE, with `err`, when it
 * ended with that. */
static int end(pid_t pid, const char *name, double *ret_cpu, struct tern_err *err)
{
    struct rusage usage;
    int status;

    do {
        if (stopped)
            kill(pid, SIGKILL);
        if (wait4(pid, &status, 0, &usage) == pid)
            break;
    } while (errno == EINTR);
    if (stopped)
        return tern_err_set(err, TERN_FAILED, "interrupted (signal %d)", (int)stopped);
    if (WIFSIGNALED(status))
        return tern_err_set(err, TERN_FAILED, "%s was ended by signal %d (%s)", name,
                            WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        tern_err_set(err, TERN_FAILED, "%s failed; its output stands above", name);
    if (WEXITSTATUS(status) != 0)
        return WEXITSTATUS(status) == TERN_USAGE ? TERN_USAGE : -1;
    *ret_cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    return 0;
}

/* ---------------------------------------------------------------- ours */

/* The digest of a set's ids without BOS and EOS, which occur nowhere else in it. */
static int digest(const char *path, struct bench_pass *pass, struct tern_err *err)
{
    enum { CHUNK = 1 << 16 };
    static int32_t ids[CHUNK];
    uint8_t hash[TERN_SHA256_BYTES];
    struct tern_data_set *set = tern_data_set_open(path, err);

    if (!set)
        return -1;
    const int32_t eos = (int32_t)tern_data_set_eos(set);
    const uint64_t all = tern_data_set_n_tokens(set);
    struct tern_sha256 *s = tern_sha256_new();
    int rc = 0;
    for (uint64_t at = 0; at < all && rc == 0; at += CHUNK) {
        size_t n = all - at < CHUNK ? (size_t)(all - at) : CHUNK, kept = 0;
        rc = tern_data_set_read(set, at, n, ids, err);
        for (size_t i = 0; rc == 0 && i < n; i++)
            if (ids[i] != eos)
                ids[kept++] = (int32_t)htole32((uint32_t)ids[i]);
        tern_sha256_add(s, ids, kept * sizeof *ids);
        pass->n_tokens += kept;
    }
    tern_sha256_end(s, hash);
    for (size_t i = 0; i < sizeof hash; i++)
        snprintf(pass->sha256 + 2 * i, 3, "%02x", hash[i]);
    pass->n_docs = tern_data_set_n_docs(set);
    pass->text_bytes = tern_data_set_text_bytes(set);
    tern_data_set_free(set);
    return rc;
}

int bench_pass_ours(const struct bench_pass_options *o, struct bench_pass *ret_pass,
                    struct tern_err *err)
{
    struct bench_pass pass = {0};
    char *program = tern_fs_beside("tern-data");
    char **argv = words((const char *[]){program, "build", "--tokenizer", o->tokenizer, "--out",
                                         o->set, "--", NULL},
                        o);
    double from = seconds();
    pid_t pid = argv ? start(argv, o->all_cores, /* out= */ -1, err) : -1;
    int rc = pid < 0 ? -1 : end(pid, "tern data build", &pass.cpu_seconds, err);

    pass.seconds = seconds() - from;
    free(argv);
    free(program);
    if (rc == 0)
        rc = digest(o->set, &pass, err);
    if (rc != 0)
        return rc;
    *ret_pass = pass;
    return 0;
}

/* ---------------------------------------------------------------- a peer */

/* One line of JSON from the script; NULL when it ends or writes something else. */
static json_t *answer(FILE *from)
{
    char line[LINE_MAX_BYTES];

    return fgets(line, sizeof line, from)
               ? tern_json_parse(line, strlen(line), "token_peers.py", NULL)
               : NULL;
}

static void copy(char *to, size_t size, const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    snprintf(to, size, "%s", s ? s : "");
}

/* Read what the script says; true when that is everything. */
static bool listen_to(FILE *from, double since, struct bench_pass *pass)
{
    json_t *timed = answer(from);

    pass->seconds = seconds() - since;
    copy(pass->version, sizeof pass->version, timed, "version");
    copy(pass->cannot, sizeof pass->cannot, timed, "cannot");
    pass->own_seconds = json_number_value(json_object_get(timed, "seconds"));
    pass->cpu_seconds = json_number_value(json_object_get(timed, "cpu_seconds"));
    json_t *ids = timed && !pass->cannot[0] ? answer(from) : NULL;
    pass->n_tokens = (uint64_t)json_integer_value(json_object_get(ids, "tokens"));
    copy(pass->sha256, sizeof pass->sha256, ids, "sha256");
    bool whole = pass->cannot[0] || (pass->own_seconds > 0 && pass->sha256[0]);
    json_decref(timed);
    json_decref(ids);
    return whole;
}

int bench_pass_peer(const struct bench_pass_options *o, const char *peer,
                    struct bench_pass *ret_pass, struct tern_err *err)
{
    struct bench_pass pass = {0};
    char **argv = words((const char *[]){o->python, "-I", o->script, peer, o->model,
                                         o->all_cores ? "all" : "one", NULL},
                        o);
    int out[2] = {-1, -1}, rc = -1;
    double cpu, from;
    FILE *f = NULL;
    bool whole;

    if (!argv || pipe2(out, O_CLOEXEC) < 0) {
        tern_err_sys(err, "cannot start %s", peer);
        goto done;
    }
    from = seconds();
    pid_t pid = start(argv, o->all_cores, out[1], err);
    close(out[1]);
    f = fdopen(out[0], "r");
    if (pid < 0)
        goto done;
    whole = listen_to(f, from, &pass);
    rc = end(pid, peer, &cpu, err) == 0 ? 0 : -1;
    if (rc == 0 && !whole)
        rc = tern_err_set(err, TERN_FAILED, "it said something else than token_peers.py says");
    if (rc < 0)
        tern_err_prefix(err, "--peer %s (`make deps-peers` installs it; --python names its Python)",
                        peer);
done:
    if (f)
        fclose(f);
    free(argv);
    if (rc == 0)
        *ret_pass = pass;
    return rc;
}
