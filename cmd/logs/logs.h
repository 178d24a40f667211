/* The parts of `tern logs`: main.c parses options, print.c prints, follow.c waits. */
#ifndef TERN_CMD_LOGS_LOGS_H
#define TERN_CMD_LOGS_LOGS_H

#include <regex.h>

#include "cmd/cmd.h"
#include "core/ledger/ledger.h"
#include "core/logs/read.h"

enum { LOGS_RANGES = 64, LOGS_TAIL = 1000000 };

struct logs_range {
    int64_t from, to; /* -1: the supervisor */
};

struct logs_options {
    char *found; /* the ledger, where none was named; this program's may be a home in it */
    bool follow, no_time, json, raw, progress, color, has_grep;
    const char *node; /* NULL: any */
    struct logs_range ranks[LOGS_RANGES];
    size_t n_ranks;         /* 0: any */
    int64_t since_ns, tail; /* 0: none */
    regex_t grep;
};
extern struct logs_options logs;

/* Is a log of this rank and node wanted? (tern_logs_choose) */
bool logs_choose(void *self, int64_t rank, const char *node);
/* Print a line if it is wanted. */
void logs_line(const struct tern_logs_line *line, unsigned attempt);
/* Print the last `logs.tail` wanted lines. */
int logs_tail(struct tern_logs_reader *r, unsigned attempt, struct tern_err *err);
/* Print all wanted lines of some attempts. */
int logs_print(const char *ledger, const char *id, unsigned first, unsigned last,
               struct tern_err *err);
/* Print all of attempt `first`, and follow it and later attempts. */
int logs_follow(const char *ledger, const char *id, unsigned first, struct tern_err *err);

#endif
