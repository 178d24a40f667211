/* tern ckpt reshard: the same checkpoint in another number of files. */
#include "cmd/ckpt/reshard.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/reshard.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

static struct {
    const char *out;
    int64_t shards;
} re;

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
    interrupted = sig;
}

static int reshard_run(int n_args, char **args, struct tern_err *err)
{
    struct tern_ckpt_saved done;
    char bytes[32], *path;

    (void)n_args;
    if (!re.out || !*re.out)
        return tern_err_set(err, TERN_USAGE, "--out: say in which folder the checkpoint is to lie");
    if (re.shards < 1 || re.shards > 65536)
        return tern_err_set(err, TERN_USAGE, "--shards: must be 1 to 65536");
    if (tern_ckpt_resolve(args[0], &path, err) < 0)
        return -1;
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    const struct tern_ckpt_reshard how = {
        .dir = re.out, .shards = (unsigned)re.shards, .stop = &interrupted};
    tern_progress_begin(/* unit= */ NULL, "%s", path);
    const int rc = tern_ckpt_reshard(path, &how, &done, err);
    tern_progress_end();
    free(path);
    if (rc < 0)
        return interrupted ? (fprintf(stderr, "tern ckpt: %s\n", err->text), 128 + interrupted)
                           : -1;
    printf("%s\n", done.path);
    fprintf(stderr, "%s: %s in %u shard%s\n", done.path,
            tern_str_bytes(bytes, sizeof bytes, done.bytes), done.shards,
            done.shards > 1 ? "s" : "");
    return 0;
}

static const struct tern_opt reshard_opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &re.out,
     .help = "the folder of checkpoints that gets this one, as step-NNNNNNNN"},
    {"shards", 'n', TERN_OPT_INT, "N", "1", .to.integer = &re.shards,
     .help = "files of weights; all of nearly the same size"},
    {0},
};

const struct tern_cmd ckpt_reshard_cmd = {
    .name = "reshard",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "write a checkpoint anew, in another number of files",
    .about = "Every layout of ranks loads every checkpoint as it is: this command is for storage.  "
             "A run on 512 ranks leaves 512 files, and a copy or an archive may want 8.  The "
             "copy has all arrays, those of the optimizer, too, the small files and the run's "
             "state.  The new files are read back and compared with the digests of the old.  The "
             "new checkpoint appears whole or not at all.  DIR is no run's folder, for its "
             "retention would remove what it does not know.",
    .examples = "  tern ckpt reshard checkpoints/latest -o archive --shards 8\n"
                "  tern ckpt verify archive/latest --full\n",
    .opts = reshard_opts,
    .run = reshard_run,
};
