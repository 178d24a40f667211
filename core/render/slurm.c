/* Slurm's own files (core/layout has their texts). */
#include "core/render/parts.h"

#include <stdlib.h>

int tern_render_slurm(struct tern_render *r, struct tern_err *err)
{
    struct tern_layout_conf c;

    if (tern_layout_render(r->layout, /* local= */ NULL, &c, err) < 0)
        return -1;
    const struct {
        const char *name;
        struct tern_buf *text;
    } files[] = {{"slurm.conf", &c.slurm},
                 {"gres.conf", &c.gres},
                 {c.topology_name, &c.topology},
                 {"cgroup.conf", &c.cgroup},
                 {"plugstack.conf", &c.plugstack}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!files[i].text->len)
            continue;
        tern_render_add(r, files[i].name)->text = *files[i].text;
        *files[i].text = (struct tern_buf){0};
    }
    tern_layout_conf_free(&c);
    return 0;
}
