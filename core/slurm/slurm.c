#include "core/slurm/slurm.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"
#include "core/slurm/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* 23.11 took the pointer out of hostlist_t. */
typedef __typeof__(slurm_hostlist_create("")) hostlist;

const char *tern_slurm_conf(void)
{
    static const char *const usual[] = {
        "/etc/slurm/slurm.conf",
        "/run/slurm/conf/slurm.conf", /* where slurmd puts it in a configless cluster */
        "/etc/slurm-llnl/slurm.conf",
        "/opt/slurm/etc/slurm.conf", /* ParallelCluster */
        "/usr/local/etc/slurm.conf",
    };
    const char *given = getenv("SLURM_CONF");

    if (given && *given)
        return TERN_AGAIN(access(given, R_OK)) == 0 ? given : NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (TERN_AGAIN(access(usual[i], R_OK)) == 0)
            return usual[i];
    return NULL;
}

/* Of a login node of a configless cluster, which has no file: the controller that gives it. */
static const char *conf_server(void)
{
    const char *server = getenv("SLURM_CONF_SERVER");

    return !getenv("SLURM_CONF") && server && *server ? server : NULL;
}

bool tern_slurm_available(void)
{
    return tern_slurm_conf() || conf_server();
}

/* libslurm ends the process when that controller does not answer: a child tries it first. */
static int try_server(const char *server, struct tern_err *err)
{
    pid_t pid = tern_again_fork();
    int status;

    if (pid == 0) {
        slurm_init(NULL);
        _exit(0);
    }
    if (pid < 0)
        return tern_err_sys(err, "cannot start a process");
    if (TERN_AGAIN(waitpid(pid, &status, 0)) == pid && status == 0)
        return 0;
    return tern_err_set(err, TERN_TEMPFAIL,
                        "no Slurm configuration from SLURM_CONF_SERVER (%s). Does slurmctld run "
                        "there, with SlurmctldParameters=enable_configless?",
                        server);
}

int tern_slurm_start(struct tern_err *err)
{
    static bool started;
    const char *conf = tern_slurm_conf(), *server = conf ? NULL : conf_server();

    if (started)
        return 0;
    if (!conf && !server)
        return tern_err_set(err, TERN_FAILED,
                            "no Slurm configuration here (%s%s). Set SLURM_CONF, or run this on a "
                            "machine of the cluster.",
                            getenv("SLURM_CONF") ? "SLURM_CONF: cannot read "
                                                 : "looked in /etc/slurm",
                            getenv("SLURM_CONF") ? getenv("SLURM_CONF") : "");
    if (server && try_server(server, err) < 0)
        return -1;
    slurm_init(conf);
    started = true;
    return 0;
}

/* What libslurm says went wrong while `what`; whatever the controller refused stays refused, the
 * rest is trouble on the way to it. */
static int failed(struct tern_err *err, const char *what, uint32_t id)
{
    int e = errno;
    bool refused = e == ESLURM_INVALID_JOB_ID || e == ESLURM_USER_ID_MISSING ||
                   e == ESLURM_ACCESS_DENIED || e == ESLURM_ALREADY_DONE ||
                   e == ESLURM_NOT_SUPPORTED || e == ESLURM_DISABLED ||
                   e == ESLURM_JOB_NOT_RUNNING || e == ESLURM_BATCH_ONLY;
    enum tern_code code = refused ? TERN_FAILED : TERN_TEMPFAIL;

    if (id)
        return tern_err_set(err, code, "job %u: cannot %s: %s", id, what, slurm_strerror(e));
    return tern_err_set(err, code, "cannot %s: %s", what, slurm_strerror(e));
}

static char *text(const char *s)
{
    return tern_strdup(s ? s : "");
}

/* ------------------------------------------------------------------ jobs */

static const char *job_word(uint32_t state)
{
    static const char *const words[] = {
        [JOB_PENDING] = "PENDING",     [JOB_RUNNING] = "RUNNING",     [JOB_SUSPENDED] = "SUSPENDED",
        [JOB_COMPLETE] = "COMPLETED",  [JOB_CANCELLED] = "CANCELLED", [JOB_FAILED] = "FAILED",
        [JOB_TIMEOUT] = "TIMEOUT",     [JOB_NODE_FAIL] = "NODE_FAIL", [JOB_PREEMPTED] = "PREEMPTED",
        [JOB_BOOT_FAIL] = "BOOT_FAIL", [JOB_DEADLINE] = "DEADLINE",   [JOB_OOM] = "OUT_OF_MEMORY",
    };
    uint32_t base = state & JOB_STATE_BASE;

    return base < sizeof words / sizeof *words ? words[base] : "UNKNOWN";
}

static enum tern_slurm_job_state job_state(uint32_t state)
{
    uint32_t base = state & JOB_STATE_BASE;

    if (state & JOB_COMPLETING)
        return TERN_SLURM_JOB_COMPLETING;
    if (base == JOB_PENDING)
        return TERN_SLURM_JOB_PENDING;
    return base == JOB_RUNNING || base == JOB_SUSPENDED ? TERN_SLURM_JOB_RUNNING
                                                        : TERN_SLURM_JOB_ENDED;
}

int tern_slurm_job_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    job_info_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_job_load(id, &msg) != SLURM_SUCCESS)
        return failed(err, "ask Slurm for it", id);
    if (msg->record_count == 0) {
        slurm_free_job_info_msg(msg);
        return tern_err_set(err, TERN_FAILED, "job %u: Slurm does not know it", id);
    }
    const slurm_job_info_t *from = &msg->job_array[0];
    struct tern_slurm_job *j = tern_alloc(1, sizeof *j, "a job", err);
    if (j) {
        *j = (struct tern_slurm_job){
            .id = from->job_id,
            .state = job_state(from->job_state),
            .word = job_word(from->job_state),
            .restarts = from->restart_cnt,
            .n_nodes = from->num_nodes,
            .uid = from->user_id,
            .array_job = from->array_job_id == NO_VAL ? 0 : from->array_job_id,
            .cpus_per_task = from->cpus_per_task == NO_VAL16 ? 1 : from->cpus_per_task,
            .exit_status = (int)from->exit_code,
            .start = from->start_time,
            .end = from->time_limit == INFINITE ? 0 : from->end_time,
            .preempt = from->preempt_time,
            .requeue = from->requeue != 0,
            .reservation = text(from->resv_name),
            .name = text(from->name),
            .partition = text(from->partition),
            .nodes = text(from->nodes),
            .comment = text(from->comment),
        };
        *job = j;
    }
    slurm_free_job_info_msg(msg);
    return j ? 0 : -1;
}

int tern_slurm_job_find(const char *comment, uint32_t *id, const char **word, struct tern_err *err)
{
    job_info_msg_t *msg = NULL;

    *id = 0;
    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_job_user(&msg, getuid(), 0) != SLURM_SUCCESS)
        return errno == ESLURM_INVALID_JOB_ID || errno == SLURM_NO_CHANGE_IN_DATA
                   ? 0
                   : failed(err, "ask Slurm for one's jobs", 0);
    for (uint32_t i = 0; i < msg->record_count; i++) {
        const slurm_job_info_t *j = &msg->job_array[i];
        enum tern_slurm_job_state state = job_state(j->job_state);
        if (j->comment && strncmp(j->comment, comment, strlen(comment)) == 0 &&
            (state == TERN_SLURM_JOB_PENDING || state == TERN_SLURM_JOB_RUNNING) &&
            j->job_id > *id) {
            *id = j->job_id;
            *word = job_word(j->job_state);
        }
    }
    slurm_free_job_info_msg(msg);
    return 0;
}

void tern_slurm_job_free(struct tern_slurm_job *job)
{
    if (!job)
        return;
    free(job->reservation);
    free(job->name);
    free(job->partition);
    free(job->nodes);
    free(job->comment);
    free(job);
}

/* ESLURM_JOB_SETTING_DB_INX, which is not in 24.11's list any more. */
enum { SETTING_DB_INX = 2103 };

int tern_slurm_job_set_comment(uint32_t id, const char *comment, struct tern_err *err)
{
    job_desc_msg_t desc;

    if (tern_slurm_start(err) < 0)
        return -1;
    slurm_init_job_desc_msg(&desc);
    tern_slurm_release_desc_set_job(&desc, id);
    desc.comment = (char *)comment;
    int rc = slurm_update_job(&desc);
    /* Accounting is still making the job's row, for a second after its start. */
    for (int i = 0; rc != SLURM_SUCCESS && errno == SETTING_DB_INX && i < 10; i++) {
        tern_clock_sleep_ns(200000000);
        rc = slurm_update_job(&desc);
    }
    return rc == SLURM_SUCCESS ? 0 : failed(err, "set its Comment", id);
}

int tern_slurm_job_requeue(uint32_t id, bool hold, struct tern_err *err)
{
    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_job_requeue(id, hold ? JOB_REQUEUE_HOLD : 0) != SLURM_SUCCESS)
        return failed(err, "requeue it", id);
    return 0;
}

int tern_slurm_job_set_begin(uint32_t id, time_t when, struct tern_err *err)
{
    job_desc_msg_t desc;

    if (tern_slurm_start(err) < 0)
        return -1;
    slurm_init_job_desc_msg(&desc);
    tern_slurm_release_desc_set_job(&desc, id);
    desc.begin_time = when;
    return slurm_update_job(&desc) == SLURM_SUCCESS ? 0 : failed(err, "set its begin", id);
}

int tern_slurm_job_cancel(uint32_t id, struct tern_err *err)
{
    if (tern_slurm_start(err) < 0)
        return -1;
    return slurm_kill_job(id, SIGKILL, 0) == SLURM_SUCCESS ? 0 : failed(err, "end it", id);
}

/* Started by srun and there: not waiting for nodes, nor the batch script's. */
static bool is_there(const job_step_info_t *s)
{
    return s->step_id.step_id < SLURM_INTERACTIVE_STEP;
}

/* The newest of the job's steps of that name; NO_VAL when there is none. */
static int find_step(uint32_t job, const char *name, uint32_t *step, struct tern_err *err)
{
    job_step_info_response_msg_t *msg = NULL;

    *step = NO_VAL;
    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_steps_load(job, NO_VAL, &msg) != SLURM_SUCCESS)
        return failed(err, "ask Slurm for its steps", job);
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (s->name && strcmp(s->name, name) == 0 && is_there(s) &&
            (*step == NO_VAL || s->step_id.step_id > *step))
            *step = s->step_id.step_id;
    }
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}

int tern_slurm_step_exists(uint32_t job, const char *name, bool *there, struct tern_err *err)
{
    uint32_t step;

    if (find_step(job, name, &step, err) < 0)
        return -1;
    *there = step != NO_VAL;
    return 0;
}

int tern_slurm_steps_describe(uint32_t job, struct tern_buf *to, struct tern_err *err)
{
    enum { MOST = 4 }; /* named; a job may have thousands */
    job_step_info_response_msg_t *msg = NULL;
    size_t n = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (tern_slurm_release_steps_load(job, NO_VAL, &msg) != SLURM_SUCCESS)
        return failed(err, "ask Slurm for its steps", job);
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (!is_there(s) || ++n > MOST)
            continue;
        tern_buf_printf(to, "%s%u.%u (%s%s%s)", to->len ? ", " : "", job, s->step_id.step_id,
                        s->name ? s->name : "?", s->nodes ? " on " : "", s->nodes ? s->nodes : "");
    }
    if (n > MOST)
        tern_buf_printf(to, " and %zu more", n - MOST);
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}

int tern_slurm_step_signal(uint32_t job, const char *name, int sig, struct tern_err *err)
{
    uint32_t step;

    if (find_step(job, name, &step, err) < 0)
        return -1;
    if (step == NO_VAL)
        return tern_err_set(err, TERN_FAILED, "job %u: it has no step '%s'", job, name);
    int rc = tern_slurm_release_step_signal(job, step, sig);
    if (rc == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE)
        return 0;
    return failed(err, "signal its ranks", job);
}

int tern_slurm_step_get_end(uint32_t job, uint32_t step, time_t *end, struct tern_err *err)
{
    job_step_info_response_msg_t *msg = NULL;
    struct tern_slurm_job *j = NULL;

    if (tern_slurm_job_load(job, &j, err) < 0)
        return -1;
    *end = j->end;
    tern_slurm_job_free(j);
    if (tern_slurm_release_steps_load(job, step, &msg) != SLURM_SUCCESS)
        return failed(err, "ask Slurm for its steps", job);
    for (uint32_t i = 0; i < msg->job_step_count; i++) {
        const job_step_info_t *s = &msg->job_steps[i];
        if (s->step_id.step_id != step || s->time_limit == NO_VAL || s->time_limit == INFINITE)
            continue;
        time_t own = s->start_time + (time_t)s->time_limit * 60;
        if (*end == 0 || own < *end)
            *end = own;
    }
    slurm_free_job_step_info_response_msg(msg);
    return 0;
}

/* ------------------------------------------------------------------ nodes */

static const char *node_word(uint32_t state)
{
    uint32_t base = state & NODE_STATE_BASE;
    bool busy =
        base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED || (state & NODE_STATE_COMPLETING);

    if (state & NODE_STATE_DRAIN)
        return busy ? "draining" : "drained";
    if (state & NODE_STATE_FAIL)
        return busy ? "failing" : "fail";
    if (base == NODE_STATE_DOWN)
        return "down";
    if (state & NODE_STATE_COMPLETING)
        return "completing";
    switch (base) {
    case NODE_STATE_IDLE:
        return state & NODE_STATE_RES ? "reserved" : "idle";
    case NODE_STATE_ALLOCATED:
        return "allocated";
    case NODE_STATE_MIXED:
        return "mixed";
    case NODE_STATE_FUTURE:
        return "future";
    default:
        return "unknown";
    }
}

/* sinfo's marks: * does not answer, ~ powered down, # powering up, % powering down. */
static const char *node_mark(uint32_t state)
{
    if (state & NODE_STATE_NO_RESPOND)
        return "*";
    if (state & NODE_STATE_POWERED_DOWN)
        return "~";
    if (state & NODE_STATE_POWERING_UP)
        return "#";
    return state & NODE_STATE_POWERING_DOWN ? "%" : "";
}

static void node_fill(struct tern_slurm_node *to, const node_info_t *from)
{
    uint32_t base = from->node_state & NODE_STATE_BASE;

    to->name = text(from->name);
    to->addr = text(from->node_addr);
    snprintf(to->state, sizeof to->state, "%s%s", node_word(from->node_state),
             node_mark(from->node_state));
    to->usable =
        (base == NODE_STATE_IDLE || base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED) &&
        !(from->node_state &
          (NODE_STATE_DRAIN | NODE_STATE_FAIL | NODE_STATE_NO_RESPOND | NODE_STATE_POWERED_DOWN));
    to->down = base == NODE_STATE_DOWN || (from->node_state & NODE_STATE_NO_RESPOND);
    to->cpus = from->cpus;
    to->memory_mib = from->real_memory;
    to->gres = text(from->gres);
    to->reason = text(to->usable ? NULL : from->reason); /* newer Slurms keep old ones */
    to->features = text(from->features);
}

int tern_slurm_nodes_load(struct tern_slurm_nodes **nodes, struct tern_err *err)
{
    node_info_msg_t *msg = NULL;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_node(0, &msg, SHOW_ALL) != SLURM_SUCCESS)
        return failed(err, "ask Slurm for its nodes", 0);
    struct tern_slurm_nodes *all = tern_alloc(1, sizeof *all, "nodes", err);
    if (all)
        all->node = tern_alloc(msg->record_count + 1, sizeof *all->node, "nodes", err);
    if (!all || !all->node) {
        free(all);
        slurm_free_node_info_msg(msg);
        return -1;
    }
    for (uint32_t i = 0; i < msg->record_count; i++)
        if (msg->node_array[i].name) /* removed nodes keep their places */
            node_fill(&all->node[all->n++], &msg->node_array[i]);
    slurm_free_node_info_msg(msg);
    *nodes = all;
    return 0;
}

int tern_slurm_nodes_count_max(int64_t *most, struct tern_err *err)
{
    node_info_msg_t *msg = NULL;
    slurm_conf_t *conf = NULL;
    int rc = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS ||
        slurm_load_node(0, &msg, SHOW_ALL | SHOW_FUTURE) != SLURM_SUCCESS) {
        rc = failed(err, "ask Slurm for its nodes", 0);
    } else {
        *most = 0;
        for (uint32_t i = 0; i < msg->record_count; i++)
            *most += msg->node_array[i].name != NULL;
        if (conf->max_node_cnt < NO_VAL && conf->max_node_cnt > *most)
            *most = conf->max_node_cnt;
    }
    tern_slurm_release_conf_free(conf);
    slurm_free_node_info_msg(msg);
    return rc;
}

void tern_slurm_nodes_free(struct tern_slurm_nodes *nodes)
{
    if (!nodes)
        return;
    for (size_t i = 0; i < nodes->n; i++) {
        free(nodes->node[i].name);
        free(nodes->node[i].addr);
        free(nodes->node[i].gres);
        free(nodes->node[i].reason);
        free(nodes->node[i].features);
    }
    free(nodes->node);
    free(nodes);
}

/* ------------------------------------------------------------------ topology */

enum { MAX_TOPOLOGY = 64 << 20 }; /* bytes: a thousand times ten thousand nodes' */

/* Since 23.11 the records are a plugin's secret, and the plugin needs symbols that libslurm keeps
 * to itself: it cannot be loaded into a program that is not Slurm's own.  So one of those prints,
 * of every release. */
static int print_topology(struct tern_buf *b, struct tern_err *err)
{
    char word[] = "scontrol", show[] = "show", what[] = "topology";
    char *argv[] = {word, show, what, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], status = 0;
    pid_t pid;

    if (TERN_AGAIN(pipe2(fds, O_CLOEXEC)) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    char part[4096];
    for (ssize_t n = 1; rc == 0 && n;) {
        n = read(fds[0], part, sizeof part);
        if (n > 0 && b->len < MAX_TOPOLOGY)
            tern_buf_add(b, part, (size_t)n);
        else if (n < 0 && errno != EINTR)
            n = 0;
    }
    close(fds[0]);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc)
        return tern_err_set(err, TERN_FAILED,
                            "cannot read the network's topology: scontrol: %s. Is it in PATH?",
                            strerror(rc));
    if (status)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "cannot read the network's topology: 'scontrol show topology' fails");
    return tern_buf_check(b, "the network's topology", err);
}

int tern_slurm_topology_load(char *const *hosts, size_t n, char ***where, struct tern_err *err)
{
    struct tern_buf b = {0};

    int rc = tern_slurm_start(err) < 0 ? -1 : print_topology(&b, err);
    if (rc == 0)
        rc = tern_slurm_topology_parse(b.data ? b.data : "", hosts, n, where, err);
    tern_buf_free(&b);
    return rc;
}

/* ------------------------------------------------------------------ host lists */

int tern_slurm_hosts_expand(const char *list, char ***hosts, size_t *n, struct tern_err *err)
{
    enum { MAX_HOSTS = 65536 };
    hostlist hl = slurm_hostlist_create(list);
    int count = hl ? slurm_hostlist_count(hl) : 0;

    if (!hl || count < 0 || count > MAX_HOSTS) {
        if (hl)
            slurm_hostlist_destroy(hl);
        return tern_err_set(err, TERN_USAGE, "'%.200s' is not a host list of at most %d hosts",
                            list, (int)MAX_HOSTS);
    }
    char **names = tern_alloc((size_t)count + 1, sizeof *names, "a host list", err);
    size_t i = 0;
    while (names && i < (size_t)count && (names[i] = slurm_hostlist_shift(hl)))
        i++;
    slurm_hostlist_destroy(hl);
    if (!names)
        return -1;
    *hosts = names;
    *n = i;
    return 0;
}

void tern_slurm_hosts_free(char **hosts)
{
    for (size_t i = 0; hosts && hosts[i]; i++)
        free(hosts[i]);
    free(hosts);
}

char *tern_slurm_hosts_compress(char *const *hosts, size_t n)
{
    hostlist hl = slurm_hostlist_create("");
    size_t room = 16;
    char *s = NULL;

    /* Into memory of ours: 24.11 has no call that allocates for free().  At its longest a list
     * names every host, with a comma and a pair of brackets each. */
    for (size_t i = 0; hl && i < n; i++) {
        slurm_hostlist_push_host(hl, hosts[i]);
        room += strlen(hosts[i]) + 3;
    }
    if (hl && (s = malloc(room)) && slurm_hostlist_ranged_string(hl, room, s) < 0) {
        free(s);
        s = NULL;
    }
    if (hl)
        slurm_hostlist_destroy(hl);
    return s ? s : tern_strdup("");
}
