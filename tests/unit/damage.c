/* What is damaged, hostile or somebody else's is refused where it is first looked at: small files,
 * trees, token sets, checkpoints, safetensors files, leases. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"
#include "core/ckpt/manifest.h"
#include "core/data/data.h"
#include "core/data/feed.h"
#include "core/data/format.h"
#include "core/text/line.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-damage-XXXXXX";
static struct tern_err err;

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

static void put(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
}

static void patch(const char *path, off_t at, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY);

    if (fd < 0 || pwrite(fd, data, len, at) != (ssize_t)len || close(fd) < 0)
        abort();
}

/* ------------------------------------------------------------------ what happens during a save */

/* Called by the next call of that name. */
static void (*at_fallocate)(void);
static bool shorten;

int fallocate(int fd, int mode, off_t from, off_t len)
{
    void (*now)(void) = at_fallocate;

    at_fallocate = NULL;
    if (now)
        now();
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

int fsync(int fd)
{
    struct stat st;

    if (shorten && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 8) {
        shorten = false;
        if (ftruncate(fd, st.st_size - 1) < 0)
            abort();
    }
    return (int)syscall(SYS_fsync, fd);
}

/* ------------------------------------------------------------------ small files */

static void test_files(void)
{
    char *path = in_work("four"), *dir = in_work("shared");
    struct tern_fs_new f;
    char to[8];
    int status;

    put(path, "four", 4);
    int fd = open(path, O_RDONLY);
    ok(tern_fs_pread(fd, to, 8, 0, path, &err) < 0, "a file that ends too early is not read");
    has(err.text, "ends at byte 4, 4 bytes too early", "the error names the file's early end");
    close(fd);
    if (tern_fs_new_open(&f, path, 0644, &err) < 0)
        abort();
    ok(!tern_fs_temp_left(tern_fs_basename(f.temp)),
       "a temporary file of a living process is not left over");
    tern_fs_new_abort(&f);
    pid_t pid = fork();
    if (pid == 0)
        _exit(tern_fs_new_open(&f, path, 0644, &err) < 0);
    waitpid(pid, &status, 0);
    char *name = tern_strf("four.tmp-");
    ok(tern_fs_new_open(&f, path, 0644, &err) == 0 &&
           tern_str_starts(tern_fs_basename(f.temp), name),
       "a temporary file's name begins with the file's");
    /* The same with the number of the process that has ended. */
    char *own = tern_strf("-%d-", (int)getpid()), *at = strstr(f.temp, own);
    char *dead = tern_strf("%.*s-%d-%s", (int)(at - f.temp), f.temp, (int)pid, at + strlen(own));
    ok(tern_fs_temp_left(tern_fs_basename(dead)), "one of a process that has ended is left over");
    tern_fs_new_abort(&f);
    ok(mkdir(dir, 0777) == 0 && chmod(dir, 0777) == 0 && tern_fs_bits_in(dir) == 0666,
       "files in a folder for all are for all");
    ok(chmod(dir, 01777) == 0 && tern_fs_bits_in(dir) == 0644,
       "files in a sticky folder are their owner's to change");
    json_t *j = tern_json_parse("{\"a\": 1, \"a\": 2}", 16, "x.json", &err);
    ok(!j, "a JSON key given twice is refused");
    json_decref(j);
    free(dead);
    free(own);
    free(name);
    free(dir);
    free(path);
}

/* A list with one file called `name`, whose digest is right. */
static int parse_tree(const char *name)
{
    struct tern_tree_file file = {.name = (char *)name, .bytes = 1, .mode = 0644};
    struct tern_tree t = {.file = &file, .n = 1, .bytes = 1}, got = {0};
    uint8_t sha[TERN_SHA256_BYTES];

    tern_sha256("x", 1, sha);
    tern_hex(file.sha256, sha, sizeof sha);
    char *line = tern_strf("%s f 1 %s", file.sha256, name);
    tern_sha256(line, strlen(line) + 1, sha);
    tern_hex(t.digest, sha, sizeof sha);
    json_t *j = tern_tree_json(&t);
    int rc = tern_tree_parse(j, "list.json", &got, &err);
    json_decref(j);
    free(line);
    tern_tree_free(&got);
    return rc;
}

/* ------------------------------------------------------------------ token sets */

static void make_set(const char *path)
{
    const struct tern_data_set_kind kind = {.n_vocab = 100, .eos = 2, .bos = -1};
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, &err);

    if (!w || tern_data_set_add(w, (uint32_t[]){5, 6, 7}, NULL, 3, 9, &err) < 0 ||
        tern_data_set_add(w, (uint32_t[]){8, 9}, NULL, 2, 6, &err) < 0 ||
        tern_data_set_commit(w, "{\"a\": 1}", &err) < 0)
        abort();
}

/* `h` with the checksum that it should have. */
static void put_head(const char *path, struct tern_tds_header *h)
{
    h->crc = 0;
    h->crc = tern_crc32c(0, h, sizeof *h);
    patch(path, 0, h, sizeof *h);
}

static void test_sets(void)
{
    char *path = in_work("set.tds");
    struct tern_tds_header h;
    struct tern_data_set *s;
    struct tern_data_set_doc doc;
    struct stat st;
    size_t docs = 0, meta = 0;

    make_set(path);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, &h, sizeof h) != sizeof h || fstat(fd, &st) < 0)
        abort();
    close(fd);
    for (size_t i = 0; i < h.n_sections; i++) {
        docs = h.sections[i].type == TERN_TDS_DOCS ? i : docs;
        meta = h.sections[i].type == TERN_TDS_META ? i : meta;
    }
    patch(path, st.st_size - 1, "\xee", 1);
    s = tern_data_set_open(path, &err);
    ok(s && tern_data_set_verify(s, &err) < 0, "a token set whose list of digests is damaged");
    has(err.text, "the list of digests", "is damaged in its list of digests");
    tern_data_set_free(s);
    make_set(path);
    s = truncate(path, st.st_size - 1) == 0 ? tern_data_set_open(path, &err) : NULL;
    ok(!s, "a token set that was cut off is not opened");
    has(err.text, "bytes long, its header says", "the error names the length of the cut set");
    make_set(path);
    struct tern_tds_header longer = h;
    longer.sections[meta].bytes = TERN_TDS_META_MAX - 8;
    put_head(path, &longer);
    ok(!tern_data_set_open(path, &err), "a token set with a section behind its end is not opened");
    has(err.text, "a section lies outside the file",
        "the error names the section outside the file");
    make_set(path);
    const uint64_t far = h.n_tokens + 1;
    patch(path, (off_t)(h.sections[docs].offset + 2 * sizeof(struct tern_tds_doc)), &far,
          sizeof far);
    s = tern_data_set_open(path, &err);
    ok(s && tern_data_set_doc(s, 1, &doc, &err) < 0,
       "a document that ends behind the last token is not read");
    tern_data_set_free(s);
    make_set(path);
    const struct tern_data_mix_source heavy = {path, (double)INFINITY};
    const struct tern_data_pack_how rows = {.seq_len = 4};
    ok(!tern_data_mix_open(&heavy, 1, &rows, 0, &err), "a weight that is infinite is refused");
    free(path);
}

static void test_line(void)
{
    enum { DEEP = 2100 };
    const struct tern_text_field field = tern_text_field_of("text");
    struct tern_buf line = {0}, room = {0};
    struct tern_text_line_text text;

    tern_buf_puts(&line, "{\"a\": ");
    for (int i = 0; i < 2 * DEEP; i++)
        tern_buf_puts(&line, i < DEEP ? "[" : "]");
    tern_buf_puts(&line, ", \"text\": \"x\"}");
    ok(tern_text_line_field(line.data, line.len, &field, &room, &text) == TERN_TEXT_LINE_NO_JSON,
       "a line that nests %d deep is refused", DEEP);
    tern_buf_free(&line);
    tern_buf_free(&room);
}

/* ------------------------------------------------------------------ checkpoints */

static int save(const char *dir, uint64_t step, struct tern_ckpt_lease *lease, const char *name)
{
    static const float x[] = {1, 2, 3, 4};
    struct tern_ckpt_array a = {"x", TERN_CKPT_F32, 1, {4}, {0}, {4}, x, .owner = true};
    char *file = in_work("extra");
    struct tern_ckpt_file extra = {.name = name, .path = file};
    json_t *meta = json_object();
    struct tern_ckpt_save_options o = {.dir = dir,
                                       .step = step,
                                       .arrays = &a,
                                       .n = 1,
                                       .meta = meta,
                                       .files = &extra,
                                       .n_files = 1,
                                       .lease = lease};

    put(file, "{\"a\": 1}\n", 9);
    int rc = tern_ckpt_save(&o, NULL, &err);
    json_decref(meta);
    free(file);
    return rc;
}

static char *lease_dir;

static void lose_lease(void)
{
    struct tern_ckpt_lease *later;

    if (tern_ckpt_lease_acquire(lease_dir, 0, "a later attempt", &later, NULL) < 0)
        abort();
    tern_ckpt_lease_free(later, false);
}

static void test_save(void)
{
    char *dir = lease_dir = in_work("run");
    char *one = tern_fs_join(dir, "step-00000001"), *two = tern_fs_join(dir, "step-00000002");
    char *config = tern_fs_join(one, "config.json"), *text = NULL;
    struct tern_ckpt_lease *lease;

    ok(save(dir, 1, NULL, ".hidden") < 0, "a file with a hidden name is not saved");
    ok(save(dir, 1, NULL, "config.json") == 0, "a checkpoint to begin with: %s", err.text);
    patch(config, 6, "2", 1);
    struct tern_ckpt *c = tern_ckpt_open(one, &err);
    ok(c && tern_ckpt_file_read(c, "config.json", &text, NULL, &err) < 0,
       "a changed config.json of a checkpoint is not read");
    has(err.text, "does not match its digest", "the error names the digest that does not match");
    tern_ckpt_close(c);
    if (tern_ckpt_lease_acquire(dir, 0, "test", &lease, &err) < 0)
        abort();
    at_fallocate = lose_lease;
    ok(save(dir, 2, lease, "config.json") < 0 && !tern_fs_exists(two),
       "an attempt that loses its lease while it writes publishes nothing");
    tern_ckpt_lease_free(lease, false);
    shorten = true;
    ok(save(dir, 2, NULL, "config.json") < 0 && !tern_fs_exists(two),
       "a file that is shorter than what was written is not published");
    shorten = false;
    free(config);
    free(two);
    free(one);
    free(dir);
}

/* The manifest of checkpoint `dir` with `key` of its first shard or slice set, and a right digest.
 */
static void set_in(const char *dir, const char *where, const char *key, json_t *value)
{
    char *path = tern_fs_join(dir, "manifest.json"), *text, digest[TERN_SHA256_HEX];
    json_t *m = tern_json_load(path, 1 << 20, &err), *at = json_object_get(m, where);
    size_t len;

    at = json_is_array(at) ? json_array_get(at, 0)
                           : json_array_get(json_object_get(json_object_get(at, "x"), "slices"), 0);
    json_object_set_new(at, key, value);
    json_object_del(m, "digest");
    if (tern_ckpt_manifest_seal(m, &text, &len, digest, &err) < 0)
        abort();
    put(path, text, len);
    json_decref(m);
    free(text);
    free(path);
}

static void test_manifest(void)
{
    char *dir = in_work("manifests"), *one = tern_fs_join(dir, "step-00000001");
    char digest[67] = "";

    if (save(dir, 1, NULL, "config.json") < 0)
        abort();
    memset(digest, 'a', 65);
    set_in(one, "arrays", "sha256", json_string(digest));
    ok(!tern_ckpt_open(one, &err), "a digest with a digit too many is refused");
    digest[64] = '\0';
    set_in(one, "arrays", "sha256", json_string(digest));
    struct tern_ckpt *c = tern_ckpt_open(one, &err);
    ok(c != NULL, "one of 64 digits is taken, to be compared later: %s", err.text);
    tern_ckpt_close(c);
    json_t *m = json_integer(1 << 20);
    set_in(one, "arrays", "offset", m);
    ok(!tern_ckpt_open(one, &err), "a slice behind its shard's end is refused");
    struct stat st;
    char *shard = tern_fs_join(one, "shard-00000-of-00001.safetensors");
    if (stat(shard, &st) < 0)
        abort();
    set_in(one, "arrays", "offset", json_integer(st.st_size - 4));
    ok(!tern_ckpt_open(one, &err), "a slice that ends behind its shard's end is refused");
    has(err.text, "reaches outside", "the shard is named");
    free(shard);
    free(one);
    free(dir);
}

/* ------------------------------------------------------------------ safetensors */

static void put_tensors(const char *path, const char *head, size_t data)
{
    uint64_t len = strlen(head);
    char bytes[1024] = {0};

    memcpy(bytes, &len, 8);
    memcpy(bytes + 8, head, len);
    put(path, bytes, 8 + len + data);
}

static void test_tensors(void)
{
    static const char two[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[%s]}}";
    static const char out[] = "{\"weight_map\": {\"a\": \"../above.safetensors\"}}";
    char *dir = in_work("hf/inner"), *file = tern_fs_join(dir, "model.safetensors");
    char *good = tern_strf(two, "16,32"), *twice = tern_strf(two, "0,16");
    char *above = in_work("hf/above.safetensors");
    char *index = tern_fs_join(dir, "model.safetensors.index.json");

    if (tern_fs_mkdirs(dir, 0755, &err) < 0)
        abort();
    put_tensors(file, good, 32);
    struct tern_ckpt *c = tern_ckpt_open_hf(dir, &err);
    ok(c != NULL, "two tensors, one behind the other: %s", err.text);
    tern_ckpt_close(c);
    put_tensors(file, good, 33);
    ok(!tern_ckpt_open_hf(dir, &err), "a byte behind the last tensor is refused");
    put_tensors(file, twice, 32);
    ok(!tern_ckpt_open_hf(dir, &err), "two tensors in one place are refused");
    has(err.text, "overlaps another or leaves a hole", "the error names the two tensors' overlap");
    unlink(file);
    put_tensors(above, good, 32);
    put(index, out, sizeof out - 1);
    ok(!tern_ckpt_open_hf(dir, &err), "an index that leads out of its folder is refused");
    has(err.text, "places tensor 'a'", "the tensor is named");
    free(index);
    free(above);
    free(twice);
    free(good);
    free(file);
    free(dir);
}

/* ------------------------------------------------------------------ leases */

static void test_leases(void)
{
    char *dir = in_work("leases"), *other = tern_fs_join(dir, "other");
    struct tern_ckpt_lease *lease;
    siginfo_t info;

    pid_t pid = fork();
    if (pid == 0)
        _exit(tern_ckpt_lease_acquire(dir, 1, "one that ends", &lease, &err) < 0);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* a zombie from now on */
    ok(tern_ckpt_lease_acquire(dir, 2, "test", &lease, &err) == 0,
       "the lease of a process that has ended is free before its parent looks: %s", err.text);
    waitpid(pid, NULL, 0);
    tern_ckpt_lease_free(lease, true);
    ok(tern_ckpt_lease_acquire(dir, 2, "test", &lease, &err) < 0,
       "the number of a lease that was released is not taken again");
    if (tern_ckpt_lease_acquire(dir, 0, "test", &lease, &err) < 0)
        abort();
    char *path = tern_strf("%s/claim-%06u", dir, tern_ckpt_lease_attempt(lease));
    ok(tern_ckpt_lease_check(lease, &err) == 0, "a lease holds");
    put(other, "{}", 2);
    ok(rename(other, path) == 0 && tern_ckpt_lease_check(lease, &err) < 0,
       "another file under its name is no lease");
    tern_ckpt_lease_free(lease, false);
    free(path);
    free(other);
    free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_files();
    ok(parse_tree("a/x") == 0, "a list of files: %s", err.text);
    ok(parse_tree("../x") < 0 && parse_tree("a/../../x") < 0,
       "a path that leads out of the folder is refused");
    ok(parse_tree("a/./x") < 0 && parse_tree("/x") < 0, "so is one that is not plain");
    test_sets();
    test_line();
    test_save();
    test_manifest();
    test_tensors();
    test_leases();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
