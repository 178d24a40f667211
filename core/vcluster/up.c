/* up, down and list, as seen from outside the cluster. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/cause.h"
#include "core/vcluster/ctl.h"
#include "core/vcluster/enter.h"
#include "core/vcluster/refused.h"
#include "core/vcluster/super.h"
#include "core/vcluster/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the end of a cluster may take before it is an error; a kernel needs 20 ms for 4 nodes
 * and 2 s for 1000. */
enum { DOWN_MS = 30000 };

/* SIGKILL ends a PID namespace at once; in plain mode the supervisor must clear up itself. */
static int end_supervisor(const struct tern_process *super, enum tern_vcluster_mode mode,
                          struct tern_err *err)
{
    if (mode == TERN_VCLUSTER_PLAIN) {
        tern_process_signal(super, SIGTERM);
        if (tern_process_ended(super, DOWN_MS / 3))
            return 0;
    }
    if (tern_process_signal(super, SIGKILL) < 0 && errno != ESRCH)
        return tern_err_sys(err, "cannot end the supervisor");
    if (!tern_process_ended(super, DOWN_MS))
        return tern_err_set(err, TERN_FAILED, "the supervisor does not end within %d s",
                            DOWN_MS / 1000);
    return 0;
}

/* ------------------------------------------------------------------ up */

/* Interruptions while a cluster comes up. */
struct guard {
    sigset_t old;
    int fd;
};

static int guard_begin(struct guard *g, struct tern_err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &g->old);
    g->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (g->fd >= 0)
        return 0;
    sigprocmask(SIG_SETMASK, &g->old, NULL);
    return tern_err_sys(err, "cannot make a signalfd");
}

static void guard_end(struct guard *g)
{
    struct signalfd_siginfo info;

    while (read(g->fd, &info, sizeof info) == sizeof info)
        ; /* the error says interrupted */
    close(g->fd);
    sigprocmask(SIG_SETMASK, &g->old, NULL);
}

/* Until `fd` can be read: 0, or -1 when interrupted or late. */
static int wait_for(int fd, const struct guard *g, int64_t deadline_ns, const char *what,
                    struct tern_err *err)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = g->fd, .events = POLLIN}};

    for (;;) {
        int64_t left = (deadline_ns - tern_clock_boot_ns()) / 1000000;
        int n = poll(p, 2, left < 0 ? 0 : (int)left + 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tern_err_sys(err, "cannot wait");
        if (p[1].revents)
            return tern_err_set(err, TERN_FAILED, "interrupted; nothing is left of the cluster.");
        if (p[0].revents)
            return 0;
        if (left <= 0)
            return tern_err_set(err, TERN_TEMPFAIL, "%s takes too long.", what);
    }
}

/* The waiting process's report: "" when all nodes are idle. */
struct idle_word {
    char text[sizeof((struct tern_err *)0)->text];
};

/* In the head: until every node is idle or `deadline_ns` has come. */
static int wait_idle(size_t want, int64_t deadline_ns, struct idle_word *w)
{
    struct tern_err err = {0};

    for (;;) {
        struct tern_slurm_nodes *nodes = NULL;
        bool known = false;
        size_t idle = 0;
        const struct tern_slurm_node *bad = NULL;
        if (tern_slurm_nodes_load(&nodes, &err) == 0) {
            known = true;
            for (size_t i = 0; i < nodes->n; i++) {
                const char *state = nodes->node[i].state;
                if (strcmp(state, "idle") == 0)
                    idle++;
                else if (!tern_str_starts(state, "future") && strcmp(state, "idle~") != 0)
                    bad = &nodes->node[i];
            }
            snprintf(w->text, sizeof w->text, "%zu of %zu nodes are idle; %s is %s%s%s", idle, want,
                     bad ? bad->name : "none", bad ? bad->state : "other",
                     bad && *bad->reason ? ": " : "", bad ? bad->reason : "");
        } else {
            snprintf(w->text, sizeof w->text, "%s", err.text);
        }
        tern_slurm_nodes_free(nodes);
        if (known && idle >= want) {
            w->text[0] = '\0';
            return 0;
        }
        if (tern_clock_boot_ns() > deadline_ns)
            return -1;
        tern_clock_sleep_ns(10 * INT64_C(1000000));
    }
}

struct idle_question {
    size_t want;
    int64_t deadline_ns;
};

static int idle_in_head(const void *question, void *out, struct tern_err *err)
{
    const struct idle_question *q = question;

    (void)err;
    wait_idle(q->want, q->deadline_ns, out);
    return 0;
}

static int await_idle(const struct tern_vcluster_plan *p, const struct guard *g,
                      int64_t deadline_ns, struct tern_err *err)
{
    struct idle_question q = {.want = p->n_nodes - p->n_fleet, .deadline_ns = deadline_ns};
    struct idle_word w = {{0}};
    struct tern_vcluster_enter_call call;

    if (tern_vcluster_enter_call_start(&call, p->dir, idle_in_head, &q, sizeof w, err) < 0)
        return -1;
    int rc = wait_for(call.fd, g, deadline_ns + INT64_C(2000000000), "slurmctld", err);
    if (rc < 0)
        tern_vcluster_enter_call_abort(&call);
    else
        rc = tern_vcluster_enter_call_end(&call, &w, err);
    if (rc == 0 && w.text[0])
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s", w.text);
    return rc;
}

/* The logs tell long before the deadline that nodes will never be idle. */
static int await_idle_or_reason(const struct tern_vcluster_plan *p, const struct guard *g,
                                int64_t deadline_ns, struct tern_err *err)
{
    const int64_t look_ns = INT64_C(3000000000);

    for (;;) {
        const int64_t until = tern_clock_boot_ns() + look_ns;
        int rc = await_idle(p, g, until < deadline_ns ? until : deadline_ns, err);
        bool final = rc == 0 || err->code != TERN_TEMPFAIL || until >= deadline_ns;
        if (tern_vcluster_cause_find(p, rc == 0, err) < 0)
            return -1;
        if (final)
            return rc;
    }
}

/* One try in p->mode, to the end or to nothing. */
static int try_up(struct tern_vcluster_plan *p, int lock_fd, double timeout_s,
                  const struct guard *g, bool *refused, struct tern_err *err)
{
    struct tern_vcluster_super_report word = {0};
    int64_t deadline = tern_clock_boot_ns() + (int64_t)(timeout_s * 1e9);
    struct tern_process super;
    int up, rc = -1;

    p->deadline_ns = deadline;
    if (tern_vcluster_plan_write(p, err) < 0 ||
        tern_vcluster_super_start(p, lock_fd, &up, &super, refused, err) < 0)
        return -1;
    /* The supervisor itself tells which daemon was late. */
    if (wait_for(up, g, deadline + INT64_C(10000000000), "starting munged and slurmctld", err) < 0)
        goto out;
    if (read(up, &word, sizeof word) != (ssize_t)sizeof word) {
        tern_err_set(err, TERN_FAILED, "the supervisor died while starting");
        goto out;
    }
    if (word.code) {
        *refused = word.refused;
        tern_err_set(err, (enum tern_code)word.code, "%s", word.text);
        tern_vcluster_cause_several(p, err); /* names the cause if it is this one */
        goto out;
    }
    if (await_idle_or_reason(p, g, deadline, err) < 0)
        goto out;
    if (write(up, "k", 1) != 1) {
        tern_err_set(err, TERN_FAILED, "the supervisor died while starting");
        goto out;
    }
    rc = 0;
out:
    if (rc < 0)
        end_supervisor(&super, p->mode, NULL);
    tern_process_close(&super);
    close(up);
    /* A supervisor that ended is this process's child. */
    while (rc < 0 && waitpid(-1, NULL, WNOHANG) > 0)
        ;
    return rc;
}

/* A new database takes seconds of both cores. */
static double patience(const struct tern_vcluster_options *o, const struct tern_vcluster_plan *p)
{
    return o->timeout_s > 0 ? o->timeout_s : (o->accounting ? 90 : 30) + 0.1 * (double)p->n_nodes;
}

static const char *const lacking =
    "nodes share the host's name, network, /tmp and /dev/shm, have no Neuron devices, and cannot "
    "be cut off";

int tern_vcluster_up(const struct tern_layout *l, const struct tern_vcluster_options *o,
                     struct tern_vcluster_up *up, struct tern_err *err)
{
    int64_t begin = tern_clock_boot_ns();
    struct tern_vcluster_plan p;
    struct guard g;
    struct tern_vcluster_up done = {.mode = TERN_VCLUSTER_AUTO};
    struct tern_err why = {0};
    char advice[500] = "";
    bool refused = false;
    int rc = -1;

    if (tern_vcluster_plan_make(&p, l, o, err) < 0)
        return -1;
    const double timeout_s = patience(o, &p);
    int lock_fd = tern_vcluster_plan_lock(p.dir, p.name, err);
    if (lock_fd < 0)
        goto out;
    if (tern_vcluster_sweep(p.dir, err) < 0 || guard_begin(&g, err) < 0)
        goto unlock;
    if (o->mode != TERN_VCLUSTER_PLAIN) {
        p.mode = TERN_VCLUSTER_NAMESPACES;
        rc = try_up(&p, lock_fd, timeout_s, &g, &refused, &why);
        if (rc < 0 && refused)
            tern_vcluster_refused_explain(advice, sizeof advice);
        if (rc < 0 && refused && o->mode == TERN_VCLUSTER_AUTO)
            snprintf(done.missing, sizeof done.missing, "%.200s: %s%s%s", why.text, lacking,
                     *advice ? "." : "", advice);
        else if (rc < 0)
            tern_err_set(err, why.code, "%s%s%s", why.text, *advice ? "." : "", advice);
    } else {
        snprintf(done.missing, sizeof done.missing, "as requested: %s", lacking);
    }
    if (done.missing[0]) {
        p.mode = TERN_VCLUSTER_PLAIN;
        rc = try_up(&p, lock_fd, timeout_s, &g, &refused, err);
        if (rc < 0 && o->mode == TERN_VCLUSTER_AUTO) {
            struct tern_err plain = *err;
            size_t end = strlen(plain.text);
            if (end > 0 && plain.text[end - 1] == '.')
                plain.text[end - 1] = '\0';
            tern_err_set(err, plain.code, "%s. Namespaces, which are tried first: %s%s%s",
                         plain.text, why.text, *advice ? "." : "", advice);
        }
    }
    guard_end(&g);
    if (rc == 0) {
        snprintf(done.name, sizeof done.name, "%s", p.name);
        done.mode = p.mode;
        done.user_namespace = p.user_namespace;
        done.n_nodes = p.n_nodes - p.n_fleet;
        done.n_fleet = p.mode == TERN_VCLUSTER_PLAIN ? 0 : p.n_fleet;
        done.seconds = (double)(tern_clock_boot_ns() - begin) / 1e9;
        *up = done;
    } else {
        tern_err_prefix(err, "cluster '%s'", p.name);
        tern_vcluster_plan_remove(p.dir, NULL);
    }
unlock:
    close(lock_fd);
out:
    tern_vcluster_plan_free(&p);
    return rc;
}

/* ------------------------------------------------------------------ down, power */

int tern_vcluster_down(const char *name, struct tern_err *err)
{
    char *dir = tern_vcluster_plan_dir(name, err);
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_INFO};
    struct tern_vcluster_ctl_answer a;
    pid_t pid = 0;
    int rc = -1;

    if (!dir)
        return -1;
    char *lock = tern_strf("%s/lock", dir);
    bool there = tern_fs_exists(lock);
    free(lock);
    if (!there) {
        tern_err_set(err, TERN_USAGE,
                     "there is no cluster '%s'. `tern cluster list` shows those "
                     "that are.",
                     name);
        goto out;
    }
    if (tern_vcluster_ctl_check_folder(dir, err) < 0)
        goto out;
    if (tern_vcluster_plan_locked(dir)) {
        if (tern_vcluster_ctl_call(dir, &q, &a, NULL, &pid, err) < 0)
            goto out;
        struct tern_process super;
        if (tern_process_open(&super, pid) < 0)
            rc = errno == ESRCH ? 0 : tern_err_sys(err, "cannot open process %d", pid);
        else
            rc = end_supervisor(&super, (enum tern_vcluster_mode)a.mode, err);
        tern_process_close(&super);
        if (rc < 0)
            goto out;
    }
    rc = tern_vcluster_sweep(dir, err);
    if (rc == 0)
        rc = tern_vcluster_plan_remove(dir, err);
out:
    free(dir);
    return rc;
}

int tern_vcluster_power(const char *name, const char *node, bool on, bool *ret_lost,
                        struct tern_err *err)
{
    const char *here = name ? NULL : tern_vcluster_local_folder();
    struct tern_vcluster_ctl_request q = {.size = sizeof q,
                                          .op = on ? TERN_VCLUSTER_CTL_ON : TERN_VCLUSTER_CTL_OFF};
    struct tern_vcluster_ctl_answer a = {0};

    if (ret_lost)
        *ret_lost = false;
    if (!name && !here)
        return tern_err_set(err, TERN_USAGE, "this is not a node of a virtual cluster");
    char *dir = here ? tern_strdup(here) : tern_vcluster_plan_dir(name, err);
    if (!dir)
        return -1;
    snprintf(q.node, sizeof q.node, "%s", node);
    int rc = tern_vcluster_ctl_call(dir, &q, &a, NULL, NULL, err);
    free(dir);
    if (ret_lost)
        *ret_lost =
            rc < 0 && a.code == TERN_TEMPFAIL &&
            (a.trouble == TERN_VCLUSTER_NO_CAPACITY || a.trouble == TERN_VCLUSTER_SPOT_RECLAIM);
    return rc;
}

static int ask_of_node(const char *name, struct tern_vcluster_ctl_request *q, const char *node,
                       struct tern_vcluster_ctl_answer *a, struct tern_err *err)
{
    char *dir = tern_vcluster_plan_dir(name, err);

    if (!dir)
        return -1;
    snprintf(q->node, sizeof q->node, "%s", node);
    int rc = tern_vcluster_ctl_call(dir, q, a, NULL, NULL, err);
    free(dir);
    return rc;
}

int tern_vcluster_break(const char *name, const char *node, enum tern_vcluster_trouble trouble,
                        struct tern_err *err)
{
    struct tern_vcluster_ctl_request q = {
        .size = sizeof q, .op = TERN_VCLUSTER_CTL_BREAK, .trouble = trouble};
    struct tern_vcluster_ctl_answer a;

    return ask_of_node(name, &q, node, &a, err);
}

int tern_vcluster_mend(const char *name, const char *node, enum tern_vcluster_trouble *ret_trouble,
                       struct tern_err *err)
{
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_MEND};
    struct tern_vcluster_ctl_answer a;

    if (ask_of_node(name, &q, node, &a, err) < 0)
        return -1;
    *ret_trouble = (enum tern_vcluster_trouble)a.trouble;
    return 0;
}

int tern_vcluster_trouble_of(const char *name, const char *node,
                             enum tern_vcluster_trouble *ret_trouble, struct tern_err *err)
{
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_INFO};
    struct tern_vcluster_ctl_answer a;

    if (ask_of_node(name, &q, node, &a, err) < 0)
        return -1;
    *ret_trouble = (enum tern_vcluster_trouble)a.trouble;
    return 0;
}

char *tern_vcluster_about_folders(const char *name, struct tern_err *err)
{
    char *dir = tern_vcluster_plan_dir(name, err), *text = NULL;
    char *path = dir ? tern_strf("%s/folders", dir) : NULL;
    size_t len;

    if (path && tern_fs_read(path, 1 << 20, &text, &len, err) < 0)
        text = NULL;
    free(path);
    free(dir);
    return text;
}

/* ------------------------------------------------------------------ list */

static int look(const char *home, const char *name, struct tern_vcluster_info *info)
{
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_INFO};
    struct tern_vcluster_ctl_answer a;
    char *dir = tern_strf("%s/%s", home, name), *lock = tern_strf("%s/lock", dir);
    char *layout = tern_strf("%s/layout", dir), *path = NULL;
    size_t len;
    bool there = tern_fs_exists(lock);

    *info = (struct tern_vcluster_info){0};
    if (there) {
        info->name = tern_strdup(name);
        info->folder = tern_strdup(dir);
        info->layout = tern_fs_read(layout, 8192, &path, &len, NULL) == 0 ? path : tern_strdup("");
        info->alive = tern_vcluster_plan_locked(dir);
        if (info->alive && tern_vcluster_ctl_call(dir, &q, &a, NULL, &info->pid, NULL) == 0) {
            info->mode = (enum tern_vcluster_mode)a.mode;
            info->n_nodes = a.n_nodes;
        }
    }
    free(dir);
    free(lock);
    free(layout);
    return there ? 0 : -1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tern_vcluster_info *)a)->name,
                  ((const struct tern_vcluster_info *)b)->name);
}

int tern_vcluster_list(struct tern_vcluster_info **list, size_t *n, struct tern_err *err)
{
    char *home = tern_vcluster_plan_home(err);
    DIR *d = home ? opendir(home) : NULL;
    struct tern_vcluster_info *all = NULL, one;
    size_t count = 0;

    if (!home)
        return -1;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.' || look(home, e->d_name, &one) < 0)
            continue;
        all = reallocarray(all, count + 1, sizeof *all);
        if (!all)
            abort();
        all[count++] = one;
    }
    if (d)
        closedir(d);
    free(home);
    if (count)
        qsort(all, count, sizeof *all, by_name);
    *list = all;
    *n = count;
    return 0;
}

void tern_vcluster_list_free(struct tern_vcluster_info *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(list[i].name);
        free(list[i].layout);
        free(list[i].folder);
    }
    free(list);
}

char *tern_vcluster_layout(const char *cluster, struct tern_err *err)
{
    struct tern_vcluster_info *list = NULL;
    char *path = NULL;
    size_t n = 0;

    if (tern_fs_exists(cluster))
        return tern_strdup(cluster);
    if (tern_vcluster_list(&list, &n, err) < 0)
        return NULL;
    for (size_t i = 0; i < n && !path; i++)
        if (strcmp(list[i].name, cluster) == 0 && list[i].layout)
            path = tern_strdup(list[i].layout);
    tern_vcluster_list_free(list, n);
    if (!path)
        tern_err_set(err, TERN_USAGE,
                     "--cluster: '%s' is neither a layout file nor a virtual cluster (`tern "
                     "cluster list`)",
                     cluster);
    return path;
}

char *tern_vcluster_find(const char *name, struct tern_err *err)
{
    struct tern_vcluster_info *list;
    struct tern_buf names = {0};
    char *found = NULL;
    size_t n, alive = 0;

    if (tern_vcluster_list(&list, &n, err) < 0)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (!list[i].alive || (name && strcmp(list[i].name, name) != 0))
            continue;
        tern_buf_printf(&names, "%s%s", alive ? ", " : "", list[i].name);
        if (alive++ == 0)
            found = tern_strdup(list[i].name);
    }
    if (alive == 0 && name)
        tern_err_set(err, TERN_USAGE,
                     "no cluster '%s' is up. `tern cluster list` shows those that "
                     "are.",
                     name);
    else if (alive == 0)
        tern_err_set(err, TERN_USAGE, "no cluster is up. `tern cluster up LAYOUT` starts one.");
    else if (alive > 1)
        tern_err_set(err, TERN_USAGE, "several clusters are up: %s. Name one.", names.data);
    if (alive != 1) {
        free(found);
        found = NULL;
    }
    tern_buf_free(&names);
    tern_vcluster_list_free(list, n);
    return found;
}
