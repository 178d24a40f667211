/* Is a node fit to train?  Checks with an id, a limit and one verdict each; rules between the
 * nodes' rows; drains and replacements in Slurm.
 *
 *     struct tern_health_options o = {.stage = TERN_HEALTH_STAGE_QUICK};
 *     struct tern_health_rows rows = {0};
 *     tern_health_check_local(&o, &rows, &err);                    // this machine
 *     tern_health_sweep(&s, &rows, &err);                   // or: every node of the job
 *     tern_health_judge(&rows, nodes, n, &judged, &err);    // which fault is a node's
 *     tern_health_drain(name, check, text, NULL, &done, &err);
 *
 * A node's own fault, the fabric's, the shared storage's and "could not check" are four verdicts.
 * Only the first drains a node.  A failure on most nodes is no node's fault.
 *
 * A check is a row of a table (core/rules; rules.c, across.c).  It runs in a child process with a
 * limit of its own, so that a mount that hangs becomes a row and never a wait.  Not thread-safe:
 * the calls fork.
 */
#ifndef TERN_HEALTH_HEALTH_H
#define TERN_HEALTH_HEALTH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/rules/rules.h"

/* ------------------------------------------------------------------ rows */

/* From best to worst.  The names are the ledger's. */
enum tern_health_verdict {
    TERN_HEALTH_OK,
    TERN_HEALTH_SKIPPED,     /* switched off, or there is nothing here to check */
    TERN_HEALTH_UNKNOWN,     /* could not be checked; drains no node, stops no run */
    TERN_HEALTH_FABRIC_BAD,  /* the network between nodes */
    TERN_HEALTH_STORAGE_BAD, /* shared storage, for all its users */
    TERN_HEALTH_NODE_BAD,    /* this node: exclude and drain it */
};

const char *tern_health_verdict_name(enum tern_health_verdict v);  /* "node_bad" */
const char *tern_health_severity_name(enum tern_rules_severity s); /* "error" */

/* A check's finding.  Plain data: a row travels through pipes and sockets. */
struct tern_health_row {
    char check[16];   /* its id: "mount" */
    char subject[64]; /* of several: "/fsx", a neighbour's name; "" when there is one only */
    char node[65];
    enum tern_health_verdict verdict;
    enum tern_rules_severity severity; /* a warning comes with verdict ok */
    double value;                      /* 0 without `unit` */
    char unit[12];                     /* "ms", "MiB", "MB/s", "devices"; "" for none */
    double seconds;                    /* that it took */
    char text[400];                    /* one line, with what to do when it is bad */
    bool virtual_node;                 /* of `tern cluster up` */
    char same[240]; /* must be equal on all nodes: "kernel=6.1 tern=ab12"; "" for nothing */
};

/* Starts as {0}; freed with tern_health_rows_free. */
struct tern_health_rows {
    size_t n, cap;
    struct tern_health_row *row;
};

/* Add a copy, with '?' for bytes that cannot be printed.  Rows over a million are dropped. */
void tern_health_rows_add(struct tern_health_rows *rows, const struct tern_health_row *row);
void tern_health_rows_free(struct tern_health_rows *rows);

/* A new reference. */
json_t *tern_health_row_json(const struct tern_health_row *row);
/* One object as the above; the row is untrusted: texts are cut and cleaned, words must be known. */
int tern_health_row_parse(const char *text, size_t len, struct tern_health_row *row,
                          struct tern_err *err);

/* ------------------------------------------------------------------ checks of one machine */

/* Is this a node of SageMaker HyperPod?  Its agent makes /opt/sagemaker_cluster, looked for below
 * TERN_HEALTH_ROOT. */
bool tern_health_on_hyperpod(void);

enum tern_health_stage {
    TERN_HEALTH_STAGE_QUICK,  /* 5 s at most, here and below of a node's own time */
    TERN_HEALTH_STAGE_SPOT,   /* 30 s: memory and arithmetic */
    TERN_HEALTH_STAGE_FABRIC, /* 60 s: between nodes */
    TERN_HEALTH_STAGE_DEEP,   /* all of them, longer */
};
/* "quick" -> the stage; -1 for another word. */
int tern_health_stage_of(const char *word);
const char *tern_health_stage_name(enum tern_health_stage s);

struct tern_health_options {
    enum tern_health_stage stage;
    const char *only, *skip; /* ids with commas between; NULL.  TERN_HEALTH_SKIP skips too */
    /* What the machine should have (tern_rules_expected_read).  NULL: TERN_HEALTH_EXPECT's, else
     * that of the instance type that the firmware names (DMI), where the catalogue knows it. */
    const char *expect;
    /* Folders that must take a file (tern_rules_folder_read).  Network file systems of /etc/fstab
     * are checked besides. */
    const char *mount[TERN_RULES_MAX_FOLDERS];
    size_t n_mounts;
    bool unattended;     /* Prolog or HealthCheckProgram: the environment is not read */
    const char *node;    /* this node's name; NULL: SLURMD_NODENAME, else the host's */
    const char *fabric;  /* "host:port/key" where the nodes meet for check "link"; NULL: alone */
    const char *collect; /* "host:port/key" of a sweep, for the clock; NULL: no clock check */
};

/* Run the stage's checks on this machine and add their rows.  -1 only for wrong options. */
int tern_health_check_local(const struct tern_health_options *o, struct tern_health_rows *rows,
                            struct tern_err *err);

/* A row of the table of checks. */
struct tern_health_about {
    const struct tern_rule *rule;
    const char *stages; /* "quick deep"; "nodes" for a rule between nodes */
    double limit_s;     /* 0: it takes no time */
};
/* The i-th: checks of a node, then the rules between nodes; false behind the last. */
bool tern_health_about(size_t i, struct tern_health_about *ret_about);

/* This node's name: `o`'s (NULL: it has none), else SLURMD_NODENAME, else the host's. */
void tern_health_node_name(const struct tern_health_options *o, char to[65]);

/* ------------------------------------------------------------------ all nodes together */

struct tern_health_node {
    char name[65];
    enum tern_health_verdict verdict; /* the worst of its rows */
    char check[16];                   /* that row's id; "answer" when the node sent nothing */
    char text[400];
};

/* Freed with tern_health_judged_free. */
struct tern_health_judged {
    size_t n;
    struct tern_health_node *node; /* in the order given */
    size_t count[TERN_HEALTH_NODE_BAD + 1];
    enum tern_health_verdict worst;
};

/* Judge the rows of `n` nodes against each other.  Touches nothing but its arguments: verdicts and
 * texts of rows change where the nodes together show more than each alone:
 *   - what must be the same (software) and differs from the majority, a clock 100 ms off the
 *     median, a memory slower than 80 % of the median: that node is bad;
 *   - links (check "link", subject the neighbour) below 80 % of the median: a node with all its
 *     links slow is bad, one slow link is the fabric's;
 *   - a failure that more than half of the nodes share is no node's: storage_bad, fabric_bad, or
 *     for the other checks unknown, a matter of the site's settings;
 *   - storage that fails on fewer nodes is those nodes' own.
 * Numbers of virtual nodes, which wait for each other on one machine's cores, are judged at 10 %
 * instead of 80 %. 4 ms of a latency count for nothing there. */
int tern_health_judge(struct tern_health_rows *rows, char *const *nodes, size_t n,
                      struct tern_health_judged *judged, struct tern_err *err);
void tern_health_judged_free(struct tern_health_judged *judged);

/* 0, 3 (a node is bad) or 4 (fabric or storage bad, or unknown). */
int tern_health_status(const struct tern_health_judged *judged);

/* ------------------------------------------------------------------ every node of a job */

struct tern_health_sweep {
    enum tern_health_stage stage;
    char *const *nodes; /* names, in the job's order */
    size_t n_nodes;
    int groups; /* above 1: of a heterogeneous job, and the nodes are all that these have */
    const char *program;              /* path of tern-health, the same on every node */
    const char *expect, *only, *skip; /* as in tern_health_options, as `mount` is */
    const char *mount[TERN_RULES_MAX_FOLDERS];
    size_t n_mounts;
    double limit_s; /* until the last answer; 0: 10 s, 35, 65 and 600 by stage: 5 s for srun on top
                       of the nodes' own time.  An srun that stays then has 1 s to end its step */
};

/* Run the checks on all nodes as one srun step and collect the rows.  Nodes connect back, show the
 * step's key, compare clocks and send their rows.  A node that does not answer has no rows. `said`,
 * of `size` bytes, gets the last line that srun printed, "" for none. */
int tern_health_sweep(const struct tern_health_sweep *s, struct tern_health_rows *rows, char *said,
                      size_t size, struct tern_err *err);
/* The node's side of it: send `rows` to `collect`. */
int tern_health_send(const char *collect, const struct tern_health_rows *rows,
                     struct tern_err *err);

/* "trn1-[1-4]:neuron=16,efa=8,memory=498073" from Slurm's own table for the nodes of a job: one
 * RPC.  malloc'ed. */
char *tern_health_expect_of(char *const *nodes, size_t n, struct tern_err *err);
/* The same of one node, without its name, in `expect`.  `dir` becomes the folder that tern has
 * drained it for (check "mount"), to be checked again, "" for none.  One RPC. */
int tern_health_known(const char *node, char *expect, size_t n_expect, char *dir, size_t n_dir,
                      struct tern_err *err);

/* ------------------------------------------------------------------ Slurm */

/* "tern:mount: /fsx is read-only": ASCII without control characters and quotes, at most 200 bytes.
 * Returns `to`. */
char *tern_health_reason(char *to, size_t n, const char *check, const char *text);
/* Did tern give this reason?  `check`, of 16 bytes, gets its id; it may be NULL. */
bool tern_health_reason_ours(const char *reason, char *check);

enum tern_health_drained {
    TERN_HEALTH_DRAINED,  /* now */
    TERN_HEALTH_ALREADY,  /* by tern, earlier */
    TERN_HEALTH_FOREIGN,  /* it has another reason, which stays */
    TERN_HEALTH_MAY_NOT,  /* this user may not; the error has the admin's command */
    TERN_HEALTH_EPIDEMIC, /* too many nodes are drained for this check already */
};
/* Drain `node`.  `alone`: the caller sees no other node (HealthCheckProgram).  The drain is then
 * undone when more than a quarter of the nodes turn out to be drained for the same check.
 *
 * The node's state is read directly before each change, and a drain with another reason stays.
 * Slurm has no conditional change. An admin's drain that falls between these two requests loses its
 * reason to tern's (the node stays drained), or is undone with tern's. */
int tern_health_drain(const char *node, const char *check, const char *text, bool alone,
                      enum tern_health_drained *done, struct tern_err *err);
/* Undo a drain of tern's.  `well`: rows of checks made now; only a drain for a check that is ok
 * among them is undone (NULL: any).  *mended: was there one? */
int tern_health_undrain(const char *node, const struct tern_health_rows *well, bool *mended,
                        struct tern_err *err);

#endif
