#include "core/place/nodes.h"

#include "core/base/str.h"
#include "core/slurm/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tern_place_nodes_read(struct tern_place_nodes *nodes, const struct tern_place *p,
                          struct tern_err *err)
{
    struct tern_place_nodes got = {0};

    if (tern_slurm_hosts_expand(p->node_list, &got.host, &got.n, err) < 0)
        return -1;
    got.bad = tern_alloc(got.n + 1, sizeof *got.bad, "nodes", err);
    if (!got.bad) {
        tern_slurm_hosts_free(got.host);
        return -1;
    }
    *nodes = got;
    return 0;
}

void tern_place_nodes_free(struct tern_place_nodes *nodes)
{
    tern_slurm_hosts_free(nodes->host);
    free(nodes->bad);
    *nodes = (struct tern_place_nodes){0};
}

void tern_place_nodes_mark_bad(struct tern_place_nodes *nodes, const char *host)
{
    for (size_t i = 0; i < nodes->n; i++)
        if (strcmp(nodes->host[i], host) == 0)
            nodes->bad[i] = true;
}

/* The hosts that are `bad`, or are not, as a host list; *count of them, at most `max`. */
static char *list_of(const struct tern_place_nodes *nodes, bool bad, size_t max, size_t *count)
{
    char **some = calloc(nodes->n + 1, sizeof *some);

    *count = 0;
    for (size_t i = 0; some && i < nodes->n && *count < max; i++)
        if (nodes->bad[i] == bad)
            some[(*count)++] = nodes->host[i];
    char *list = some ? tern_slurm_hosts_compress(some, *count) : tern_strdup("");
    free(some);
    return list;
}

int tern_place_nodes_choose(const struct tern_place_nodes *nodes, size_t want, struct tern_place *p,
                            struct tern_err *err)
{
    size_t good, bad;
    char *list = list_of(nodes, false, want, &good), *lost = list_of(nodes, true, nodes->n, &bad);
    int rc = 0;

    if (good < want)
        rc = tern_err_set(err, TERN_TEMPFAIL,
                          "%zu nodes are left of the %zu that the run needs: %s failed in this "
                          "job",
                          good, want, lost);
    else if (strlen(list) >= sizeof p->node_list)
        rc = tern_err_set(err, TERN_FAILED, "the list of %zu nodes is too long", want);
    if (rc == 0) {
        snprintf(p->node_list, sizeof p->node_list, "%s", list);
        p->nodes = (int64_t)want;
        p->chosen = want < nodes->n;
    }
    free(list);
    free(lost);
    return rc;
}
