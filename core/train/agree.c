#include "core/train/state.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

int tern_train_agree(struct train *t, int rc, struct tern_err *err)
{
    enum { WORDS = 400 }; /* a path and a cause; a thousand ranks gather 400 KB */
    int32_t failed = rc < 0;
    struct tern_err mine = rc < 0 && err ? *err : (struct tern_err){0};

    if (t->size == 1)
        return rc;
    if (tern_comm_all_reduce(t->world, &failed, 1, TERN_I32, TERN_MAX, err) < 0)
        return -1;
    if (!failed)
        return 0;
    struct {
        int32_t code;
        char text[WORDS];
    } say = {rc < 0 ? (int32_t)mine.code : 0, ""}, *all;
    snprintf(say.text, sizeof say.text, "%.*s", WORDS - 1, mine.text);
    all = tern_alloc((size_t)t->size, sizeof *all, "the ranks' errors", err);
    if (!all)
        return -1;
    if (tern_comm_all_gather(t->world, &say, all, sizeof say, TERN_U8, err) == 0) {
        int r = 0;
        while (r < t->size - 1 && all[r].code == 0)
            r++;
        tern_err_set(err, (enum tern_code)all[r].code, "rank %d (%s): %s", r,
                     tern_fabric_node_name(t->options->fabric, r), all[r].text);
    }
    free(all);
    return -1;
}

int tern_train_agree_stop(struct train *t, enum tern_train_stop *stop, struct tern_err *err)
{
    int32_t wish = t->options->stop ? (int32_t)*t->options->stop : TERN_TRAIN_GO_ON;

    if (tern_comm_all_reduce(t->world, &wish, 1, TERN_I32, TERN_MAX, err) < 0)
        return -1;
    *stop = (enum tern_train_stop)wish;
    return 0;
}
