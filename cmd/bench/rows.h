/* What `tern bench fabric` prints: a row an operation and size, as text and as JSON. */
#ifndef TERN_CMD_BENCH_ROWS_H
#define TERN_CMD_BENCH_ROWS_H

#include "core/base/json.h"
#include "core/fabric/fabric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct bench_times { /* microseconds, GB/s */
    double mean_us, p50_us, p99_us, algbw, busbw;
    double cpu_us; /* of the processor, by a rank in a call: the mean over ranks */
    double wrong;  /* values, on the rank with most */
};

struct bench_row {
    const char *op, *type, *redop; /* static, or of the JSON that was read */
    size_t bytes, count;
    int root; /* -1: none */
    struct bench_times ours;
    double memory_us; /* memory.h's work by all ranks at once; 0: not measured */
    bool compared;    /* the rest holds */
    struct bench_times peer;
    const char *setting; /* of the peer; NULL: as it was started */
};

/* Which algorithm serves which sizes, and the measured numbers by which they were chosen. */
int bench_rows_explain(const struct tern_fabric *f, FILE *to, struct tern_err *err);
/* The lines with the columns' names. */
void bench_rows_heading(bool compared);
void bench_rows_print(const struct bench_row *r);
json_t *bench_rows_json(const struct bench_row *r);
/* From bench_rows_json's, which must outlive `r`. */
int bench_rows_parse(const json_t *j, struct bench_row *r, struct tern_err *err);
/* Time of the peer's median call by ours: above 1 ours is faster; 0 when unknown. */
double bench_rows_ratio(const struct bench_row *r);

/* What memory takes by what ours takes, both of a median call; 0 when unknown. */
double bench_rows_share(const struct bench_row *r);

/* A whole table: "fabric", "ranks", "in_place" as --in-place was given, "rows", "average_busbw",
 * "wrong", and "peer" when compared. */
json_t *bench_rows_table(const char *fabric, const char *peer, int ranks, bool in_place,
                         json_t *rows);
/* Print it, or under rows that were printed as text, their summary; `silent`: neither.  TERN_FAILED
 * when values were wrong.  Takes the table. */
int bench_rows_finish(json_t *table, bool json, bool silent, struct tern_err *err);

#endif
