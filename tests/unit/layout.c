/* core/layout: what the lint says, what the renderer writes. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/layout/layout.h"

#include <unistd.h>

static char folder[] = "/tmp/tern-layout-XXXXXX";

/* A layout with one compute resource of the given lines, and more after the queue. */
static struct tern_layout *load(const char *resource, const char *networking, const char *more)
{
    struct tern_err err = {0};
    char *path = tern_strf("%s/cluster.yaml", folder);
    char *text = tern_strf("Image: {Os: ubuntu2204}\n"
                           "HeadNode:\n"
                           "  InstanceType: c5.4xlarge\n"
                           "  Networking: {SubnetId: subnet-0123456789abcdef0}\n"
                           "Scheduling:\n"
                           "  Scheduler: slurm\n"
                           "  SlurmQueues:\n"
                           "    - Name: q\n"
                           "      Networking: {SubnetIds: [subnet-0123456789abcdef1]%s}\n"
                           "      ComputeResources:\n"
                           "        - Name: cr\n"
                           "%s%s",
                           networking, resource, more);
    tern_fs_replace(path, text, strlen(text), 0600, &err);
    struct tern_layout *l = tern_layout_load(path, &err);
    ok(l != NULL, "a layout of this test loads%s%s", l ? "" : ": ", l ? "" : err.text);
    free(path);
    free(text);
    return l;
}

static const char good[] = "          InstanceType: trn1.32xlarge\n"
                           "          MinCount: 2\n"
                           "          MaxCount: 5\n"
                           "          Efa: {Enabled: true}\n";
static const char group[] = ", PlacementGroup: {Enabled: true}";

/* All notes of `l` in one text; frees `l`. */
static const char *notes(struct tern_layout *l)
{
    static char text[8192];

    text[0] = '\0';
    for (size_t i = 0; l && i < l->n_notes; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s\n",
                 l->notes[i].error ? "E" : "W", l->notes[i].text);
    tern_layout_free(l);
    return text;
}

static void test_catalogue(void)
{
    const struct tern_layout_instance *t = tern_layout_instance("trn1.32xlarge");

    ok(t && tern_layout_vcpus(t) == 128 && t->sockets == 2 && t->cores == 32 && t->threads == 2 &&
           t->chips == 16 && t->neuron_cores == 32 && t->efa == 8 && t->memory_mib == 524288,
       "trn1.32xlarge: 128 CPUs in 2x32x2, 16 devices, 32 NeuronCores, 8 EFA");
    t = tern_layout_instance("trn1.2xlarge");
    ok(t && tern_layout_vcpus(t) == 8 && t->chips == 1 && t->efa == 0, "trn1.2xlarge has no EFA");
    t = tern_layout_instance("p5.48xlarge");
    ok(t && tern_layout_vcpus(t) == 192 && t->memory_mib == 2097152 && t->efa == 32 && !t->chips,
       "p5.48xlarge: 192 CPUs, 2 TiB, 32 EFA, no Neuron device");
    t = tern_layout_instance("p5en.48xlarge");
    ok(t && tern_layout_vcpus(t) == 192 && t->efa == 16, "p5en.48xlarge: 192 CPUs, 16 EFA");
    t = tern_layout_instance("p4d.24xlarge");
    ok(t && tern_layout_vcpus(t) == 96 && t->memory_mib == 1179648 && t->efa == 4,
       "p4d.24xlarge: 96 CPUs, 1152 GiB, 4 EFA");
    ok(!tern_layout_instance("trn1.32xl"), "an unknown instance type has no row");
    is(tern_layout_instance_near("trn1.32xl"), "trn1.32xlarge",
       "the nearest instance type is suggested");
}

static void test_lint(void)
{
    is(notes(load(good, group, "")), "", "a good layout has no notes");
    has(notes(load(good, "", "")), "cluster.yaml:15: error: efa-group: Scheduling.SlurmQueues[0]",
        "a note names its line");
    has(notes(load(good, "", "")), "explicit Networking.PlacementGroup",
        "EFA without a placement group is an error");
    has(notes(load(good, ", PlacementGroup: {Enabled: false}", "")), "W ",
        "EFA with the group switched off is a warning");
    has(notes(load("          InstanceType: trn1.2xlarge\n          Efa: {Enabled: true}\n", group,
                   "")),
        "trn1.2xlarge has no EFA", "EFA on a type without EFA is an error");
    has(notes(load("          InstanceType: trn1.32xlage\n", group, "")),
        "Did you mean 'trn1.32xlarge'?", "an unknown type is noted with the nearest one");
    has(notes(load("          InstanceType: trn1.32xlarge\n", group, "")), "would talk TCP",
        "a type's unused EFA is a warning");
    has(notes(load("          InstanceType: trn1.32xlarge\n          MinCount: 4\n"
                   "          MaxCount: 2\n",
                   group, "")),
        "MaxCount 2 is less than MinCount 4", "MaxCount below MinCount is an error");
    has(notes(load(good, group, "          Gpus: 8\n")), "Gpus: unknown key",
        "unknown keys are noted");
    has(notes(load(good, group, "          Efaa: {}\n")), "unknown key",
        "mistyped keys are noted with the nearest one");
    has(notes(load(good, group, "        - Name: cr\n          InstanceType: c5.large\n")),
        "also the name in line 11", "a doubled name is an error");
    has(notes(load(good, group, "        - Name: a-dy-b\n          InstanceType: c5.large\n")),
        "-st or -dy", "a name with -st- is an error");
    has(notes(load(good, group, "          CustomSlurmSettings: {Gres: 'neuron:1'}\n")),
        "refuses it here", "settings reserved for ParallelCluster are errors");
    has(notes(load(good, ", PlacementGroup: {Enabled: true}, AssignPublicIp: true", "")),
        "public address", "public addresses with several network cards are an error");
    has(notes(load(good, group,
                   "SharedStorage:\n"
                   "  - {Name: a, MountDir: /fsx, StorageType: Efs}\n"
                   "  - {Name: b, MountDir: /fsx/b, StorageType: Ebs}\n")),
        "overlaps '/fsx' (line 17)", "a mount inside another is an error");
    is(notes(load(good, group,
                  "SharedStorage:\n  - {Name: a, MountDir: /fsx, StorageType: Efs}\n"
                  "  - {Name: b, MountDir: /fsx2, StorageType: Ebs}\n")),
       "", "/fsx2 does not overlap /fsx");
}

static void test_nodes(void)
{
    struct tern_layout *l = load(good, group, "");
    size_t n;
    struct tern_layout_group *g = tern_layout_groups(l, &n);

    ok(n == 2 && !g[0].dynamic && g[0].count == 2 && g[1].dynamic && g[1].count == 3,
       "static and dynamic nodes are two groups");
    char *all = tern_layout_node_name(&g[0], 0), *one = tern_layout_node_name(&g[1], 3);
    is(all, "q-st-cr-[1-2]", "a group of nodes has a range as its name");
    is(one, "q-dy-cr-3", "a node's name has its number");
    free(all);
    free(one);
    free(g);
    tern_layout_free(l);
}

static void test_render(void)
{
    struct tern_err err = {0};
    struct tern_layout_conf c;
    struct tern_layout *l =
        load(good, group, "          CustomSlurmSettings: {CoreSpecCount: 1}\n");

    ok(tern_layout_render(l, NULL, &c, &err) == 0, "a good layout renders");
    has(c.slurm.data,
        "NodeName=q-st-cr-[1-2] CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 "
        "RealMemory=498073 Feature=static,trn1.32xlarge,cr,efa Weight=1 Gres=neuron:trn1:16 "
        "CoreSpecCount=1 State=UNKNOWN\n",
        "slurm.conf has the static nodes");
    has(c.slurm.data, "NodeName=q-dy-cr-[1-3] ", "slurm.conf has the dynamic nodes");
    has(c.slurm.data, "State=FUTURE\n", "dynamic nodes are FUTURE");
    has(c.slurm.data, "PartitionName=q Nodes=q-st-cr-[1-2],q-dy-cr-[1-3] ",
        "slurm.conf has the partition");
    has(c.gres.data, "NodeName=q-st-cr-[1-2] Name=neuron Type=trn1 File=/dev/neuron[0-15]\n",
        "gres.conf has the Neuron devices");
    has(c.topology.data, "SwitchName=q-cr Nodes=q-st-cr-[1-2],q-dy-cr-[1-3]\n",
        "topology.conf has the switches");
    tern_layout_conf_free(&c);
    tern_layout_free(l);

    l = load("          InstanceType: trn1.32xlarge\n          MinCount: 1\n"
             "          DisableSimultaneousMultithreading: true\n",
             group, "");
    ok(tern_layout_render(l, NULL, &c, &err) == 0, "a layout without hyper-threads renders");
    has(c.slurm.data, "CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1",
        "without hyper-threads a core has one CPU");
    tern_layout_conf_free(&c);
    tern_layout_free(l);

    l = load(good, "", "");
    ok(tern_layout_render(l, NULL, &c, &err) < 0 && err.code == TERN_USAGE,
       "a layout with errors does not render");
    tern_layout_free(l);
}

static void test_sidecar(void)
{
    char *path = tern_strf("%s/cluster.tern.yaml", folder);
    static const char text[] = "gres: {neuron: false}\nvirtual: {dynamic: 2, colour: red}\n";
    struct tern_layout_conf c;
    struct tern_err err = {0};

    tern_fs_replace(path, text, sizeof text - 1, 0600, &err);
    struct tern_layout *l = load(good, group, "");
    ok(l && !l->gres && l->virtual_dynamic == 2, "the sidecar is read");
    has(notes(l), "cluster.tern.yaml:2: error: key-unknown: virtual.colour: unknown key",
        "a mistake in the sidecar is noted");
    tern_fs_replace(path, text, sizeof "gres: {neuron: false}\n" - 1, 0600, &err);
    l = load(good, group, "");
    ok(tern_layout_render(l, NULL, &c, &err) == 0 && !strstr(c.slurm.data, "neuron") && !c.gres.len,
       "gres.neuron: false leaves the devices out");
    tern_layout_conf_free(&c);
    tern_layout_free(l);
    unlink(path);
    free(path);
}

/* Ranks of the same place in consecutive tensor groups: data-parallel or pipeline neighbours. */
static int across(const struct tern_layout_instance *t, int n, int tp)
{
    int most = 0, per_chip = t->visible_cores / t->chips;

    for (int i = 0; i + tp < n; i++) {
        int hops = tern_layout_chip_hops(t, tern_layout_first_core(t, n, i, tp) / per_chip,
                                         tern_layout_first_core(t, n, i + tp, tp) / per_chip);
        most = hops > most ? hops : most;
    }
    return most;
}

static void test_rings(const struct tern_layout_instance *t)
{
    static const int chips[2][16] = {{0, 1, 2, 3, 7, 6, 5, 4, 12, 13, 14, 15, 11, 10, 9, 8},
                                     {0, 1, 2, 3, 7, 6, 5, 4, 8, 9, 10, 11, 15, 14, 13, 12}};
    bool one = true, near = true, same = true, once = true, same2 = true;
    const struct tern_layout_instance *t2 = tern_layout_instance("trn2.48xlarge");

    for (int n = 16; n <= 32; n *= 2) {
        int all = n / 16;
        ok(tern_layout_ring_hops(t, n, all, true) == 0, "%d ranks: a chip is no step", n);
        for (int tp = 2 * all; tp <= n; tp *= 2) {
            unsigned seen = 0;
            one = one && tern_layout_ring_hops(t, n, tp, true) == 1;
            near = near && (tp < 4 * all || across(t, n, tp) <= 1);
            for (int i = 0; i < n; i++) {
                int core = tern_layout_first_core(t, n, i, tp);
                seen |= (all == 2 ? 1u : 3u) << core;
                once = once && core % (32 / n) == 0;
                if (tp <= 4 * all)
                    same = same && core == i * 32 / n;
                else
                    same = same && core / 2 == chips[tp == n][i / all];
            }
            once = once && seen == ~0u;
        }
    }
    ok(one, "16 and 32 ranks: every tensor group of two chips or more steps along links");
    ok(near, "in groups of a row or more a link leads to the same place in the next group");
    ok(same,
       "groups of a row or less keep the numbers; larger ones take each second row backwards");
    ok(once, "each core is given out once, from a multiple of their number");
    ok(tern_layout_ring_hops(t, 32, 16, false) == 2 && tern_layout_ring_hops(t, 32, 32, false) == 2,
       "by number, rings of several rows have steps of two hops");
    ok(tern_layout_first_core(t, 4, 1, 4) == 8 && tern_layout_first_core(t, 4, 3, 2) == 24,
       "ranks of eight cores keep them: the runtime takes a range");
    for (int i = 0; i < 64; i++)
        same2 = same2 && tern_layout_first_core(t2, 64, i, 32) == i;
    ok(same2, "trn2 keeps the numbers, by which NxD orders its groups");
}

/* Beside the Neuron SDK's table of trn1.32xlarge (neighbours and NUMA node of each device). */
static void test_placement(void)
{
    static const struct {
        int neighbours[4], numa;
    } table[16] = {
        {{12, 3, 4, 1}, 0},  {{13, 0, 5, 2}, 0},  {{14, 1, 6, 3}, 1},   {{15, 2, 7, 0}, 1},
        {{0, 7, 8, 5}, 0},   {{1, 4, 9, 6}, 0},   {{2, 5, 10, 7}, 1},   {{3, 6, 11, 4}, 1},
        {{4, 11, 12, 9}, 0}, {{5, 8, 13, 10}, 0}, {{6, 9, 14, 11}, 1},  {{7, 10, 15, 8}, 1},
        {{8, 15, 0, 13}, 0}, {{9, 12, 1, 14}, 0}, {{10, 13, 2, 15}, 1}, {{11, 14, 3, 12}, 1},
    };
    const struct tern_layout_instance *t = tern_layout_instance("trn1.32xlarge");
    struct tern_layout_placement s;
    struct tern_err err = {0};
    bool near = true, numa = true, once = true;
    static const int counts[] = {1, 4, 16, 32};

    for (int d = 0; d < 16; d++) {
        for (int e = 0; e < 16; e++) {
            bool listed = false;
            for (int k = 0; k < 4; k++)
                listed = listed || table[d].neighbours[k] == e;
            near = near && (tern_layout_chip_hops(t, d, e) == 1) == listed;
        }
        numa = numa && tern_layout_place_cores(t, 2, 16, d, 0, &s, &err) == 0 && s.chip == d &&
               s.chips == 1 && s.core == 2 * d && s.cores == 2 && s.numa == table[d].numa;
    }
    ok(near, "trn1: each device's four neighbours are the table's");
    ok(numa, "trn1: each device has the table's NUMA node");
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int used = 0, cpu, end;
        for (int i = 0; i < counts[k]; i++) {
            once = once && tern_layout_place_cores(t, 2, counts[k], i, 0, &s, &err) == 0 &&
                   s.core % s.cores == 0 && s.cores * counts[k] == 32;
            for (const char *p = s.cpus; *p; p += strcspn(p, ","), p += *p == ',') {
                int n = sscanf(p, "%d-%d", &cpu, &end);
                used += n == 2 ? end - cpu + 1 : 1;
                /* Node 0 has CPUs 0-31 and 64-95. */
                once = once && (s.numa < 0 || cpu / 32 % 2 == s.numa);
            }
        }
        once = once && used == 128;
    }
    ok(once, "1, 4, 16, 32 ranks: aligned cores; all 128 CPUs, each on its device's NUMA node");
    tern_layout_place_cores(t, 2, 32, 5, 0, &s, &err);
    is(s.cpus, "34-35,98-99", "NeuronCore 5 is on device 2, which is NUMA node 1's second core");
    tern_layout_place_cores(t, 1, 32, 5, 0, &s, &err);
    is(s.cpus, "34-35", "without hyper-threads NeuronCore 5 has one CPU");
    test_rings(t);
    ok(tern_layout_place_cores(t, 2, 8, 0, 0, &s, &err) < 0,
       "8 ranks of 4 NeuronCores are refused");
    has(err.text, "8 ranks a node have 4 NeuronCores each; the runtime gives a process 1,2,8,32",
        "the runtime's allowed shares are named");
    ok(tern_layout_place_cores(t, 2, 24, 0, 0, &s, &err) < 0,
       "24 ranks on 32 NeuronCores are refused");
    has(err.text, "do not divide", "NeuronCores that do not divide are named");
    t = tern_layout_instance("c5.18xlarge");
    ok(tern_layout_place_cores(t, 2, 4, 2, 0, &s, &err) == 0 && s.cores == 0 && s.numa == 1,
       "a node without chips: the third of four ranks is on the second socket");
    is(s.cpus, "18-26,54-62", "the third of four ranks has half a socket's cores");
    t = tern_layout_instance("m5.large");
    ok(tern_layout_place_cores(t, 2, 4, 3, 0, &s, &err) == 0 && strcmp(s.cpus, "0,1") == 0,
       "more ranks than cores share them");
}

static void test_leaves(void)
{
    char *path = tern_strf("%s/cluster.tern.yaml", folder);
    static const char text[] = "topology: {leaf: 3}\n";
    struct tern_layout_conf c = {0};
    struct tern_err err = {0};
    size_t n;

    tern_fs_replace(path, text, strlen(text), 0600, NULL);
    struct tern_layout *l = load(good, group, "");
    ok(l && tern_layout_render(l, NULL, &c, &err) == 0, "a layout with topology.leaf renders");
    has(c.topology.data,
        "SwitchName=q-cr-1 Nodes=q-st-cr-[1-2],q-dy-cr-1\nSwitchName=q-cr-2 Nodes=q-dy-cr-[2-3]\n"
        "SwitchName=spine Switches=q-cr-1,q-cr-2\n",
        "topology.leaf puts three nodes under a switch, static ones first");
    struct tern_layout_group *g = tern_layout_groups(l, &n);
    char *a = tern_layout_switches(l, &g[1], 1), *b = tern_layout_switches(l, &g[1], 2);
    is(a, "spine.q-cr-1", "a node's switches are known");
    is(b, "spine.q-cr-2", "a node of the next switch has that one");
    free(a);
    free(b);
    free(g);
    tern_layout_conf_free(&c);
    tern_layout_free(l);
    unlink(path);
    free(path);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    test_catalogue();
    test_lint();
    test_nodes();
    test_render();
    test_sidecar();
    test_placement();
    test_leaves();
    tern_fs_remove_tree(folder, NULL);
    return tap_done();
}
