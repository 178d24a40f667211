/* A cluster description: AWS ParallelCluster 3 YAML, judged as `pcluster` judges it, and the
 * sidecar *.tern.yaml beside it with tern's own settings. Also the catalogue of instance types, the
 * lint, and the texts of Slurm's configuration files.
 *
 *     struct tern_layout *l = tern_layout_load("cluster.yaml", &err);   // NULL: not readable YAML
 *     if (l->n_errors) ...                                              // l->notes has each
 *     struct tern_layout_conf conf;
 *     tern_layout_render(l, NULL, &conf, &err);
 *
 * Everything here is plain data without locks; a layout does not change after loading.
 * Schema and rules: facts of aws-parallelcluster 3.16.1, pcluster/{schemas,config,validators}.
 */
#ifndef TERN_LAYOUT_LAYOUT_H
#define TERN_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/base/str.h"

struct tern_page; /* core/base/page.h */

/* ------------------------------------------------------------------ instance types */

/* One row of the catalogue (core/layout/catalogue.c). */
struct tern_layout_instance {
    const char *name;            /* "trn1.32xlarge" */
    int sockets, cores, threads; /* cores a socket, threads a core: their product is the vCPUs */
    int numa;                    /* NUMA nodes */
    long memory_mib;             /* EC2's number; Slurm gets 95 % of it, as ParallelCluster does */
    int chips;                   /* accelerators; 0 for none */
    const char *chip;            /* their GRES type: "trn1", "trn2"; NULL for none */
    int neuron_cores;            /* physical NeuronCores of all chips */
    int visible_cores;           /* that NEURON_RT_VISIBLE_CORES counts */
    const char *core_counts;     /* what one process may have of them: "1,2,8,32"; NULL: any */
    int torus_x, torus_y;        /* NeuronLink inside the instance; 0 for none */
    bool by_number;              /* NxD orders its groups for the torus itself, by core numbers */
    const char *chip_numa;       /* each chip's NUMA node, a digit each; NULL: all on 0 */
    double chip_hbm_gib, chip_bf16_tflops; /* of one chip; 0 where there is none */
    int efa;                               /* EFA devices; 0: EFA is not supported */
    int network_gbps;                      /* all cards together */
    int nvme_gb;                           /* local instance storage */
    double usd_hour; /* on demand, us-east-1 (trn2: us-east-2); 0: not known */
};

/* The month of the catalogue's prices: "July 2026". */
extern const char tern_layout_price_month[];

/* The row of `name`, or NULL. */
const struct tern_layout_instance *tern_layout_instance(const char *name);
/* The catalogue's name nearest to `name`, or NULL when none is near. */
const char *tern_layout_instance_near(const char *name);
int tern_layout_vcpus(const struct tern_layout_instance *i);

/* ------------------------------------------------------------------ inside a node */

/* A local rank's share of its node. */
struct tern_layout_placement {
    int core, cores; /* NeuronCores [core, core + cores); cores 0 where there are none */
    int chip, chips; /* the chips of these cores */
    int numa;        /* NUMA node of its chips, or of its CPUs without chips; -1: more than one */
    char cpus[512];  /* its share of the NUMA nodes' CPUs: "0-1,64-65" */
};

/* The first NeuronCore of local rank `i` of `n`, whose tensor group has `group` consecutive ranks
 * on this node (0: not known).  A rank has visible_cores / n cores from there on.
 *
 * On the 4x4 torus (of Trn1, core c is on chip c/2 at row c/8, column c/2 mod 4) consecutive
 * numbers are near each other.  2 are a chip, 4 are two neighbours, 8 are a row, which closes to a
 * ring.  So groups of at most a row keep the runtime's numbers: rank i has the i-th n-th.  Around a
 * group of several rows these would step from the end of a row to the beginning of the next, two
 * chips apart.  Its ranks therefore go through every second row backwards.  The next group takes
 * its rows the other way round, so that ranks of the same place in both have a link, too:
 *
 *     16 cores: chips 0 1 2 3 7 6 5 4, then 12 13 14 15 11 10 9 8      (8 a row)
 *     32 cores: chips 0 1 2 3 7 6 5 4 8 9 10 11 15 14 13 12
 *
 * A group's cores are the same ones, only their order changes.  The runtime takes any single core,
 * or a range from a multiple of its length (NEURON_RT_VISIBLE_CORES).  So only ranks of at most a
 * chip's cores can go backwards.  Larger ones keep the numbers, and all ranks keep them where NxD
 * orders its groups by number (`by_number`). */
int tern_layout_first_core(const struct tern_layout_instance *t, int n, int i, int group);

/* Core placement of local rank `i` of `n` on a node of type `t` whose cores show `threads` CPUs
 * each; `group` as above.
 *
 * CPUs are dealt to NeuronCores by the NUMA node of their chip (which is not in the order of
 * chips).  Cores are whole, with all their threads.  Without chips they are dealt to ranks.
 * TERN_USAGE when the NeuronCores do not divide or the runtime refuses such a share. */
int tern_layout_place_cores(const struct tern_layout_instance *t, int threads, int n, int i,
                            int group, struct tern_layout_placement *ret_placement,
                            struct tern_err *err);
/* NeuronLink hops between two chips. */
int tern_layout_chip_hops(const struct tern_layout_instance *t, int a, int b);
/* Hops of the longest step around the ring of a group's NeuronCores, in the order of its ranks.
 * The groups are all those of `group` of the node's `n` ranks.  `placed`: as tern_layout_first_core
 * says for that group; else by the runtime's numbers. */
int tern_layout_ring_hops(const struct tern_layout_instance *t, int n, int group, bool placed);

/* ------------------------------------------------------------------ the model */

enum tern_layout_capacity { TERN_ONDEMAND, TERN_SPOT, TERN_CAPACITY_BLOCK };

/* A `Key: value` of CustomSlurmSettings. */
struct tern_layout_setting {
    char *key, *value;
};

struct tern_layout_settings {
    size_t n;
    struct tern_layout_setting *at;
};

/* Nodes of a resource at most: Slurm's own limit of a cluster. */
enum { TERN_LAYOUT_MAX_COUNT = 65533 };

/* An entry of ComputeResources: up to two groups of like nodes. */
struct tern_layout_resource {
    int line;
    char *name;
    const struct tern_layout_instance *type; /* the first of Instances; NULL: not known */
    char *type_name;                         /* NULL: the type of its capacity reservation */
    int n_types;                             /* entries of Instances; 1 with InstanceType */
    int min, max;                            /* `min` static nodes, `max - min` dynamic ones */
    bool efa, gdr;                           /* Efa.Enabled, Efa.GdrSupport */
    bool smt;                                /* two hardware threads a core are used */
    bool placement_group; /* Networking.PlacementGroup of the resource, else of the queue */
    long memory_mib;      /* SchedulableMemory, or 95 % of the type's; Slurm's RealMemory */
    long static_weight, dynamic_weight;
    struct tern_layout_settings custom;
};

struct tern_layout_queue {
    int line;
    char *name;
    enum tern_layout_capacity capacity;
    bool exclusive; /* JobExclusiveAllocation */
    char *subnet;   /* the first of SubnetIds, or NULL */
    char *group;    /* the first of SecurityGroups, else of AdditionalSecurityGroups; or NULL */
    size_t n_resources;
    struct tern_layout_resource *resources;
    struct tern_layout_settings custom;
};

struct tern_layout_storage {
    int line;
    char *name, *mount_dir; /* "/fsx" */
    char *type;             /* "FsxLustre" */
    /* Of FsxLustreSettings; NULL and 0 where nothing is said. */
    char *fsx_id;                                        /* of one that is there already */
    char *fsx_deployment, *fsx_medium, *fsx_compression; /* medium: SSD or HDD */
    char *fsx_others;                         /* its other keys, with commas between, or NULL */
    int64_t fsx_capacity_gib, fsx_throughput; /* MB/s of each TiB */
    bool existing; /* an id of any type's settings: it is there already */
    bool retained; /* DeletionPolicy: Retain */
    bool snapshot; /* DeletionPolicy: Snapshot, of EBS */
};

/* Nodes of a pool of LoginNodes: one or more. */
struct tern_layout_login {
    char *type_name;
    const struct tern_layout_instance *type; /* NULL outside the catalogue */
    int count;
};

/* A finding of the lint. */
struct tern_layout_note {
    bool error; /* else a warning */
    int line;
    const char *id;   /* its kind: "key-unknown", "efa-type"; tern help checks has the list */
    char *file;       /* the layout's or the sidecar's path, as given */
    char *where;      /* "Scheduling.SlurmQueues[0].Name"; "": the whole file */
    const char *said; /* the mistake, and what to do; inside `text` */
    char *text;       /* "cluster.yaml:12: error: key-unknown: Scheduling...: the mistake..." */
};

/* Most network interfaces of a virtual node; a trn1.32xlarge has so many network cards. */
enum { TERN_LAYOUT_NICS = 8 };

struct tern_layout {
    char *path, *name; /* as given; the folder's name of .../NAME/cluster.yaml, else the file's */
    char *region;      /* NULL when it is not given */
    char *os;
    char *head_type_name, *head_subnet;
    char *key_name;  /* HeadNode.Ssh.KeyName, or NULL */
    size_t n_logins; /* pools of LoginNodes that have nodes */
    struct tern_layout_login *logins;
    const struct tern_layout_instance
        *head_type;     /* NULL outside the catalogue, or after an error */
    char *unknown_type; /* a resource's instance type whose CPUs and memory are not known, so that
                           its nodes cannot be rendered: one outside the catalogue, or "" for a
                           reservation's; NULL: all are known */
    bool memory_scheduling; /* EnableMemoryBasedScheduling */
    int idle_minutes;       /* ScaledownIdletime; -1: dynamic nodes are never switched off */
    size_t n_queues, n_storage;
    struct tern_layout_queue *queues;
    struct tern_layout_storage *storage;
    struct tern_layout_settings custom; /* of the whole slurm.conf */

    /* The sidecar (cluster.tern.yaml for cluster.yaml); defaults hold when there is none. */
    bool gres;           /* gres.neuron: Trainium devices as Slurm resources; default true */
    int virtual_dynamic; /* virtual.dynamic: dynamic nodes a resource that `up` starts; 0 */
    int virtual_idle_s;  /* virtual.idle_s: a dynamic node is switched off so much later; 0: as
                            ScaledownIdletime has it */
    int virtual_nics;    /* virtual.nics: network interfaces of a node; 1 */
    int virtual_tmp_mib; /* virtual.tmp_mib: room of a node's /tmp; 0: that of this machine's disk
                          */
    int topology_leaf;   /* topology.leaf: nodes under one switch; 0: a resource's are */

    char *sidecar;       /* its file's name; NULL: there is none */
    char *sidecar_given; /* the settings that it has: "gres.neuron, virtual.nics" */

    struct tern_layout_vars *vars; /* NULL: no file of variables was given */
    int slurm_release; /* 2311 for 23.11, for which a site's files are; 0: lines that all take */

    size_t n_notes, n_errors; /* at most 1000 notes are kept; n_errors counts those beyond, too */
    size_t n_variables;       /* of these errors: a variable that has no value */
    struct tern_layout_note *notes;
};

/* Every key of a sidecar as an item of a page. */
void tern_layout_describe_sidecar(struct tern_page *page);

/* Read `path` and its sidecar and check both.  NULL with `err` only when a file cannot be read or
 * is no YAML.  Any other mistake stands in `notes`, by file and line, and a layout with n_errors >
 * 0 may be looked at but not rendered.  Free with tern_layout_free (NULL is fine). */
struct tern_layout *tern_layout_load(const char *path, struct tern_err *err);
/* The same with values for its variables: each ${NAME} of a text becomes the value of NAME.
 * `vars` is a file: JSON {"NAME": "value"}, what `aws cloudformation describe-stacks` prints
 * (OutputKey and OutputValue), or lines NAME=value, where <...> is no value.  A variable without a
 * value is a finding. */
struct tern_layout *tern_layout_load_with(const char *path, const char *vars, struct tern_err *err);
/* The value that the file of variables has for `name`; NULL where there is none.  Owned by `l`. */
const char *tern_layout_value(const struct tern_layout *l, const char *name);
void tern_layout_free(struct tern_layout *l);
/* Can nodes be made of it?  -1 with the first error, or with the instance type that is not known.
 */
int tern_layout_usable(const struct tern_layout *l, struct tern_err *err);

/* The second of the two alone. */
int tern_layout_types_known(const struct tern_layout *l, struct tern_err *err);

/* The rules between a layout's keys, for `tern help checks`; NULL after the last.  The same of
 * HyperPod's files. */
struct tern_rule;
const struct tern_rule *tern_layout_rule_row(size_t i);
const struct tern_rule *tern_layout_hyperpod_rule(size_t i);

/* HyperPod's cluster-config.json, provisioning_parameters.json and what `aws fsx
 * describe-file-systems` prints of their file system. Any of the three will do: their keys tell
 * which it is. Each is judged alone and beside the others; `vars` as above, or NULL.  A layout of
 * findings alone; NULL with `err` only when a file cannot be read or is no JSON.  Free with
 * tern_layout_free. */
struct tern_layout *tern_layout_check_hyperpod(char *const *paths, size_t n, const char *vars,
                                               struct tern_err *err);

/* malloc'ed: the layout's name as AWS and Slurm take one: letters, digits and single hyphens, at
 * most 40, the first a letter. */
char *tern_layout_plain_name(const struct tern_layout *l);

/* ------------------------------------------------------------------ nodes */

/* Like nodes: "<queue>-st-<resource>-[1-count]" or "<queue>-dy-...". */
struct tern_layout_group {
    const struct tern_layout_queue *queue;
    const struct tern_layout_resource *resource;
    bool dynamic;
    int count;
};

/* The groups that have nodes, static before dynamic in each resource, in the order in which
 * rendered files name them.  malloc'ed array of *n. */
struct tern_layout_group *tern_layout_groups(const struct tern_layout *l, size_t *n);
/* malloc'ed name of the group's node `i` (from 1), or with i = 0 of all: "trn1-st-cr-[1-4]". */
char *tern_layout_node_name(const struct tern_layout_group *g, int i);
/* malloc'ed: the switches above node `i` (from 1), root first, as Slurm names them: "spine.q-cr".
 */
char *tern_layout_switches(const struct tern_layout *l, const struct tern_layout_group *g, int i);

/* ------------------------------------------------------------------ the layout again */

/* What a normalised layout has beside its own keys; NULL leaves a part out. */
struct tern_layout_more {
    const char *script, *arg; /* OnNodeConfigured of the head node and of every queue */
    const char *bucket;       /* which these nodes may read, where they have no role of their own */
    const char *file_system;  /* the id of an FSx for Lustre to take instead of making one */
};

/* The layout as YAML in one form: Name first and the other keys in the schema's order, true and
 * false, decimal numbers. Texts are quoted where a reader of YAML 1.1 takes them for something
 * else. Variables have their values; comments, anchors and the sidecar are left out.  The same
 * layout gives the same bytes, and a normalised one gives itself. *ret_with_role: so many of the
 * nodes' sections have a role of their own, so that nothing was said of `bucket`.  -1 when the file
 * cannot be read again. */
int tern_layout_normalise(const struct tern_layout *l, const struct tern_layout_more *more,
                          struct tern_buf *to, int *ret_with_role, struct tern_err *err);

/* ------------------------------------------------------------------ Slurm's files */

/* Where the cluster lives.  NULL for a real one: the file then names the settings that a site must
 * fill in. */
struct tern_layout_local {
    const char *cluster_name;
    const char *head_name, *head_addr;
    const char *user;        /* SlurmUser and SlurmdUser */
    const char *state, *log; /* folders, as the cluster's own processes see them */
    const char *spool;       /* SlurmdSpoolDir; with %n where nodes share a file system */
    const char *pid_dir;     /* slurmctld.pid and slurmd-<node>.pid */
    const char *munge_socket;
    const char *conf_dir; /* where the files of this rendering will lie */
    const char *plugin;   /* path of tern_spank.so and its arguments; NULL for none */
    const char *tmp;      /* TmpFS, with %n; NULL where every node has its own /tmp */
    int port;             /* plain mode: slurmctld's, and node i (from 1) gets port + i; else 0 */
    int dynamic;          /* so many dynamic nodes a resource are there from the beginning */
    bool accounting;      /* by slurmdbd on the head */
    bool fleet;           /* the others are started by conf_dir/resume when a job wants them, and
                             switched off by conf_dir/suspend; else nothing starts them */
};

/* The texts; each is empty when the layout needs no such file. */
struct tern_layout_conf {
    struct tern_buf slurm, gres, topology, cgroup, plugstack;
    const char *topology_name; /* topology.conf, or from 25.05 on topology.yaml */
};

/* Render for `local`.  -1 when the layout has errors.  Free with tern_layout_conf_free. */
int tern_layout_render(const struct tern_layout *l, const struct tern_layout_local *local,
                       struct tern_layout_conf *conf, struct tern_err *err);
/* The lines of its nodes and partitions alone, for a real cluster; `with_default`: the first
 * partition is the default one.  -1 when the layout has errors. */
int tern_layout_nodes_text(const struct tern_layout *l, bool with_default, struct tern_buf *to,
                           struct tern_err *err);
void tern_layout_conf_free(struct tern_layout_conf *conf);

#endif
