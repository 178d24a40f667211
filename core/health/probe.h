/* A check of a node: facts are gathered, then a rule makes rows of them.  Both happen in a child
 * process of the runner's (runner.c), which ends a check that hangs.
 *
 *     gather   reads /sys, /proc and the like, or measures; makes no row (but relay.c)
 *     rule     from facts and expectations to rows, and nothing else (rules.c)
 */
#ifndef TERN_HEALTH_PROBE_H
#define TERN_HEALTH_PROBE_H

#include "core/health/health.h"

/* A folder that must take a file. */
struct tern_health_mount {
    struct tern_rules_folder folder;
    bool asked; /* by the caller: it must take a file; else it is looked at only */
    bool fstab; /* a network file system of /etc/fstab: it must be mounted */
};

/* What the machine should have. */
struct tern_health_expected {
    struct tern_rules_expected has;
    size_t n_mounts;
    struct tern_health_mount mount[TERN_RULES_MAX_FOLDERS];
    bool virtual_node; /* of `tern cluster up`: it has the machine's memory and none of its cards */
    bool plain;        /* one that shares even /dev with the machine */
};

struct tern_health_probe {
    const struct tern_health_expected *expected;
    const struct tern_health_options *options;
    const char *root; /* "" or where a test has put its /sys, /dev and /proc */
    const char *check;
    enum tern_rules_severity severity;
    size_t index; /* of several subjects */
    int64_t began_ns;
    int out; /* where rows go */
};

/* A row.  `unit` "" or NULL: `value` means nothing. */
void tern_health_report(const struct tern_health_probe *p, enum tern_health_verdict v,
                        const char *subject, double value, const char *unit, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* The same without subject and value. */
void tern_health_report_only(struct tern_health_probe *p, enum tern_health_verdict v,
                             const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* ok, with a warning. */
void tern_health_warn(struct tern_health_probe *p, const char *subject, double value,
                      const char *unit, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* ok, with words that must be the same on all nodes. */
void tern_health_report_same(struct tern_health_probe *p, const char *same, const char *text);

/* The root before a path, in `to`. */
const char *tern_health_path(const struct tern_health_probe *p, char to[512], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The name that a row gives a folder, the same in the rows of all nodes. It is the folder's tail
 * where the path is longer than a subject may be. */
const char *tern_health_subject(const char *dir);
/* The first line of a small file (proc, sys) without its end; -1 with errno. */
int tern_health_line(const char *path, char *to, size_t n);
/* The number in a small file; -1 when there is none. */
int64_t tern_health_number(const char *path);

/* Fill *expected from options, environment, firmware. */
int tern_health_expected_find(const struct tern_health_options *o, const char *root,
                              struct tern_health_expected *expected, struct tern_err *err);
/* "host:port/key" apart; -1 when it is none. */
int tern_health_address(const char *address, char host[256], char port[8], char key[80]);
/* The clock's offset from the sweep that listens at `address`, and half the round trip, both in
 * milliseconds. */
int tern_health_clock(const char *address, const char *node, double *offset_ms, double *error_ms,
                      struct tern_err *err);

/* ------------------------------------------------------------------ facts */

enum { TERN_HEALTH_MAX_COUNTERS = 192 }; /* three of a device, 64 devices */

/* The steps of taking a file, in their order. */
enum tern_health_step {
    TERN_HEALTH_STEP_DOWN, /* from root */
    TERN_HEALTH_CREATE,
    TERN_HEALTH_WRITE,
    TERN_HEALTH_FSYNC,
    TERN_HEALTH_CLOSE,
    TERN_HEALTH_REMOVE,
    TERN_HEALTH_DONE, /* none failed */
    TERN_HEALTH_LOST, /* the process that tried ended before it could report */
};

struct tern_health_taken {
    enum tern_health_step failed;
    int error; /* errno */
};

/* What was gathered for one check; all zero before. */
struct tern_health_facts {
    struct {
        int n, hidden; /* hidden: the job's cgroup keeps them from it */
        int mute;      /* their files' modes do */
    } neuron;
    struct {
        int n_read, n_unreadable, n_bad;
        struct tern_health_counter {
            char device[32];
            int which;     /* an index of tern_health_counters */
            int64_t value; /* above 0 */
        } bad[TERN_HEALTH_MAX_COUNTERS];
    } ecc;
    struct {
        int error; /* of opening it, 0: it was read */
        int n;
        char last[300];
    } kernel;
    struct {
        int n, up;
        char down[200]; /* one that is not up */
    } efa, nic;
    struct {
        int64_t total_kib, free_kib, hugepages; /* -1: not known */
    } memory;
    struct {
        int error; /* of getrlimit(2) */
        uint64_t memlock, memlock_soft, nofile;
    } limits;
    struct {
        bool failed;
        char why[400];
        double offset_ms, error_ms;
    } clock;
    struct {
        int pid;       /* 0: no process is left over */
        long job;      /* 0: its job is not known */
        int strays;    /* files in /dev/shm */
        char name[64]; /* of one */
    } leftovers;
    struct {
        bool unreadable; /* /proc */
        size_t n;
        int pid; /* of one */
        char name[32];
    } hung;
    struct {
        char same[240];
    } software;
    struct {
        int open_error, room_error;  /* errno */
        bool mounted;                /* it is the top of a file system */
        bool has_blocks, has_inodes; /* the file system counts them */
        uint64_t free_bytes, free_inodes;
        struct tern_health_taken taken;
    } mount;
    struct {
        bool no_memory;
        size_t n, wrong;
        double gb_s;
    } triad;
    struct {
        int error; /* of sched_getaffinity(2) */
        int n, right, bad, first_bad;
    } compute;
    struct {
        bool started;
        size_t n; /* rows, which relay.c has reported */
    } relayed;    /* checks provider and link */
};

/* Files below a Neuron device's stats/hardware. */
struct tern_health_counter_kind {
    const char *file, *remedy;
};
extern const struct tern_health_counter_kind tern_health_counters[];

/* Space and inodes that a folder must have where its size is not named. */
enum { TERN_HEALTH_LEAST_BYTES = 64 << 20, TERN_HEALTH_LEAST_INODES = 1000 };

/* ------------------------------------------------------------------ the table */

/* Stages, as bits of a rule's `where`; and its rule between nodes. */
enum {
    TERN_HEALTH_ON_QUICK = 1 << TERN_HEALTH_STAGE_QUICK,
    TERN_HEALTH_ON_SPOT = 1 << TERN_HEALTH_STAGE_SPOT,
    TERN_HEALTH_ON_FABRIC = 1 << TERN_HEALTH_STAGE_FABRIC,
    TERN_HEALTH_ON_DEEP = 1 << TERN_HEALTH_STAGE_DEEP,
    TERN_HEALTH_ACROSS = 1 << 4,
};

struct tern_health_check {
    struct tern_rule rule; /* its facts are a struct tern_health_facts, its `to` the probe */
    double limit_s;
    enum tern_health_verdict late; /* what it means when it does not end in time */
    void (*gather)(const struct tern_health_probe *p, struct tern_health_facts *f);
};

extern const struct tern_health_check tern_health_checks[];
extern const size_t tern_health_n_checks;
/* Rules between nodes (across.c). */
extern const struct tern_rule tern_health_across[];
extern const size_t tern_health_n_across;

/* One check, to its end: facts, then rows into the probe. */
void tern_health_apply(const struct tern_health_check *check, struct tern_health_probe *p);

void tern_health_gather_neuron(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_ecc(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_kernel(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_efa(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_nic(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_provider(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_mount(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_memory(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_limits(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_clock(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_leftovers(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_hung(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_software(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_triad(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_compute(const struct tern_health_probe *p, struct tern_health_facts *f);
void tern_health_gather_link(const struct tern_health_probe *p, struct tern_health_facts *f);

#endif
