/* core/text: which files of a folder are read, and in which order. */
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/text/names.h"
#include "core/text/text.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/tmp/tern-files-XXXXXX";
static struct tern_buf log_lines;

static void keep_line(const char *line, size_t len)
{
    tern_buf_add(&log_lines, line, len);
    tern_buf_puts(&log_lines, "\n");
}

/* Write a file below the work folder. */
static void put(const char *name)
{
    char *path = tern_fs_join(work, name), *dir = tern_fs_dirname(path);

    if (tern_fs_mkdirs(dir, 0755, NULL) < 0 ||
        tern_fs_replace(path, name, strlen(name), 0644, NULL) < 0)
        abort();
    free(dir);
    free(path);
}

static void link_to(const char *target, const char *name)
{
    char *path = tern_fs_join(work, name);

    if (symlink(target, path) < 0)
        abort();
    free(path);
}

/* The names found, without the work folder, parted by blanks; or the error. */
static const char *find_with(enum tern_text_format format, const char *const *names, size_t n)
{
    static char got[4096];
    struct tern_text_files files = {0};
    struct tern_err err = {0};
    struct tern_buf b = {0};
    char *args[8];

    tern_buf_clear(&log_lines);
    for (size_t i = 0; i < n; i++)
        args[i] = tern_fs_join(work, names[i]);
    if (tern_text_files_find(args, n, format, &files, &err) < 0)
        tern_buf_puts(&b, err.text);
    for (size_t i = 0; i < files.n; i++)
        tern_buf_printf(&b, "%s%s", i ? " " : "", files.paths[i] + strlen(work) + 1);
    snprintf(got, sizeof got, "%s", b.data ? b.data : "");
    tern_buf_free(&b);
    tern_text_files_free(&files);
    for (size_t i = 0; i < n; i++)
        free(args[i]);
    return got;
}

static const char *find(enum tern_text_format format, const char *name)
{
    return find_with(format, &name, 1);
}

static void test_order(void)
{
    static const char *const names[] = {"order/a/2.txt",      "order/a-b/1.txt",
                                        "order/a.txt",        "order/B.txt",
                                        "order/\xc3\xa9.txt", "order/a/b/c/deep.txt"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put(names[i]);
    is(find(TERN_TEXT_AUTO, "order"),
       "order/B.txt order/a-b/1.txt order/a.txt order/a/2.txt order/a/b/c/deep.txt "
       "order/\xc3\xa9.txt",
       "files of a folder are in the order of their paths' bytes");
    ok(!log_lines.data || !*log_lines.data, "a folder whose files are all read says nothing");
    is(find(TERN_TEXT_AUTO, "order/a/"), "order/a/2.txt order/a/b/c/deep.txt",
       "a folder named with a slash has no second one in its files' paths");
}

static void test_kinds(void)
{
    static const char *const names[] = {
        "mixed/x.jsonl.gz",   "mixed/sub/Y.NDJSON",      "mixed/z.jsonl-00001-of-00002",
        "mixed/README.md",    "mixed/x.jsonl.gz.sha256", "mixed/.hidden.jsonl",
        "mixed/.git/a.jsonl", "mixed/notes.txt",         "mixed/w.jsonl.bak",
        "mixed/LICENSE",      "mixed/picture.png"};
    static const char *const texts[] = {
        "prose/part_0",           "prose/b.md.gz",    "prose/c.rst",   "prose/README",
        "prose/x.json",           "prose/d.0001",     "prose/code.py", "prose/SHA256SUMS",
        "prose/notice-board.txt", "prose/changes.txt"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put(names[i]);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        put(texts[i]);
    is(find(TERN_TEXT_AUTO, "mixed"),
       "mixed/sub/Y.NDJSON mixed/x.jsonl.gz mixed/z.jsonl-00001-of-00002",
       "a folder with JSONL files is these alone, compressed or not");
    is(strstr(log_lines.data ? log_lines.data : "", "mixed: "),
       "mixed: 3 files; left out: LICENSE, README.md, notes.txt, picture.png, w.jsonl.bak and 1 "
       "more\n",
       "the log names files that were left out, and counts the others");
    is(find(TERN_TEXT_JSONL, "mixed"),
       "mixed/sub/Y.NDJSON mixed/x.jsonl.gz mixed/z.jsonl-00001-of-00002",
       "with --format jsonl it is the same");
    is(find(TERN_TEXT_AUTO, "prose"), "prose/b.md.gz prose/c.rst prose/d.0001 prose/part_0",
       "a folder without JSONL is prose and files without a suffix");
    is(find(TERN_TEXT_PLAIN, "prose"),
       "prose/b.md.gz prose/c.rst prose/code.py prose/d.0001 prose/part_0",
       "with --format text, files with unknown suffixes are taken, too");
    is(find(TERN_TEXT_S2ORC, "prose"), "prose/code.py prose/d.0001 prose/part_0 prose/x.json",
       "with --format s2orc, prose is left out, and .json is taken");
    is(find(TERN_TEXT_AUTO, "prose/README"), "prose/README", "a file that is named is taken");
}

static void test_links(void)
{
    static const char *const twice[] = {"links", "links/sub"};
    static const char *const file_twice[] = {"links/a.txt", "links/a.txt", "links/sub"};
    static const char *const after[] = {"links/sub", "links/sub/b.txt"};

    put("links/a.txt");
    put("links/sub/b.txt");
    put("elsewhere/c.txt");
    link_to("..", "links/sub/up");
    link_to(".", "links/self");
    link_to("../elsewhere", "links/other");
    link_to("a.txt", "links/same.txt");
    is(find(TERN_TEXT_AUTO, "links"), "links/a.txt links/other/c.txt links/sub/b.txt",
       "links are followed, except back to a folder that holds them");
    ok(log_lines.data && strstr(log_lines.data, "self (a link to a folder that it is in)"),
       "the log names links that lead back");
    ok(log_lines.data && strstr(log_lines.data, "found twice are read once: ") &&
           strstr(log_lines.data, "links/same.txt"),
       "a file with two names is read once, with a warning");
    is(find_with(TERN_TEXT_AUTO, twice, 2), "links/a.txt links/other/c.txt links/sub/b.txt",
       "a folder inside another that is named is read once");
    is(find_with(TERN_TEXT_AUTO, file_twice, 3), "links/a.txt links/a.txt links/sub/b.txt",
       "a file that is named twice is read twice");
    ok(log_lines.data && strstr(log_lines.data, "links/a.txt: is named twice"),
       "a file that is named twice gets a warning");
    is(find_with(TERN_TEXT_AUTO, after, 2), "links/sub/b.txt links/sub/b.txt",
       "a file that is named after its folder is read twice");
    put("dangling/a.txt");
    link_to("nowhere", "dangling/b.txt");
    ok(strstr(find(TERN_TEXT_AUTO, "dangling"), "dangling/b.txt: cannot open"),
       "a link to nothing is an error, so that no text is missed");
}

/* 2^40 paths lead through 40 folders with two links each. */
static void test_many_links(void)
{
    char from[32], to[32];

    for (int i = 0; i < 40; i++) {
        for (const char *side = "lr"; *side; side++) {
            snprintf(from, sizeof from, "links2/%02d/%c", i, *side);
            snprintf(to, sizeof to, "../%02d", i + 1);
            if (*side == 'l') {
                char *dir = tern_strf("links2/%02d/a.txt", i);
                put(dir);
                free(dir);
            }
            link_to(to, from);
        }
    }
    put("links2/40/end.txt");
    const char *got = find(TERN_TEXT_AUTO, "links2/00");
    ok(strstr(got, "links2/00/a.txt links2/00/l/a.txt ") && strstr(got, "/l/l/l/end.txt"),
       "folders that many links lead to are read once, by the first path");
    got = find(TERN_TEXT_AUTO, "links2");
    ok(strstr(got, "links2/00/a.txt"), "linked files are read under their own names, too");
}

static void test_refused(void)
{
    char *path;

    put("none/.hidden");
    ok(strstr(find(TERN_TEXT_AUTO, "none"), "none: no files of text in this folder"),
       "an empty folder is refused");
    ok(strstr(find(TERN_TEXT_AUTO, "missing"), "missing: cannot open: No such file"),
       "a missing file is refused before others are read");
    put("parquet/train-00000-of-00001.parquet");
    ok(strstr(find(TERN_TEXT_AUTO, "parquet"),
              "parquet: its files are Parquet, which tern does not"),
       "a folder of Parquet is refused by name");
    put("arrow/data-00000-of-00001.arrow");
    put("arrow/cache-1.arrow");
    is(find(TERN_TEXT_AUTO, "arrow"), "arrow/data-00000-of-00001.arrow",
       "a folder of Arrow files is these, without what datasets keeps for itself");
    ok(strstr(find(TERN_TEXT_JSONL, "arrow"), "arrow: its files are Arrow. Leave --format away"),
       "a folder of Arrow files is not JSONL");
    put("json/a.json");
    ok(strstr(find(TERN_TEXT_AUTO, "json"), "Say --format jsonl if each line is an object"),
       "a folder of .json files asks for --format");
    path = tern_fs_join(work, "pipe");
    mkdir(path, 0755);
    free(path);
    path = tern_fs_join(work, "pipe/a.txt");
    mkfifo(path, 0644);
    free(path);
    ok(strstr(find(TERN_TEXT_AUTO, "pipe"), "pipe: no files of text"),
       "a pipe in a folder is no file of it");
}

static void test_names(void)
{
    ok(tern_text_name_of("a.JSONL.GZ") == TERN_TEXT_NAME_JSONL, "capitals do not count");
    ok(tern_text_name_of("a.json.zst") == TERN_TEXT_NAME_JSON, "compressed .json is .json");
    ok(tern_text_name_of("data.jsonl.bak") == TERN_TEXT_NAME_JSONL,
       "a file that is named is JSONL by any part of its name");
    ok(tern_text_name_of("a.jsonlx") == TERN_TEXT_NAME_OTHER, "a longer suffix is another one");
    ok(tern_text_name_of(".gz") == TERN_TEXT_NAME_OTHER, "a suffix alone is no name");
    ok(tern_text_name_in_folder("license.jsonl") == TERN_TEXT_NAME_JSONL,
       "JSONL about licences is data");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    tern_log_copy(keep_line);
    test_names();
    test_order();
    test_kinds();
    test_links();
    test_many_links();
    test_refused();
    tern_fs_remove_tree(work, NULL);
    tern_buf_free(&log_lines);
    return tap_done();
}
