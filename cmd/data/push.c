/* tern data push: a file to object storage. */
#include "cmd/data/data.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/store/push.h"

#include <fcntl.h>
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

static uint64_t part_bytes;
static int64_t threads;

/* The object may be a token set or missing, as a file on disk may be (tern_data_set_create). */
static int check_object(struct tern_store *s, struct tern_err *err)
{
    char magic[TERN_DATA_SET_MAGIC] = "";
    struct tern_store_head head;
    const int there = tern_store_head(s, /* name= */ NULL, &head, err);

    if (there <= 0)
        return there;
    if (head.bytes >= sizeof magic &&
        tern_store_read_unchecked(s, /* name= */ NULL, head.etag, 0, sizeof magic, magic, err) < 0)
        return -1;
    return tern_data_set_is(magic)
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "%s: exists and is not a token set; it is left as it is. Name "
                              "another object to write.",
                              tern_store_url(s));
}

int data_push_check(const char *url, const int *stop, struct tern_err *err)
{
    const struct tern_store_how how = {.stop = stop};
    struct tern_store *s = tern_store_open(url, &how, err);
    const int rc = s ? check_object(s, err) : -1;

    tern_store_close(s);
    return rc;
}

int data_push_file(const char *path, const char *url, const int *stop, struct tern_err *err)
{
    const struct tern_store_how store = {.stop = stop};
    const struct tern_store_push_how how = {
        .part_bytes = part_bytes, .threads = (unsigned)threads, .progress = tern_progress_show};
    struct tern_store_pushed pushed;
    char bytes[32], sent[32];
    /* s3://bucket/folder/: the file's own name. */
    char *whole =
        tern_str_ends(url, "/") ? tern_strf("%s%s", url, tern_fs_basename(path)) : tern_strdup(url);
    struct tern_store *s = tern_store_open(whole, &store, err);
    const int fd = s ? TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    int rc = -1;

    if (s && fd < 0) {
        tern_err_sys(err, "%s: cannot open", path);
    } else if (s && !tern_store_writes(s)) {
        tern_err_set(err, TERN_USAGE, "%s: sets are pushed to s3://BUCKET/KEY", tern_store_url(s));
    } else if (s && tern_str_ends(tern_store_url(s), "/")) {
        tern_err_set(err, TERN_USAGE, "%s: it names no object. Write s3://BUCKET/KEY.",
                     tern_store_url(s));
    } else if (s && check_object(s, err) == 0) {
        tern_progress_begin(/* unit= */ NULL, "%s", path);
        rc = tern_store_push(s, NULL, fd, path, &how, &pushed, err);
        tern_progress_end();
    }
    if (rc == 0)
        tern_info("%s: %s, %s of it sent now", tern_store_url(s),
                  tern_str_bytes(bytes, sizeof bytes, pushed.bytes),
                  tern_str_bytes(sent, sizeof sent, pushed.sent_bytes));
    if (fd >= 0)
        close(fd);
    tern_store_close(s);
    free(whole);
    return rc;
}

/* Is it a whole set?  Another one would be found when it is read, far from here. */
static int check_set(const char *path, struct tern_err *err)
{
    struct tern_data_set *s = tern_data_set_open(path, err);

    tern_progress_begin(/* unit= */ NULL, "%s, verifying", path);
    int rc = s ? tern_data_set_verify(s, err) : -1;
    tern_progress_end();
    tern_data_set_free(s);
    return rc;
}

static int run_push(int n_args, char **args, struct tern_err *err)
{
    struct sigaction sa = {.sa_handler = on_signal};

    (void)n_args;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    if (threads > 64)
        return tern_err_set(err, TERN_USAGE, "--threads %" PRId64 "; allowed are 0 to 64", threads);
    if (!tern_str_starts(args[1], "s3://"))
        return tern_err_set(err, TERN_USAGE, "%s: a set is pushed to s3://BUCKET/KEY", args[1]);
    if (check_set(args[0], err) < 0)
        return -1;
    return data_push_file(args[0], args[1], &stopped, err);
}

static const struct tern_opt push_opts[] = {
    {"part", 0, TERN_OPT_SIZE, "BYTES", .def = "16M", .to.bytes = &part_bytes,
     .help = "of a part, at least 5M; 10,000 parts are the most"},
    {"threads", 0, TERN_OPT_INT, "N", .def = "4", .to.integer = &threads,
     .help = "parts that are sent at once; each takes memory for one"},
    {0},
};

const struct tern_cmd data_push = {
    .name = "push",
    .args = "SET s3://BUCKET/KEY",
    .summary = "copy a token set to object storage",
    .about =
        "The set is verified first. The object appears whole or not at all, in the place of no "
        "object but an earlier token set. After a failure, "
        "the same command goes on where it stopped: parts that are there already are compared "
        "by their checksums. Credentials and region are those of AWS's own tools (environment, "
        "~/.aws, container, instance); another endpoint is AWS_ENDPOINT_URL.",
    .examples = "tern data push pubmed.tds s3://corpora/pubmed.tds\n"
                "tern data verify s3://corpora/pubmed.tds",
    .opts = push_opts,
    .args_min = 2,
    .args_max = 2,
    .run = run_push,
};
