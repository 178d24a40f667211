/* tern fetch: models, data and other files from hubs, object storage and the web. */
#include "cmd/cmd.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/fetch/fetch.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int stopped;

static void on_signal(int number)
{
    __atomic_store_n(&stopped, number, __ATOMIC_RELAXED);
}

static const char *out, *sha256;
static struct tern_opt_list include, exclude;
static int64_t threads;
static bool list_only, replace;

/* The last part of the source's name. */
static char *folder_of(const char *url)
{
    const char *rest = strstr(url, "://");
    rest = rest ? rest + 3 : url;
    const bool hub = tern_str_starts(url, "hf://");
    size_t end = strcspn(rest, hub ? "@" : "?#");

    while (end && rest[end - 1] == '/')
        end--;
    char *whole = tern_strf("%.*s", (int)end, rest);
    char *name = tern_strdup(tern_fs_basename(whole));
    free(whole);
    return name;
}

static void print_list(const struct tern_fetch_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        printf("%12" PRIu64 "  %s\n", l->files[i].bytes, l->files[i].path);
}

static int get(const struct tern_fetch_list *l, const char *url, struct tern_fetch_how *how,
               struct tern_err *err)
{
    struct tern_fetch_done done;
    char bytes[32], got[32];
    const bool one = l->n == 1 && !*l->files[0].name;
    /* One file goes into the folder that it is run in. */
    char *dir = out ? tern_strdup(out) : one ? tern_strdup(".") : folder_of(url);

    how->progress = tern_progress_show;
    tern_progress_begin(/* unit= */ NULL, "%s", l->shown);
    int rc = tern_fetch_get(l, dir, how, &done, err);
    tern_progress_end();
    if (rc == 0) {
        tern_info("%s: %" PRIu64 " files, %s; fetched now: %" PRIu64 ", %s", l->shown, done.files,
                  tern_str_bytes(bytes, sizeof bytes, done.bytes), done.fetched_files,
                  tern_str_bytes(got, sizeof got, done.got_bytes));
        if (*l->commit)
            tern_info("commit %s", l->commit);
        if (done.other_bytes)
            tern_info("%s/.tern-fetch keeps %s of other fetches, for their next call. Remove the "
                      "folder if there is none.",
                      dir, tern_str_bytes(bytes, sizeof bytes, done.other_bytes));
        printf("%s%s%s\n", dir, one ? "/" : "", one ? l->files[0].path : "");
    }
    free(dir);
    return rc;
}

static int run_fetch(int n_args, char **args, struct tern_err *err)
{
    struct sigaction sa = {.sa_handler = on_signal};
    struct tern_fetch_how how = {.include = include.values,
                                 .n_include = include.n,
                                 .exclude = exclude.values,
                                 .n_exclude = exclude.n,
                                 .sha256 = sha256,
                                 .threads = (unsigned)threads,
                                 .replace = replace,
                                 .stop = &stopped};
    struct tern_fetch_list list;
    int rc = 0;

    (void)n_args;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    if (threads > 32)
        return tern_err_set(err, TERN_USAGE, "--threads %" PRId64 "; allowed are 0 to 32", threads);
    if (out && tern_fs_check_folder(out, /* or_none= */ true, err) < 0)
        return -1;
    if (tern_fetch_list(args[0], &how, &list, err) < 0)
        return -1;
    if (list_only)
        print_list(&list);
    else
        rc = get(&list, args[0], &how, err);
    tern_fetch_list_free(&list);
    return rc;
}

static const struct tern_opt opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &out,
     .help = "the folder for the files; else one named for the source, or this one for one file"},
    {"include", 0, TERN_OPT_LIST, "PATTERN", .to.list = &include,
     .help = "only paths of this pattern, such as '*.json'; may be given again"},
    {"exclude", 0, TERN_OPT_LIST, "PATTERN", .to.list = &exclude,
     .help = "no paths of this pattern; may be given again"},
    {"list", 0, TERN_OPT_FLAG, .to.flag = &list_only,
     .help = "print sizes and paths, and fetch nothing"},
    {"sha256", 0, TERN_OPT_TEXT, "HEX", .to.text = &sha256,
     .help = "the digest that the one file must have"},
    {"replace", 0, TERN_OPT_FLAG, .to.flag = &replace,
     .help = "also replace files that are there and are not those of the source"},
    {"threads", 0, TERN_OPT_INT, "N", .def = "4", .to.integer = &threads,
     .help = "files that are fetched at once"},
    {0},
};

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "fetch",
        .args = "URL",
        .summary = "fetch models and data from hubs and object storage",
        .about =
            "URL is hf://ORG/NAME[@REVISION], hf://datasets/ORG/NAME[@REVISION], s3://BUCKET/KEY, "
            "s3://BUCKET/PREFIX/ or https://HOST/FILE. Files get their names when all are there "
            "and match the digests that the server lists. Until then they wait in "
            "DIR/.tern-fetch: after a failure the same command goes on where it stopped. A file "
            "that is there already is not fetched again. Another file of that name is left as it "
            "is, and the fetch refused, without --replace. Of a model that has .safetensors files, "
            "the same weights in other formats are left out, unless --include asks for them.\n\nA "
            "hub's token is HF_TOKEN, or what `huggingface-cli login` stored; another hub is "
            "HF_ENDPOINT. Credentials of s3:// are those of AWS's own tools.",
        .examples = "tern fetch hf://HuggingFaceTB/SmolLM-135M -o smollm\n"
                    "tern fetch hf://datasets/ORG/NAME --include '*.jsonl.gz'\n"
                    "tern fetch s3://corpora/pubmed/ -o pubmed",
        .opts = opts,
        .args_min = 1,
        .args_max = 1,
        .run = run_fetch,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
