#include "core/vcluster/cause.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/vcluster/rootfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_vcluster_cause_words(const struct tern_vcluster_plan *p, const char *log, const char *of,
                               char *to, size_t n)
{
    char *path = tern_strf("%s/log/%s",
                           p->mode == TERN_VCLUSTER_PLAIN ? p->dir : TERN_VCLUSTER_ROOT_STATE, log);
    FILE *f = fopen(path, "r");
    char line[400];

    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (tern_str_starts(line, of) && (strcasestr(line, "error") || strcasestr(line, "fatal")))
            snprintf(to, n, "%s", line);
    }
    if (f)
        fclose(f);
    free(path);
}

/* malloc'ed text of a log, or NULL. */
static char *log_of(const struct tern_vcluster_plan *p, const char *name)
{
    char *path = tern_strf("%s/log/%s", p->dir, name), *text = NULL;
    size_t len;

    if (tern_fs_read(path, 16 << 20, &text, &len, NULL) < 0)
        text = NULL;
    free(path);
    return text;
}

/* Without namespaces all nodes have one host name, which a Slurm accepts once unless it was built
 * for several slurmd a machine.  Some releases call such nodes idle, and no step reaches them. */
int tern_vcluster_cause_several(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    char *text = p->mode == TERN_VCLUSTER_PLAIN ? log_of(p, "slurmctld.log") : NULL;
    int rc = 0;

    if (text && (strstr(text, "Duplicated NodeHostName") || /* from 25.05 on; and to 24.11: */
                 strstr(text, "At least as many NodeAddr are required as NodeName")))
        rc = tern_err_set(err, TERN_FAILED,
                          "%s was built without --enable-multiple-slurmd, and runs several nodes "
                          "in namespaces only",
                          p->slurmctld);
    free(text);
    return rc;
}

/* A node's first process says why it ends before there is a slurmd. */
static int check_starts(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    static const char error[] = "tern cluster: error: ";
    char *text = p->mode == TERN_VCLUSTER_PLAIN ? NULL : log_of(p, "supervisor.log");
    const char *at = text ? strstr(text, error) : NULL;
    int rc = 0;

    if (at) {
        at += strlen(error);
        rc = tern_err_set(err, TERN_FAILED, "%.*s", (int)strcspn(at, "\n"), at);
    }
    free(text);
    return rc;
}

int tern_vcluster_cause_find(const struct tern_vcluster_plan *p, bool idle, struct tern_err *err)
{
    if (tern_vcluster_cause_several(p, err) < 0)
        return -1;
    return idle ? 0 : check_starts(p, err);
}
