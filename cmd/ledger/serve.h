/* tern ledger serve: requests and their answers (serve_answer.c), and HTTP around them
 * (serve_http.c). */
#ifndef TERN_CMD_LEDGER_SERVE_H
#define TERN_CMD_LEDGER_SERVE_H

#include "cmd/ledger/report.h"

#include <signal.h>

enum { SERVE_TOKEN = 32 }; /* hexadecimal digits: 128 bits */

struct serve {
    char token[SERVE_TOKEN + 1]; /* paths begin with it; "": by the socket's permissions alone */
    int fd;                      /* that listens */
    int every_s;                 /* between two looks of a page */
    int n_args;                  /* runs of a page that names none */
    char **args;
    const char *ledger, *baseline;
    double usd_hour;
};

struct serve_request {
    const char *method, *path; /* as it was sent: no escape is undone */
    const char *host;          /* of the only Host header */
    unsigned n_hosts;
    const char *site; /* Sec-Fetch-Site, or NULL */
    char *runs[COMPARE_RUNS_MAX];
    size_t n_runs;
    bool too_many;
    const char *have; /* the stamp of the data that the page has, or NULL */
};

struct serve_answer {
    unsigned status;
    const char *type;
    char *body; /* malloc'ed */
    size_t len;
};

/* Always an answer.  One thread at a time. */
void serve_answer(const struct serve *s, const struct serve_request *q,
                  struct serve_answer *ret_answer);

/* Serve until SIGINT or SIGTERM, which are blocked in all threads. */
int serve_http(struct serve *s, struct tern_err *err);
/* 0, or the error of a tern that cannot serve, with what to do. */
int serve_http_check(struct tern_err *err);

#endif
