/* The forms of a rendering, and what all have in common: programs whose values are put in last. */
#include "core/render/parts.h"

#include "core/base/yaml.h"

#include <stdlib.h>
#include <string.h>

const char tern_render_forms[] = "slurm, pcluster, cfn, hyperpod, batch";

static const struct {
    const char *name;
    bool any_type; /* it needs to know nothing of the nodes' instance types */
    bool own;      /* it heeds the layout's .tern.yaml */
    int (*make)(struct tern_render *r, struct tern_err *err);
} forms[] = {
    {"slurm", false, true, tern_render_slurm},  {"pcluster", true, false, tern_render_pcluster},
    {"cfn", true, false, tern_render_cfn},      {"hyperpod", false, false, tern_render_hyperpod},
    {"batch", false, false, tern_render_batch},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* The place of a form's name; N_FORMS where it is none. */
static size_t find_form(const char *form)
{
    size_t i = 0;

    while (i < N_FORMS && strcmp(forms[i].name, form) != 0)
        i++;
    return i;
}

bool tern_render_is_form(const char *form)
{
    return find_form(form) < N_FORMS;
}

/* The values of a program, in the place of its line.  The names of the missing ones stand there,
 * too: core/render/scripts/ programs end when there are some. */
static void fill_program(const struct tern_render *r, struct tern_render_file *f)
{
    static const char line[] = "#@values@\n";
    struct tern_buf text = {0}, names = {0};
    const char *at = f->text.data ? strstr(f->text.data, line) : NULL;

    if (!at)
        return;
    for (size_t i = 0; i < r->n_missing; i++)
        tern_buf_printf(&names, "%s%s", i ? " " : "", r->missing[i]);
    tern_buf_add(&text, f->text.data, (size_t)(at - f->text.data));
    if (f->sets.len)
        tern_buf_add(&text, f->sets.data, f->sets.len);
    tern_buf_puts(&text, "missing=");
    tern_buf_word(&text, names.data ? names.data : "");
    tern_buf_puts(&text, "\n");
    tern_buf_puts(&text, at + sizeof line - 1);
    tern_buf_free(&names);
    tern_buf_free(&f->text);
    f->text = text;
}

/* Of errors, only variables without a value may be there. */
static int check_layout(const struct tern_layout *l, bool any_type, struct tern_err *err)
{
    if (l->n_errors > l->n_variables)
        return tern_layout_usable(l, err);
    return any_type ? 0 : tern_layout_types_known(l, err);
}

int tern_render_make(struct tern_render *ret, const struct tern_layout *l, const char *form,
                     struct tern_err *err)
{
    const size_t i = find_form(form);
    struct tern_render r = {.layout = l};
    int rc;

    if (i == N_FORMS)
        return tern_err_set(err, TERN_USAGE, "--to: '%s' is not one of: %s.", form,
                            tern_render_forms);
    r.form = forms[i].name;
    rc = check_layout(l, forms[i].any_type, err);
    if (rc == 0)
        rc = forms[i].make(&r, err);
    if (rc == 0 && !forms[i].own && l->sidecar_given)
        tern_render_say(&r,
                        "left out: %s of %s: `virtual` is for virtual clusters, the rest for the "
                        "files of --to slurm",
                        l->sidecar_given, l->sidecar);
    for (size_t k = 0; rc == 0 && k < r.n_files; k++) {
        if (r.file[k].program)
            fill_program(&r, &r.file[k]);
        rc = tern_buf_check(&r.file[k].text, r.file[k].name, err);
    }
    if (rc < 0)
        tern_render_free(&r);
    else
        *ret = r;
    return rc;
}

void tern_render_free(struct tern_render *r)
{
    for (size_t i = 0; i < r->n_files; i++) {
        free(r->file[i].name);
        tern_buf_free(&r->file[i].text);
        tern_buf_free(&r->file[i].sets);
    }
    for (size_t i = 0; i < r->n_missing; i++)
        free(r->missing[i]);
    for (size_t i = 0; i < r->n_kept; i++)
        free(r->kept[i]);
    free(r->kept);
    for (size_t i = 0; i < r->n_steps; i++) {
        free(r->step[i].command);
        free(r->step[i].effect);
    }
    free(r->step);
    tern_buf_free(&r->left);
    tern_buf_free(&r->unpriced);
    tern_buf_free(&r->said);
    tern_yaml_free(r->file_again);
    *r = (struct tern_render){0};
}
