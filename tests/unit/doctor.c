#include "core/doctor/doctor.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/doctor/plugin.h"
#include "core/doctor/probe.h"
#include "core/slurm/slurm.h"
#include "tests/unit/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the release that tern was built for, whichever that is. */
static char version[16], patch[16];

static struct tern_slurm_about_node nodes[] = {
    {(char *)"n1", version, (char *)"p"},
    {(char *)"n2", version, (char *)"p"},
    {(char *)"n3", version, (char *)"p"},
};
static struct tern_slurm_about about = {.version = version,
                                        .conf = (char *)"",
                                        .plugstack = (char *)"/etc/slurm/plugstack.conf",
                                        .plugin_dir = (char *)"/usr/lib/slurm",
                                        .tmp_fs = (char *)"/tmp",
                                        .mpi_default = (char *)"pmix",
                                        .auth_info = (char *)"cred_expire=5",
                                        .scheduler = (char *)"nohold_on_prolog_fail",
                                        .task_plugin = (char *)"task/affinity",
                                        .requeue = true,
                                        .prolog_alloc = true,
                                        .return_to_service = 2,
                                        .kill_wait_s = 30,
                                        .n = 3,
                                        .node = nodes};

/* A site where all is well, but for one fact of one node. */
static struct tern_doctor_findings judge(const char *node, const char *key, const char *value)
{
    static const char *const well[][2] = {
        {"tern", "aa"},
        {"plugin", "/lib/tern_spank-22.05.so"},
        {"plugin-release", version},
        {"plugin-build", "bb"},
        {"pmix", "mpi_pmix.so"},
        {"fabric", "libfabric 1.17: tcp"},
        {"blas", "OpenBLAS 0.3.21, SkylakeX kernels; tern's own: avx512"},
        {"site", "none"},
        {"memlock", "unlimited"},
        {"nofile", "65536"},
        {"rdma-devices", "8"},
        {"probe-token", "t0"},
        {"probe-seen", "yes"},
        {"probe-fcntl", "held"},
        {"probe-flock", "held"},
        {"asked", "100.0"},
        {"clock", "100.2"},
        {"clock-heard", "100.4"},
        {"done", "1"}};
    static const char *const names[] = {"", "n1", "n2", "n3"};
    struct tern_doctor_facts f = {0};
    struct tern_doctor_findings to = {0};

    bool client = node && strcmp(key, "client") == 0;
    tern_doctor_facts_add(&f, "", "client", client ? value : version);
    tern_doctor_facts_add(&f, "", "ledger", "/fsx/ledger");
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof well / sizeof *well; k++) {
            bool other = node && strcmp(names[i], node) == 0 && strcmp(well[k][0], key) == 0;
            if (other ? value != NULL : *names[i] || k <= 11)
                tern_doctor_facts_add(&f, names[i], well[k][0], other ? value : well[k][1]);
        }
        if (*names[i]) {
            static const char *const races[] = {"probe-link", "probe-excl"};
            for (size_t k = 0; k < 2; k++) {
                bool other = node && strcmp(names[i], node) == 0 && strcmp(key, races[k]) == 0;
                tern_doctor_facts_add(&f, names[i], races[k],
                                      other        ? value
                                      : i == k + 1 ? "won"
                                                   : "lost");
            }
        }
    }
    if (node && value && !tern_doctor_fact(&f, node, key))
        tern_doctor_facts_add(&f, node, key, value);
    tern_doctor_judge(&about, &f, &to);
    tern_doctor_facts_free(&f);
    return to;
}

/* The one finding for `key` = `value` on n2: "severity id node". */
static void one(const char *key, const char *value, const char *want)
{
    struct tern_doctor_findings f = judge("n2", key, value);
    char got[200] = "nothing";

    if (f.n)
        snprintf(got, sizeof got, "%s %s %s", tern_doctor_severity_name(f.v[0].severity), f.v[0].id,
                 f.v[0].n_nodes ? f.v[0].node[0] : "-");
    is(got, want, "finding for fact %s: %s", key, value ? value : "(none)");
    ok(f.n <= 1 && (f.n == 0 || *f.v[0].remedy), "fact %s: no other finding, and a remedy", key);
    tern_doctor_findings_free(&f);
}

/* The same for a fact of the machine that collects: "severity id". */
static void one_here(const char *key, const char *value, const char *want)
{
    struct tern_doctor_findings f = judge("", key, value);
    char got[200] = "nothing";

    if (f.n)
        snprintf(got, sizeof got, "%s %s", tern_doctor_severity_name(f.v[0].severity), f.v[0].id);
    is(got, want, "finding here for fact %s: %s", key, value);
    ok(f.n == 1 && *f.v[0].remedy, "fact %s here: no other finding, and a remedy", key);
    tern_doctor_findings_free(&f);
}

/* What a node said before it fell silent counts, as that it did not end does. */
static void silent_node(void)
{
    struct tern_doctor_facts facts = {0};
    struct tern_doctor_findings f = {0};
    bool taken = false, late = false;

    tern_doctor_facts_add(&facts, "n2", "asked", "100.0");
    tern_doctor_facts_add(&facts, "n2", "ledger-taken", "/l/u/7: is not");
    tern_doctor_judge(&about, &facts, &f);
    for (size_t i = 0; i < f.n; i++) {
        bool here = f.v[i].n_nodes == 1 && strcmp(f.v[i].node[0], "n2") == 0;
        taken |= here && strcmp(f.v[i].id, "ledger-taken") == 0;
        late |= here && strcmp(f.v[i].id, "node-answer") == 0;
    }
    ok(taken && late, "facts on the ledger count from a node that did not answer to the end");
    tern_doctor_findings_free(&f);
    tern_doctor_facts_free(&facts);
}

static void test_judge(void)
{
    struct tern_doctor_findings f = judge(NULL, "", "");

    if (!ok(f.n == 0, "where all is well nothing is found"))
        printf("# %s: %s\n", f.v[0].id, f.v[0].what);
    tern_doctor_findings_free(&f);
    one("plugin", "", "error plugin-line n2");
    one("plugin-release", "", "error plugin-file n2");
    one("plugin-release", "19.05.5", "error plugin-release n2");
    one("plugin-release", patch, "nothing");
    one("plugin-build", "cc", "error plugin-build n2");
    one("plugin-required", "x", "warning plugin-required n2");
    one("plugin-health", "prolog", "warning plugin-health n2");
    one("plugin-tern", "/no/tern: No such file", "error plugin-tern n2");
    one("tern", "cc", "error tern-build n2");
    one("pmix", "", "warning pmix n2");
    one("fabric", "libfabric 1.22: tcp", "warning fabric-version n2");
    one("fabric-error", "no provider", "error fabric n2");
    one("blas-error", "no library", "error blas n2");
    one("coretype", "Prescott", "warning blas-core n2");
    one("coretype", "Haswell", "nothing");
    one("site-error", "tern.yaml:2: unknown key", "error site n2");
    one("site", "/etc/tern/tern.yaml abc", "warning site-differs n2");
    one("memlock", "65536", "error limit-memlock n2");
    one("nofile", "1024", "warning limit-nofile n2");
    one("nofile", "4096", "nothing");
    one("probe-token", "other", "error storage-shared n2");
    one("probe-error", "cannot write there", "error storage-write n2");
    one_here("storage-write-error", "cannot make a folder", "error storage-write");
    one_here("storage-stripes", "/fsx: one", "warning storage-stripes");
    one("probe-seen", "no", "error storage-late n2");
    one("probe-flock", "free", "warning storage-locks n2");
    one("probe-fcntl", "refused: No locks available", "warning storage-locks n2");
    one("probe-link", "won", "error storage-atomic -");
    one("probe-excl", "lost", "error storage-atomic -");
    one("ledger-open", "/l/ledger.db: tells", "warning ledger-open n2");
    one("ledger-others", "/l/u/7: others", "warning ledger-others n2");
    one("ledger-taken", "/l/u/7: is not", "error ledger-taken n2");
    one("ledger-sticky", "/l: everybody", "warning ledger-sticky n2");
    one("blas", "OpenBLAS 0.3.21, Haswell kernels; tern's own: avx2", "info blas-differs n2");
    one("clock", "97.5", "warning clock n2");
    one("clock", "101.3", "nothing");
    one("clock", "140", "error clock n2");
    one("tmp-error", "/tmp: none", "error tmp-fs n2");
    one("done", NULL, "error node-answer n2");
    one("busy", "allocated", "info node-busy n2");
    one("unusable", "down", "warning node-state n2");
}

/* How many findings of `id` there are, each with a remedy. */
static size_t of(const struct tern_doctor_findings *f, const char *id)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += strcmp(f->v[i].id, id) == 0 && *f->v[i].remedy;
    return n;
}

static void add_all(struct tern_doctor_facts *f, const char *node, const char *const *facts)
{
    for (; *facts; facts++) {
        char key[40];
        const size_t n = strcspn(*facts, "=");
        snprintf(key, sizeof key, "%.*s", (int)n, *facts);
        tern_doctor_facts_add(f, node, key, *facts + n + 1);
    }
}

/* The findings of two nodes, whose facts are KEY=VALUE texts. */
static struct tern_doctor_findings judge_two(const char *const *n1, const char *const *n2)
{
    struct tern_doctor_facts f = {0};
    struct tern_doctor_findings to = {0};

    add_all(&f, "n1", n1);
    add_all(&f, "n2", n2);
    tern_doctor_judge(&about, &f, &to);
    tern_doctor_facts_free(&f);
    return to;
}

#define FACTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The first finding of `id`; NULL: there is none. */
static const struct tern_doctor_finding *first_of(const struct tern_doctor_findings *f,
                                                  const char *id)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].id, id) == 0)
            return &f->v[i];
    return NULL;
}

static void test_two_nodes(void)
{
    struct tern_doctor_findings f = judge_two(FACTS("asked=1", "ledger-open=/l/a.db: tells"),
                                              FACTS("asked=1", "ledger-open=/l/b.db: tells"));
    const struct tern_doctor_finding *one = first_of(&f, "ledger-open");
    ok(of(&f, "ledger-open") == 2 && one->n_nodes == 1,
       "what two nodes say of the ledger is two findings, each of its own node");
    tern_doctor_findings_free(&f);

    f = judge_two(FACTS("asked=1", "nofile=1024"), FACTS("asked=1", "done=1", "nofile=1024"));
    one = first_of(&f, "limit-nofile");
    ok(one && one->n_nodes == 1 && strcmp(one->node[0], "n2") == 0,
       "the limits of a node that did not answer to the end are not judged");
    tern_doctor_findings_free(&f);

    f = judge_two(FACTS("asked=1", "done=1", "nofile=1024"),
                  FACTS("asked=1", "done=1", "nofile=1024"));
    one = first_of(&f, "limit-nofile");
    ok(of(&f, "limit-nofile") == 1 && one->n_nodes == 2, "what two nodes lack is one finding");
    tern_doctor_findings_free(&f);

    f = judge_two(FACTS("asked=1", "done=1", "memlock=65536", "rdma-devices=0"),
                  FACTS("asked=1", "done=1", "memlock=65536"));
    ok(!first_of(&f, "limit-memlock"), "without EFA a limit of locked memory is no finding");
    tern_doctor_findings_free(&f);

    f = judge_two(FACTS("unusable=drained"), FACTS("unusable=down*"));
    size_t mute = 0, drained = 0;
    for (size_t i = 0; i < f.n; i++) {
        mute += strstr(f.v[i].what, "is down*: its slurmd does not answer") != NULL;
        drained += strcmp(f.v[i].what, "the node is drained") == 0;
    }
    ok(mute == 1 && drained == 1 && of(&f, "node-state") == 2,
       "a drained node is not called one whose slurmd does not answer");
    tern_doctor_findings_free(&f);

    f = judge_two(FACTS("asked=100", "done=1", "clock=103", "clock-heard=102.4"), FACTS("asked=1"));
    ok(!first_of(&f, "clock"), "a clock ahead counts from when its answer came");
    tern_doctor_findings_free(&f);
}

static void test_releases(void)
{
    struct tern_doctor_findings f = judge("", "client", "19.05.8");

    ok(of(&f, "slurm-built-for") == 1 && f.v[0].severity == TERN_RULES_ERROR,
       "commands of a Slurm that tern was not built for");
    ok(of(&f, "slurm-client") == 1, "commands of another release than slurmctld: slurm-client");
    tern_doctor_findings_free(&f);
    char longer[24]; /* "22.050" is not "22.05" */
    snprintf(longer, sizeof longer, "%s0.1", tern_slurm_release());
    f = judge("", "client", longer);
    ok(of(&f, "slurm-client") == 1, "releases are compared as a whole: %s", longer);
    tern_doctor_findings_free(&f);
}

/* One of the cluster's settings. */
#define SETTING(field, value, id)                                                                  \
    do {                                                                                           \
        struct tern_slurm_about was = about;                                                       \
        about.field = value;                                                                       \
        struct tern_doctor_findings f = judge(NULL, "", "");                                       \
        ok(f.n == 1 && of(&f, id) == 1, "%s", id);                                                 \
        tern_doctor_findings_free(&f);                                                             \
        about = was;                                                                               \
    } while (0)

static void test_each_setting(void)
{
    SETTING(requeue, false, "conf-requeue");
    SETTING(return_to_service, 0, "conf-return");
    SETTING(kill_wait_s, 4, "conf-kill-wait");
    SETTING(auth_info, (char *)"socket=/x,cred_expire=31", "conf-cred-expire");
    SETTING(auth_info, (char *)"", "conf-cred-expire");
    SETTING(scheduler, (char *)"bf_continue", "conf-prolog-hold");
    SETTING(prolog_alloc, false, "conf-prolog-alloc");
    SETTING(mpi_default, (char *)"none", "conf-mpi");
    SETTING(task_plugin, (char *)"task/none", "conf-task");
}

static void test_settings(void)
{
    about.kill_wait_s = 5;
    struct tern_doctor_findings five = judge(NULL, "", "");
    ok(five.n == 0, "a KillWait of 5 s suffices");
    tern_doctor_findings_free(&five);
    about.kill_wait_s = 2;
    struct tern_doctor_findings f = judge("n1", "nofile", "100");
    ok(f.n == 2 && f.v[0].severity == f.v[1].severity, "settings are of the cluster as a whole");
    tern_doctor_findings_free(&f);
    about.kill_wait_s = 30;
    nodes[2].version = (char *)"21.08.1";
    f = judge(NULL, "", "");
    ok(f.n == 2, "a slurmd of another release has two: it, and the plugin that it would refuse");
    tern_doctor_findings_free(&f);
    nodes[2].version = version;
}

/* health=prolog of a plugin that is required, as it must be for it. */
static void test_prolog(void)
{
    struct tern_doctor_facts f = {0};
    struct tern_doctor_findings to = {0};

    tern_doctor_facts_add(&f, "", "plugin", "/lib/tern_spank.so");
    tern_doctor_facts_add(&f, "", "plugin-release", version);
    tern_doctor_facts_add(&f, "", "plugin-health", "prolog");
    tern_doctor_facts_add(&f, "", "plugin-required", "/etc/slurm/plugstack.conf");
    tern_doctor_judge(&about, &f, &to);
    size_t n = 0;
    for (size_t i = 0; i < to.n; i++)
        n += tern_str_starts(to.v[i].id, "plugin");
    ok(n == 0, "no finding about the plugin");
    tern_doctor_findings_free(&to);
    tern_doctor_facts_free(&f);
}

static void test_facts(void)
{
    struct tern_doctor_facts f = {0};
    char *line = tern_doctor_line("n1", "site-error", "a\tb\nc\033[0m");

    ok(!strchr(line, '\n') && !strchr(line, '\033'),
       "a fact with controls makes one line without them");
    ok(tern_doctor_facts_parse(&f, line), "a fact's line is parsed again");
    is(tern_doctor_fact(&f, "n1", "site-error"), "a?b?c?[0m",
       "a fact's value survives its line, without controls");
    free(line);
    ok(!tern_doctor_facts_parse(&f, "srun: error"), "srun's own line is no fact");
    ok(!tern_doctor_facts_parse(&f, "tern-doctor\tn1"), "half a line is no fact");
    ok(!tern_doctor_facts_parse(&f, "tern-doctor\t\tkey\tvalue"),
       "a line without a node is no fact");
    ok(f.n == 1, "refused lines add no fact");
    tern_doctor_facts_free(&f);
}

static void test_plugin(void)
{
    char dir[] = "/tmp/tern-doctor-XXXXXX", release[16];
    struct tern_doctor_plugin p;

    if (!mkdtemp(dir))
        abort();
    char *conf = tern_fs_join(dir, "plugstack.conf"), *sub = tern_fs_join(dir, "d");
    char *part = tern_fs_join(sub, "tern.conf");
    const char *top = "# optional /x/tern_spank.so\noptional /x/other.so\ninclude d/*.conf\n";
    const char *line = "optional /lib/tern_spank-22.05.so health=prolog tern=/usr/bin/tern # x\n";
    tern_fs_replace(conf, top, strlen(top), 0644, NULL);
    tern_doctor_plugin_find(conf, &p);
    ok(!p.file[0], "plugstack.conf: a comment names no plugin");
    tern_fs_mkdirs(sub, 0755, NULL);
    tern_fs_replace(part, line, strlen(line), 0644, NULL);
    tern_doctor_plugin_find(conf, &p);
    is(p.file, "/lib/tern_spank-22.05.so",
       "plugstack.conf: the plugin is found through a relative include");
    is(p.tern, "/usr/bin/tern", "plugstack.conf: tern= is read");
    is(p.where, part, "plugstack.conf: the file with the plugin's line is named");
    ok(!p.required && p.health_prolog, "plugstack.conf: optional and health=prolog are read");
    const char *loop = "include plugstack.conf\n";
    tern_fs_replace(conf, loop, strlen(loop), 0644, NULL);
    tern_doctor_plugin_find(conf, &p);
    ok(!p.file[0], "plugstack.conf: a file that includes itself is read to an end");
    tern_doctor_plugin_release(conf, release);
    is(release, "", "a text file has no plugin release");
    const char *build = getenv("TERN_BUILD");
    char *so = tern_strf("%s/plugins/tern_spank.so", build ? build : "build"), *data;
    size_t len;
    tern_doctor_plugin_release(so, release);
    ok(tern_str_starts(release, tern_slurm_release()), "the plugin's own release: %s", release);
    if (tern_fs_read(so, 16 << 20, &data, &len, NULL) == 0) {
        size_t bad = 0;
        for (unsigned i = 0; i < 400; i++) { /* cut and damaged ones: no crash */
            size_t at = (i * 7919u) % (i % 2 ? 4096 : len);
            char was = data[at];
            data[at] = (char)(i * 31);
            tern_fs_replace(conf, data, i % 5 ? len : at, 0644, NULL);
            tern_doctor_plugin_release(conf, release);
            bad += strlen(release) > 15;
            data[at] = was;
        }
        ok(bad == 0, "the release of a damaged library is read without a crash");
        free(data);
    }
    tern_fs_remove_tree(dir, NULL);
    free(so);
    free(part);
    free(sub);
    free(conf);
}

static char token_seen[64];

static void keep_token(void *arg, const char *key, const char *value)
{
    (void)arg;
    if (strcmp(key, "probe-token") == 0)
        snprintf(token_seen, sizeof token_seen, "%s", value);
}

/* In a user's ledger, whose owner may put something else in the probe's place while root looks. */
static void probe_stays_in_its_folder(void)
{
    char ledger[] = "/tmp/tern-doctor-XXXXXX";
    struct tern_doctor_probe p;
    struct tern_err err;

    if (!mkdtemp(ledger) || tern_doctor_probe_open(&p, ledger, &err) < 0) {
        ok(false, "a probe folder is made");
        return;
    }
    char *moved = tern_fs_join(ledger, "moved"), *theirs = tern_fs_join(moved, "node-n1");
    setenv("SLURMD_NODENAME", "n1", 1);
    tern_doctor_probe_node(p.dir, keep_token, NULL);
    ok(strcmp(token_seen, p.token) == 0, "a node finds the token");
    ok(rename(p.dir, moved) == 0 && unlink(theirs) == 0 && symlink(moved, p.dir) == 0,
       "set up: the probe folder is moved, with a link in its place");
    tern_doctor_probe_node(p.dir, keep_token, NULL);
    ok(!*token_seen && !tern_fs_exists(theirs),
       "a node follows no link in place of the probe folder");
    ok(unlink(p.dir) == 0 && rename(moved, p.dir) == 0 && chmod(p.dir, 0777) == 0,
       "set up: the probe folder is open to others");
    tern_doctor_probe_node(p.dir, keep_token, NULL);
    ok(!*token_seen, "a node leaves a probe folder that is open to others");
    unsetenv("SLURMD_NODENAME");
    tern_doctor_probe_close(&p, NULL);
    ok(rmdir(ledger) == 0, "the probe leaves nothing in the ledger folder");
    free(moved);
    free(theirs);
}

int main(void)
{
    snprintf(version, sizeof version, "%s.8", tern_slurm_release());
    snprintf(patch, sizeof patch, "%s.1", tern_slurm_release());
    test_judge();
    silent_node();
    test_two_nodes();
    test_releases();
    test_each_setting();
    test_settings();
    test_prolog();
    test_facts();
    test_plugin();
    probe_stays_in_its_folder();
    return tap_done();
}
