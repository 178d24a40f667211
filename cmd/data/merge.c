/* tern data merge: parts of a set, in their order, become the set. */
#include "cmd/data/build.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/data/duplicates.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A part as its record has it. */
struct part {
    const char *path;
    json_t *record;
    uint64_t part, bytes;
    struct tern_data_place from, to;
};

struct merge {
    const struct data_merge *how;
    struct part *parts; /* in their order, once they are sorted */
    size_t n;
    struct tern_data_set_kind kind;
    char *meta; /* of the first */
    struct data_sums sums;
    uint64_t done, all; /* bytes of parts */
    struct tern_data_set_writer *writer;
    struct tern_data_duplicates *seen; /* NULL: duplicates stay */
    bool hashes;                       /* parts have them */
};

/* ---- do they belong together ---- */

static int damaged(const struct part *p, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged part: its notes are not those of a part",
                        p->path);
}

static int read_record(struct part *p, const char *words, struct tern_err *err)
{
    json_int_t part, parts, n_paths, from[2], to[2], empty, duplicates;
    json_t *options, *files;
    const char *tern, *inputs;

    p->record = tern_json_parse(words, strlen(words), p->path, err);
    if (!p->record)
        return -1;
    if (json_unpack(p->record, "{s:s, s:I, s:I, s:s, s:I, s:o, s:[I,I], s:[I,I], s:I, s:I, s:o}",
                    "tern", &tern, "part", &part, "parts", &parts, "inputs", &inputs, "n_paths",
                    &n_paths, "options", &options, "from", &from[0], &from[1], "to", &to[0], &to[1],
                    "empty", &empty, "duplicates", &duplicates, "files", &files) < 0 ||
        parts < 1 || part < 0 || part >= parts || parts > TERN_DATA_SHARES_MAX || n_paths < 1 ||
        from[0] < 0 || from[1] < 0 || to[0] < from[0] || to[0] > n_paths || to[1] < 0 ||
        !json_is_array(files) || !json_is_object(options))
        return damaged(p, err);
    p->part = (uint64_t)part;
    p->from = (struct tern_data_place){(size_t)from[0], (uint64_t)from[1]};
    p->to = (struct tern_data_place){(size_t)to[0], (uint64_t)to[1]};
    return 0;
}

static json_int_t number(const struct part *p, const char *key)
{
    return json_integer_value(json_object_get(p->record, key));
}

/* Names an option of which two parts have different values. */
static int options_differ(const struct part *a, const struct part *b, struct tern_err *err)
{
    json_t *of = json_object_get(a->record, "options"),
           *other = json_object_get(b->record, "options"), *value;
    const char *key, *name = "an option";

    json_object_foreach(of, key, value) if (!json_equal(value, json_object_get(other, key))) name =
        key;
    return tern_err_set(err, TERN_USAGE,
                        "%s and %s are of different builds: they differ in --%s. Build all parts "
                        "with the same options.",
                        a->path, b->path, name);
}

static int same_build(const struct merge *m, const struct part *a, const struct part *b,
                      const struct tern_data_set_kind *kind, struct tern_err *err)
{
    static const char *const texts[][2] = {
        {"tern", "the tern that built them. Build all parts with one"},
        {"inputs", "the names, sizes or times of their files. Build them from the same files, with "
                   "the same names; copies keep their times with cp -p"},
    };

    if (number(a, "parts") != number(b, "parts"))
        return tern_err_set(err, TERN_USAGE,
                            "%s is part %" PRIu64 " of %lld, %s is part %" PRIu64
                            " of %lld: they are of different builds",
                            a->path, a->part + 1, (long long)number(a, "parts"), b->path,
                            b->part + 1, (long long)number(b, "parts"));
    if (memcmp(kind->vocab_hash, m->kind.vocab_hash, sizeof kind->vocab_hash) != 0 ||
        kind->n_vocab != m->kind.n_vocab || kind->eos != m->kind.eos)
        return tern_err_set(err, TERN_USAGE, "%s and %s were tokenised with different vocabularies",
                            a->path, b->path);
    if (!json_equal(json_object_get(a->record, "options"), json_object_get(b->record, "options")) ||
        kind->bos != m->kind.bos || kind->mask != m->kind.mask)
        return options_differ(a, b, err);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!json_equal(json_object_get(a->record, texts[i][0]),
                        json_object_get(b->record, texts[i][0])))
            return tern_err_set(err, TERN_USAGE, "%s and %s differ in %s", a->path, b->path,
                                texts[i][1]);
    return number(a, "n_paths") == number(b, "n_paths") ? 0 : damaged(b, err);
}

static int look_at(struct merge *m, size_t i, struct tern_err *err)
{
    struct part *p = &m->parts[i];
    struct tern_data_part *file = tern_data_part_open(p->path, err);
    struct stat st;
    int rc;

    if (!file)
        return -1;
    const struct tern_data_set_kind kind = tern_data_part_kind(file);
    if (i == 0) {
        m->kind = kind;
        m->hashes = tern_data_part_has_hashes(file);
        m->meta = tern_strdup(tern_data_part_meta(file));
    }
    rc = read_record(p, tern_data_part_record(file), err);
    if (rc == 0 && tern_data_part_has_hashes(file) != m->hashes)
        rc = damaged(p, err);
    tern_data_part_close(file);
    if (rc == 0 && i)
        rc = same_build(m, &m->parts[0], p, &kind, err);
    if (rc == 0 && stat(p->path, &st) == 0)
        m->all += p->bytes = (uint64_t)st.st_size;
    return rc;
}

static int by_part(const void *a, const void *b)
{
    const uint64_t x = ((const struct part *)a)->part, y = ((const struct part *)b)->part;

    return x < y ? -1 : x > y;
}

static int missing(const struct merge *m, struct tern_err *err)
{
    enum { NAMED = 10 };
    const uint64_t parts = (uint64_t)number(&m->parts[0], "parts");
    struct tern_buf names = {0};
    uint64_t next = 0, n = 0;

    for (size_t i = 0; i <= m->n; i++) {
        const uint64_t end = i < m->n ? m->parts[i].part : parts;
        for (; next < end; next++)
            if (n++ < NAMED)
                tern_buf_printf(&names, "%s%" PRIu64, names.len ? ", " : "", next + 1);
        next = end + 1;
    }
    tern_err_set(err, TERN_USAGE, "part%s %s%s of %" PRIu64 " %s missing", n > 1 ? "s" : "",
                 names.data ? names.data : "", n > NAMED ? " ..." : "", parts,
                 n > 1 ? "are" : "is");
    tern_buf_free(&names);
    return -1;
}

static int check_order(const struct merge *m, struct tern_err *err)
{
    const size_t n_paths = (size_t)number(&m->parts[0], "n_paths");

    for (size_t i = 1; i < m->n; i++)
        if (m->parts[i].part == m->parts[i - 1].part)
            return tern_err_set(err, TERN_USAGE, "%s and %s are both part %" PRIu64 " of %lld",
                                m->parts[i - 1].path, m->parts[i].path, m->parts[i].part + 1,
                                (long long)number(&m->parts[i], "parts"));
    if (m->n < (size_t)number(&m->parts[0], "parts"))
        return missing(m, err);
    for (size_t i = 0; i <= m->n; i++) {
        const struct tern_data_place from = i ? m->parts[i - 1].to : (struct tern_data_place){0, 0};
        const struct tern_data_place to =
            i < m->n ? m->parts[i].from : (struct tern_data_place){n_paths, 0};
        if (from.path != to.path || from.byte != to.byte)
            return tern_err_set(
                err, TERN_USAGE,
                "%s does not begin where the part before it ends: the files changed "
                "meanwhile. Build all parts again.",
                m->parts[i < m->n ? i : i - 1].path);
    }
    return 0;
}

/* ---- their documents and counts ---- */

/* The counts of one file in one part. */
static int add_path(struct merge *m, const struct part *p, json_t *record, struct tern_err *err)
{
    json_int_t i, v[7];
    json_t *lines;
    const char *name;
    struct data_sums *s = &m->sums;

    if (json_unpack(record, "[I, I, I, I, I, I, I, I, o, s]", &i, &v[0], &v[1], &v[2], &v[3], &v[4],
                    &v[5], &v[6], &lines, &name) < 0 ||
        i < 0 || (size_t)i >= s->n_paths)
        return damaged(p, err);
    struct data_path_sum *path = &s->path[i];
    struct tern_text_counts c = {.lines = (uint64_t)v[2],
                                 .replaced = (uint64_t)v[3],
                                 .skipped = (uint64_t)v[4],
                                 .too_short = (uint64_t)v[5],
                                 .bad = (uint64_t)v[6],
                                 .marks = (uint64_t)json_integer_value(json_array_get(record, 10))};
    for (size_t k = 0; k < json_array_size(lines) && k < TERN_TEXT_BAD_NAMED; k++)
        c.bad_line[k] = path->counts.lines + (uint64_t)json_integer_value(json_array_get(lines, k));
    path->docs += (uint64_t)v[0];
    path->tokens += (uint64_t)v[1];
    tern_text_counts_add(&path->counts, &c);
    if (!s->paths[i])
        ((char **)s->paths)[i] = tern_strdup(name);
    return 0;
}

static int add_record(struct merge *m, const struct part *p, struct tern_err *err)
{
    json_t *files = json_object_get(p->record, "files"), *record;
    size_t i;

    json_array_foreach(files, i, record) if (add_path(m, p, record, err) < 0) return -1;
    m->sums.empty += (uint64_t)number(p, "empty");
    m->sums.duplicates += (uint64_t)number(p, "duplicates");
    return 0;
}

/* The file of the next document of a part, by the numbers of its record. */
struct cursor {
    size_t i; /* of the record's files */
    uint64_t left;
    struct data_path_sum *path;
};

static int next_path(struct merge *m, const struct part *p, struct cursor *c, struct tern_err *err)
{
    json_t *files = json_object_get(p->record, "files");

    while (c->left == 0) {
        json_t *record = json_array_get(files, c->i++);
        if (!record)
            return damaged(p, err);
        c->path = &m->sums.path[json_integer_value(json_array_get(record, 0))];
        c->left = (uint64_t)json_integer_value(json_array_get(record, 1));
    }
    c->left--;
    return 0;
}

static int add_document(struct merge *m, const struct part *p, struct cursor *c,
                        const struct tern_data_part_doc *d, struct tern_err *err)
{
    const int is_new = m->seen ? tern_data_duplicates_add(m->seen, d->hash, err) : 1;

    if (is_new < 0 || next_path(m, p, c, err) < 0)
        return -1;
    if (!is_new) {
        m->sums.duplicates++;
        c->path->docs--;
        c->path->tokens -= d->n_ids;
        return 0;
    }
    m->sums.docs++;
    m->sums.tokens += d->n_ids;
    m->sums.bytes += d->text_bytes;
    return tern_data_set_add_stored(m->writer, d->ids, d->mask, d->n_ids, d->text_bytes, err);
}

static int add_documents(struct merge *m, const struct part *p, struct tern_err *err)
{
    const uint64_t size = m->kind.n_vocab <= 65536 ? 2 : 4;
    const struct data_tick *tick = m->how->tick;
    struct tern_data_part *file = tern_data_part_open(p->path, err);
    struct tern_data_part_doc d;
    struct cursor c = {0};
    uint64_t done = m->done;
    int rc = file ? tern_data_part_check(file, err) : -1;

    while (rc == 0 && (rc = tern_data_part_next(file, &d, err)) > 0) {
        rc = add_document(m, p, &c, &d, err);
        done += d.n_ids * size;
        if (rc == 0 && tick)
            rc = tick->tick(tick->arg, done, m->all, &m->sums, err);
        if (rc == 0 && m->how->stop && __atomic_load_n(m->how->stop, __ATOMIC_RELAXED))
            rc = tern_err_set(err, TERN_FAILED, "%s: interrupted (signal %d); nothing was written",
                              m->how->out, *m->how->stop);
    }
    m->done += p->bytes;
    tern_data_part_close(file);
    return rc;
}

static int open_sums(struct merge *m, struct tern_err *err)
{
    const json_int_t n = number(&m->parts[0], "n_paths");
    size_t named = 0;

    /* Each file is named in a part: a number beyond that is no number of files. */
    for (size_t i = 0; i < m->n; i++)
        named += json_array_size(json_object_get(m->parts[i].record, "files"));
    if (n < 1 || (uint64_t)n > named)
        return damaged(&m->parts[0], err);
    char **paths = tern_alloc((size_t)n, sizeof *paths, "names of files", err);
    if (!paths || data_sums_open(&m->sums, paths, (size_t)n, err) < 0) {
        free(paths);
        return -1;
    }
    for (size_t i = 0; i < m->n; i++)
        if (add_record(m, &m->parts[i], err) < 0)
            return -1;
    for (json_int_t i = 0; i < n; i++)
        if (!paths[i])
            return damaged(&m->parts[0], err);
    return 0;
}

void data_merge_free(struct data_sums *s)
{
    for (size_t i = 0; i < s->n_paths; i++)
        free(s->paths[i]);
    free((void *)s->paths);
    data_sums_free(s);
}

static int commit(struct merge *m, struct tern_err *err)
{
    json_t *old = tern_json_parse(m->meta, strlen(m->meta), m->parts[0].path, err);
    const char *tokenizer, *file, *format;
    struct tern_data_set_writer *writer = m->writer;
    char *meta = NULL;

    if (!old)
        return -1;
    const json_t *records = json_object_get(old, "records");
    m->sums.records = records != NULL;
    m->sums.specials = json_is_true(json_object_get(old, "specials"));
    if (m->sums.docs == 0)
        data_no_text(m->how->out, &m->sums, err);
    else if (json_unpack(old, "{s:s, s:s, s:s}", "tokenizer", &tokenizer, "tokenizer_file", &file,
                         "tokenizer_format", &format) < 0)
        damaged(&m->parts[0], err);
    else
        meta = data_meta(tokenizer, file, format, records, &m->sums, err);
    json_decref(old);
    if (!meta)
        return -1;
    if (m->how->held && !m->how->held(m->how->held_arg)) {
        free(meta);
        return tern_err_set(err, TERN_FAILED, "%s: another process merges its parts", m->how->out);
    }
    m->writer = NULL;
    int rc = tern_data_set_commit(writer, meta, err);
    free(meta);
    return rc;
}

int data_merge(const struct data_merge *how, struct data_sums *ret_sums, struct tern_err *err)
{
    struct merge m = {.how = how, .n = how->n_parts};
    int rc = -1;

    m.parts = tern_alloc(m.n, sizeof *m.parts, "parts", err);
    if (!m.parts)
        return -1;
    for (size_t i = 0; i < m.n; i++)
        m.parts[i].path = how->parts[i];
    for (size_t i = 0; i < m.n; i++)
        if (look_at(&m, i, err) < 0)
            goto out;
    qsort(m.parts, m.n, sizeof *m.parts, by_part);
    if (check_order(&m, err) < 0 || open_sums(&m, err) < 0)
        goto out;
    if (m.hashes && !(m.seen = tern_data_duplicates_new(err)))
        goto out;
    m.writer = tern_data_set_create(how->out, &m.kind, err);
    if (!m.writer)
        goto out;
    for (size_t i = 0; i < m.n; i++)
        if (add_documents(&m, &m.parts[i], err) < 0)
            goto out;
    rc = commit(&m, err);
out:
    tern_data_set_abort(m.writer);
    tern_data_duplicates_free(m.seen);
    for (size_t i = 0; i < m.n; i++)
        json_decref(m.parts[i].record);
    free(m.parts);
    free(m.meta);
    if (rc == 0)
        *ret_sums = m.sums;
    else
        data_merge_free(&m.sums);
    return rc;
}

/* ---- the command ---- */

static const char *out;
static int stopped;

static void on_signal(int signal)
{
    __atomic_store_n(&stopped, signal, __ATOMIC_RELAXED);
}

/* The set must not be one of its parts. */
static int check_out(char *const *parts, int n, struct tern_err *err)
{
    struct stat set, part;

    if (!out)
        return tern_err_set(err, TERN_USAGE, "-o SET is missing: where to write");
    for (int i = 0; i < n; i++)
        if (stat(out, &set) == 0 && stat(parts[i], &part) == 0 && set.st_dev == part.st_dev &&
            set.st_ino == part.st_ino)
            return tern_err_set(err, TERN_USAGE, "-o %s: is a part itself; it is left as it is",
                                out);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    const int64_t start_ns = tern_clock_boot_ns();
    const struct sigaction sa = {.sa_handler = on_signal};
    const struct data_tick shown = {data_show, NULL};
    struct data_sums sums;

    if (check_out(args, n_args, err) < 0)
        return -1;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    tern_progress_begin(/* unit= */ NULL, "%s, merging", out);
    int rc = data_merge(
        &(struct data_merge){
            .parts = args, .n_parts = (size_t)n_args, .out = out, .stop = &stopped, .tick = &shown},
        &sums, err);
    tern_progress_end();
    if (rc == 0) {
        data_report(out, &sums, (double)(tern_clock_boot_ns() - start_ns) / 1e9);
        for (size_t i = 0; i < sums.n_paths; i++)
            data_log_path(sums.paths[i], &sums.path[i].counts);
        data_merge_free(&sums);
    }
    return rc;
}

static const struct tern_opt opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "SET", .to.text = &out, .help = "write the set here"},
    {0},
};

const struct tern_cmd data_merge_cmd = {
    .name = "merge",
    .args = "PART...",
    .summary = "put the parts of build --part together",
    .about =
        "The set is, byte for byte, the one that a single process would have written from the "
        "same files. Parts may be given in any order; one that is missing, doubled, damaged or "
        "of another build is refused.",
    .examples = "tern data build -t model/ --part 1/2 -o part1.tds *.jsonl\n"
                "tern data build -t model/ --part 2/2 -o part2.tds *.jsonl\n"
                "tern data merge -o set.tds part1.tds part2.tds",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};
