/* Lists of files, from each kind of place. */
#ifndef TERN_FETCH_LIST_H
#define TERN_FETCH_LIST_H

#include "core/fetch/fetch.h"

/* Adds a file, unless the patterns leave it out; -1 for a path that leads out of the folder. */
int tern_fetch_list_add(struct tern_fetch_list *l, const struct tern_fetch_how *how,
                        struct tern_fetch_file file, struct tern_err *err);
/* hf:// alone. */
int tern_fetch_list_hub(const char *url, const struct tern_fetch_how *how,
                        struct tern_fetch_list *ret_list, struct tern_err *err);

#endif
