#include "core/vcluster/folders.h"

#include "core/base/str.h"

#include <string.h>

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
