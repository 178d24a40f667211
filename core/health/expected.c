/* What a machine should have, and its name. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/probe.h"
#include "core/layout/layout.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const char *tern_health_path(const struct tern_health_probe *p, char to[512], const char *fmt, ...)
{
    int n = snprintf(to, 512, "%s", p->root);
    va_list ap;

    va_start(ap, fmt);
    if (n < 512)
        vsnprintf(to + n, (size_t)(512 - n), fmt, ap);
    va_end(ap);
    return to;
}

int tern_health_line(const char *path, char *to, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, to, n - 1);
    int saved = errno;

    if (fd >= 0)
        close(fd);
    errno = saved;
    if (got < 0)
        return -1;
    to[got] = '\0';
    to[strcspn(to, "\n")] = '\0';
    return 0;
}

int64_t tern_health_number(const char *path)
{
    char line[64];
    int64_t v;

    if (tern_health_line(path, line, sizeof line) < 0)
        return -1;
    line[strcspn(line, " \t")] = '\0';
    return tern_str_int(line, 0, INT64_MAX, &v) < 0 ? -1 : v;
}

void tern_health_node_name(const struct tern_health_options *o, char to[65])
{
    const char *given = o && o->node ? o->node : getenv("SLURMD_NODENAME");

    if (given && *given) {
        snprintf(to, 65, "%s", given);
        return;
    }
    if (gethostname(to, 65) < 0)
        snprintf(to, 65, "unknown");
    to[64] = '\0';
    to[strcspn(to, ".")] = '\0'; /* as slurmd does it */
}

/* ------------------------------------------------------------------ the text form */

/* Slurm knows nodes as its configuration writes them ("Node1", "node1.example.org"); the host's own
 * name may differ.  Names with different domains are different nodes. */
static bool same_node(const char *a, const char *b)
{
    const size_t m = strcspn(a, "."), n = strcspn(b, ".");

    if (a[m] && b[n])
        return strcasecmp(a, b) == 0;
    return m == n && strncasecmp(a, b, n) == 0;
}

/* Is `node` in the host list? */
static bool is_in(const char *list, const char *node)
{
    char **hosts = NULL;
    size_t n = 0;
    bool found = false;

    if (tern_slurm_hosts_expand(list, &hosts, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n && !found; i++)
        found = same_node(hosts[i], node);
    tern_slurm_hosts_free(hosts);
    return found;
}

/* ------------------------------------------------------------------ mounts */

static bool is_network(const char *type)
{
    static const char *const types[] = {"nfs",  "nfs4",       "lustre", "ceph",
                                        "cifs", "fuse.sshfs", "beegfs", "gpfs"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static void add_fstab(struct tern_health_expected *w, const char *root)
{
    char *path = tern_strf("%s/etc/fstab", root), text[4096];
    FILE *f = setmntent(path, "re");
    struct mntent e;

    while (f && w->n_mounts < TERN_RULES_MAX_FOLDERS && getmntent_r(f, &e, text, sizeof text)) {
        struct tern_health_mount m = {.fstab = true};
        bool known = false;
        if (!is_network(e.mnt_type) || hasmntopt(&e, "noauto") ||
            strlen(e.mnt_dir) >= sizeof m.folder.dir)
            continue;
        for (size_t i = 0; i < w->n_mounts; i++)
            if (strcmp(w->mount[i].folder.dir, e.mnt_dir) == 0)
                known = w->mount[i].fstab = true;
        if (known)
            continue;
        snprintf(m.folder.dir, sizeof m.folder.dir, "%s", e.mnt_dir);
        w->mount[w->n_mounts++] = m;
    }
    if (f)
        endmntent(f);
    free(path);
}

/* ------------------------------------------------------------------ the machine itself */

/* In plain mode, where nodes share the machine's /run, slurm.conf shows it. */
static void find_virtual(struct tern_health_expected *w)
{
    const char *here = tern_vcluster_local_folder();

    w->virtual_node = here != NULL;
    w->plain = here && strcmp(here, "/run/tern") != 0;
}

/* EC2 names the instance type as the product. */
static void take_firmware(struct tern_health_expected *w, const char *root)
{
    char *path = tern_strf("%s/sys/devices/virtual/dmi/id/product_name", root), name[80];
    const struct tern_layout_instance *t =
        tern_health_line(path, name, sizeof name) == 0 ? tern_layout_instance(name) : NULL;

    free(path);
    if (!t || w->virtual_node)
        return;
    w->has.neuron = t->chips;
    w->has.efa = t->efa;
    w->has.memory_mib = t->memory_mib * 95 / 100;
}

int tern_health_expected_find(const struct tern_health_options *o, const char *root,
                              struct tern_health_expected *expected, struct tern_err *err)
{
    struct tern_health_expected w = {.has = {-1, -1, -1, -1}};
    const char *expect = o->expect       ? o->expect
                         : o->unattended ? NULL
                                         : tern_var("TERN_HEALTH_EXPECT");
    char node[65];

    tern_health_node_name(o, node);
    if (!*root)
        find_virtual(&w);
    take_firmware(&w, root);
    if (expect && tern_rules_expected_read(expect, o->expect ? "--expect" : "TERN_HEALTH_EXPECT",
                                           is_in, node, &w.has, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_mounts; i++) {
        struct tern_health_mount *m = &w.mount[w.n_mounts++];
        m->asked = true;
        if (tern_rules_folder_read(o->mount[i], "--mount", &m->folder, err) < 0)
            return -1;
    }
    add_fstab(&w, root);
    *expected = w;
    return 0;
}

/* ------------------------------------------------------------------ Slurm's table */

/* "neuron:trn1:16(S:0-1),gpu:2" -> 16; 0 when there is none. */
static int64_t gres_count(const char *gres, const char *name)
{
    size_t len = strlen(name);

    for (const char *c = gres; c && *c; c = strchr(c, ',') ? strchr(c, ',') + 1 : NULL) {
        if (strncmp(c, name, len) != 0 || c[len] != ':')
            continue;
        const char *end = c + strcspn(c, ",("), *colon = end;
        while (colon > c && colon[-1] != ':')
            colon--;
        return strtoll(colon, NULL, 10);
    }
    return 0;
}

/* One group of nodes that should have the same. */
struct group {
    char words[120];
    char **names;
    size_t n;
};

static void describe(const char *gres, uint64_t memory_mib, char *to, size_t size)
{
    int64_t neuron = gres_count(gres, "neuron");

    /* A site without GRES for its devices is not one without devices. */
    if (neuron > 0)
        snprintf(to, size, "neuron=%lld,memory=%llu", (long long)neuron,
                 (unsigned long long)memory_mib);
    else
        snprintf(to, size, "memory=%llu", (unsigned long long)memory_mib);
}

int tern_health_known(const char *node, char *expect, size_t n_expect, char *dir, size_t n_dir,
                      struct tern_err *err)
{
    static const char before[] = "tern:mount: ";
    struct tern_slurm_node_state n;

    if (tern_slurm_node_load_state(node, &n, err) < 0)
        return -1;
    describe(n.gres, n.memory_mib, expect, n_expect);
    const char *path = n.reason + sizeof before - 1;
    bool looked = n.drained && tern_str_starts(n.reason, before) && *path == '/';
    snprintf(dir, n_dir, "%.*s", looked ? (int)strcspn(path, ": ") : 0, path);
    return 0;
}

char *tern_health_expect_of(char *const *nodes, size_t n, struct tern_err *err)
{
    enum { MAX_GROUPS = 16 }; /* kinds of nodes in one job */
    struct tern_slurm_nodes *all = NULL;
    struct group group[MAX_GROUPS] = {{.n = 0}};
    struct tern_buf b = {0};
    size_t n_groups = 0;

    if (tern_slurm_nodes_load(&all, err) < 0)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char words[120] = "";
        size_t k = 0, g = 0;
        while (k < all->n && strcmp(all->node[k].name, nodes[i]) != 0)
            k++;
        if (k == all->n)
            continue;
        describe(all->node[k].gres, all->node[k].memory_mib, words, sizeof words);
        while (g < n_groups && strcmp(group[g].words, words) != 0)
            g++;
        if (g == MAX_GROUPS)
            continue;
        if (g == n_groups) {
            n_groups++;
            snprintf(group[g].words, sizeof group[g].words, "%s", words);
            group[g].names = calloc(n, sizeof *group[g].names);
            if (!group[g].names)
                abort();
        }
        group[g].names[group[g].n++] = nodes[i];
    }
    for (size_t g = 0; g < n_groups; g++) {
        char *list = tern_slurm_hosts_compress(group[g].names, group[g].n);
        tern_buf_printf(&b, "%s%s:%s", g ? ";" : "", list, group[g].words);
        free(list);
        free(group[g].names);
    }
    tern_slurm_nodes_free(all);
    return b.data ? b.data : tern_strdup("");
}
