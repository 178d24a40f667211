/* PMIx, as srun --mpi=pmix and mpirun speak it (https://pmix.github.io). */
#include "core/fabric/wireup.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
    pmix_proc_t self;
    int round;
};

static int fail(struct tern_err *err, const char *what, pmix_status_t rc)
{
    return tern_err_set(err, TERN_TEMPFAIL, "PMIx: %s: %s", what, PMIx_Error_string(rc));
}

static int exchange(struct wireup *w, const uint8_t *blob, uint8_t *all, struct tern_err *err)
{
    struct state *s = w->state;
    pmix_proc_t who = s->self;
    pmix_value_t v, *got;
    pmix_info_t info[2];
    bool collect = true;
    int limit = (int)(w->deadline_ns / 1000000000) + 1;
    char key[32];
    pmix_status_t rc;

    snprintf(key, sizeof key, "tern.%d", s->round++);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)(uintptr_t)blob;
    v.data.bo.size = WIREUP_BLOB;
    if ((rc = PMIx_Put(PMIX_GLOBAL, key, &v)) || (rc = PMIx_Commit()))
        return fail(err, "cannot publish this rank's address", rc);
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &limit, PMIX_INT);
    who.rank = PMIX_RANK_WILDCARD;
    rc = PMIx_Fence(&who, 1, info, 2);
    if (rc)
        return fail(err, "not all ranks arrived", rc);
    for (int r = 0; r < w->size; r++) {
        who.rank = (pmix_rank_t)r;
        if ((rc = PMIx_Get(&who, key, NULL, 0, &got)))
            return tern_err_set(err, TERN_TEMPFAIL, "PMIx: rank %d published no address: %s", r,
                                PMIx_Error_string(rc));
        bool fits = got->type == PMIX_BYTE_OBJECT && got->data.bo.size == WIREUP_BLOB;
        if (fits)
            memcpy(all + (size_t)r * WIREUP_BLOB, got->data.bo.bytes, WIREUP_BLOB);
        PMIX_VALUE_RELEASE(got);
        if (!fits)
            return tern_err_set(err, TERN_FAILED, "rank %d runs another version of tern", r);
    }
    return 0;
}

static void finalize(struct wireup *w)
{
    if (w->state)
        PMIx_Finalize(NULL, 0);
    free(w->state);
    w->state = NULL;
}

int tern_fabric_wireup_pmix(struct wireup *w, struct tern_err *err)
{
    struct state *s = calloc(1, sizeof *s);
    pmix_value_t *v;

    if (!s)
        return tern_err_set(err, TERN_FAILED, "out of memory");
    pmix_status_t rc = PMIx_Init(&s->self, NULL, 0);
    if (rc) {
        free(s);
        return fail(err, "cannot reach the launcher (srun --mpi=pmix or mpirun)", rc);
    }
    w->state = s;
    w->name = "PMIx";
    w->exchange = exchange;
    w->close = finalize;
    pmix_proc_t job = s->self;
    job.rank = PMIX_RANK_WILDCARD;
    if ((rc = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &v)))
        return fail(err, "the launcher does not tell the number of ranks", rc);
    w->rank = (int)s->self.rank;
    w->size = (int)v->data.uint32;
    PMIX_VALUE_RELEASE(v);
    return 0;
}
