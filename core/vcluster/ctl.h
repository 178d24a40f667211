/* Between the supervisor and the programs outside: one request and one answer a connection, as
 * fixed structs over a SOCK_SEQPACKET socket <folder>/ctl.  Descriptors travel beside an answer. */
#ifndef TERN_VCLUSTER_CTL_H
#define TERN_VCLUSTER_CTL_H

#include <stdint.h>

#include "core/vcluster/plan.h"

enum tern_vcluster_ctl_op {
    TERN_VCLUSTER_CTL_INFO,  /* of the cluster, and what has befallen the node */
    TERN_VCLUSTER_CTL_ENTER, /* answers with the folder of /proc of the head's or a node's
                              * first process */
    TERN_VCLUSTER_CTL_OFF,
    TERN_VCLUSTER_CTL_ON,
    TERN_VCLUSTER_CTL_BREAK,
    TERN_VCLUSTER_CTL_MEND,
};

struct tern_vcluster_ctl_request {
    uint32_t size;    /* of this struct: other versions of tern are refused by it */
    uint32_t op;      /* enum tern_vcluster_ctl_op */
    char node[80];    /* "": the head */
    uint32_t trouble; /* enum tern_vcluster_trouble, of a break */
};

struct tern_vcluster_ctl_answer {
    uint32_t size;
    int32_t code;  /* enum tern_code */
    uint32_t mode; /* enum tern_vcluster_mode */
    uint32_t user_namespace;
    uint32_t n_nodes;
    uint32_t trouble; /* that a mend ended, or of the node of an INFO or of a switching on */
    char text[400];   /* the reason, when `code` is not 0 */
};

/* A listening socket in folder `dir`. */
int tern_vcluster_ctl_listen(const char *dir, struct tern_err *err);
/* Is the cluster's folder this user's?  Else TERN_USAGE, with the command to type. */
int tern_vcluster_ctl_check_folder(const char *dir, struct tern_err *err);
/* Send a request to the supervisor of `dir`.  A refusal is an error; another user's folder or
 * supervisor, and a missing one, are TERN_USAGE.  *folder (or NULL) is the descriptor beside the
 * answer or -1; *supervisor (or NULL) is its process, as the caller sees it.
 *
 * The supervisor serves one request after the other: the caller reports the wait after some
 * seconds, and ends with TERN_TEMPFAIL after ten minutes. *a is set by an answer alone, a refusal
 * among them. */
int tern_vcluster_ctl_call(const char *dir, const struct tern_vcluster_ctl_request *q,
                           struct tern_vcluster_ctl_answer *a, int *folder, pid_t *supervisor,
                           struct tern_err *err);
/* The supervisor's side: take one request from `listener`; its node ends in NUL.  The connection,
 * or -1 when the request gets no answer: its caller has gone, too. */
int tern_vcluster_ctl_accept(int listener, struct tern_vcluster_ctl_request *q);
/* Send and close.  `folder` may be -1. */
void tern_vcluster_ctl_answer(int connection, const struct tern_vcluster_ctl_answer *a, int folder);

#endif
