/* slurm.conf and the files that it includes, as slurm.conf(5) has them. */
#include "core/apply/parts.h"

#include "core/base/again.h"
#include "core/base/fs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

static const char file_name[] = "tern-nodes.conf";

/* ------------------------------------------------------------------ lines */

char *tern_apply_line(const char **at, int *line)
{
    struct tern_buf b = {0};
    bool more = true;

    if (!**at)
        return NULL;
    while (more && **at) {
        const char *s = *at;
        const size_t len = strcspn(s, "\n");
        size_t used = 0;
        while (used < len && (s[used] != '#' || (used && s[used - 1] == '\\')))
            used++;
        more = used == len && len && s[len - 1] == '\\';
        tern_buf_add(&b, s, more ? len - 1 : used);
        *at = s + len + (s[len] == '\n');
        (*line)++;
    }
    while (b.len && isspace((unsigned char)b.data[b.len - 1]))
        b.data[--b.len] = '\0';
    return b.data ? b.data : tern_strdup("");
}

char *tern_apply_value(const char *line, const char *key)
{
    const size_t len = strlen(key);

    for (const char *s = line; *(s += strspn(s, " \t"));) {
        const char *end = s + strcspn(s, "= \t");
        const bool is = (size_t)(end - s) == len && strncasecmp(s, key, len) == 0 && *end == '=';
        s = *end == '=' ? end + 1 : end;
        const bool quoted = *s == '"';
        const size_t n = quoted ? strcspn(s + 1, "\"") : strcspn(s, " \t");
        if (is)
            return tern_strf("%.*s", (int)n, s + quoted);
        s += n + quoted;
        s += *s == '"';
    }
    return NULL;
}

bool tern_apply_listed(const char *list, const char *word)
{
    const size_t len = strlen(word);

    for (const char *s = list; *s; s += strspn(s, ",")) {
        const size_t n = strcspn(s, ",");
        if (n >= len && strncasecmp(s, word, len) == 0 && (n == len || s[len] == ':'))
            return true;
        s += n;
    }
    return false;
}

/* ------------------------------------------------------------------ slurm.conf */

static void add_def(struct tern_apply *a, bool partition, char *names, const char *file, int line)
{
    a->def = reallocarray(a->def, a->n_defs + 1, sizeof *a->def);
    if (!a->def)
        abort();
    a->def[a->n_defs++] = (struct tern_apply_def){partition, names, tern_strdup(file), line};
}

/* A line of a file that is the site's. */
static void note_line(struct tern_apply *a, const char *text, const char *file, int line)
{
    char *nodes = tern_apply_value(text, "NodeName");
    char *partition = tern_apply_value(text, "PartitionName");
    char *types = tern_apply_value(text, "GresTypes");

    if (types)
        a->gres_neuron = tern_apply_listed(types, "neuron"); /* the last line holds */
    free(types);
    if (nodes && strcasecmp(nodes, "DEFAULT") != 0)
        add_def(a, false, nodes, file, line);
    else
        free(nodes);
    if (partition && strcasecmp(partition, "DEFAULT") != 0) {
        char *is_default = tern_apply_value(text, "Default");
        if (is_default && strcasecmp(is_default, "YES") == 0) {
            free(a->other_default);
            a->other_default = tern_strdup(partition);
        }
        free(is_default);
        add_def(a, true, partition, file, line);
    } else {
        free(partition);
    }
}

/* "include PATH": the path, malloc'ed; NULL of another line. */
static char *included_path(const struct tern_apply *a, const char *text)
{
    text += strspn(text, " \t");
    if (strncasecmp(text, "include", 7) != 0 || !isspace((unsigned char)text[7]))
        return NULL;
    char *dir = tern_fs_dirname(a->conf), *path;
    path = tern_fs_join(dir, text + 7 + strspn(text + 7, " \t"));
    free(dir);
    return path;
}

static int read_conf(struct tern_apply *a, const char *path, int depth, struct tern_err *err);

static int read_included(struct tern_apply *a, const char *path, const char *from, int line,
                         int depth, struct tern_err *err)
{
    enum { MAX_DEPTH = 8 };

    if (strcmp(path, a->file) == 0) {
        if (a->included)
            return tern_err_set(err, TERN_USAGE, "%s:%d: includes %s twice. Leave one line.", from,
                                line, file_name);
        if (!tern_fs_exists(path))
            return tern_err_set(err, TERN_USAGE,
                                "%s:%d: includes %s, which is not there: slurmctld could not "
                                "start. Make it: touch %s",
                                from, line, file_name, path);
        a->included = true;
        return 0;
    }
    if (depth == MAX_DEPTH)
        return tern_err_set(err, TERN_USAGE, "%s:%d: files include each other %d deep.", from, line,
                            (int)MAX_DEPTH);
    return read_conf(a, path, depth + 1, err);
}

static int read_conf(struct tern_apply *a, const char *path, int depth, struct tern_err *err)
{
    char *text, *line;
    size_t len;
    int number = 0, rc = 0;

    if (tern_fs_read(path, TERN_APPLY_MAX_FILE, &text, &len, err) < 0)
        return -1;
    for (const char *at = text; rc == 0 && (line = tern_apply_line(&at, &number));) {
        char *other = included_path(a, line);
        if (other) {
            rc = read_included(a, other, path, number, depth, err);
        } else {
            note_line(a, line, path, number);
            tern_buf_printf(a->included ? &a->after : &a->before, "%s\n", line);
        }
        free(other);
        free(line);
    }
    free(text);
    return rc;
}

/* Of slurm.conf, which every apply reads. */
static int take_lock(struct tern_apply *a, struct tern_err *err)
{
    a->lock = TERN_AGAIN(open(a->conf, O_RDONLY | O_CLOEXEC));
    if (a->lock < 0)
        return tern_err_sys(err, "%s: cannot open", a->conf);
    if (TERN_AGAIN(flock(a->lock, LOCK_EX | LOCK_NB)) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return tern_err_set(err, TERN_USAGE, "%s: another `tern cluster apply` is at work.",
                            a->conf);
    return tern_err_sys(err, "%s: cannot lock", a->conf);
}

int tern_apply_open(struct tern_apply *a, bool lock, struct tern_err *err)
{
    const char *conf = tern_slurm_conf();
    size_t len;

    *a = (struct tern_apply){.lock = -1};
    if (!conf)
        return tern_err_set(err, TERN_FAILED,
                            "no slurm.conf here. Run this on the machine of slurmctld, or set "
                            "SLURM_CONF.");
    a->conf = realpath(conf, NULL);
    if (!a->conf)
        return tern_err_sys(err, "%s: cannot be found", conf);
    char *dir = tern_fs_dirname(a->conf);
    a->file = tern_strf("%s/%s", dir, file_name);
    free(dir);
    if ((lock && take_lock(a, err) < 0) || read_conf(a, a->conf, /* depth= */ 0, err) < 0 ||
        (tern_fs_exists(a->file) &&
         tern_fs_read(a->file, TERN_APPLY_MAX_FILE, &a->old, &len, err) < 0)) {
        tern_apply_close(a);
        return -1;
    }
    return 0;
}

void tern_apply_close(struct tern_apply *a)
{
    if (a->lock >= 0)
        close(a->lock);
    free(a->conf);
    free(a->file);
    free(a->other_default);
    for (size_t i = 0; i < a->n_defs; i++) {
        free(a->def[i].names);
        free(a->def[i].file);
    }
    free(a->def);
    tern_buf_free(&a->before);
    tern_buf_free(&a->after);
    free(a->old);
    tern_buf_free(&a->text);
    tern_apply_expected_free(&a->want);
    tern_apply_changes_free(&a->changes);
    free(a->version);
    *a = (struct tern_apply){.lock = -1};
}

/* ------------------------------------------------------------------ what another file has */

/* Names of `list` that are among the wanted: the first, or NULL. */
static const char *first_wanted(const struct tern_apply *a, const struct tern_apply_def *d,
                                char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; !d->partition && k < a->want.nodes.n; k++)
            if (strcmp(names[i], a->want.nodes.node[k].name) == 0)
                return names[i];
        for (size_t k = 0; d->partition && k < a->want.partitions.n; k++)
            if (strcmp(names[i], a->want.partitions.partition[k].name) == 0)
                return names[i];
    }
    return NULL;
}

static int check_defs(const struct tern_apply *a, struct tern_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < a->n_defs; i++) {
        const struct tern_apply_def *d = &a->def[i];
        char **names = NULL;
        size_t n = 0;
        if (tern_slurm_hosts_expand(d->names, &names, &n, err) < 0)
            return tern_err_prefix(err, "%s:%d", d->file, d->line);
        const char *twice = first_wanted(a, d, names, n);
        if (twice)
            rc = tern_err_set(err, TERN_USAGE,
                              "%s:%d: %s %s is defined there, and in the layout. Remove it there, "
                              "or give it another name in the layout.",
                              d->file, d->line, d->partition ? "partition" : "node", twice);
        tern_slurm_hosts_free(names);
    }
    return rc;
}

/* ------------------------------------------------------------------ gres.conf */

/* Takes the nodes that a line of gres.conf is for out of `names`. */
static void take_covered(const char *line, const char **names, size_t n)
{
    char *kind = tern_apply_value(line, "Name"), *list = tern_apply_value(line, "NodeName");
    char **hosts = NULL;
    size_t n_hosts = 0;

    if (kind && strcasecmp(kind, "neuron") == 0) {
        if (list && tern_slurm_hosts_expand(list, &hosts, &n_hosts, NULL) < 0)
            n = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; names[i] && k < (list ? n_hosts : 1); k++)
                if (!list || strcmp(names[i], hosts[k]) == 0)
                    names[i] = NULL;
        tern_slurm_hosts_free(hosts);
    }
    free(kind);
    free(list);
}

/* The nodes of `names` that are left, and the line that gres.conf needs. */
static int tell_uncovered(const char *path, const char **names, size_t n, const char *gres,
                          struct tern_err *err)
{
    char type[64] = "", **left = calloc(n + 1, sizeof *left);
    size_t n_left = 0;
    int count = 0, rc;

    if (!left)
        abort();
    for (size_t i = 0; i < n; i++)
        if (names[i])
            left[n_left++] = (char *)names[i];
    sscanf(gres, "neuron:%63[^:]:%d", type, &count);
    char *list = tern_slurm_hosts_compress(left, n_left);
    char *last = count > 1 ? tern_strf("[0-%d]", count - 1) : tern_strdup("0");
    rc = n_left == 0 ? 0
                     : tern_err_set(err, TERN_USAGE,
                                    "%s: has no Neuron devices of %.200s, which the layout gives "
                                    "them. Add the line: NodeName=%.200s Name=neuron Type=%s "
                                    "File=/dev/neuron%s",
                                    path, list, list, type, last);
    free(last);
    free(list);
    free(left);
    return rc;
}

static int check_gres(const struct tern_apply *a, struct tern_err *err)
{
    const struct tern_slurm_nodes *all = &a->want.nodes;
    const char **names = calloc(all->n + 1, sizeof *names), *gres = NULL;
    char *dir = tern_fs_dirname(a->conf), *path = tern_strf("%s/gres.conf", dir), *text = NULL;
    char *line;
    size_t n = 0, len;
    int number = 0, rc = 0;

    if (!names)
        abort();
    for (size_t i = 0; i < all->n; i++)
        if (tern_str_starts(all->node[i].gres, "neuron:")) {
            gres = gres ? gres : all->node[i].gres;
            names[n++] = all->node[i].name;
        }
    if (n && !a->gres_neuron)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: GresTypes has no neuron, and the layout's nodes have such devices. "
                          "Add it (GresTypes=neuron), or leave the devices out: gres: {neuron: "
                          "false} in the layout's .tern.yaml.",
                          a->conf);
    else if (n && tern_fs_exists(path))
        rc = tern_fs_read(path, TERN_APPLY_MAX_FILE, &text, &len, err);
    for (const char *at = text ? text : ""; rc == 0 && (line = tern_apply_line(&at, &number));) {
        take_covered(line, names, n);
        free(line);
    }
    if (rc == 0 && n)
        rc = tell_uncovered(path, names, n, gres, err);
    free(text);
    free(path);
    free(dir);
    free(names);
    return rc;
}

int tern_apply_check_files(const struct tern_apply *a, struct tern_err *err)
{
    return check_defs(a, err) < 0 || check_gres(a, err) < 0 ? -1 : 0;
}
