#include "core/vcluster/folders.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* The folder above the one that `program` lies in: its prefix.  malloc'ed, or NULL. */
static char *prefix_of(const char *program)
{
    char *folder = tern_fs_dirname(program), *prefix = folder ? tern_fs_dirname(folder) : NULL;

    free(folder);
    return prefix;
}

/* The caller's list, the current folder, HOME, and those of the programs and the plugin. */
int tern_vcluster_folders_list(struct tern_vcluster_plan *p, const struct tern_vcluster_options *o,
                               struct tern_err *err)
{
    /* build/bin -> build, which holds build/plugins too; MUNGE may lie elsewhere than Slurm. */
    char *bin = tern_fs_self_dir();
    char *prefix[] = {tern_fs_dirname(p->bin), bin ? tern_fs_dirname(bin) : NULL,
                      prefix_of(p->munged)};
    const char *const own[] = {".", getenv("HOME"), prefix[0], prefix[1], prefix[2]};
    const size_t n_own = sizeof own / sizeof *own;
    size_t n = 0, k = 0;
    int rc = 0;

    for (const char *const *s = o->share; s && *s; s++)
        n++;
    p->share = tern_alloc(n + n_own + 1, sizeof *p->share, "folders", err);
    if (!p->share)
        rc = -1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (tern_fs_check_folder(o->share[i], /* or_none= */ false, err) < 0) {
            rc = tern_err_prefix(err, "--share");
            continue;
        }
        p->share[k] = realpath(o->share[i], NULL);
        if (!p->share[k++])
            rc = tern_err_sys(err, "--share %s", o->share[i]);
    }
    for (size_t i = 0; rc == 0 && i < n_own; i++) {
        char *path = own[i] ? realpath(own[i], NULL) : NULL;
        if (path && strcmp(path, "/") != 0)
            p->share[k++] = path;
        else
            free(path);
    }
    free(bin);
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        free(prefix[i]);
    return rc;
}

/* Folders below another one of the list are not told again. */
static bool told(char *const *share, char *const *s)
{
    for (char *const *t = share; *t; t++) {
        const size_t n = strlen(*t);
        if (t != s && strncmp(*t, *s, n) == 0 && ((*s)[n] == '/' || (!(*s)[n] && t < s)))
            return true;
    }
    return false;
}

static bool is_hidden(const char *path)
{
    return tern_str_starts(path, "/tmp/") || tern_str_starts(path, "/run/") ||
           tern_str_starts(path, "/dev/shm/");
}

char *tern_vcluster_folders_describe(const struct tern_vcluster_plan *p)
{
    struct tern_buf b = {0};

    if (p->mode == TERN_VCLUSTER_PLAIN) {
        tern_buf_puts(&b, "All nodes share every folder of this machine, /tmp and /dev/shm, too.");
    } else {
        tern_buf_puts(&b, "All nodes share ");
        for (size_t i = 0; i < p->layout->n_storage; i++)
            if (strcmp(p->layout->storage[i].mount_dir, "/home") != 0)
                tern_buf_printf(&b, "%s (the cluster's own), ", p->layout->storage[i].mount_dir);
        for (char **s = p->share; *s; s++)
            if (is_hidden(*s) && !told(p->share, s))
                tern_buf_printf(&b, "%s, ", *s);
        tern_buf_puts(&b, "and this machine's other folders. Each node has its own /tmp");
        if (p->layout->virtual_tmp_mib)
            tern_buf_printf(&b, " (%d MiB)", p->layout->virtual_tmp_mib);
        tern_buf_puts(&b, ", /run, /dev and /dev/shm.");
    }
    return b.data;
}
