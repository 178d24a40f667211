/* Pieces of the room: files, values and programs of a rendering. */
#ifndef TERN_RENDER_PARTS_H
#define TERN_RENDER_PARTS_H

#include "core/base/json.h"
#include "core/render/render.h"

/* A new file; its text is the caller's to write. */
struct tern_render_file *tern_render_add(struct tern_render *r, const char *name);
/* A JSON file; takes over `j`. */
int tern_render_add_json(struct tern_render *r, const char *name, json_t *j, struct tern_err *err);
/* A program from an embedded text; its line "#@values@" becomes what tern_render_set says. */
struct tern_render_file *tern_render_program(struct tern_render *r, const char *name,
                                             const char *text);
/* The shell variable `name` of the program; one that is missing is empty. */
void tern_render_set(struct tern_render_file *f, const char *name, const char *value);
/* The same of a number. */
void tern_render_set_int(struct tern_render_file *f, const char *name, long long value);

/* The value `name`: from the file of variables, else `other` (NULL: nothing else has it), else
 * "${name}", which is noted as missing.  Lives as long as `r`. */
const char *tern_render_value(struct tern_render *r, const char *name, const char *other);
/* The same, but NULL where it is not known. */
const char *tern_render_known(const struct tern_render *r, const char *name);
/* Each ${NAME} of a text counts as missing, also one that the layout itself has. */
void tern_render_note_variables(struct tern_render *r, const char *text);
/* The cluster's name, for AWS. */
const char *tern_render_name(struct tern_render *r);
/* What nodes install: TernPackage, else s3://BUCKET/tern-VERSION and `end`: ".tar.gz", or "/" for
 * all packages of a folder. */
const char *tern_render_package(struct tern_render *r, const char *end);
/* `text` is freed with `r`. */
const char *tern_render_keep(struct tern_render *r, char *text);
/* A line for the user. */
void tern_render_say(struct tern_render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* One more step, of the NULL-ended `words`: each becomes a word of the shell, but not ">FILE".
 * `effect`: taken over, or NULL. */
void tern_render_step(struct tern_render *r, enum tern_render_phase phase, char *effect,
                      const char *const *words);
#define TERN_RENDER_STEP(r, phase, effect, ...)                                                    \
    tern_render_step(r, phase, effect, (const char *const[]){__VA_ARGS__, NULL})
/* A line of what still costs when all is taken away, and one of what has no price here. */
void tern_render_leave(struct tern_render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void tern_render_unpriced(struct tern_render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* malloc'ed: the price of an hour of head node, login nodes and static nodes, and of the dynamic
 * ones. */
char *tern_render_cost(const struct tern_render *r);
/* The layout's file systems and volumes: which cost, and which of them stay.  `there`: one that is
 * not made for it; or NULL. */
void tern_render_storage(struct tern_render *r, const struct tern_layout_storage *there);
/* "2 nodes", "1 node". */
const char *tern_render_count(struct tern_render *r, long n, const char *thing);

/* Read the layout's file again, in its one form, for the functions below. */
int tern_render_read_again(struct tern_render *r, struct tern_err *err);
/* The value that the file has at a place such as "Scheduling.SlurmQueues[0].Name", with variables
 * filled in; NULL: nothing, or a map or list.  Lives as long as `r`. */
const char *tern_render_given(const struct tern_render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What a form takes of a file. */
struct tern_render_takes {
    /* With all below; NULL-ended.  "[]" is any member of a list.  "=" before a key: where its text
     * is a value of a rendered JSON file. */
    const char *const *keys;
    bool one; /* only these, counted from 0, are rendered, and a line has said so of the others */
    int queue, resource;
};
/* A line for each key of the file that is not taken.  The form's JSON files must be there. */
void tern_render_say_left_out(struct tern_render *r, const struct tern_render_takes *t);
/* A line for each storage but tern_render_lustre's. */
void tern_render_say_other_storage(struct tern_render *r, const char *why);

/* The first storage of type FsxLustre, or NULL. */
const struct tern_layout_storage *tern_render_lustre(const struct tern_layout *l);

/* Its host: given, or made of an id that is known. */
const char *tern_render_host(struct tern_render *r, const struct tern_layout_storage *lustre,
                             const char *region);

/* The name of the list of files that a folder of a rendering has. */
#define TERN_RENDER_LIST "tern-render.json"
/* That list, as JSON text. */
int tern_render_list(const struct tern_render *r, struct tern_buf *to, struct tern_err *err);
/* *ret_list: the list of the rendering in `dir`, to be freed; NULL: there is none.  TERN_USAGE
 * where it is of another form. */
int tern_render_load_list(const struct tern_render *r, const char *dir, json_t **ret_list,
                          struct tern_err *err);
/* Of a list's names: is it a file directly in `dir` that is there, and no longer rendered? */
bool tern_render_is_stale(const struct tern_render *r, const char *dir, const char *name);

/* The forms. */
int tern_render_slurm(struct tern_render *r, struct tern_err *err);
int tern_render_pcluster(struct tern_render *r, struct tern_err *err);
int tern_render_cfn(struct tern_render *r, struct tern_err *err);
int tern_render_hyperpod(struct tern_render *r, struct tern_err *err);
int tern_render_batch(struct tern_render *r, struct tern_err *err);

#endif
