/* core/health: rows, reasons, and what the rows of all nodes mean together. */
#include "core/health/health.h"

#include "core/base/str.h"
#include "core/health/probe.h"
#include "core/health/replace.h"
#include "tests/unit/tap.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char *names[] = {"n1", "n2", "n3", "n4", "n5", "n6"};
static struct tern_health_rows rows;
static struct tern_health_judged judged;

static struct tern_health_row *row(int node, const char *check, enum tern_health_verdict v)
{
    struct tern_health_row r = {.verdict = v};

    r.severity = v > TERN_HEALTH_UNKNOWN ? TERN_RULES_ERROR : TERN_RULES_INFO;
    snprintf(r.check, sizeof r.check, "%s", check);
    snprintf(r.node, sizeof r.node, "%s", names[node]);
    snprintf(r.text, sizeof r.text, "words of %s", check);
    tern_health_rows_add(&rows, &r);
    return &rows.row[rows.n - 1];
}

static void value(int node, const char *check, const char *subject, double v, const char *unit)
{
    struct tern_health_row *r = row(node, check, TERN_HEALTH_OK);

    r->value = v;
    snprintf(r->unit, sizeof r->unit, "%s", unit);
    snprintf(r->subject, sizeof r->subject, "%s", subject);
}

static void judge(size_t n)
{
    struct tern_err err;

    if (tern_health_judge(&rows, names, n, &judged, &err) < 0)
        printf("# %s\n", err.text);
}

/* The verdicts of the nodes, a letter each, and forget the rows. */
static const char *seen(void)
{
    static char text[16];
    size_t i;

    for (i = 0; i < judged.n; i++)
        text[i] = "-suFSN"[judged.node[i].verdict];
    text[i] = '\0';
    tern_health_rows_free(&rows);
    tern_health_judged_free(&judged);
    return text;
}

#define IS(what, name)                                                                             \
    do {                                                                                           \
        const char *got_ = seen();                                                                 \
        ok(strcmp(got_, what) == 0, "%s (%s)", name, got_);                                        \
    } while (0)

static void all_well(int n, const char *check)
{
    for (int i = 0; i < n; i++)
        row(i, check, TERN_HEALTH_OK);
}

static void kinds(void)
{
    all_well(4, "nic");
    judge(4);
    ok(tern_health_status(&judged) == 0, "nodes without a fault give status 0");
    IS("----", "four good nodes");

    all_well(3, "neuron");
    row(3, "neuron", TERN_HEALTH_NODE_BAD);
    judge(4);
    ok(tern_health_status(&judged) == 3, "a bad node: status 3");
    ok(strcmp(judged.node[3].check, "neuron") == 0, "a bad node has the id of its failed check");
    IS("---N", "one bad node is that node");

    for (int i = 0; i < 4; i++)
        row(i, "limits", TERN_HEALTH_NODE_BAD);
    judge(4);
    IS("uuuu", "a failure on all nodes is a setting of the site: none is drained");

    row(0, "limits", TERN_HEALTH_NODE_BAD);
    row(1, "limits", TERN_HEALTH_OK);
    judge(2);
    IS("N-", "a failure on one node of two: that node is bad");

    row(0, "kernel", TERN_HEALTH_UNKNOWN);
    row(1, "kernel", TERN_HEALTH_UNKNOWN);
    judge(2);
    ok(tern_health_status(&judged) == 4, "an unknown verdict: status 4");
    IS("uu", "unknown stays unknown");

    row(0, "nic", TERN_HEALTH_OK);
    judge(2);
    ok(strcmp(judged.node[1].check, "answer") == 0, "a node without rows has the check 'answer'");
    IS("-u", "a node without rows is unknown");
}

static void storage(void)
{
    for (int i = 0; i < 4; i++)
        row(i, "mount", TERN_HEALTH_STORAGE_BAD);
    judge(4);
    ok(tern_health_status(&judged) == 4, "storage bad: status 4");
    IS("SSSS", "a mount that fails on all nodes: storage_bad on each");

    for (int i = 0; i < 3; i++)
        row(i, "mount", TERN_HEALTH_NODE_BAD);
    row(3, "mount", TERN_HEALTH_OK);
    judge(4);
    IS("SSS-", "also when each node took it for its own fault, and one got through");

    all_well(3, "mount");
    row(3, "mount", TERN_HEALTH_STORAGE_BAD);
    judge(4);
    IS("---N", "a mount that fails on one node of four: that node is bad");

    row(0, "mount", TERN_HEALTH_STORAGE_BAD);
    judge(1);
    IS("S", "one node alone cannot tell: storage");

    struct tern_health_row *r = row(0, "mount", TERN_HEALTH_STORAGE_BAD);
    strcpy(r->subject, "/fsx");
    r = row(1, "mount", TERN_HEALTH_STORAGE_BAD);
    strcpy(r->subject, "/scratch");
    for (int i = 0; i < 4; i++) {
        strcpy(row(i, "mount", i == 0 ? TERN_HEALTH_SKIPPED : TERN_HEALTH_OK)->subject, "/fsx");
        strcpy(row(i, "mount", i == 1 ? TERN_HEALTH_SKIPPED : TERN_HEALTH_OK)->subject, "/scratch");
    }
    judge(4);
    IS("NN--", "different folders on different nodes are different failures");
}

static void clocks(void)
{
    static const double off[] = {0, 3, -2, 251};

    for (int i = 0; i < 4; i++)
        value(i, "clock", "", off[i], "ms");
    judge(4);
    IS("---N", "a clock 250 ms off");
    /* The first node's own clock is wrong: everybody else is off by the same. */
    for (int i = 0; i < 4; i++)
        value(i, "clock", "", i ? -300 : 0, "ms");
    judge(4);
    IS("N---", "the one that the others are measured against");
    value(0, "clock", "", 0, "ms");
    value(1, "clock", "", 500, "ms");
    judge(2);
    ok(judged.count[TERN_HEALTH_NODE_BAD] == 0, "two clocks that differ: neither node is bad");
    seen();
    for (int i = 0; i < 4; i++)
        value(i, "clock", "", i * 33.0, "ms");
    judge(4);
    IS("----", "99 ms from one to another are fine");
    for (int i = 0; i < 4; i++)
        value(i, "clock", "", i < 2 ? 0 : 500, "ms");
    judge(4);
    IS("uuuu", "two and two: no node is known to be wrong");
}

static void numbers(void)
{
    for (int i = 0; i < 4; i++)
        value(i, "triad", "", i == 2 ? 79 : 100, "GB/s");
    judge(4);
    IS("--N-", "79 % of the median memory bandwidth");
    for (int i = 0; i < 4; i++)
        value(i, "triad", "", i == 2 ? 81 : 100, "GB/s");
    judge(4);
    IS("----", "81 % are fine");
    static const double even[] = {100, 100, 79, 65}; /* median 89.5, of which 80 % are 71.6 */
    for (int i = 0; i < 4; i++)
        value(i, "triad", "", even[i], "GB/s");
    judge(4);
    IS("---N", "of an even number the median lies between the two in the middle");
    for (int i = 0; i < 4; i++) {
        value(i, "triad", "", i == 2 ? 30 : 100, "GB/s");
        rows.row[rows.n - 1].virtual_node = true;
    }
    judge(4);
    IS("----", "virtual nodes share their cores: 30 % say nothing");
}

/* A ring of n: link i is between i and i + 1. */
static void ring_of(int n, const double *mb_s, const char *unit, bool virtual_nodes)
{
    for (int i = 0; i < n; i++) {
        value(i, "link", names[(i + 1) % n], mb_s[i], unit);
        value((i + 1) % n, "link", names[i], mb_s[i], unit);
    }
    for (size_t i = 0; i < rows.n; i++)
        rows.row[i].virtual_node = virtual_nodes;
    judge((size_t)n);
}

static void ring(int n, const double *mb_s, const char *unit)
{
    ring_of(n, mb_s, unit, false);
}

static void links(void)
{
    ring(6, (double[]){100, 101, 99, 98, 100, 100}, "MB/s");
    IS("------", "equal links");
    ring(6, (double[]){100, 40, 100, 100, 100, 100}, "MB/s");
    IS("-FF---", "one slow link is the fabric's, and both ends are named");
    ring(6, (double[]){100, 40, 45, 100, 100, 100}, "MB/s");
    IS("--N---", "both links of a node slow: the node, and not its neighbours");
    ring(6, (double[]){5, 12, 12, 5, 5, 5}, "us");
    IS("--N---", "the same by latency");
    ring(3, (double[]){100, 100, 100}, "MB/s");
    IS("---", "a ring of three");
    ring(3, (double[]){20, 100, 25}, "MB/s");
    IS("N--", "one bad node of three");
    ring(4, (double[]){25, 25, 100, 100}, "MB/s");
    IS("-N--", "one bad node of four");
    ring(4, (double[]){12, 12, 5, 5}, "us");
    IS("-N--", "by latency too");
    ring(4, (double[]){100, 100, 30, 100}, "MB/s");
    IS("--FF", "one slow link of four");
    ring_of(4, (double[]){531, 2437, 744, 744}, "MB/s", true);
    IS("----", "slow links of busy virtual nodes are no fault");
    ring_of(4, (double[]){64, 4, 4, 53}, "us", true);
    IS("----", "nor what it does to their latency");
    ring_of(4, (double[]){24, 24, 744, 2437}, "MB/s", true);
    IS("-N--", "much slower links of a virtual node are its fault");
    ring_of(4, (double[]){24, 24, 311, 227}, "MB/s", true);
    IS("-N--", "also beside much other work");
    ring_of(4, (double[]){9000, 9000, 4, 4}, "us", true);
    IS("-N--", "and so are milliseconds");
    for (int i = 0; i < 4; i++)
        row(i, "link", TERN_HEALTH_FABRIC_BAD);
    judge(4);
    IS("FFFF", "an all-reduce that fails everywhere");
}

/* Whatever the numbers: on real nodes no link under 80 % of the median passes for a good one. */
static void shares(void)
{
    unsigned random = 7, named = 0, missed = 0;

    for (int round = 0; round < 400; round++) {
        double v[6], all[12], swap;
        int n = 3 + round % 4;
        for (int i = 0; i < n; i++) {
            random = random * 1103515245u + 12345u;
            v[i] = all[2 * i] = all[2 * i + 1] = 10 + (random >> 16) % 91;
        }
        for (int i = 0; i < 2 * n; i++)
            for (int j = i + 1; j < 2 * n; j++)
                if (all[j] < all[i]) {
                    swap = all[i];
                    all[i] = all[j];
                    all[j] = swap;
                }
        double median = (all[n - 1] + all[n]) / 2;
        ring(n, v, "MB/s");
        const char *text = seen();
        for (int i = 0; i < n; i++)
            if (v[i] < 0.8 * median) {
                named++;
                missed += text[i] == '-' && text[(i + 1) % n] == '-';
            }
    }
    ok(named > 100 && missed == 0, "of %u links under 80 %% of the median none is passed over (%u)",
       named, missed);
}

static void software(void)
{
    static const char *const text[] = {"tern=aa kernel=6.1", "tern=aa kernel=6.1",
                                       "tern=bb kernel=6.1", "tern=aa kernel=6.2"};

    for (int i = 0; i < 4; i++)
        strcpy(row(i, "software", TERN_HEALTH_OK)->same, text[i]);
    strcpy(row(4, "software", TERN_HEALTH_OK)->same, text[0]);
    judge(5);
    ok(strstr(judged.node[2].text, "tern=bb (the others: tern=aa)") != NULL,
       "names what differs: %s", judged.node[2].text);
    ok(rows.row[3].severity == TERN_RULES_WARN, "another kernel release is a warning");
    IS("--N--", "another tern is a bad node");
    strcpy(row(0, "software", TERN_HEALTH_OK)->same, text[0]);
    strcpy(row(1, "software", TERN_HEALTH_OK)->same, text[2]);
    judge(2);
    IS("uu", "two nodes with different software: both are unknown");
}

static void platforms(void)
{
    ok(tern_health_platform_of("none") == TERN_HEALTH_PLATFORM_NONE, "'none' is a platform");
    ok(tern_health_platform_of("moon") == -1, "'moon' is no platform");
}

static void texts(void)
{
    char to[300], check[16], long_text[600];
    struct tern_health_row r = {.verdict = TERN_HEALTH_NODE_BAD,
                                .severity = TERN_RULES_ERROR,
                                .value = 3.5,
                                .seconds = 0.25,
                                .check = "mount",
                                .subject = "/fsx",
                                .node = "n1",
                                .unit = "MiB",
                                .text = "it is \"full\"",
                                .same = "a=b"};
    struct tern_health_row back;
    struct tern_err err;

    tern_health_reason(to, sizeof to, "mount", "a\nb\033[31m \"x\" \\ 'y' \xc3\xa9");
    ok(strcmp(to, "tern:mount: a?b?[31m ?x? ? ?y? ??") == 0, "a reason is clean: %s", to);
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    ok(strlen(tern_health_reason(to, sizeof to, "mount", long_text)) < 200,
       "a reason is shorter than 200 bytes");
    ok(tern_health_reason_ours("tern:mount: x", check) && strcmp(check, "mount") == 0,
       "a reason of tern's is recognised, with its check");
    ok(!tern_health_reason_ours("tern: mount", NULL), "a reason without a check is not tern's");
    ok(!tern_health_reason_ours("NHC: x", NULL) && !tern_health_reason_ours("", NULL) &&
           !tern_health_reason_ours(NULL, NULL) && !tern_health_reason_ours("Action:Replace", NULL),
       "not ours: others'");
    ok(!tern_health_reason_ours("tern:thiswordismuchtoolongforacheck: x", NULL),
       "a reason with a check of 27 letters is not tern's");

    json_t *j = tern_health_row_json(&r);
    char *text = json_dumps(j, JSON_COMPACT);
    ok(tern_health_row_parse(text, strlen(text), &back, &err) == 0, "a row survives JSON");
    ok(strcmp(back.text, r.text) == 0 && strcmp(back.subject, r.subject) == 0 &&
           strcmp(back.same, r.same) == 0 && back.verdict == r.verdict &&
           back.severity == r.severity && back.value == r.value && back.seconds == r.seconds,
       "a row's fields survive JSON");
    free(text);
    json_decref(j);
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"check\": \"x\"}",
        "{\"check\": \"x\", \"verdict\": \"fine\", \"severity\": \"info\"}",
        "{\"check\": \"\", \"verdict\": \"ok\", \"severity\": \"info\"}",
        "{\"check\": 1, \"verdict\": \"ok\", \"severity\": \"info\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ok(tern_health_row_parse(wrong[i], strlen(wrong[i]), &back, &err) < 0,
           "a row of a node is refused: %s", wrong[i]);
    static const char hostile[] = "{\"check\": \"x\\u001b[2J\", \"verdict\": \"ok\", \"severity\": "
                                  "\"info\", \"text\": \"a\\nb\"}";
    ok(tern_health_row_parse(hostile, strlen(hostile), &back, &err) == 0 &&
           strcmp(back.text, "a?b") == 0 && strcmp(back.check, "x?[2J") == 0,
       "controls do not reach a terminal");
}

/* ------------------------------------------------------------------ cores */

/* Make the check of cores here; the words of its row. */
static const char *compute(void)
{
    static struct tern_health_options o = {.stage = TERN_HEALTH_STAGE_SPOT, .only = "compute"};
    static struct tern_health_expected expected;
    static char said[8192];
    struct tern_health_probe p = {.expected = &expected, .options = &o, .check = "compute"};
    int fd[2];

    if (pipe(fd) < 0)
        return "no pipe";
    p.out = fd[1];
    const struct tern_health_check *check = tern_health_checks;
    while (strcmp(check->rule.id, "compute") != 0)
        check++;
    tern_health_apply(check, &p);
    close(fd[1]);
    /* The row's texts stand in its message as they are. */
    ssize_t n = read(fd[0], said, sizeof said - 1);
    close(fd[0]);
    for (ssize_t i = 0; i < n; i++)
        if (!said[i])
            said[i] = ' ';
    said[n > 0 ? n : 0] = '\0';
    return said;
}

enum { NO_LIMIT = 77 };

/* Without memory nothing can be tried.  One core: libgomp wants memory for more threads; and libomp
 * some for itself, when it is first used.  An emulator may know no limit: all memory of the machine
 * would be taken. */
__attribute__((unused)) static int compute_without_memory(void)
{
    const struct rlimit none = {4096, 4096};
    cpu_set_t one;

    omp_get_max_threads();
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0 || setrlimit(RLIMIT_AS, &none) < 0)
        return 2;
    if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return NO_LIMIT;
    for (void *volatile taken = &one; taken;) /* volatile: gcc 15 does without the allocation */
        taken = malloc(16384);
    const char *said = compute();
    return !strstr(said, "1 of 1 cores could not be tried") || strstr(said, "agree");
}

static void cores(void)
{
    cpu_set_t before, after;
    int status = 0;
#ifndef __SANITIZE_ADDRESS__ /* whose allocator ends a process that has no memory left */
    pid_t pid = fork();

    if (pid == 0)
        _exit(compute_without_memory());
    waitpid(pid, &status, 0);
#endif
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_LIMIT)
        tap_skip("check compute without memory: there is no limit on it here");
    else
        ok(status == 0, "check compute without memory reports cores as not tried (%d)", status);
    sched_getaffinity(0, sizeof before, &before);
    ok(strstr(compute(), "agree with the stored result") != NULL,
       "check compute passes on this machine");
    sched_getaffinity(0, sizeof after, &after);
    ok(CPU_EQUAL(&before, &after), "check compute restores the thread's CPUs");
}

/* tern.yaml is read without the table of checks: it knows their ids from a list. */
static void ids(void)
{
    struct tern_err err = {0};
    size_t n = 0;

    while (n < tern_health_n_checks && tern_rules_node_ids[n] &&
           strcmp(tern_health_checks[n].rule.id, tern_rules_node_ids[n]) == 0)
        n++;
    ok(n == tern_health_n_checks && !tern_rules_node_ids[n],
       "the list of check ids for tern.yaml is that of the table of checks");
    ok(tern_rules_ids_check("link,neuron", "--only", &err) == 0 &&
           tern_rules_ids_check("neuro", "--only", &err) < 0 && strstr(err.text, "'neuro' is no"),
       "an unknown check id is refused: %s", err.text);
}

/* Each row of the table has its turn in each of its stages. */
static void every_check(void)
{
    struct tern_buf all = {0};
    struct tern_err err;
    bool whole = true;

    for (size_t i = 0; i < tern_health_n_checks; i++)
        tern_buf_printf(&all, "%s%s", i ? "," : "", tern_health_checks[i].rule.id);
    for (int stage = TERN_HEALTH_STAGE_QUICK; stage <= TERN_HEALTH_STAGE_DEEP; stage++) {
        struct tern_health_options o = {.stage = stage, .skip = all.data};
        struct tern_health_rows made = {0};
        size_t n = 0;
        for (size_t i = 0; i < tern_health_n_checks; i++)
            n += (tern_health_checks[i].rule.where & 1u << stage) != 0;
        whole &= tern_health_check_local(&o, &made, &err) == 0 && made.n == n;
        tern_health_rows_free(&made);
    }
    ok(whole, "every check of a stage has a row, however many there are");
    tern_buf_free(&all);
}

int main(void)
{
    ids();
    every_check();
    cores();
    kinds();
    storage();
    clocks();
    numbers();
    links();
    shares();
    software();
    texts();
    platforms();
    return tap_done();
}
