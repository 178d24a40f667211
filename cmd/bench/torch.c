#include "cmd/bench/torch.h"

#include "cmd/bench/script.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096 };

struct bench_torch {
    pid_t pid;
    FILE *to, *from;
    char name[64], setting[256];
    bool compiles;
    double peak;
};

static const char malloc_library[] = "libtcmalloc_minimal.so.4";

const char *bench_torch_name(const struct bench_torch *t)
{
    return t->name;
}

const char *bench_torch_setting(const struct bench_torch *t)
{
    return t->setting;
}

bool bench_torch_compiles(const struct bench_torch *t)
{
    return t->compiles;
}

double bench_torch_peak_bytes(const struct bench_torch *t)
{
    return t->peak;
}

/* The folder of the OpenBLAS that we use, which shares its threads with PyTorch. */
static char *blas_folder(void)
{
    void *lib = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
    Dl_info where;

    if (!lib || !dladdr(dlsym(lib, "cblas_sgemm"), &where))
        return tern_strdup("");
    char *path = tern_strdup(where.dli_fname), *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return path;
}

/* Is there a malloc that keeps its pages? */
static bool keeps_pages(void)
{
    return dlopen(malloc_library, RTLD_LAZY | RTLD_LOCAL) != NULL;
}

static void tune(void)
{
    const char *old = getenv("LD_LIBRARY_PATH");
    char *folder = blas_folder(),
         *path = tern_strf("%s%s%s", folder, old ? ":" : "", old ? old : "");

    setenv("OPENBLAS_CORETYPE", tern_tensor_core(), 1);
    setenv("LD_LIBRARY_PATH", path, 1);
    if (keeps_pages()) {
        setenv("LD_PRELOAD", malloc_library, 1);
        setenv("TCMALLOC_RELEASE_RATE", "0", 1);
    }
    free(folder);
    free(path);
}

static void describe_setting(struct bench_torch *t, const struct bench_torch_mode *mode)
{
    const char *compiled = mode->compiled ? "; compiled" : "",
               *autocast = mode->autocast ? "; bf16 autocast" : "";

    if (!mode->tuned)
        snprintf(t->setting, sizeof t->setting, "as shipped%s%s", compiled, autocast);
    else
        snprintf(t->setting, sizeof t->setting,
                 "tuned: OpenBLAS for %s, OpenMP; %s; fused attention%s%s", tern_tensor_core(),
                 keeps_pages() ? "tcmalloc that keeps its pages"
                               : "glibc's malloc, which is slower than libtcmalloc-minimal4's",
                 compiled, autocast);
}

static void run_child(const int to[2], const int from[2], const struct bench_torch_options *o,
                      const char *script, const char *model)
{
    char n[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    snprintf(n, sizeof n, "%d", o->threads);
    setenv("OMP_NUM_THREADS", n, 1);
    if (o->mode.tuned)
        tune();
    execlp(o->python, o->python, script, model, o->mode.tuned ? "fused" : "eager",
           o->mode.compiled ? "compile" : "plain", o->mode.autocast ? "autocast" : "fp32",
           (char *)NULL);
    fprintf(stderr, "%s: %s\n", o->python, strerror(errno));
    _exit(127);
}

/* PyTorch has ended: set `err` by its exit status. */
static void explain_end(struct bench_torch *t, struct tern_err *err)
{
    int status = 0;

    fclose(t->to); /* one that has closed its stdout alone ends, too */
    t->to = NULL;
    if (t->pid > 0 && waitpid(t->pid, &status, 0) == t->pid)
        t->pid = 0;
    if (WIFSIGNALED(status))
        tern_err_set(err, TERN_FAILED, "--peer torch: PyTorch was ended by signal %d (%s)%s",
                     WTERMSIG(status), strsignal(WTERMSIG(status)),
                     WTERMSIG(status) == SIGKILL
                         ? ": by a user, or by the kernel for lack of memory (see dmesg)"
                         : "");
    else
        tern_err_set(err, TERN_FAILED,
                     "--peer torch: PyTorch ended; its output stands above. It needs python3 with "
                     "torch (pip install torch in a virtual environment; Debian: apt-get install "
                     "python3-torch)");
}

/* One line of JSON from the script; a new reference. */
static json_t *answer(struct bench_torch *t, struct tern_err *err)
{
    char line[LINE_MAX_BYTES];
    json_t *j;

    if (!fgets(line, sizeof line, t->from)) {
        explain_end(t, err);
        return NULL;
    }
    j = tern_json_parse(line, strlen(line), "train_torch.py", err);
    if (j)
        t->peak = json_number_value(json_object_get(j, "peak_bytes"));
    return j;
}

/* Warn once of a PyTorch that is older than the one that tests/bench/train.md compares with. */
static void warn_of_old(const char *version, const char *python)
{
    enum { MAJOR = 2, MINOR = 15 };
    static bool warned;
    int major, minor;

    if (warned || !version || sscanf(version, "%d.%d", &major, &minor) != 2 || major > MAJOR ||
        (major == MAJOR && minor >= MINOR))
        return;
    warned = true;
    tern_warn("--peer torch: %s has PyTorch %s, an old one: the peer to compare with is the newest "
              "from PyPI (%d.%d or later); give its Python by --peer-python",
              python, version, MAJOR, MINOR);
}

static int greet(struct bench_torch *t, const char *python, struct tern_err *err)
{
    json_t *j = answer(t, err);

    if (!j)
        return -1;
    const char *version = json_string_value(json_object_get(j, "version"));
    snprintf(t->name, sizeof t->name, "PyTorch %s", version ? version : "of unknown version");
    warn_of_old(version, python);
    t->compiles = json_is_true(json_object_get(j, "compiles"));
    json_decref(j);
    return 0;
}

static char *describe(const struct tern_model_config *c, int B, int T)
{
    return tern_strf(
        "{\"dim\": %d, \"layers\": %d, \"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, "
        "\"ffn\": %d, \"vocab\": %d, \"tied\": %s, \"theta\": %.9g, \"eps\": %.9g, "
        "\"batch\": %d, \"seq\": %d}",
        c->dim, c->layers, c->heads, c->kv_heads, c->head_dim, c->ffn, c->vocab,
        c->tied ? "true" : "false", c->rope_theta, c->norm_eps, B, T);
}

static int start(struct bench_torch *t, const struct bench_torch_options *o, const char *model,
                 const char *script, struct tern_err *err)
{
    int to[2], from[2];

    /* Closed in later children: PyTorch ends when its pipe has no other end. */
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
        return tern_err_sys(err, "cannot make pipes for PyTorch");
    fflush(stdout);
    t->pid = fork();
    if (t->pid < 0)
        return tern_err_sys(err, "cannot start PyTorch");
    if (t->pid == 0)
        run_child(to, from, o, script, model);
    close(to[0]);
    close(from[1]);
    t->to = fdopen(to[1], "w");
    t->from = fdopen(from[0], "r");
    signal(SIGPIPE, SIG_IGN);
    describe_setting(t, &o->mode);
    return greet(t, o->python, err);
}

struct bench_torch *bench_torch_open(const struct bench_torch_options *o, struct tern_err *err)
{
    char *path = bench_script_find(o->script, BENCH_TORCH_SCRIPT, "torch", "peer-script", err),
         *model = describe(o->config, o->B, o->T);
    struct bench_torch *t = path ? tern_alloc(1, sizeof *t, "PyTorch's pipes", err) : NULL;

    if (t && start(t, o, model, path, err) < 0) {
        bench_torch_close(t);
        t = NULL;
    }
    free(path);
    free(model);
    return t;
}

void bench_torch_close(struct bench_torch *t)
{
    if (!t)
        return;
    if (t->to)
        fclose(t->to);
    if (t->from)
        fclose(t->from);
    if (t->pid > 0)
        waitpid(t->pid, NULL, 0);
    free(t);
}

int bench_torch_step(struct bench_torch *t, double *seconds, struct tern_err *err)
{
    json_t *j;

    fputs("step\n", t->to);
    fflush(t->to);
    j = answer(t, err);
    if (!j)
        return -1;
    *seconds = json_number_value(json_object_get(j, "seconds"));
    json_decref(j);
    return 0;
}
