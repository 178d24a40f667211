/* tern cluster render: the files made from a layout. */
#include "cmd/cluster/layout.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

struct tern_layout *cluster_load_layout(const char *path, const char *vars, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_load_with(path, vars, err);

    if (!l)
        return NULL;
    cluster_print_notes(l);
    if (cluster_count_errors(l, err) < 0) {
        tern_layout_free(l);
        return NULL;
    }
    return l;
}

static const char *render_to = "slurm", *render_out, *render_vars;
static const struct tern_opt render_opts[] = {
    {"to", 0, TERN_OPT_TEXT, "FORM", "slurm", .to.text = &render_to, .help = "slurm"},
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &render_out,
     .help = "write the files there; without it all go to stdout"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &render_vars, .help = cluster_vars_help},
    {0},
};

/* May `text` replace the file at `path`?  Yes if that is missing, equal, or was rendered before. */
static int check_rendered(const char *path, const char *text, struct tern_err *err)
{
    char *old = NULL;
    size_t len;
    bool ours = true;

    if (tern_fs_exists(path)) {
        ours = tern_fs_read(path, 16 << 20, &old, &len, NULL) == 0;
        if (ours && strcmp(old, text) != 0) {
            old[strcspn(old, "\n")] = '\0';
            ours = strstr(old, ", rendered by tern from ") != NULL;
        }
    }
    free(old);
    return ours ? 0
                : tern_err_set(
                      err, TERN_USAGE,
                      "%s: exists and was not rendered by tern; nothing is written. Move it "
                      "away, or name another folder.",
                      path);
}

static int run_render(int n, char **args, struct tern_err *err)
{
    struct tern_layout_conf c;
    int rc = 0;

    (void)n;
    if (strcmp(render_to, "slurm") != 0)
        return tern_err_set(err, TERN_USAGE, "--to: '%s' is not one of: slurm.", render_to);
    struct tern_layout *l = cluster_load_layout(args[0], render_vars, err);
    if (!l)
        return -1;
    if (tern_layout_render(l, NULL, &c, err) < 0) {
        tern_layout_free(l);
        return -1;
    }
    const struct {
        const char *name;
        const struct tern_buf *text;
    } files[] = {{"slurm.conf", &c.slurm},
                 {"gres.conf", &c.gres},
                 {"topology.conf", &c.topology},
                 {"cgroup.conf", &c.cgroup},
                 {"plugstack.conf", &c.plugstack}};
    if (render_out)
        rc = tern_fs_mkdirs(render_out, 0755, err);
    for (size_t i = 0; rc == 0 && render_out && i < sizeof files / sizeof *files; i++) {
        char *path = tern_strf("%s/%s", render_out, files[i].name);
        if (files[i].text->len)
            rc = check_rendered(path, files[i].text->data, err);
        free(path);
    }
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof *files; i++) {
        if (!files[i].text->len)
            continue;
        if (!render_out) {
            printf("%s######## %s\n%s", i ? "\n" : "", files[i].name, files[i].text->data);
            continue;
        }
        char *path = tern_strf("%s/%s", render_out, files[i].name);
        rc = tern_fs_replace(path, files[i].text->data, files[i].text->len, 0644, err);
        free(path);
    }
    tern_layout_conf_free(&c);
    tern_layout_free(l);
    return rc;
}

const struct tern_cmd render_cmd = {
    .name = "render",
    .args = "LAYOUT",
    .summary = "write Slurm's configuration files for a layout",
    .about =
        "slurm.conf, gres.conf (Neuron devices), topology.conf, cgroup.conf and plugstack.conf "
        "for a real cluster with these nodes. Dynamic nodes are FUTURE ones.",
    .examples = "  tern cluster render cluster.yaml -o /etc/slurm\n",
    .opts = render_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_render,
};
