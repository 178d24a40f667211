/* Bad bytes where ranks listen: the supervisor's socket, its answers to the ranks, and packets and
 * messages to ranks at work (over tests/provider), which exchange records or tagged messages.
 * Nothing may crash or outlast its deadline; a
 * rank may fail with an error.
 * FUZZ_RUNS: how many inputs; FUZZ_SEED: where they begin. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"
#include "core/wire/rendezvous_frame.h"
#include "core/fabric/state.h"
#include "core/wire/wireup.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, MANY_SOCKETS = 64, JUNK = 20000, AT_ONCE = 32 };

static uint64_t state = 1;
static int runs = 300;
static bool tagged; /* the ranks under attack exchange tagged messages */

static uint32_t pick(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static void junk(void *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)to)[i] = (unsigned char)(pick(3) ? pick(256) : pick(2) * 255);
}

static void change(void *at, size_t n)
{
    for (uint32_t k = pick(4); k > 0 && n; k--)
        ((unsigned char *)at)[pick((uint32_t)n)] = (unsigned char)(pick(3) ? pick(256) : 255);
}

static int dial(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---------------------------------------------------------------- the supervisor's socket */

static void serve(struct tern_wire_rendezvous *r, int ms)
{
    struct pollfd p = {tern_wire_rendezvous_fd(r), POLLIN, 0};

    poll(&p, 1, ms);
    tern_wire_rendezvous_step(r, NULL);
}

/* Frames as a rank sends them, then changed here and there, cut and sent in pieces. */
static void say_frames(struct tern_wire_rendezvous *r, int fd)
{
    const char *key = strchr(tern_wire_rendezvous_address(r), '/') + 1;
    char bytes[4 * (sizeof(struct rendezvous_frame) + TERN_WIRE_BLOB)];
    size_t n = 0;

    for (uint32_t k = 1 + pick(4); k > 0; k--) {
        struct rendezvous_frame h = {RENDEZVOUS_MAGIC, 1 + pick(4), pick(3), pick(8) ? 2 : 3,
                                     pick(3),          0,           {0}};
        for (int i = 0; i < RENDEZVOUS_KEY; i++)
            sscanf(key + 2 * i, "%2hhx", &h.key[i]);
        h.bytes = h.kind == RENDEZVOUS_BLOB ? TERN_WIRE_BLOB : 0;
        if (pick(4) == 0)
            change(&h, sizeof h);
        memcpy(bytes + n, &h, sizeof h);
        n += sizeof h;
        junk(bytes + n, h.kind == RENDEZVOUS_BLOB ? TERN_WIRE_BLOB : 0);
        n += h.kind == RENDEZVOUS_BLOB ? TERN_WIRE_BLOB : 0;
    }
    n -= pick(3) ? 0 : pick((uint32_t)n);
    for (size_t at = 0, k; at < n; at += k) {
        k = pick(2) ? n - at : 1 + pick((uint32_t)(n - at));
        if (send(fd, bytes + at, k, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return;
        serve(r, 0);
    }
}

static void *open_rank(void *options)
{
    struct tern_err err = {0};
    struct tern_fabric *f = tern_fabric_open(options, &err);

    if (!f)
        fprintf(stderr, "# %s\n", err.text);
    return f;
}

/* Two good ranks meet there after all that. */
static bool two_meet(struct tern_wire_rendezvous *r)
{
    struct tern_fabric_options o[2];
    struct tern_fabric *f[2] = {0};
    pthread_t t[2];
    bool good = true;

    for (int i = 0; i < 2; i++) {
        o[i] = (struct tern_fabric_options){.wireup = TERN_WIREUP_SOCKET,
                                            .socket = tern_wire_rendezvous_address(r),
                                            .deadline_s = 20,
                                            .rank = i,
                                            .size = 2};
        pthread_create(&t[i], NULL, open_rank, &o[i]);
    }
    for (int i = 0; i < 2; i++) {
        while (pthread_tryjoin_np(t[i], (void **)&f[i]) != 0)
            serve(r, 5);
        good &= f[i] != NULL;
    }
    for (int i = 0; i < 2; i++)
        tern_fabric_close(f[i]);
    return good;
}

static void strangers_at_the_socket(void)
{
    struct tern_err err = {0};
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", 2, &err);
    int fds[MANY_SOCKETS], n = 0;

    if (!ok(r != NULL, "a rendezvous opens: %s", err.text))
        return;
    for (int i = 0; i < 10 * runs; i++) {
        if (n == MANY_SOCKETS || (n && pick(3) == 0)) {
            uint32_t k = pick((uint32_t)n);
            close(fds[k]);
            fds[k] = fds[--n];
        }
        if ((fds[n] = dial(tern_wire_rendezvous_address(r))) >= 0)
            n++;
        serve(r, 0);
        if (n)
            say_frames(r, fds[pick((uint32_t)n)]);
        serve(r, 0);
    }
    while (n)
        close(fds[--n]);
    for (int i = 0; i < 50; i++)
        serve(r, 1);
    ok(two_meet(r), "after %d hostile conversations two ranks still meet", 10 * runs);
    tern_wire_rendezvous_close(r);
}

/* ---------------------------------------------------------------- a supervisor that lies */

struct liar {
    int listen, size;
    uint64_t state; /* its own numbers: it runs beside the rank */
};

static bool read_all(int fd, void *to, size_t n)
{
    return recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

static uint32_t lie(struct liar *l, uint32_t n)
{
    l->state = l->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(l->state >> 33) % n;
}

/* Answers rounds with the rank's own blob in its place and near copies of it as the others'. */
static void *lying(void *arg)
{
    struct liar *l = arg;
    struct rendezvous_frame h;
    static uint8_t blob[TERN_WIRE_BLOB], all[RANKS * TERN_WIRE_BLOB];
    int fd = accept(l->listen, NULL, NULL);
    bool good = fd >= 0 && read_all(fd, &h, sizeof h);

    while (good && read_all(fd, &h, sizeof h) && h.bytes == TERN_WIRE_BLOB &&
           read_all(fd, blob, sizeof blob)) {
        for (int r = 0; r < l->size; r++) {
            memcpy(all + r * TERN_WIRE_BLOB, blob, sizeof blob);
            for (uint32_t k = r == (int)h.rank ? 0 : lie(l, 6); k > 0; k--)
                all[(uint32_t)r * TERN_WIRE_BLOB + lie(l, lie(l, 2) ? 32 : TERN_WIRE_BLOB)] =
                    (uint8_t)(lie(l, 2) ? lie(l, 256) : lie(l, 4));
        }
        h.kind = lie(l, 12) ? RENDEZVOUS_ALL : RENDEZVOUS_NO;
        h.bytes = h.kind == RENDEZVOUS_NO ? lie(l, RENDEZVOUS_TEXT + 2)
                                          : (uint32_t)l->size * TERN_WIRE_BLOB;
        if (lie(l, 12) == 0)
            ((uint8_t *)&h)[lie(l, sizeof h)] ^= (uint8_t)(1 + lie(l, 255));
        size_t n = (size_t)l->size * TERN_WIRE_BLOB;
        n = lie(l, 12) ? n : lie(l, (uint32_t)n);
        good = send(fd, &h, sizeof h, MSG_NOSIGNAL) > 0 && send(fd, all, n, MSG_NOSIGNAL) >= 0;
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void lied_to(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof here;
    struct liar l = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), RANKS, state};
    int64_t longest = 0;
    int opened = 0, mute = 0, times = 1 + runs / 4;
    char address[100];

    if (bind(l.listen, (struct sockaddr *)&here, sizeof here) < 0 || listen(l.listen, 8) < 0 ||
        getsockname(l.listen, (struct sockaddr *)&here, &n) < 0)
        exit(1);
    snprintf(address, sizeof address, "127.0.0.1:%d/%032d", ntohs(here.sin_port), 7);
    setenv("TERN_FABRIC_SHARE", "1", 1);
    for (int i = 0; i < times; i++) {
        struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                        .socket = address,
                                        .deadline_s = 0.1,
                                        .rank = (int)pick(RANKS),
                                        .size = RANKS};
        struct tern_err err = {0};
        pthread_t t;
        int64_t start = tern_clock_boot_ns();
        pthread_create(&t, NULL, lying, &l);
        struct tern_fabric *f = tern_fabric_open(&o, &err);
        opened += f != NULL;
        mute += !f && !err.text[0];
        tern_fabric_close(f);
        int64_t took = tern_clock_boot_ns() - start;
        longest = took > longest ? took : longest;
        pthread_join(t, NULL);
    }
    close(l.listen);
    ok(mute == 0, "every error has words");
    /* Each of three rounds may take a deadline; a machine under a sanitizer some more. */
    ok(longest < 5000000000ll, "%d lying supervisors: %d believed, none crashed, %.1f s at most",
       times, opened, (double)longest / 1e9);
}

/* ---------------------------------------------------------------- ranks at work */

/* Operations until the time is over, or an error. */
static int work(const char *address, int rank)
{
    struct tern_err err = {0};
    struct tern_fabric_options o = {.wireup = TERN_WIREUP_SOCKET,
                                    .socket = address,
                                    .deadline_s = 2,
                                    .rank = rank,
                                    .size = RANKS};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    int64_t end = tern_clock_boot_ns() + 700000000ll;
    int rc = 0;

    if (!f)
        return 3;
    float *v = tern_fabric_alloc(f, 1 << 20, &err);
    int32_t on = v != NULL;
    for (uint32_t i = 0; rc == 0 && on; i++) {
        rc = tern_fabric_all_reduce(tern_fabric_world(f), v, i % 3 ? 700 : 200000, TERN_F32,
                                    TERN_MAX, &err);
        on = tern_clock_boot_ns() < end;
        if (rc == 0)
            rc = tern_fabric_all_reduce(tern_fabric_world(f), &on, 1, TERN_I32, TERN_MIN, &err);
    }
    tern_fabric_close(f);
    return rc < 0 ? 3 : 0;
}

/* The endpoints of this job, by their sockets' names; how many. */
static int endpoints(uint32_t job, uint64_t ids[], int most)
{
    char line[300], want[32];
    FILE *f = fopen("/proc/net/unix", "re");
    int n = 0;

    snprintf(want, sizeof want, "@ternsrd-%08x-", job);
    while (f && n < most && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, want);
        /* Connections have their listener's name, too. */
        uint64_t id = at ? strtoull(at + strlen(want), NULL, 16) : 0;
        bool known = !at;
        for (int i = 0; i < n; i++)
            known |= ids[i] == id;
        if (!known)
            ids[n++] = id;
    }
    if (f)
        fclose(f);
    return n;
}

/* Below libfabric: what no endpoint sends. */
static void raw(uint32_t job, uint64_t id)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char bytes[JUNK];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int n = snprintf(to.sun_path + 1, sizeof to.sun_path - 1, "ternsrd-%08x-%016llx", job,
                     (unsigned long long)id);

    if (connect(fd, (struct sockaddr *)&to, (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)n)) == 0)
        for (int i = 0; i < 8; i++) {
            junk(bytes, sizeof bytes);
            if (send(fd, bytes, pick(sizeof bytes), MSG_NOSIGNAL) < 0)
                break;
        }
    close(fd);
}

struct stranger {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    char *buf; /* [AT_ONCE][JUNK] */
    struct fi_context2 contexts[AT_ONCE];
};

static void stranger_open(struct stranger *s, uint32_t job, const uint64_t ids[], int n)
{
    struct fi_info *h = fi_allocinfo();
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA};

    h->mode = FI_CONTEXT2;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    h->fabric_attr->prov_name = strdup("ternsrd");
    s->buf = malloc(AT_ONCE * JUNK);
    if (fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, h, &s->info) ||
        fi_fabric(s->info->fabric_attr, &s->fabric, NULL) ||
        fi_domain(s->fabric, s->info, &s->domain, NULL) ||
        fi_av_open(s->domain, &av, &s->av, NULL) || fi_cq_open(s->domain, &cq, &s->cq, NULL) ||
        fi_endpoint(s->domain, s->info, &s->ep, NULL) || fi_ep_bind(s->ep, &s->av->fid, 0) ||
        fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(s->ep) ||
        fi_mr_reg(s->domain, s->buf, AT_ONCE * JUNK, FI_SEND | FI_WRITE, 0, 0, 0, &s->mr, NULL))
        exit(1);
    fi_freeinfo(h);
    for (int i = 0; i < n; i++) {
        struct {
            uint32_t magic, job;
            uint64_t id;
        } a = {0x44525354, job, ids[i]};
        fi_av_insert(s->av, &a, 1, NULL, 0, NULL);
    }
}

static void stranger_close(struct stranger *s)
{
    fi_close(&s->ep->fid);
    fi_close(&s->mr->fid);
    fi_close(&s->cq->fid);
    fi_close(&s->av->fid);
    fi_close(&s->domain->fid);
    fi_close(&s->fabric->fid);
    fi_freeinfo(s->info);
    free(s->buf);
}

static size_t a_control_message(char *to)
{
    struct tern_wire_control m = {.kind = (int32_t)pick(8),
                                  .sender = (int32_t)pick(RANKS + 1),
                                  .rank = (int32_t)pick(RANKS + 1),
                                  .comm = (int32_t)pick(70),
                                  .op = pick(1000),
                                  .desc = (uint64_t)pick(1u << 31) << 33 | pick(1u << 31)};

    memset(m.text, 'x', sizeof m.text); /* without an end */
    if (pick(3) == 0)
        junk(&m, sizeof m);
    else if (m.kind == TERN_WIRE_CHASE) {
        m.chase.n = (uint16_t)pick(TERN_WIRE_CHASE_STEPS + 2);
        m.chase.hops = (uint16_t)pick(300);
        m.chase.root = (int32_t)pick(RANKS + 2) - 1;
        for (int i = 0; i < TERN_WIRE_CHASE_STEPS; i++)
            m.chase.steps[i] =
                (struct tern_wire_chase_step){(int32_t)pick(RANKS + pick(2)), 0, 1, m.desc};
        m.chase.steps[0].rank = pick(8) ? m.rank : (int32_t)pick(RANKS);
    } else if (m.kind == TERN_WIRE_BLAME && pick(8))
        m.kind = TERN_WIRE_STUCK; /* so that the ranks go on for a while */
    memcpy(to, &m, sizeof m);
    return pick(4) ? sizeof m : pick(JUNK);
}

/* A call as work() makes it, or none; in how many fragments it comes, or seems to. */
static uint32_t a_label(void)
{
    static const struct {
        enum tern_type type;
        enum tern_op op;
        size_t count;
    } calls[] = {{TERN_F32, TERN_MAX, 700}, {TERN_F32, TERN_MAX, 200000}, {TERN_I32, TERN_MIN, 1}};
    uint32_t k = pick(4);

    if (k == 3)
        return pick(1u << 31);
    return tern_call_hash(tern_call_pack(TERN_CALL_ALL_REDUCE, calls[k].type, calls[k].op, 0,
                                         calls[k].count)) ^
           (pick(3) ? 0 : pick(256)) << 24;
}

/* What a rank may have asked for, or will: its sizes, more, less, none. */
static void hostile_tagged(struct stranger *s, char *buf, fi_addr_t to, void *context)
{
    static const size_t sizes[] = {4, 2800, 2800 / 2, 0, 1, 2801, JUNK};
    size_t n = pick(4) ? sizes[pick(sizeof sizes / sizeof *sizes)] : pick(JUNK);
    uint64_t tag =
        tern_wire_tag((int)pick(3), (int)pick(RANKS), pick(pick(2) ? 50 : 4000), pick(4));

    tag += pick(4) ? 0 : pick(TERN_WIRE_FRAGMENTS);
    fi_tsenddata(s->ep, buf, n, fi_mr_desc(s->mr), a_label(), to, pick(8) ? tag : tag ^ state,
                 context);
}

/* One well-formed message with contents that no rank sends, or nearly those of one. */
static void hostile_message(struct stranger *s, int i, int peers)
{
    void *context = &s->contexts[i], *desc = fi_mr_desc(s->mr);
    fi_addr_t to = pick((uint32_t)peers);
    char *buf = s->buf + i * JUNK;
    size_t n = pick(JUNK);

    junk(buf, pick(4) ? n : JUNK);
    switch (tagged ? 1 + pick(3) : pick(5)) {
    case 0:
        fi_send(s->ep, buf, n, desc, to, context);
        break;
    case 1:
        hostile_tagged(s, buf, to, context);
        break;
    case 2:
        n = a_control_message(buf);
        fi_tsend(s->ep, buf, n, desc, to,
                 tern_wire_tag(TERN_WIRE_CONTROL_COMM, (int)pick(RANKS), 0, pick(8) == 0), context);
        break;
    case 3:
        fi_writedata(s->ep, buf, n, desc, pick(1u << 31), to, state, pick(1u << 31), context);
        break;
    default:
        /* Sent to the other side whatever its memory. */
        fi_writedata(s->ep, buf, 0, NULL, pick(1u << 31), to, 0, 0, context);
    }
}

static void attack(uint32_t job, const uint64_t ids[], int n)
{
    struct stranger s = {0};
    struct fi_cq_data_entry e;
    struct fi_cq_err_entry bad;

    stranger_open(&s, job, ids, n);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < AT_ONCE; i++)
            hostile_message(&s, i, n);
        raw(job, ids[pick((uint32_t)n)]);
        for (int over = 0, idle = 0; over < AT_ONCE && idle < 100; idle++) {
            ssize_t k = fi_cq_read(s.cq, &e, 1);
            bad = (struct fi_cq_err_entry){0};
            if (k == -FI_EAVAIL)
                fi_cq_readerr(s.cq, &bad, 0);
            if (k == 1 || k == -FI_EAVAIL)
                over++, idle = 0;
            else
                tern_clock_sleep_ns(1000000);
        }
    }
    stranger_close(&s);
}

static void one_attack(int *finished, int *failed, int *crashed)
{
    struct tern_err err = {0};
    struct tern_wire_rendezvous *r = tern_wire_rendezvous_open("127.0.0.1", RANKS, &err);
    uint32_t job = pick(1u << 31);
    uint64_t ids[RANKS];
    int status, left = RANKS + 1, seen = 0;
    char faults[64];

    snprintf(faults, sizeof faults, "job=%u,reorder=8,seed=%u", job, pick(1000));
    setenv("TERNSRD", faults, 1);
    for (int i = 0; i < RANKS && r; i++)
        if (fork() == 0)
            _exit(work(tern_wire_rendezvous_address(r), i));
    pid_t attacker = fork();
    if (attacker == 0) {
        for (int ms = 0; ms < 5000 && (seen = endpoints(job, ids, RANKS)) < RANKS; ms += 5)
            tern_clock_sleep_ns(5000000);
        if (seen)
            attack(job, ids, seen);
        _exit(0);
    }
    while (left) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        serve(r, 5);
        if (pid <= 0)
            continue;
        left--;
        bool good = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
        *crashed += !good;
        *finished += good && pid != attacker && WEXITSTATUS(status) == 0;
        *failed += good && WEXITSTATUS(status) == 3;
    }
    tern_wire_rendezvous_close(r);
}

static void ranks_under_attack(void)
{
    int finished = 0, failed = 0, crashed = 0, times = 1 + runs / 50;

    setenv("TERN_FABRIC_MODE", tagged ? "tagged" : "rma", 1);
    setenv("TERN_FABRIC_SHARE", "1", 1);
    for (int i = 0; i < times; i++)
        one_attack(&finished, &failed, &crashed);
    ok(crashed == 0, "%d attacks on %d ranks at work, %s: %d finished, %d failed, %d crashed",
       times, RANKS, tagged ? "tagged" : "records", finished, failed, crashed);
    unsetenv("TERN_FABRIC_MODE");
    ok(finished + failed == RANKS * times, "each of them ended with a result or an error");
}

int main(int argc, char **argv)
{
    char path[4096];

    (void)argc;
    if (tap_long())
        runs *= 10;
    if (getenv("FUZZ_RUNS"))
        runs = atoi(getenv("FUZZ_RUNS"));
    if (getenv("FUZZ_SEED"))
        state = strtoull(getenv("FUZZ_SEED"), NULL, 10);
    snprintf(path, sizeof path, "%s/../provider", dirname(argv[0]));
    if (access(path, F_OK) < 0)
        return tap_skip_all("tests/provider wants libfabric 1.15");
    setenv("FI_PROVIDER_PATH", path, 1);
    setenv("TERN_FABRIC_PROVIDER", "ternsrd", 1);
    setenv("FI_PROVIDER", "ternsrd", 1); /* no other is loaded: quicker */
    ranks_under_attack();
    tagged = true;
    ranks_under_attack();
    strangers_at_the_socket();
    lied_to();
    return tap_done();
}
