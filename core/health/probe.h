/* What a check is and what it may use.  A check runs in a child process of its own making; it says
 * one row or more and returns. */
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
struct tern_health_want {
    struct tern_rules_expected has;
    size_t n_mounts;
    struct tern_health_mount mount[TERN_RULES_MAX_FOLDERS];
    bool virtual_node; /* of `tern cluster up`: it has the machine's memory and none of its cards */
    bool plain;        /* one that shares even /dev with the machine */
};

struct tern_health_probe {
    const struct tern_health_want *want;
    const struct tern_health_options *options;
    const char *root; /* "" or where a test has put its /sys, /dev and /proc */
    const char *check;
    enum tern_rules_severity severity;
    size_t index; /* of several subjects */
    int64_t began_ns;
    int out; /* where rows go */
};

/* Say a row.  `unit` "" or NULL: `value` means nothing. */
void tern_health_say(struct tern_health_probe *p, enum tern_health_verdict v, const char *subject,
                     double value, const char *unit, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* ok, with a warning. */
void tern_health_warn(struct tern_health_probe *p, const char *subject, double value,
                      const char *unit, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* ok, with words that must be the same on all nodes. */
void tern_health_say_same(struct tern_health_probe *p, const char *same, const char *text);

/* The root before a path, in `to`. */
const char *tern_health_path(const struct tern_health_probe *p, char to[512], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What a row calls a folder, so that the rows of all nodes call it the same: its tail where it is
 * longer than a subject may be. */
const char *tern_health_subject(const char *dir);
/* The first line of a small file (proc, sys) without its end; -1 with errno. */
int tern_health_line(const char *path, char *to, size_t n);
/* The number in a small file; -1 when there is none. */
int64_t tern_health_number(const char *path);

/* Fill `want` from options, environment, firmware. */
int tern_health_want_here(const struct tern_health_options *o, const char *root,
                          struct tern_health_want *want, struct tern_err *err);
/* "host:port/key" apart; -1 when it is none. */
int tern_health_address(const char *address, char host[256], char port[8], char key[80]);
/* The clock's offset from the sweep that listens at `address`, and half the round trip, both in
 * milliseconds. */
int tern_health_clock(const char *address, const char *node, double *offset_ms, double *error_ms,
                      struct tern_err *err);

/* The checks. */
void tern_health_check_neuron(struct tern_health_probe *p);
void tern_health_check_ecc(struct tern_health_probe *p);
void tern_health_check_kernel(struct tern_health_probe *p);
void tern_health_check_efa(struct tern_health_probe *p);
void tern_health_check_nic(struct tern_health_probe *p);
void tern_health_check_provider(struct tern_health_probe *p);
void tern_health_check_mount(struct tern_health_probe *p);
void tern_health_check_memory(struct tern_health_probe *p);
void tern_health_check_hugepages(struct tern_health_probe *p);
void tern_health_check_limits(struct tern_health_probe *p);
void tern_health_check_clock(struct tern_health_probe *p);
void tern_health_check_leftovers(struct tern_health_probe *p);
void tern_health_check_stuck(struct tern_health_probe *p);
void tern_health_check_software(struct tern_health_probe *p);
void tern_health_check_triad(struct tern_health_probe *p);
void tern_health_check_compute(struct tern_health_probe *p);
void tern_health_check_link(struct tern_health_probe *p);

#endif
