/* core/slurm: what works without a controller.  tests/slurm has the rest. */
#include "tap.h"

#include "core/slurm/slurm.h"
#include "core/slurm/topology.h"

/* libslurm itself forgets a word of a list that it refuses. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libslurm.so";
}

static void hosts(void)
{
    struct tern_err err = {0};
    char **names = NULL;
    size_t n = 0;

    ok(tern_slurm_hosts_expand("trn1-st-a-[1-3,7],head,b[08-10]", &names, &n, &err) == 0 && n == 8,
       "a host list expands");
    is(n == 8 ? names[3] : "", "trn1-st-a-7", "ranges with gaps expand");
    is(n == 8 ? names[4] : "", "head", "a host list keeps its order");
    is(n == 8 ? names[5] : "", "b08", "leading zeros of host names are kept");
    ok(n == 8 && names[8] == NULL, "an expanded host list ends in NULL");
    char *s = tern_slurm_hosts_compress(names, n);
    is(s, "trn1-st-a-[1-3,7],head,b[08-10]", "an expanded host list compresses back");
    free(s);
    tern_slurm_hosts_free(names);
    s = tern_slurm_hosts_compress(NULL, 0);
    is(s, "", "no hosts compress to an empty text");
    free(s);
    ok(tern_slurm_hosts_expand("", &names, &n, &err) == 0 && n == 0,
       "an empty host list has no hosts");
    tern_slurm_hosts_free(names);
}

static void no_configuration(void)
{
    struct tern_err err = {0};
    struct tern_slurm_job *job = NULL;

    setenv("SLURM_CONF", "/nonexistent/slurm.conf", 1);
    ok(!tern_slurm_available(), "no configuration: Slurm is not available");
    ok(tern_slurm_job_load(1, &job, &err) < 0 && !job,
       "a call without configuration fails and does not exit");
    has(err.text, "/nonexistent/slurm.conf", "a missing configuration is named");
}

static void topology(void)
{
    char *hosts[] = {(char *)"a3", (char *)"a1", (char *)"c1", (char *)"a2"};
    struct tern_err err = {0};
    char **w = NULL;

    int rc = tern_slurm_topology_parse("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=a[1-2]\n"
                                       "SwitchName=leaf.2 Level=0 LinkSpeed=1 Nodes=a3\n"
                                       "SwitchName=spine Level=1 LinkSpeed=1 Nodes=a[1-3] "
                                       "Switches=leaf1,leaf.2\n",
                                       hosts, 4, &w, &err);
    ok(rc == 0, "a topology tree is read");
    is(w[0], "spine.leaf_2", "a node under the second leaf has it, with dots in names replaced");
    is(w[3], "spine.leaf1", "a node under the first leaf has it");
    is(w[2], "", "a node without a switch has none");
    tern_slurm_topology_free(w, 4);
    rc = tern_slurm_topology_parse("SwitchName=only Level=0 Nodes=a[1-3]\n"
                                   "SwitchName=root Level=1 Nodes=a[1-3] Switches=only\n",
                                   hosts, 4, &w, &err);
    is(rc == 0 ? w[0] : "", "root.only", "switches with the same nodes are ordered by level");
    tern_slurm_topology_free(w, 4);
    rc = tern_slurm_topology_parse("BlockName=b1 BlockIndex=0 Nodes=a[1-2] BlockSize=2\n"
                                   "BlockName=b2 BlockIndex=1 Nodes=a[3-4] BlockSize=2\n"
                                   "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=a[1-4] BlockSize=4\n",
                                   hosts, 4, &w, &err);
    is(rc == 0 ? w[0] : "", "b[1-2].b2", "blocks of blocks are read");
    tern_slurm_topology_free(w, 4);
    rc = tern_slurm_topology_parse("No topology information available\n", hosts, 4, &w, &err);
    is(rc == 0 ? w[1] : "x", "", "an empty topology is read");
    tern_slurm_topology_free(w, 4);
    ok(tern_slurm_topology_parse("SwitchName=s Nodes=a[1-99999999]\n", hosts, 4, &w, &err) < 0,
       "a host list of 99999999 hosts is refused");
}

static void times(void)
{
    static const struct {
        const char *text;
        int64_t seconds; /* -1: refused */
    } cases[] = {{"90", 5400},      {"1:30", 90},       {"8:00:00", 28800}, {"2-12", 216000},
                 {"1-0:30", 88200}, {"1-2:3:4", 93784}, {"UNLIMITED", 0},   {"", -1},
                 {"x", -1},         {"1:2:3:4", -1},    {"1-", -1},         {"1::2", -1},
                 {"-5", -1},        {"1:-2", -1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t s = -7;
        int rc = tern_slurm_time_read(cases[i].text, &s);
        ok(cases[i].seconds < 0 ? rc < 0 && s == -7 : rc == 0 && s == cases[i].seconds,
           "--time=%s: %d", cases[i].text, (int)s);
    }
    char *w = tern_slurm_time_write(93784);
    is(w, "1-02:04:00", "a time limit is written in whole minutes");
    free(w);
    w = tern_slurm_time_write(61);
    is(w, "0:02:00", "a short time limit is written as 0:MM:SS");
    free(w);
}

int main(void)
{
    hosts();
    times();
    topology();
    no_configuration();
    return tap_done();
}
