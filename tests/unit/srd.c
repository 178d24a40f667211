/* The hostile provider itself (tests/provider): two endpoints in one process.  A fault that is not
 * there, or a misuse that passes, would make tests of the fabric worthless. */
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <libgen.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 20, MANY = 64 };

struct side {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    char *buf;
};
struct pair {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct side s[2];
};

static int refused_fd;

/* What the provider said of misuse since the last call. */
static const char *refusals(void)
{
    static char text[4000];
    ssize_t n = pread(refused_fd, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    if (ftruncate(refused_fd, 0) < 0 || lseek(refused_fd, 0, SEEK_SET) < 0)
        return "?";
    return text;
}

static struct fi_info *hints(void)
{
    struct fi_info *h = fi_allocinfo();

    h->caps = FI_MSG | FI_TAGGED | FI_RMA;
    h->mode = FI_CONTEXT2;
    h->ep_attr->type = FI_EP_RDM;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    h->fabric_attr->prov_name = strdup("ternsrd");
    return h;
}

static void side_open(struct pair *p, struct side *s)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};

    s->buf = malloc(BYTES);
    if (fi_domain(p->fabric, p->info, &s->domain, NULL) ||
        fi_av_open(s->domain, &av, &s->av, NULL) || fi_cq_open(s->domain, &cq, &s->cq, NULL) ||
        fi_endpoint(s->domain, p->info, &s->ep, NULL) || fi_ep_bind(s->ep, &s->av->fid, 0) ||
        fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(s->ep) ||
        fi_mr_reg(s->domain, s->buf, BYTES, FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE, 0, 0, 0,
                  &s->mr, NULL))
        abort();
}

static void pair_open(struct pair *p, const char *faults)
{
    struct fi_info *h = hints();
    char address[64];

    memset(p, 0, sizeof *p);
    setenv("TERNSRD", faults, 1);
    if (fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, h, &p->info) ||
        fi_fabric(p->info->fabric_attr, &p->fabric, NULL))
        abort();
    fi_freeinfo(h);
    for (int i = 0; i < 2; i++)
        side_open(p, &p->s[i]);
    for (int i = 0; i < 2; i++) {
        size_t n = sizeof address;
        if (fi_getname(&p->s[i].ep->fid, address, &n) || n > 32)
            abort();
        for (int k = 0; k < 2; k++)
            if (fi_av_insert(p->s[k].av, address, 1, NULL, 0, NULL) != 1)
                abort();
    }
}

static int side_close(struct side *s)
{
    int bad = fi_close(&s->ep->fid) || fi_close(&s->mr->fid) || fi_close(&s->cq->fid) ||
              fi_close(&s->av->fid) || fi_close(&s->domain->fid);

    free(s->buf);
    return bad;
}

static void pair_close(struct pair *p, const char *name)
{
    int bad = 0;

    for (int i = 0; i < 2; i++)
        bad |= side_close(&p->s[i]);
    bad |= fi_close(&p->fabric->fid);
    fi_freeinfo(p->info);
    ok(!bad && !*refusals(), "%s: everything closes", name);
}

/* Completions of both sides until `want` came to side `i`, or half a second went by without one. */
static int collect(struct pair *p, int i, struct fi_cq_tagged_entry *to, int want,
                   struct fi_cq_err_entry *error)
{
    struct fi_cq_tagged_entry other;
    int n = 0;

    for (int idle = 0; n < want && idle < 500; idle++) {
        ssize_t k = fi_cq_read(p->s[i].cq, to + n, 1);
        if (k == 1) {
            n++;
            idle = 0;
        } else if (k == -FI_EAVAIL) {
            *error = (struct fi_cq_err_entry){0};
            fi_cq_readerr(p->s[i].cq, error, 0);
            return -1;
        }
        while (fi_cq_read(p->s[!i].cq, &other, 1) == 1)
            ;
        if (k != 1)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return n;
}

/* MANY tagged messages of 4 KiB in one direction: are all right, and in which order did they end?
 */
static void many(const char *faults, bool ordered)
{
    static struct fi_context2 sent[MANY], got[MANY];
    struct fi_cq_tagged_entry e[MANY + 1];
    struct fi_cq_err_entry error;
    struct pair p;
    int later = 0, wrong = 0, again = 0, n = 0;

    pair_open(&p, faults);
    for (uint64_t i = 0; i < MANY; i++) {
        struct side *s = p.s;
        memset(s[0].buf + i * 4096, (int)i + 1, 4096);
        while (fi_trecv(s[1].ep, s[1].buf + i * 4096, 4096, fi_mr_desc(s[1].mr), 0, i, 0,
                        &got[i]) == -FI_EAGAIN)
            again++;
        while (fi_tsenddata(s[0].ep, s[0].buf + i * 4096, 4096, fi_mr_desc(s[0].mr), i, 1, i,
                            &sent[i]) == -FI_EAGAIN) {
            again++;
            fi_cq_read(s[0].cq, e + MANY, 1);
            n += n < MANY && fi_cq_read(s[1].cq, e + n, 1) == 1;
        }
    }
    n += collect(&p, 1, e + n, MANY + 1 - n, &error);
    for (int i = 0; i < n; i++) {
        later += i && e[i].tag < e[i - 1].tag;
        wrong += e[i].op_context != &got[e[i].tag] || e[i].data != e[i].tag || e[i].len != 4096 ||
                 p.s[1].buf[e[i].tag * 4096 + 4095] != (char)(e[i].tag + 1);
    }
    ok(n == MANY && !wrong, "%s: %d messages come once and whole (%d, %d wrong)", faults, MANY, n,
       wrong);
    ok(ordered ? !later : later > MANY / 8, "%s: %d of them before an earlier one", faults, later);
    ok((strstr(faults, "eagain") || strstr(faults, "tx=")) == (again > 0),
       "%s: %d posts were put off", faults, again);
    pair_close(&p, faults);
}

static void look(struct side *s, const struct fi_context2 *sent, int *failed, int times)
{
    struct fi_cq_tagged_entry e;

    while (times--) {
        struct fi_cq_err_entry bad = {0};
        if (fi_cq_read(s->cq, &e, 1) == -FI_EAVAIL && fi_cq_readerr(s->cq, &bad, 0) == 1)
            failed[(struct fi_context2 *)bad.op_context - sent] = 1;
    }
}

/* How often each of MANY receives and sends is put off, and which sends fail, where the completions
 * are looked at `looks` times between two of them. */
static void drawn(int looks, int to[3][MANY])
{
    static struct fi_context2 sent[MANY], got[MANY];
    struct pair p;

    pair_open(&p, "seed=6,reorder=32,mtu=100,dup=0.5,eagain=0.5,recv_eagain=0.5,fail=0.3");
    struct side *s = &p.s[0];
    for (uint64_t i = 0; i < MANY; i++) {
        while (fi_trecv(s->ep, s->buf, 8, fi_mr_desc(s->mr), 1, i, 0, &got[i]) == -FI_EAGAIN)
            to[0][i]++;
        while (fi_tsend(s->ep, s->buf, 4096, fi_mr_desc(s->mr), 1, i, &sent[i]) == -FI_EAGAIN)
            to[1][i]++;
        look(s, sent, to[2], looks);
    }
    look(s, sent, to[2], 4 * MANY);
    pair_close(&p, "drawn");
}

static void replays(void)
{
    static int a[3][MANY], b[3][MANY];
    int failed = 0;

    drawn(0, a);
    drawn(3, b);
    for (int i = 0; i < MANY; i++)
        failed += a[2][i];
    ok(memcmp(a[0], b[0], sizeof a[0]) == 0, "receives are put off alike, whatever the timing");
    ok(memcmp(a[1], b[1], sizeof a[1]) == 0, "sends are put off alike, whatever the timing");
    ok(memcmp(a[2], b[2], sizeof a[2]) == 0 && failed, "the same sends fail each time (%d)",
       failed);
}

/* ---------------------------------------------------------------- writes */

static int written(struct pair *p, uint64_t at, size_t n, uint64_t key, struct fi_cq_err_entry *bad)
{
    static struct fi_context2 c;
    struct fi_cq_tagged_entry e;
    struct side *s = p->s;

    fi_writedata(s[0].ep, s[0].buf, n, fi_mr_desc(s[0].mr), 77, 1,
                 (uint64_t)(uintptr_t)s[1].buf + at, key, &c);
    return collect(p, 0, &e, 1, bad);
}

static void writes(void)
{
    struct fi_cq_tagged_entry e[3];
    struct fi_cq_err_entry bad;
    struct pair p;

    pair_open(&p, "mtu=256,reorder=64,dup=0.3");
    uint64_t key = fi_mr_key(p.s[1].mr);
    memset(p.s[0].buf, 7, BYTES);
    memset(p.s[1].buf, 1, BYTES);
    struct fi_context2 c;
    fi_writedata(p.s[0].ep, p.s[0].buf, 100000, fi_mr_desc(p.s[0].mr), 77, 1,
                 (uint64_t)(uintptr_t)p.s[1].buf + 5, key, &c);
    int n = collect(&p, 1, e, 3, &bad);
    ok(n == 1 && e[0].data == 77 && e[0].len == 100000 && e[0].flags & FI_REMOTE_WRITE &&
           !e[0].op_context && p.s[1].buf[4] == 1 && p.s[1].buf[5] == 7 &&
           p.s[1].buf[100004] == 7 && p.s[1].buf[100005] == 1,
       "a write comes whole, with one completion (%d)", n);
    while (fi_cq_read(p.s[0].cq, e, 1) == 1)
        ;
    ok(written(&p, BYTES - 100, 101, key, &bad) < 0 && bad.err == FI_EACCES,
       "a write beyond the region fails");
    has(refusals(), "outside of its region", "a write beyond the region: the provider logs it");
    ok(written(&p, 0, 100, key + 1, &bad) < 0 && bad.err == FI_EACCES,
       "a write with another key fails");
    has(refusals(), "a key of nothing open", "a write with another key: the provider logs it");
    pair_close(&p, "writes");

    pair_open(&p, "dupdata=1");
    struct fi_context2 d;
    fi_writedata(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 78, 1,
                 (uint64_t)(uintptr_t)p.s[1].buf, fi_mr_key(p.s[1].mr), &d);
    n = collect(&p, 1, e, 3, &bad);
    ok(n == 2 && e[1].data == 78, "dupdata: a write has two completions (%d)", n);
    pair_close(&p, "dupdata");
}

/* ---------------------------------------------------------------- misuse */

static void misuse(void)
{
    struct fi_context2 c = {{0}};
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry bad;
    struct fid_mr *mr;
    struct pair p;
    char small[64];

    pair_open(&p, "msg=8192");
    struct side *s = p.s;
    void *desc = fi_mr_desc(s[0].mr);
    ok(fi_send(s[0].ep, s[0].buf, 8, NULL, 1, &c) == -FI_EINVAL,
       "a send without a descriptor fails");
    has(refusals(), "without a descriptor", "no descriptor: the provider logs it");
    ok(fi_send(s[0].ep, small, 8, desc, 1, &c) == -FI_EINVAL,
       "a send with another buffer's descriptor fails");
    has(refusals(), "outside of its region", "another buffer's descriptor: the provider logs it");
    ok(fi_send(s[0].ep, s[0].buf, 8193, desc, 1, &c) == -FI_EMSGSIZE,
       "a message of 8193 bytes is refused");
    has(refusals(), "at most 8192", "too long a message: the provider logs it");
    ok(fi_inject(s[0].ep, small, 33, 1) == -FI_EMSGSIZE, "an inject of 33 bytes is refused");
    has(refusals(), "at most 32", "too long an inject: the provider logs it");
    ok(fi_send(s[0].ep, s[0].buf, 8, desc, 2, &c) == -FI_EINVAL, "a send to no address fails");
    has(refusals(), "not in the table", "no address: the provider logs it");
    ok(fi_mr_reg(s[0].domain, s[0].buf, 64, FI_RECV, 0, 0, 0, &mr, NULL) == 0 &&
           fi_send(s[0].ep, s[0].buf, 8, fi_mr_desc(mr), 1, &c) == -FI_EINVAL,
       "a send from memory that was registered for receives only fails");
    has(refusals(), "registered for access", "memory for receives only: the provider logs it");
    ok(fi_close(&s[0].domain->fid) == -FI_EBUSY, "a domain that is in use stays");
    has(refusals(), "objects open", "a domain in use: the provider logs it");
    fi_close(&mr->fid);
    ok(fi_send(s[0].ep, s[0].buf, 8, desc, 1, &c) == 0, "a good send");
    c.internal[3] = NULL;
    ok(collect(&p, 0, &e, 1, &bad) == 1, "a good send ends");
    has(refusals(), "context of a send was changed", "a changed context: the provider logs it");
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
    ok(fi_mr_reg(s[0].domain, page, 4096, FI_SEND, 0, 0, 0, &mr, NULL) == -FI_EINVAL,
       "memory that is not there cannot be registered");
    has(refusals(), "not there", "memory that is not there: the provider logs it");
    ok(fi_read(s[0].ep, s[0].buf, 8, desc, 1, 0, 0, &c) == -FI_ENOSYS &&
           fi_getopt(&s[0].ep->fid, 0, 0, NULL, NULL) < 0 &&
           s[0].ep->atomic->write(s[0].ep, NULL, 0, NULL, 0, 0, 0, FI_INT8, FI_SUM, NULL) ==
               -FI_ENOSYS,
       "what is not there says so");
    pair_close(&p, "misuse");

    struct fi_info *h = hints(), *info = NULL;
    h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    ok(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, h, &info) != 0, "memory modes are demanded");
    h->domain_attr->mr_mode |= FI_MR_VIRT_ADDR;
    h->tx_attr->msg_order = FI_ORDER_SAS;
    ok(fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, h, &info) != 0, "there is no message order");
    fi_freeinfo(h);
}

/* ---------------------------------------------------------------- errors, lost peers */

static void endings(void)
{
    struct fi_context2 c, d;
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry bad;
    struct pair p;

    pair_open(&p, "fail=1");
    fi_send(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 1, &c);
    ok(collect(&p, 0, &e, 1, &bad) < 0 && bad.err == FI_EIO && bad.op_context == &c,
       "fail: a send ends with an error");
    pair_close(&p, "fail");

    pair_open(&p, "drop=0@1");
    fi_recv(p.s[1].ep, p.s[1].buf, 8, fi_mr_desc(p.s[1].mr), 0, &d);
    fi_send(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 1, &c);
    ok(collect(&p, 1, &e, 1, &bad) == 0 && collect(&p, 0, &e, 1, &bad) == 0,
       "drop: a message is lost without a word");
    pair_close(&p, "drop");

    pair_open(&p, "die=0@1");
    fi_send(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 1, &c);
    ok(collect(&p, 0, &e, 1, &bad) < 0 && bad.err == FI_EHOSTUNREACH,
       "die: a message from the dead endpoint fails");
    fi_send(p.s[1].ep, p.s[1].buf, 8, fi_mr_desc(p.s[1].mr), 0, &d);
    ok(collect(&p, 1, &e, 1, &bad) < 0 && bad.err == FI_EHOSTUNREACH,
       "die: a message to the dead endpoint fails");
    pair_close(&p, "die");

    pair_open(&p, "seed=1");
    fi_send(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 1, &c);
    ok(collect(&p, 0, &e, 1, &bad) == 1, "a send ends when it has arrived");
    bool closed = side_close(&p.s[1]) == 0;
    fi_send(p.s[0].ep, p.s[0].buf, 8, fi_mr_desc(p.s[0].mr), 1, &c);
    int n = 0;
    for (int i = 0; i < 500 && n != -FI_EAVAIL; i++) {
        n = (int)fi_cq_read(p.s[0].cq, &e, 1);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    bad = (struct fi_cq_err_entry){0};
    fi_cq_readerr(p.s[0].cq, &bad, 0);
    ok(closed && bad.err == FI_EHOSTUNREACH, "a send to one that has left ends with an error");
    side_close(&p.s[0]);
    fi_close(&p.fabric->fid);
    fi_freeinfo(p.info);
}

int main(int argc, char **argv)
{
    char path[4096], log[] = "/tmp/tern-srd-XXXXXX";

    (void)argc;
    snprintf(path, sizeof path, "%s/../provider", dirname(argv[0]));
    if (access(path, F_OK) < 0)
        return tap_skip_all("tests/provider wants libfabric 1.15");
    setenv("FI_PROVIDER_PATH", path, 1);
    refused_fd = mkstemp(log);
    unlink(log);
    int real = fcntl(2, F_DUPFD_CLOEXEC, 10);
    if (refused_fd < 0 || real < 0 || dup2(refused_fd, 2) < 0)
        return 1;
    many("seed=1", true);
    many("seed=1,reorder=32", false);
    many("seed=2,shuffle=32", false);
    many("seed=3,delay=500,reorder=256,mtu=100,dup=0.5", false);
    many("seed=4,eagain=0.5,recv_eagain=0.5", true);
    many("seed=5,tx=2,cq=2", true);
    replays();
    writes();
    misuse();
    endings();
    dup2(real, 2);
    close(real);
    close(refused_fd);
    return tap_done();
}
