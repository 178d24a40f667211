/* core/ckpt, the folders of checkpoints on a node that other users share: tern makes them so that
 * no other user can write to them, and believes no others. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-folder-XXXXXX";

/* A node's folder with steps 4 and 5, DIR/NAME/node-0. */
static char *make_node(const char *name)
{
    struct tern_err err;
    char *node = tern_strf("%s/local/%s/node-0", work, name);

    for (int step = 4; step <= 5; step++) {
        char *path = tern_strf("%s/step-%08d", node, step);
        if (tern_ckpt_local_make(node, &err) < 0 || mkdir(path, 0700) < 0)
            abort();
        free(path);
    }
    return node;
}

static bool has_step(const char *node, int step)
{
    char *path = tern_strf("%s/step-%08d", node, step);
    const bool is = tern_fs_exists(path);

    free(path);
    return is;
}

/* `path` is moved away, and a link to it stands in its place. */
static void replace_by_link(const char *path)
{
    char *moved = tern_strf("%s-moved", path);

    if (rename(path, moved) < 0 || symlink(moved, path) < 0)
        abort();
    free(moved);
}

static int save(const char *node, uint64_t step, struct tern_err *err)
{
    json_t *meta = json_object();
    const struct tern_ckpt_save_options o = {
        .dir = node, .step = step, .meta = meta, .local = true};
    struct tern_ckpt_saved saved;
    const int rc = tern_ckpt_save(&o, &saved, err);

    json_decref(meta);
    return rc;
}

static const char *which;

static void check_refused(const char *node)
{
    struct tern_err err = {0};

    ok(tern_ckpt_local_check(node, &err) < 0 && err.code == TERN_USAGE, "%s: it is refused: %s",
       which, err.text);
    ok(tern_ckpt_local_prune(node, (uint64_t[TERN_CKPT_KEPT]){0}, &err) < 0 && has_step(node, 4),
       "%s: nothing there is removed", which);
    ok(tern_ckpt_local_put_manifest(node, 6, "", "{}", 2, &err) < 0 && !has_step(node, 6),
       "%s: no manifest is written there", which);
    ok(save(node, 6, &err) < 0 && !has_step(node, 6) && has_step(node, 4),
       "%s: nothing is saved there", which);
}

static void test_refused(void)
{
    struct tern_err err = {0};
    char *node = make_node("fine"), *run;

    ok(save(node, 6, &err) == 0 && has_step(node, 6) && !has_step(node, 4),
       "in its own folder a save makes room: %s", err.text);
    free(node);

    which = "a link in place of the run's folder";
    node = make_node("link-run");
    run = tern_fs_dirname(node);
    replace_by_link(run);
    check_refused(node);
    free(node), free(run);

    which = "a link in place of the node's folder";
    node = make_node("link-node");
    replace_by_link(node);
    check_refused(node);
    free(node);

    which = "others can write to the run's folder";
    node = make_node("open-run");
    run = tern_fs_dirname(node);
    chmod(run, 0777);
    check_refused(node);
    free(node), free(run);

    which = "the group can write to the node's folder";
    node = make_node("open-node");
    chmod(node, 0770);
    check_refused(node);
    free(node);
}

static unsigned mode_of(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 ? 0 : st.st_mode & 07777;
}

static void test_make(void)
{
    struct tern_err err = {0};
    char *root = tern_strf("%s/fresh/local", work), *run = tern_fs_join(root, "run"),
         *node = tern_fs_join(run, "node-0");

    ok(tern_ckpt_local_check(node, &err) == 0, "a folder that is not there is no fault");
    ok(tern_ckpt_local_make(node, &err) == 0 && tern_ckpt_local_check(node, &err) == 1,
       "a node's folder is made: %s", err.text);
    ok(mode_of(root) == 01777, "other users may make their own folders in checkpoint.local: %o",
       mode_of(root));
    ok(mode_of(run) == 0700 && mode_of(node) == 0700,
       "a run's folder and its node's are one user's alone: %o, %o", mode_of(run), mode_of(node));
    chmod(root, 0755);
    ok(tern_ckpt_local_make(node, &err) == 0 && mode_of(root) == 0755,
       "the permissions of a checkpoint.local that was there stay");
    free(root), free(run), free(node);
}

int main(void)
{
    if (!mkdtemp(work))
        abort();
    umask(022);
    test_refused();
    test_make();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
