/* The keys of a recipe as rows of a page of help. */
#include "core/recipe/keys.h"

#include "core/base/page.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The keys that are more than one value (lists.c), each shown behind its section's others. */
static const struct {
    const char *name, *help;
} lists[] = {
    {"data.train", "token sets to train on: [{path: a.tds, weight: 0.99}, ...]. With 'epochs: 3', "
                   "or 'exhausted: stop' (one pass; the default is repeat), the run or the stage "
                   "ends before the set would be read once more. It ends with the last whole step"},
    {"data.stages", "instead of data.train, one after the other: [{until: 1000, train: [...]}, "
                    "{train: [...]}]; 'until' is a stage's last step"},
    {"data.held_out", "token sets to evaluate on: [{name: a, path: a.tds}, ...]"},
    {"optimizer.betas", "decay of the two moments [[0.9, 0.95]]"},
    {"lora.targets", "linears with an adapter, of q_proj k_proj v_proj o_proj gate_proj up_proj "
                     "down_proj [[q_proj, v_proj]]"},
    {"workload.command", "a trainer other than tern's: [program, argument, ...]"},
    {"workload.precompile.command",
     "compiles that trainer's graphs before the run: [program, argument, ...]"},
    {"workload.metrics",
     "that trainer's values: [nxd | hf | lightning, {pattern: ERE, names: [step, loss]}, "
     "{tensorboard: DIR}]. "
     "tern reads known trainers' lines from every task, and patterns and event files from rank 0. "
     "A pattern's names must include step; the name '-' skips a group"},
};

static void describe(struct tern_page *page, const struct tern_recipe_key *k)
{
    struct tern_buf help = {0};

    tern_buf_puts(&help, k->help);
    if (k->kind == KEY_WORD) {
        for (size_t w = 0; k->words[w]; w++)
            tern_buf_printf(&help, "%s%s", w ? " | " : " (", k->words[w]);
        tern_buf_printf(&help, ") [%s]", k->words[(int)k->def]);
    } else if ((k->kind == KEY_REAL || k->kind == KEY_COUNT) && k->def >= k->lo) {
        tern_buf_printf(&help, " [%g]", k->def);
    } else if (k->kind == KEY_YESNO) {
        tern_buf_printf(&help, " (true | false) [%s]", k->def != 0 ? "true" : "false");
    }
    tern_page_item(page, k->name, help.data);
    tern_buf_free(&help);
}

/* Bytes of a key's section, with the dot; 0: it has none. */
static size_t section(const char *name)
{
    const char *dot = strchr(name, '.');

    return dot ? (size_t)(dot - name) + 1 : 0;
}

void tern_recipe_describe(struct tern_page *page, const char *prefix)
{
    if (!*prefix)
        tern_page_item(page, "version", "of the format: 1; required");
    for (size_t i = 0; i < tern_recipe_n_keys; i++) {
        const char *name = tern_recipe_keys[i].name;
        size_t n = section(name);
        if (tern_str_starts(name, prefix))
            describe(page, &tern_recipe_keys[i]);
        if (n == 0 ||
            (i + 1 < tern_recipe_n_keys && strncmp(name, tern_recipe_keys[i + 1].name, n) == 0))
            continue;
        for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
            if (strncmp(lists[l].name, name, n) == 0 && tern_str_starts(lists[l].name, prefix))
                tern_page_item(page, lists[l].name, lists[l].help);
        }
    }
}

void tern_recipe_describe_fills(struct tern_page *page)
{
    for (const struct tern_recipe_fill_name *f = tern_recipe_fills; f->name; f++) {
        char *name = tern_strf("{%s}", f->name);
        tern_page_item(page, name, f->help);
        free(name);
    }
}
