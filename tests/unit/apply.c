/* core/apply: lines of Slurm's files, and the comparison.  tests/slurm/apply.sh has the rest. */
#include "tap.h"

#include "core/apply/parts.h"

#include <string.h>

/* libslurm itself forgets a word of a list that it refuses. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libslurm.so";
}

static void lines(void)
{
    const char *at = "A=1 \\\nB=2 # not this\n\n# nor this\nC=a\\#b";
    int line = 0;

    char *s = tern_apply_line(&at, &line);
    is(s, "A=1 B=2", "a line that ends with a backslash goes on, and ends at a comment");
    ok(line == 2, "its number is that of its last line");
    free(s);
    s = tern_apply_line(&at, &line);
    is(s, "", "an empty line is a line");
    free(s);
    s = tern_apply_line(&at, &line);
    is(s, "", "a comment alone is an empty line");
    free(s);
    s = tern_apply_line(&at, &line);
    is(s, "C=a\\#b", "an escaped # begins no comment");
    ok(line == 5, "lines are counted to the last, which has no newline");
    free(s);
    ok(!tern_apply_line(&at, &line), "there is no line after the last");
    at = "A=1 # and \\\nB=2";
    s = tern_apply_line(&at, &line);
    is(s, "A=1", "a comment that ends with a backslash does not go on");
    free(s);
}

static void values(void)
{
    const char *line = "NodeName=a[1-2]  CPUs=4\tFeature=\"x y\" Gres=neuron:trn1:16";
    char *s = tern_apply_value(line, "nodename");

    is(s ? s : "none", "a[1-2]", "a key is found whatever the case of its letters");
    free(s);
    s = tern_apply_value(line, "Feature");
    is(s ? s : "none", "x y", "a value in quotes may have blanks");
    free(s);
    s = tern_apply_value(line, "Gres");
    is(s ? s : "none", "neuron:trn1:16", "the last value ends with the line");
    free(s);
    ok(!tern_apply_value(line, "Node"), "the beginning of a key is not that key");
    ok(!tern_apply_value(line, "y"), "a word inside quotes is no key");
    ok(tern_apply_listed("gpu,neuron:trn1", "neuron"), "a word before a colon is in the list");
    ok(!tern_apply_listed("gpu,neuroncore", "neuron"),
       "the beginning of a word is not in the list");
}

/* What slurmctld has. */
static struct tern_slurm_node node(const char *name)
{
    return (struct tern_slurm_node){.name = (char *)name,
                                    .state = "idle",
                                    .cpus = 128,
                                    .sockets = 2,
                                    .cores = 32,
                                    .threads = 2,
                                    .memory_mib = 1000,
                                    .weight = 1,
                                    .gres = (char *)"neuron:trn1:16(S:0-1)",
                                    .reason = (char *)"",
                                    .features = (char *)"b,a"};
}

static const char text[] =
    "NodeName=a[1-2] CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1000 "
    "Feature=a,b Weight=1 Gres=neuron:trn1:16 State=UNKNOWN\n"
    "NodeName=f1 CPUs=128 Feature=a,b Gres=neuron:trn1:16 State=FUTURE\n"
    "PartitionName=p Nodes=a[1-2],f1 MaxTime=1:00:00 State=UP Default=YES\n";

static struct tern_slurm_node of_slurm[4];
static char *in_p[] = {(char *)"f1", (char *)"a2", (char *)"a1", NULL};
static struct tern_slurm_partition partition[2];
static struct tern_slurm_nodes nodes = {3, of_slurm};
static struct tern_slurm_partitions partitions = {1, partition};

static void as_wanted(void)
{
    of_slurm[0] = node("a1");
    of_slurm[1] = node("f1");
    of_slurm[1].future = true;
    of_slurm[2] = node("a2");
    partition[0] = (struct tern_slurm_partition){.name = (char *)"p",
                                                 .nodes = in_p,
                                                 .n_nodes = 3,
                                                 .max_time_s = 3600,
                                                 .is_default = true,
                                                 .up = true};
    nodes.n = 3;
    partitions.n = 1;
}

/* All changes as lines, from of_slurm and partition to `text`. */
static char *changes(const char *wanted, const struct tern_apply_def *def, size_t n_def)
{
    struct tern_apply_expected w;
    struct tern_apply_changes c;
    struct tern_err err = {0};
    struct tern_buf b = {0};

    if (tern_apply_read(wanted, "file", &w, &err) < 0)
        return tern_strdup(err.text);
    if (tern_apply_compare(&w, def, n_def, &nodes, &partitions, &c, &err) < 0)
        return tern_strdup(err.text);
    for (size_t i = 0; i < c.n; i++) {
        char *one = tern_apply_change_text(&c.at[i]);
        tern_buf_printf(&b, "%s\n", one);
        free(one);
    }
    tern_apply_changes_free(&c);
    tern_apply_expected_free(&w);
    return b.data ? b.data : tern_strdup("");
}

static void same_is(const char *wanted, const char *name)
{
    char *s = changes(text, NULL, 0);

    is(s, wanted, name);
    free(s);
}

static void comparison(void)
{
    as_wanted();
    same_is("", "what slurmctld has and the file says is no change, whatever the order of words");
    of_slurm[0].memory_mib = of_slurm[2].memory_mib = 900;
    same_is("change node a[1-2]: RealMemory 900 -> 1000\n",
            "nodes with the same change are one line");
    of_slurm[2].gres = (char *)"";
    same_is("change node a1: RealMemory 900 -> 1000\n"
            "change node a2: RealMemory 900 -> 1000, Gres none -> neuron:trn1:16\n",
            "nodes with other changes have lines of their own");
    as_wanted();
    of_slurm[0].future = true;
    of_slurm[0].reason = (char *)"NO NETWORK ADDRESS FOUND";
    same_is("change node a1: State FUTURE -> in service (NO NETWORK ADDRESS FOUND)\n",
            "a node that Slurm finds no address of has Slurm's reason");
    as_wanted();
    of_slurm[0].threads = 1, of_slurm[0].weight = 7, of_slurm[0].features = (char *)"a,c";
    same_is("change node a1: ThreadsPerCore 1 -> 2, Weight 7 -> 1, Feature a,c -> a,b\n",
            "threads, weight and features of a node are compared");
    as_wanted();
    partition[0].max_time_s = 0, partition[0].is_default = false, partition[0].up = false;
    partition[0].exclusive = true, partition[0].n_nodes = 2;
    same_is("change partition p: Nodes a[1-2] -> a[1-2],f1, MaxTime unlimited -> 1:00:00, Default "
            "NO -> YES, State not UP -> UP, OverSubscribe EXCLUSIVE -> not EXCLUSIVE\n",
            "nodes, limit, default, state and sharing of a partition are compared");
}

static void come_and_go(void)
{
    const struct tern_apply_def elsewhere[] = {{false, (char *)"x2", (char *)"f", 1},
                                               {true, (char *)"q", (char *)"f", 2}};

    as_wanted();
    nodes.n = 2, partitions.n = 0; /* without a2 */
    same_is("add    node a2\nadd    partition p\n", "what slurmctld has not is added");
    as_wanted();
    of_slurm[3] = node("x2"), nodes.n = 4;
    partition[1] = (struct tern_slurm_partition){.name = (char *)"q", .up = true}, partitions.n = 2;
    same_is("remove node x2\nremove partition q\n", "what no file defines is removed");
    char *s = changes(text, elsewhere, 2);
    is(s, "", "what another file defines stays");
    free(s);
    nodes.n = 3;
    s = changes(text, elsewhere, 2);
    is(s, "add    node x2\n", "a node of another file that slurmctld has not is added");
    free(s);
    nodes.n = 4;
    of_slurm[3].dynamic = true, partitions.n = 1;
    same_is("", "a node that came by itself stays");
    as_wanted();
    s = changes("# nothing\n", NULL, 0);
    is(s, "remove node a1,f1,a2\nremove partition p\n", "a file without nodes removes all");
    free(s);
}

static void mistakes(void)
{
    char *s = changes("\nNodeName=a[1-99999999] CPUs=1\n", NULL, 0);

    has(s, "file:2: ", "a host list that is too long is named by its line");
    free(s);
    s = changes("PartitionName=p Nodes=a1 MaxTime=soon\n", NULL, 0);
    has(s, "MaxTime=soon is no time", "so is a time limit that is none");
    free(s);
}

static void releases(void)
{
    ok(!tern_slurm_reconfigure_takes_nodes("22.05.8"), "22.05 takes nodes at its start");
    ok(!tern_slurm_reconfigure_takes_nodes("23.02.7"), "23.02 does, too");
    ok(tern_slurm_reconfigure_takes_nodes("23.11.0"), "23.11 takes them when it reads again");
    ok(tern_slurm_reconfigure_takes_nodes("26.05.5-1"),
       "slurmctld 26.05 takes new nodes when it reads again");
    ok(!tern_slurm_reconfigure_takes_nodes("none"), "an unknown release is taken for an old one");
}

int main(void)
{
    lines();
    values();
    comparison();
    come_and_go();
    mistakes();
    releases();
    return tap_done();
}
