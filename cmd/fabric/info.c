/* `tern fabric info`. */
#include "cmd/fabric/fabric.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/fabric/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSPORT_TEXT = 2048 }; /* of each rank, to be compared */

static bool json;
static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

/* The indented lines are the transport's: what may differ between ranks. */
static void transport_of(const char *text, char to[TRANSPORT_TEXT])
{
    size_t at = 0;

    memset(to, 0, TRANSPORT_TEXT);
    for (const char *line = text, *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        size_t len = (size_t)(end - line) + (*end == '\n');
        if (line[0] == ' ' && at + len < TRANSPORT_TEXT) {
            memcpy(to + at, line, len);
            at += len;
        }
    }
}

static void print(const struct tern_fabric *f, const char *text, const char *transports)
{
    fputs(text, stdout);
    for (int r = 1; r < tern_fabric_size(f); r++) {
        const char *theirs = transports + (size_t)r * TRANSPORT_TEXT;
        if (strcmp(theirs, theirs - TRANSPORT_TEXT) == 0)
            continue;
        if (strcmp(theirs, transports) == 0)
            printf("from rank %d (%s) on, between nodes: as rank 0\n", r,
                   tern_fabric_node_name(f, r));
        else
            printf("from rank %d (%s) on, between nodes:\n%s", r, tern_fabric_node_name(f, r),
                   theirs);
    }
}

static json_t *lines_of(const char *text)
{
    json_t *list = json_array();

    for (const char *line = text, *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        char *one = tern_strf("%.*s", (int)(end - line), line);
        json_array_append_new(list, tern_json_text(one));
        free(one);
    }
    return list;
}

static int print_json(const struct tern_fabric *f, const char *text, const char *transports,
                      struct tern_err *err)
{
    json_t *j = json_object(), *ranks = json_array();

    json_object_set_new(j, "about", tern_json_text(tern_fabric_about(f)));
    json_object_set_new(j, "nodes", json_integer(tern_fabric_nodes(f)));
    json_object_set_new(j, "explain", lines_of(text));
    for (int r = 0; r < tern_fabric_size(f); r++) {
        json_t *one = json_object();
        json_object_set_new(one, "rank", json_integer(r));
        json_object_set_new(one, "node", tern_json_text(tern_fabric_node_name(f, r)));
        json_object_set_new(one, "transport", lines_of(transports + (size_t)r * TRANSPORT_TEXT));
        json_array_append_new(ranks, one);
    }
    json_object_set_new(j, "ranks", ranks);
    int rc = tern_json_print(stdout, j, err);
    json_decref(j);
    return rc;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_fabric *f = tern_fabric_open(NULL, err);
    struct tern_buf text = {0};
    char mine[TRANSPORT_TEXT], *all = NULL;
    int rc = -1;

    (void)n, (void)args;
    if (!f)
        return -1;
    tern_fabric_explain(f, &text);
    all = tern_alloc((size_t)tern_fabric_size(f), TRANSPORT_TEXT, "the ranks", err);
    if (!all || tern_buf_check(&text, "the explanation", err) < 0)
        goto out;
    transport_of(text.data, mine);
    if (tern_fabric_all_gather(tern_fabric_world(f), mine, all, TRANSPORT_TEXT, TERN_U8, err) < 0)
        goto out;
    rc = 0;
    if (tern_fabric_rank(f) != 0)
        goto out;
    if (json)
        rc = print_json(f, text.data, all, err);
    else
        print(f, text.data, all);
out:
    tern_fabric_close(f); /* first: after an error messages may still come into `all` */
    free(all);
    tern_buf_free(&text);
    return rc;
}

const struct tern_cmd fabric_info = {
    .name = "info",
    .summary = "what the fabric has chosen here, and why",
    .about = "Started alone, it opens the transport and prints what it would use between nodes. "
             "Under srun or mpirun the ranks find each other, and rank 0 prints the means that "
             "they use. These are shared memory, the transport, cores, the deadline, the flight "
             "recorder, and the TERN_* variables that were read.",
    .examples = "  tern fabric info\n"
                "  srun -N2 --ntasks-per-node=4 --mpi=pmix tern fabric info --json\n",
    .opts = opts,
    .run = run,
};
