/* One pass over texts: a new process tokenises JSONL files, and is timed from its start. */
#ifndef TERN_CMD_BENCH_PASS_H
#define TERN_CMD_BENCH_PASS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_pass_options {
    const char *tokenizer; /* as typed: a file or a folder */
    const char *model;     /* the file that tern reads of it */
    char **files;
    int n_files;
    bool all_cores;     /* else it stays on one */
    const char *set;    /* the token set that our pass writes */
    const char *python; /* that has the peers' libraries */
    const char *script; /* token_peers.py */
};

struct bench_pass {
    double seconds;     /* from its start: ours to its end, a peer's until the ids are there */
    double own_seconds; /* a peer's, from loading the model on */
    double cpu_seconds;
    uint64_t n_tokens; /* without BOS and EOS */
    char sha256[65];   /* hex, of the ids as u32, little-endian */
    /* Ours alone. */
    uint64_t n_docs, text_bytes;
    /* A peer's alone. */
    char version[64];
    char cannot[256]; /* why it does not read this model; else "" */
};

/* From now on SIGINT, SIGTERM and SIGHUP make the pass under way fail. */
void bench_pass_catch_signals(void);

/* `tern data build` to o->set.  TERN_USAGE when it refused a file: it has said why. */
int bench_pass_ours(const struct bench_pass_options *o, struct bench_pass *ret_pass,
                    struct tern_err *err);
/* The library `peer`, by its Python module's name. */
int bench_pass_peer(const struct bench_pass_options *o, const char *peer,
                    struct bench_pass *ret_pass, struct tern_err *err);

#endif
