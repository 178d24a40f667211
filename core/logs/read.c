#include "core/logs/read.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/logs/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ = 1 << 15,                 /* at once */
    LINE = TERN_LOGS_TEXT_MAX + 64, /* a record and its head */
    LOGS_MAX = 1 << 16,
};

/* One log. */
struct source {
    char name[32], node[256];
    int64_t rank;
    bool wanted, known; /* known: its node was read */
    unsigned part;      /* being read */
    unsigned newest;    /* that the last scan saw */
    uint64_t offset;    /* of the buffer's end in it */
    char *buffer;       /* [size] */
    size_t at, end, size;
    bool gap; /* the part before this one is gone */
    int why;  /* errno of a read that failed; 0: none did */
    /* the record at hand */
    bool has;
    int64_t wall_ns;
    char stream, mark;
    const char *text;
    size_t len;
    char word[64];
};

struct tern_logs_reader {
    char *dir;
    tern_logs_choose *want;
    void *self;
    struct source **sources; /* [n], by name */
    size_t n, cap;
    struct source **heap; /* [n_heap]: those that have a record, the earliest first */
    size_t n_heap;
    struct source *taken; /* its record is the caller's until the next call */
};

/* ------------------------------------------------------------------ a log */

static ssize_t read_part(const struct tern_logs_reader *r, struct source *s, unsigned part,
                         char *to, size_t len, uint64_t offset)
{
    char *path = tern_logs_path(r->dir, s->name, part);
    int fd = -1;
    ssize_t n = -1;
    struct stat st;

    errno = EPERM;
    if (tern_ledger_sound(path, /* folder= */ false))
        fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0 && TERN_AGAIN(fstat(fd, &st)) == 0 && S_ISREG(st.st_mode))
        n = pread(fd, to, len, (off_t)offset);
    else if (fd >= 0)
        errno = EINVAL;
    if (n < 0 && errno != ENOENT) /* a part removed to make room is no error */
        s->why = errno;
    if (fd >= 0)
        close(fd);
    free(path);
    return n;
}

/* The least part above `after` that is there; `after` itself when there is none. */
static unsigned next_part(const struct tern_logs_reader *r, const struct source *s, unsigned after)
{
    char name[32];
    unsigned part, best = 0;
    struct dirent *e;
    DIR *d = TERN_AGAIN_PTR(opendir(r->dir));

    while (d && (e = readdir(d)))
        if (tern_logs_parse_name(e->d_name, name, &part) == 0 && strcmp(name, s->name) == 0 &&
            part > after && (!best || part < best))
            best = part;
    if (d)
        closedir(d);
    return best ? best : after;
}

static bool make_room(struct source *s)
{
    if (s->at)
        memmove(s->buffer, s->buffer + s->at, s->end - s->at);
    s->end -= s->at;
    s->at = 0;
    if (s->size - s->end >= READ)
        return true;
    size_t size = s->size ? 2 * s->size : 2 * READ;
    char *b = size > 4 * LINE ? NULL : realloc(s->buffer, size);
    if (!b)
        return false;
    s->buffer = b;
    s->size = size;
    return true;
}

/* More bytes; false when there are none yet. */
static bool refill(struct tern_logs_reader *r, struct source *s)
{
    if (s->end - s->at > LINE || !make_room(s))
        s->at = s->end = 0; /* not a log of tern: leave it out */
    if (!s->size && !make_room(s))
        return false;
    ssize_t n = read_part(r, s, s->part, s->buffer + s->end, s->size - s->end, s->offset);
    if (n > 0) {
        s->end += (size_t)n;
        s->offset += (uint64_t)n;
        return true;
    }
    if (s->newest <= s->part)
        return false;
    unsigned next = next_part(r, s, s->part);
    if (next == s->part)
        return false;
    /* It has a successor, so it is whole, unless it grew between the two looks. */
    n = n == 0 ? read_part(r, s, s->part, s->buffer + s->end, s->size - s->end, s->offset) : n;
    if (n > 0) {
        s->end += (size_t)n;
        s->offset += (uint64_t)n;
        return true;
    }
    s->gap = next != s->part + 1 || n < 0;
    s->part = next;
    s->offset = 0;
    s->at = s->end = 0;
    return refill(r, s);
}

/* "1763713465123456789 o text" */
static bool parse(struct source *s, const char *line, size_t len)
{
    size_t i = 0;
    uint64_t t = 0; /* 19 digits fit */

    for (; i < len && i < 19 && line[i] >= '0' && line[i] <= '9'; i++)
        t = t * 10 + (uint64_t)(line[i] - '0');
    if (i == 0 || t > INT64_MAX || i + 3 > len || line[i] != ' ' || !strchr("oet", line[i + 1]) ||
        !strchr(" +~", line[i + 2]))
        return false;
    s->wall_ns = (int64_t)t;
    s->stream = line[i + 1];
    s->mark = line[i + 2];
    i += s->mark == ' ' ? 3 : 4;
    if (i > len)
        return false;
    s->text = line + i;
    s->len = len - i;
    return true;
}

/* "tern-log 1 NAME NODE" */
static bool header(struct source *s, const char *line, size_t len)
{
    size_t magic = strlen(TERN_LOGS_MAGIC " "), name = strlen(s->name);

    if (len <= magic + name || memcmp(line, TERN_LOGS_MAGIC " ", magic) != 0)
        return false;
    size_t at = magic + name + 1, n = len > at ? len - at : 0;
    if (n >= sizeof s->node)
        n = sizeof s->node - 1;
    memcpy(s->node, line + at, n);
    s->node[n] = '\0';
    s->known = true;
    return true;
}

/* The next record of a log, into it. */
static bool advance(struct tern_logs_reader *r, struct source *s)
{
    s->has = false;
    if (s->gap) {
        s->gap = false;
        snprintf(s->word, sizeof s->word, "lines are left out here (TERN_LOG_BYTES)");
        s->stream = 't', s->mark = ' ', s->text = s->word, s->len = strlen(s->word);
        return s->has = true; /* at the time of the line before it */
    }
    for (;;) {
        char *line = s->buffer + s->at;
        char *end = s->at < s->end ? memchr(line, '\n', s->end - s->at) : NULL;
        if (!end) {
            if (!refill(r, s))
                return false;
            if (s->gap)
                return advance(r, s);
            continue;
        }
        s->at = (size_t)(end + 1 - s->buffer);
        size_t len = (size_t)(end - line);
        if (header(s, line, len)) {
            s->wanted = !r->want || r->want(r->self, s->rank, s->node);
            if (!s->wanted)
                return false;
        } else if (parse(s, line, len)) {
            return s->has = true;
        }
    }
}

/* ------------------------------------------------------------------ merging */

static bool before(const struct source *a, const struct source *b)
{
    return a->wall_ns != b->wall_ns ? a->wall_ns < b->wall_ns : a->rank < b->rank;
}

static void sift_down(struct tern_logs_reader *r, size_t i)
{
    for (;;) {
        size_t least = i, left = 2 * i + 1;
        for (size_t k = left; k < left + 2 && k < r->n_heap; k++)
            if (before(r->heap[k], r->heap[least]))
                least = k;
        if (least == i)
            return;
        struct source *s = r->heap[i];
        r->heap[i] = r->heap[least];
        r->heap[least] = s;
        i = least;
    }
}

static void push(struct tern_logs_reader *r, struct source *s)
{
    size_t i = r->n_heap++;

    r->heap[i] = s;
    for (; i > 0 && before(r->heap[i], r->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        r->heap[i] = r->heap[(i - 1) / 2];
        r->heap[(i - 1) / 2] = s;
    }
}

/* The index of the log of that name, or where it belongs. */
static size_t find(const struct tern_logs_reader *r, const char *name)
{
    size_t lo = 0, hi = r->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(r->sources[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct source *add_source(struct tern_logs_reader *r, const char *name, size_t at)
{
    struct source *s = calloc(1, sizeof *s);

    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct source **v = reallocarray(r->sources, cap, sizeof(struct source *));
        if (v)
            r->sources = v;
        struct source **h = reallocarray(r->heap, cap, sizeof(struct source *));
        if (h)
            r->heap = h;
        if (!v || !h) {
            free(s);
            return NULL;
        }
        r->cap = cap;
    }
    if (!s)
        return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    if (tern_str_int(name, 0, INT32_MAX, &s->rank) < 0)
        s->rank = -1;
    s->wanted = true;
    memmove(r->sources + at + 1, r->sources + at, (r->n - at) * sizeof(struct source *));
    r->sources[at] = s;
    r->n++;
    return s;
}

/* In a user's folder of a shared ledger, RUN/logs/ATTEMPT are read only when the user owns them. */
static bool is_sound(const char *dir)
{
    char *logs = tern_fs_dirname(dir), *run = tern_fs_dirname(logs);
    bool sound = tern_ledger_sound(run, /* folder= */ true) &&
                 tern_ledger_sound(logs, /* folder= */ true) &&
                 tern_ledger_sound(dir, /* folder= */ true);

    free(logs);
    free(run);
    return sound;
}

static void scan(struct tern_logs_reader *r)
{
    char name[32];
    unsigned part;
    struct dirent *e;
    DIR *d = is_sound(r->dir) ? TERN_AGAIN_PTR(opendir(r->dir)) : NULL;

    while (d && (e = readdir(d))) {
        if (tern_logs_parse_name(e->d_name, name, &part) < 0)
            continue;
        size_t at = find(r, name);
        struct source *s = at < r->n && strcmp(r->sources[at]->name, name) == 0 ? r->sources[at]
                           : r->n < LOGS_MAX ? add_source(r, name, at)
                                             : NULL;
        if (s && part > s->newest)
            s->newest = part;
    }
    if (d)
        closedir(d);
}

void tern_logs_reader_refresh(struct tern_logs_reader *r)
{
    scan(r);
    for (size_t i = 0; i < r->n; i++) {
        struct source *s = r->sources[i];
        if (s->wanted && !s->has && s != r->taken && advance(r, s))
            push(r, s);
    }
}

bool tern_logs_reader_next(struct tern_logs_reader *r, struct tern_logs_line *line)
{
    struct source *s = r->taken;

    r->taken = NULL;
    if (s && advance(r, s))
        push(r, s);
    if (!r->n_heap)
        return false;
    s = r->heap[0];
    r->heap[0] = r->heap[--r->n_heap];
    sift_down(r, 0);
    r->taken = s;
    *line = (struct tern_logs_line){
        .wall_ns = s->wall_ns,
        .name = s->name,
        .rank = s->rank,
        .node = s->node,
        .stream = s->stream,
        .mark = s->mark,
        .text = s->text,
        .len = s->len,
    };
    return true;
}

/* ------------------------------------------------------------------ the end of it */

/* Is the record at the beginning of `line` an overwritten one?  Unknown records are not. */
static bool overwritten(const char *line, size_t len)
{
    const char *space = memchr(line, ' ', len < 24 ? len : 24);

    return space && (size_t)(space - line) + 2 < len && space[2] == '~';
}

/* Set `s` to its last `n` lines, by reading backwards. */
static void tail(struct tern_logs_reader *r, struct source *s, uint64_t n, bool progress)
{
    struct stat st;
    unsigned part = s->newest;
    uint64_t found = 0;

    if (!s->size && !make_room(s))
        return;
    for (;; part--) {
        char *path = tern_logs_path(r->dir, s->name, part);
        uint64_t at = TERN_AGAIN(stat(path, &st)) == 0 ? (uint64_t)st.st_size : 0;
        free(path);
        if (at == 0 && part > 1)
            part = 1; /* a gap: the beginning is next */
        while (at > 0 && found <= n) {
            size_t len = at < READ ? (size_t)at : READ;
            at -= len;
            if (read_part(r, s, part, s->buffer, len, at) != (ssize_t)len)
                break;
            for (size_t i = len; i > 0 && found <= n; i--)
                if (s->buffer[i - 1] == '\n' &&
                    (progress || !overwritten(s->buffer + i, len - i)) && ++found > n)
                    at += i;
        }
        s->part = part;
        s->offset = found > n ? at : 0;
        if (found > n || part == 0)
            break;
    }
}

void tern_logs_reader_tail(struct tern_logs_reader *r, uint64_t n, bool progress)
{
    char line[320];

    for (size_t i = 0; i < r->n; i++) {
        struct source *s = r->sources[i];
        ssize_t len = read_part(r, s, 0, line, sizeof line - 1, 0);
        char *end = len > 0 ? memchr(line, '\n', (size_t)len) : NULL;
        if (end && header(s, line, (size_t)(end - line)))
            s->wanted = !r->want || r->want(r->self, s->rank, s->node);
        if (s->wanted)
            tail(r, s, n, progress);
    }
}

/* ------------------------------------------------------------------ open, close */

struct tern_logs_reader *tern_logs_reader_open(const char *dir, tern_logs_choose *want, void *self,
                                               struct tern_err *err)
{
    struct tern_logs_reader *r = tern_alloc(1, sizeof *r, "logs", err);

    if (!r)
        return NULL;
    r->dir = tern_strdup(dir);
    r->want = want;
    r->self = self;
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    if (!d && errno != ENOENT) {
        tern_err_sys(err, "%s: cannot look for logs", dir);
        tern_logs_reader_close(r);
        return NULL;
    }
    if (d)
        closedir(d);
    scan(r);
    return r;
}

size_t tern_logs_reader_count(const struct tern_logs_reader *r)
{
    return r->n;
}

size_t tern_logs_reader_chosen(const struct tern_logs_reader *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += r->sources[i]->known && r->sources[i]->wanted;
    return n;
}

int tern_logs_reader_check(const struct tern_logs_reader *r, struct tern_err *err)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct source *s = r->sources[i];
        if (!s->why)
            continue;
        char *path = tern_logs_path(r->dir, s->name, s->part);
        errno = s->why;
        tern_err_sys(err, "%s: cannot be read", path);
        free(path);
        return -1;
    }
    return 0;
}

void tern_logs_reader_close(struct tern_logs_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        free(r->sources[i]->buffer);
        free(r->sources[i]);
    }
    free(r->sources);
    free(r->heap);
    free(r->dir);
    free(r);
}
