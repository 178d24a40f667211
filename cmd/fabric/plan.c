/* `tern fabric plan`: an algorithm's list of steps. */
#include "cmd/fabric/fabric.h"

#include "core/base/str.h"
#include "core/coll/coll.h"

#include <stdio.h>
#include <string.h>

static int64_t ranks, per_node, rank;
static const char *type_text;
static const struct tern_opt opts[] = {
    {"ranks", 'n', TERN_OPT_INT, "N", "8", .to.integer = &ranks, .help = "ranks in all"},
    {"ranks-per-node", 0, TERN_OPT_INT, "N", "2", .to.integer = &per_node,
     .help = "of them on a node"},
    {"rank", 'r', TERN_OPT_INT, "RANK", "0", .to.integer = &rank, .help = "whose steps"},
    {"type", 'd', TERN_OPT_TEXT, "TYPE", "f32", .to.text = &type_text,
     .help = "f32, f64, bf16, i32, i64 or u8"},
    {0},
};

static int type_of(const char *name, enum tern_type *type, struct tern_err *err)
{
    for (*type = TERN_F32; *type <= TERN_U8; ++*type)
        if (strcmp(name, tern_type_name(*type)) == 0)
            return 0;
    return tern_err_set(err, TERN_USAGE, "--type: '%s' is none of f32, f64, bf16, i32, i64, u8",
                        name);
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_buf text = {0};
    enum tern_type type;
    uint64_t count = 1;

    if (ranks < 1 || ranks > INT32_MAX || per_node < 1 || per_node > INT32_MAX || rank < 0 ||
        rank > INT32_MAX)
        return tern_err_set(err, TERN_USAGE, "--ranks, --ranks-per-node, --rank: out of range");
    const struct tern_coll_cluster cluster = {(int)ranks, (int)per_node, (int)rank};
    if (type_of(type_text, &type, err) < 0)
        return -1;
    if (n > 1 && tern_str_size(args[1], &count) < 0)
        return tern_err_set(err, TERN_USAGE, "COUNT: '%s' is no number such as 4096 or 64K",
                            args[1]);
    int rc = n == 0 ? tern_coll_plan_choices(&cluster, &text, err)
                    : tern_coll_plan(&cluster, args[0], type, (size_t)count, &text, err);
    if (rc == 0)
        rc = tern_buf_check(&text, "the plan", err);
    if (rc == 0)
        fputs(text.data, stdout);
    tern_buf_free(&text);
    return rc;
}

const struct tern_cmd fabric_plan = {
    .name = "plan",
    .args = "[CALL [COUNT]]",
    .summary = "the steps of a collective on one rank, or which algorithm serves which sizes",
    .about = "Opens nothing and needs no ranks. It shows what `--ranks` ranks on equal nodes would "
             "do, by typical numbers (`tern fabric info` under srun shows the measured ones). CALL "
             "is all_reduce, reduce_scatter, all_gather, broadcast or barrier, COUNT its elements "
             "(as of a rank for reduce_scatter and all_gather; 64K is 65536). "
             "TERN_FABRIC_ALGORITHM asks for one algorithm where it is possible.",
    .examples = "  tern fabric plan -n 64 --ranks-per-node 2\n"
                "  tern fabric plan -n 8 --ranks-per-node 2 -r 3 all_reduce 1M\n",
    .opts = opts,
    .args_max = 2,
    .run = run,
};
