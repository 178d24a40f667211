/* Lists of host names. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"

#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

/* 23.11 took the pointer out of hostlist_t. */
typedef __typeof__(slurm_hostlist_create("")) hostlist;

int tern_slurm_hosts_expand(const char *list, char ***hosts, size_t *n, struct tern_err *err)
{
    enum { MAX_HOSTS = 65536 };
    hostlist hl = slurm_hostlist_create(list);
    int count = hl ? slurm_hostlist_count(hl) : 0;

    if (!hl || count < 0 || count > MAX_HOSTS) {
        if (hl)
            slurm_hostlist_destroy(hl);
        return tern_err_set(err, TERN_USAGE, "'%.200s' is not a host list of at most %d hosts",
                            list, (int)MAX_HOSTS);
    }
    char **names = tern_alloc((size_t)count + 1, sizeof *names, "a host list", err);
    size_t i = 0;
    while (names && i < (size_t)count && (names[i] = slurm_hostlist_shift(hl)))
        i++;
    slurm_hostlist_destroy(hl);
    if (!names)
        return -1;
    *hosts = names;
    *n = i;
    return 0;
}

void tern_slurm_hosts_free(char **hosts)
{
    for (size_t i = 0; hosts && hosts[i]; i++)
        free(hosts[i]);
    free(hosts);
}

char *tern_slurm_hosts_compress(char *const *hosts, size_t n)
{
    hostlist hl = slurm_hostlist_create("");
    size_t room = 16;
    char *s = NULL;

    /* Into memory of ours: 24.11 has no call that allocates for free().  At its longest a list
     * names every host, with a comma and a pair of brackets each. */
    for (size_t i = 0; hl && i < n; i++) {
        slurm_hostlist_push_host(hl, hosts[i]);
        room += strlen(hosts[i]) + 3;
    }
    if (hl && (s = malloc(room)) && slurm_hostlist_ranged_string(hl, room, s) < 0) {
        free(s);
        s = NULL;
    }
    if (hl)
        slurm_hostlist_destroy(hl);
    return s ? s : tern_strdup("");
}
