/* core/base/tree: a folder as a list with digests. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/tree.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
    char *dir = tern_fs_dirname(path);

    if (tern_fs_mkdirs(dir, 0777, NULL) < 0 ||
        tern_fs_replace(path, text, strlen(text), 0640, NULL) < 0)
        abort();
    free(dir);
}

static void make(void)
{
    put("ck/model/dp_rank_00.pt", "weights");
    put("ck/model/z/deep.pt", "deep");
    put("ck/model.txt", ""); /* sorts between the folder and its files */
    put("ck/done", "1");
    if (symlink("model/dp_rank_00.pt", "ck/first") < 0)
        abort();
}

static void test_list(void)
{
    struct tern_tree t = {0};
    struct tern_err e = {0};

    ok(tern_tree_take("ck", &t, &e) == 0 && t.n == 5 && t.bytes == 12,
       "a tree has the folder's five files and 12 bytes");
    is(t.file[0].name, "done", "a tree is sorted by name");
    is(t.file[0].sha256, "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
       "a file has its content's digest");
    is(t.file[1].link, "model/dp_rank_00.pt", "a link that stays inside is kept as a link");
    ok(t.file[3].mode == 0640, "a file's permission bits are kept");
    tern_tree_free(&t);

    ok(symlink("../outside", "ck/model/out") == 0 && tern_tree_take("ck", &t, &e) == 0,
       "a link upwards that stays inside is taken");
    tern_tree_free(&t);
    unlink("ck/model/out");
    ok(symlink("../../outside", "ck/model/out") == 0 && tern_tree_take("ck", &t, &e) < 0,
       "a link that leads out is refused");
    has(e.text, "ck/model/out: a link that leads out of the folder (to ../../outside)",
        "a refused link is named with its target");
    unlink("ck/model/out");
    ok(mkfifo("ck/pipe", 0600) == 0 && tern_tree_take("ck", &t, &e) < 0, "a pipe is refused");
    has(e.text, "ck/pipe: is a device, pipe or socket", "a refused pipe is named");
    unlink("ck/pipe");
    put("ck/\xff\xfe", "");
    ok(tern_tree_take("ck", &t, &e) < 0, "a name that JSON cannot hold is refused");
    has(e.text, "not UTF-8", "a name that JSON cannot hold is an error with its reason");
    unlink("ck/\xff\xfe");
    ok(tern_tree_take("nowhere", &t, &e) < 0 && e.code == TERN_USAGE,
       "a folder that does not exist is bad input");
}

static void test_verify(void)
{
    struct tern_tree t = {0};
    struct tern_err e = {0};

    if (tern_tree_take("ck", &t, &e) < 0)
        abort();
    ok(tern_tree_verify("ck", &t, true, &e) == 0, "a folder verifies against its own tree");
    put("ck/model/dp_rank_00.pt", "Weights");
    ok(tern_tree_verify("ck", &t, false, &e) == 0, "verifying sizes alone misses a flipped byte");
    ok(tern_tree_verify("ck", &t, true, &e) < 0 && e.code == TERN_FAILED,
       "verifying digests finds a flipped byte");
    has(e.text, "ck/model/dp_rank_00.pt: its content has changed", "a changed file is named");
    put("ck/model/dp_rank_00.pt", "weight");
    ok(tern_tree_verify("ck", &t, false, &e) < 0, "verifying sizes finds another size");
    has(e.text, "has 6 bytes; 7 were verified", "another size is named with both sizes");
    put("ck/model/dp_rank_00.pt", "weights");
    put("ck/new", "");
    ok(tern_tree_verify("ck", &t, false, &e) < 0, "verifying finds a new file");
    has(e.text, "ck/new: was not there when it was verified", "a new file is named");
    unlink("ck/new");
    unlink("ck/done");
    ok(tern_tree_verify("ck", &t, false, &e) < 0, "verifying finds a lost file");
    has(e.text, "ck/done: is missing", "a lost file is named");
    put("ck/done", "1");
    unlink("ck/first");
    put("ck/first", "weights");
    ok(tern_tree_verify("ck", &t, false, &e) < 0, "verifying finds a file in a link's place");
    unlink("ck/first");
    if (symlink("model/dp_rank_00.pt", "ck/first") < 0)
        abort();
    tern_tree_free(&t);
}

static int parse(const char *text, struct tern_err *e)
{
    struct tern_tree t = {0};
    json_t *j = tern_json_parse(text, strlen(text), "m.json", e);
    int rc = tern_tree_parse(j, "m.json", &t, e);

    json_decref(j);
    if (rc == 0)
        tern_tree_free(&t);
    return rc;
}

static void test_json(void)
{
    struct tern_tree t = {0}, back = {0};
    struct tern_err e = {0};

    if (tern_tree_take("ck", &t, &e) < 0)
        abort();
    json_t *j = tern_tree_json(&t);
    ok(tern_tree_parse(j, "m.json", &back, &e) == 0 && back.n == t.n && back.bytes == t.bytes,
       "a tree survives JSON");
    is(back.digest, t.digest, "a tree read from JSON has the same digest");
    json_object_set_new(json_array_get(json_object_get(j, "files"), 0), "bytes", json_integer(2));
    struct tern_tree none = {0};
    ok(tern_tree_parse(j, "m.json", &none, &e) < 0, "a changed entry of the JSON is found");
    has(e.text, "m.json: its digest is not that of its list",
        "a changed entry is an error about the digest");
    json_decref(j);
    tern_tree_free(&t);
    tern_tree_free(&back);

#define SHA "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    static const char *const bad[] = {
        "{}",
        "{\"digest\": \"" SHA "\", \"files\": 3}",
        "{\"digest\": \"" SHA "\", \"files\": [7]}",
        "{\"digest\": \"" SHA "\", \"files\": [{\"name\": \"../x\", \"bytes\": 1, \"mode\": 420, "
        "\"sha256\": \"" SHA "\"}]}",
        "{\"digest\": \"" SHA "\", \"files\": [{\"name\": \"/x\", \"bytes\": 1, \"mode\": 420, "
        "\"sha256\": \"" SHA "\"}]}",
        "{\"digest\": \"" SHA "\", \"files\": [{\"name\": \"x\", \"bytes\": -1, \"mode\": 420, "
        "\"sha256\": \"" SHA "\"}]}",
        "{\"digest\": \"" SHA "\", \"files\": [{\"name\": \"x\", \"link\": \"/etc/passwd\", "
        "\"sha256\": \"" SHA "\"}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(parse(bad[i], &e) < 0 && e.code == TERN_USAGE, "hostile list %zu is refused: %s", i,
           e.text);
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* A record of a file that is longer than it. */
static void test_copy_size(void)
{
    struct tern_tree t = {0};
    struct tern_err e = {0};

    if (tern_tree_take("ck", &t, &e) < 0)
        abort();
    for (size_t i = 0; i < t.n; i++)
        t.file[i].bytes += strcmp(t.file[i].name, "model/z/deep.pt") == 0;
    ok(tern_tree_copy("ck", &t, "mirror/.6.new", "mirror/6", &e) < 0 && e.code == TERN_TEMPFAIL,
       "a record with another size than its file's is an error");
    is(e.text, "ck/model/z/deep.pt: has 4 bytes, its record says 5",
       "a record with another size is an error with both sizes");
    ok(!tern_fs_exists("mirror/6") && !tern_fs_exists("mirror/.6.new"),
       "a copy that its record does not fit leaves no folder");
    tern_tree_free(&t);
}

static void test_copy(void)
{
    struct tern_tree t = {0};
    struct tern_err e = {0};
    struct stat st;

    if (tern_tree_take("ck", &t, &e) < 0)
        abort();
    put("mirror/.ck.new/left", "by one that was killed");
    ok(tern_tree_copy("ck", &t, "mirror/.ck.new", "mirror/ck", &e) == 0 &&
           tern_tree_verify("mirror/ck", &t, true, &e) == 0,
       "a copy is the same: %s", e.text);
    ok(!tern_fs_exists("mirror/.ck.new"), "a finished copy leaves nothing aside");
    ok(stat("mirror/ck/model/dp_rank_00.pt", &st) == 0 && (st.st_mode & 0777) == 0640,
       "a copied file has its permission bits");

    /* Ended half-way: one file whole, one torn. */
    put("mirror/.4.new/model/dp_rank_00.pt", "");
    unlink("mirror/.4.new/model/dp_rank_00.pt");
    if (link("mirror/ck/model/dp_rank_00.pt", "mirror/.4.new/model/dp_rank_00.pt") < 0)
        abort();
    put("mirror/.4.new/model/z/deep.pt", "d");
    ok(tern_tree_copy("ck", &t, "mirror/.4.new", "mirror/4", &e) == 0 &&
           tern_tree_verify("mirror/4", &t, true, &e) == 0 &&
           stat("mirror/ck/model/dp_rank_00.pt", &st) == 0 && st.st_nlink == 2,
       "a copy reuses the whole files of an ended one: %s", e.text);
    put("mirror/.5.new/model/z/deep.pt", "DEEP");
    chmod("mirror/.5.new/model/z/deep.pt", mode_of("ck/model/z/deep.pt"));
    ok(tern_tree_copy("ck", &t, "mirror/.5.new", "mirror/5", &e) == 0 &&
           tern_tree_verify("mirror/5", &t, true, &e) == 0,
       "a copy replaces files of another version: %s", e.text);
    ok(tern_tree_copy("ck", &t, "mirror/.ck.new", "mirror/ck", &e) < 0,
       "a copy never replaces a folder");
    has(e.text, "mirror/ck: cannot put it in place: File exists",
        "a copy onto a folder is an error about it");
    ok(!tern_fs_exists("mirror/.ck.new"), "a refused copy leaves nothing aside");
    ok(mkdir("mirror/empty", 0777) == 0 &&
           tern_tree_copy("ck", &t, "mirror/.e.new", "mirror/empty", &e) < 0,
       "a copy never replaces an empty folder");

    put("ck/model/z/deep.pt", "DEEP");
    ok(tern_tree_copy("ck", &t, "mirror/.2.new", "mirror/2", &e) < 0 && e.code == TERN_TEMPFAIL,
       "a file that changed since it was taken is not copied");
    has(e.text, "ck/model/z/deep.pt: has changed since it was verified",
        "a file that changed since it was taken is named");
    ok(!tern_fs_exists("mirror/2") && !tern_fs_exists("mirror/.2.new"),
       "a failed copy leaves no folder");
    put("ck/model/z/deep.pt", "deep");
    tern_tree_free(&t);

    /* As a full disk: writing beyond three bytes fails. */
    struct rlimit little = {3, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    if (tern_tree_take("ck", &t, &e) < 0)
        abort();
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    int rc = tern_tree_copy("ck", &t, "mirror/.3.new", "mirror/3", &e);
    setrlimit(RLIMIT_FSIZE, &all);
    ok(rc < 0 && !tern_fs_exists("mirror/3") && !tern_fs_exists("mirror/.3.new"),
       "a copy without room leaves no folder: %s", e.text);
    tern_tree_free(&t);
}

int main(void)
{
    char dir[] = "/tmp/tern-unit-tree-XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0)
        return 1;
    make();
    test_list();
    test_verify();
    test_json();
    test_copy();
    test_copy_size();
    if (chdir("/") == 0)
        tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
