/* Is a node fit to train?  Checks with an id, a limit and one verdict each; what they say taken
 * together over the nodes; and what follows from it in Slurm.
 *
 *     struct tern_health_options o = {.stage = TERN_HEALTH_STAGE_QUICK};
 *     struct tern_health_rows rows = {0};
 *     tern_health_check_local(&o, &rows, &err);                    // this machine
 *     tern_health_sweep(&s, &rows, &err);                   // or: every node of the job
 *     tern_health_judge(&rows, nodes, n, &judged, &err);    // whose fault is what
 *     tern_health_drain(name, check, text, NULL, &done, &err);
 *
 * The law of it: a node's own fault, the fabric's, the shared storage's and "could not check" are
 * four things.  Only the first drains a node.  What fails on most nodes is no node's fault.
 *
 * Every check runs in a child process with a limit of its own, so a mount that hangs or a process
 * that cannot be killed becomes a row and never a wait.  Not thread-safe: the calls fork.
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
    TERN_HEALTH_UNKNOWN,     /* could not be checked; drains nobody, stops nothing */
    TERN_HEALTH_FABRIC_BAD,  /* the network between nodes */
    TERN_HEALTH_STORAGE_BAD, /* shared storage, for all who use it */
    TERN_HEALTH_NODE_BAD,    /* this node: exclude and drain it */
};

const char *tern_health_verdict_name(enum tern_health_verdict v);  /* "node_bad" */
const char *tern_health_severity_name(enum tern_rules_severity s); /* "error" */

/* What a check found.  Plain data: a row travels through pipes and sockets. */
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

/* Add a copy; what cannot be printed is replaced by '?'.  Rows over a million are dropped. */
void tern_health_rows_add(struct tern_health_rows *rows, const struct tern_health_row *row);
void tern_health_rows_free(struct tern_health_rows *rows);

/* A new reference. */
json_t *tern_health_row_json(const struct tern_health_row *row);
/* One object as the above; the row is untrusted: texts are cut and cleaned, words must be known. */
int tern_health_row_parse(const char *text, size_t len, struct tern_health_row *row,
                          struct tern_err *err);

/* ------------------------------------------------------------------ checks of one machine */

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
    /* What the machine should have: "neuron=16,efa=8,memory=498073,hugepages=5128" (memory in MiB);
     * several for parts of a job: "trn1-[1-4]:neuron=16;cpu-1:neuron=0".  NULL: told by the
     * instance type that the firmware names (DMI), where the catalogue knows it.
     * TERN_HEALTH_EXPECT holds where this is NULL. */
    const char *expect;
    /* Folders that must take a file: "/fsx" or "/fsx:10G" (so much free).  Network file systems of
     * /etc/fstab are looked at besides. */
    const char *mount[TERN_RULES_MAX_FOLDERS];
    size_t n_mounts;
    bool unattended;     /* Prolog or HealthCheckProgram: nothing is read from the environment */
    const char *node;    /* this node's name; NULL: SLURMD_NODENAME, else the host's */
    const char *fabric;  /* "host:port/key" where the nodes meet for check "link"; NULL: alone */
    const char *collect; /* "host:port/key" of a sweep, for the clock; NULL: no clock check */
};

/* Run the stage's checks here and add their rows.  -1 only for options that make no sense. */
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
 *   - a failure that more than half of the nodes share is nobody's: storage_bad, fabric_bad, or for
 *     the other checks unknown, a matter of the site's settings;
 *   - storage that fails on fewer nodes is those nodes' own.
 * Numbers of virtual nodes, which wait for each other on one machine's cores, are judged at 10 %
 * instead of 80 %, and 4 ms of a latency count for nothing. */
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
    const char *program;                       /* path of tern-health, the same on every node */
    const char *expect, *only, *skip;          /* as above */
    const char *mount[TERN_RULES_MAX_FOLDERS]; /* as above */
    size_t n_mounts;
    double limit_s; /* until the last answer; 0: 10 s, 35, 65 and 600 by stage: 5 s for srun on top
                       of the nodes' own time.  An srun that stays then has 1 s to end its step */
};

/* Run the checks on all nodes as one srun step and collect the rows: nodes connect back, prove with
 * a key that they were sent, compare clocks and send their rows.  A node that does not answer has
 * no rows.  `said`, of `size` bytes, gets srun's last words, "" for none. */
int tern_health_sweep(const struct tern_health_sweep *s, struct tern_health_rows *rows, char *said,
                      size_t size, struct tern_err *err);
/* The node's side of it: send `rows` to `collect`. */
int tern_health_send(const char *collect, const struct tern_health_rows *rows,
                     struct tern_err *err);

/* "trn1-[1-4]:neuron=16,efa=8,memory=498073" from Slurm's own table for the nodes of a job: one
 * RPC.  malloc'ed. */
char *tern_health_expect_of(char *const *nodes, size_t n, struct tern_err *err);
/* The same of one node, without its name, in `expect`; and in `dir` the folder that tern has
 * drained it for (check "mount"), "" when that is not so: whoever checks the node looks there
 * again.  One RPC. */
int tern_health_known(const char *node, char *expect, size_t n_expect, char *dir, size_t n_dir,
                      struct tern_err *err);

/* ------------------------------------------------------------------ Slurm */

/* "tern:mount: /fsx is read-only": ASCII without control characters and quotes, at most 200 bytes.
 * Returns `to`. */
char *tern_health_reason(char *to, size_t n, const char *check, const char *text);
/* Is `reason` one that tern gave?  `check`, of 16 bytes, gets its id (NULL: not wanted). */
bool tern_health_reason_ours(const char *reason, char *check);

enum tern_health_drained {
    TERN_HEALTH_DRAINED,  /* now */
    TERN_HEALTH_ALREADY,  /* by tern, earlier */
    TERN_HEALTH_FOREIGN,  /* somebody else's reason stands there, and stays */
    TERN_HEALTH_MAY_NOT,  /* not this user's to do; the error says what to ask the admin */
    TERN_HEALTH_EPIDEMIC, /* too many nodes are drained for this check already */
};
/* Drain `node`.  `alone`: the caller sees no other node (HealthCheckProgram); a drain then looks at
 * the others afterwards and takes itself back when the same befell more than a quarter of them.
 *
 * The node's state is read directly before each change, and no foreign drain is touched.  Slurm
 * knows no change on a condition: an admin's drain that falls between these two requests loses its
 * reason to tern's (the node stays drained), or is taken back with tern's. */
int tern_health_drain(const char *node, const char *check, const char *text, bool alone,
                      enum tern_health_drained *done, struct tern_err *err);
/* Undo a drain of tern's.  `well`: rows of checks made now; only a drain for a check that is ok
 * among them is undone (NULL: any).  *mended tells whether there was one. */
int tern_health_mend(const char *node, const struct tern_health_rows *well, bool *mended,
                     struct tern_err *err);

#endif
