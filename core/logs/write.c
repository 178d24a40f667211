/* Log files of ranks: parts, their limits over attempts, and the line that ends them. */
#include "core/logs/logs.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BUFFER = 1 << 18,    /* bytes of one write, unless a flush comes first */
    PARTS_MAX = 1000000, /* six digits */
    HEAD = 32,           /* bytes around a record's text: time, stream, mark, spaces, line's end */
    ROOM = BUFFER + HEAD + TERN_LOGS_TEXT_MAX,
};

struct tern_logs_file {
    char *dir;
    char name[32], node[256];
    uint64_t part_bytes;
    unsigned part;
    int fd;          /* of the newest part; -1: it could not be made */
    uint64_t offset; /* good bytes in it */
    char *buffer;    /* [ROOM] */
    size_t len;
    char time[24]; /* of the last record, as text */
    size_t time_len;
    int64_t time_ns;
    uint64_t untold; /* lost */
    uint64_t
        telling; /* lost, and reported by the first record of the buffer, which may be lost, too */
    int why;     /* errno of the last loss; 0: the lines did not reach the log */
};

char *tern_logs_dir(const char *ledger_dir, const char *run_id, unsigned attempt)
{
    return tern_strf("%s/runs/%s/logs/%u", ledger_dir, run_id, attempt);
}

/* ------------------------------------------------------------------ over attempts */

struct old_logs {
    int64_t attempt;
    uint64_t bytes;
};

static int by_attempt(const void *a, const void *b)
{
    int64_t x = ((const struct old_logs *)a)->attempt, y = ((const struct old_logs *)b)->attempt;

    return (x > y) - (x < y);
}

static uint64_t folder_bytes(const char *dir)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    uint64_t sum = 0;
    struct stat st;

    for (struct dirent *e; d && (e = readdir(d));)
        if (TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) == 0 &&
            S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    if (d)
        closedir(d);
    return sum;
}

/* Attempts before `attempt` that have logs, the earliest first; malloc'ed. */
static struct old_logs *find_old(const char *logs, unsigned attempt, size_t *n)
{
    struct old_logs *v = NULL;
    DIR *d = TERN_AGAIN_PTR(opendir(logs));

    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t number;
        if (tern_str_int(e->d_name, 1, (int64_t)attempt - 1, &number) < 0)
            continue;
        struct old_logs *more = reallocarray(v, *n + 1, sizeof *v);
        if (!more)
            break;
        v = more;
        char *dir = tern_strf("%s/%s", logs, e->d_name);
        v[(*n)++] = (struct old_logs){number, folder_bytes(dir)};
        free(dir);
    }
    if (d)
        closedir(d);
    if (*n)
        qsort(v, *n, sizeof *v, by_attempt);
    return v;
}

void tern_logs_trim(const char *ledger_dir, const char *run_id, unsigned attempt, uint64_t share)
{
    struct tern_err err = {0};
    uint64_t sum = 0;
    size_t n, gone = 0;

    if (attempt <= TERN_LOGS_SHARES || !share) /* fewer attempts than shares */
        return;
    char *own = tern_logs_dir(ledger_dir, run_id, attempt), *logs = tern_fs_dirname(own);
    struct old_logs *v = find_old(logs, attempt, &n);
    for (size_t i = 0; i < n; i++)
        sum += v[i].bytes;
    for (size_t i = 1; i + 1 < n && sum > (TERN_LOGS_SHARES - 1) * share; i++) {
        char *dir = tern_logs_dir(ledger_dir, run_id, (unsigned)v[i].attempt);
        if (tern_fs_remove_tree(dir, &err) < 0) {
            tern_warn("%s", err.text);
        } else {
            sum -= v[i].bytes;
            gone++;
        }
        free(dir);
    }
    if (gone)
        tern_info("the logs of %zu attempts after the first are removed: a run keeps %d times what "
                  "an attempt may log (TERN_LOG_BYTES a rank)",
                  gone, (int)TERN_LOGS_SHARES);
    free(v);
    free(logs);
    free(own);
}

uint64_t tern_logs_bytes(void)
{
    const char *s = tern_var("TERN_LOG_BYTES");
    uint64_t bytes = 64 << 20;

    if (s && tern_str_size(s, &bytes) < 0)
        bytes = 64 << 20;
    return bytes && bytes < TERN_LOGS_BYTES_MIN ? TERN_LOGS_BYTES_MIN : bytes;
}

char *tern_logs_path(const char *dir, const char *name, unsigned part)
{
    return part ? tern_strf("%s/%s.%06u.log", dir, name, part) : tern_strf("%s/%s.log", dir, name);
}

int tern_logs_parse_name(const char *file, char name[32], unsigned *part)
{
    size_t len = strcspn(file, ".");
    int64_t number = 0;

    if (len == 0 || len > 31 || strspn(file, "abcdefghijklmnopqrstuvwxyz0123456789") != len)
        return -1;
    if (strcmp(file + len, ".log") != 0) {
        char digits[7] = "";
        if (strlen(file + len) != 11 || strcmp(file + len + 7, ".log") != 0)
            return -1;
        memcpy(digits, file + len + 1, 6);
        if (strspn(digits, "0123456789") != 6 || tern_str_int(digits, 1, PARTS_MAX, &number) < 0)
            return -1;
    }
    memcpy(name, file, len);
    name[len] = '\0';
    *part = (unsigned)number;
    return 0;
}

/* ------------------------------------------------------------------ parts */

static int part_open(struct tern_logs_file *f, struct tern_err *err)
{
    const mode_t bits = tern_fs_bits_in(f->dir);
    char head[320];

    for (; f->part < PARTS_MAX; f->part++) {
        char *path = tern_logs_path(f->dir, f->name, f->part);
        f->fd = TERN_AGAIN(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, bits));
        if (f->fd < 0 && errno != EEXIST)
            tern_err_sys(err, "%s", path);
        free(path);
        if (f->fd >= 0)
            break;
        if (errno != EEXIST)
            return -1;
    }
    if (f->fd < 0)
        return tern_err_set(err, TERN_FAILED, "%s: a million parts of log '%s'", f->dir, f->name);
    fchmod(f->fd, bits); /* past the umask */
    f->offset = 0;
    int n = snprintf(head, sizeof head, TERN_LOGS_MAGIC " %s %s\n", f->name, f->node);
    tern_assert(n > 0 && (size_t)n < sizeof head, "%s: a head of %d bytes", f->name, n);
    if (pwrite(f->fd, head, (size_t)n, 0) == n)
        f->offset = (uint64_t)n;
    return 0;
}

/* The next part; the oldest but the first makes room for it. */
static void part_next(struct tern_logs_file *f)
{
    close(f->fd);
    f->fd = -1;
    f->part++;
    part_open(f, NULL);
    if (f->part + 1 > TERN_LOGS_PARTS) {
        char *old = tern_logs_path(f->dir, f->name, f->part + 1 - TERN_LOGS_PARTS);
        TERN_AGAIN(unlink(old));
        free(old);
    }
}

struct tern_logs_file *tern_logs_file_open(const char *dir, const char *name, const char *node,
                                           uint64_t max_bytes, struct tern_err *err)
{
    struct tern_logs_file *f = tern_alloc(1, sizeof *f, "a log", err);

    if (!f)
        return NULL;
    f->fd = -1;
    f->dir = tern_strdup(dir);
    f->buffer = tern_alloc(1, ROOM, "a log", err);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->node, sizeof f->node, "%s", node);
    f->part_bytes = max_bytes / TERN_LOGS_PARTS;
    if (!f->buffer || tern_fs_mkdirs_like(dir, err) < 0 || part_open(f, err) < 0) {
        tern_logs_file_close(f);
        return NULL;
    }
    return f;
}

/* ------------------------------------------------------------------ records */

static void put(struct tern_logs_file *f, int64_t wall_ns, char stream, char mark, const char *text,
                size_t len)
{
    if (wall_ns != f->time_ns || !f->time_len) { /* lines come by the thousand */
        f->time_len = (size_t)snprintf(f->time, sizeof f->time, "%" PRId64 " ", wall_ns);
        f->time_ns = wall_ns;
    }
    tern_assert(f->len + len <= ROOM - HEAD, "%s: %zu bytes behind %zu", f->name, len, f->len);
    memcpy(f->buffer + f->len, f->time, f->time_len);
    f->len += f->time_len;
    f->buffer[f->len++] = stream;
    f->buffer[f->len++] = mark;
    if (mark != ' ')
        f->buffer[f->len++] = ' ';
    memcpy(f->buffer + f->len, text, len);
    f->len += len;
    f->buffer[f->len++] = '\n';
}

/* Whole records of the buffer that lie within its first `n` bytes. */
static size_t whole(const struct tern_logs_file *f, size_t n)
{
    const char *last = n ? memrchr(f->buffer, '\n', n) : NULL;

    return last ? (size_t)(last + 1 - f->buffer) : 0;
}

void tern_logs_file_flush(struct tern_logs_file *f)
{
    size_t done = 0;

    if (f->len == 0)
        return;
    tern_assert(f->len <= ROOM && f->buffer[f->len - 1] == '\n', "%s: %zu bytes", f->name, f->len);
    if (f->fd < 0)
        part_open(f, NULL);
    while (f->fd >= 0 && done < f->len) {
        ssize_t n = pwrite(f->fd, f->buffer + done, f->len - done, (off_t)(f->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (done < f->len) {
        f->why = errno;
        done = whole(f, done);
        for (const char *p = f->buffer + done; p < f->buffer + f->len; p++) {
            p = memchr(p, '\n', (size_t)(f->buffer + f->len - p));
            f->untold++;
        }
        if (done == 0 && f->telling)
            f->untold += f->telling - 1; /* the report itself is no line */
        /* the torn end is overwritten, or ends the file */
    }
    tern_assert(done <= f->len && (done == 0 || f->buffer[done - 1] == '\n'),
                "%s: %zu of %zu bytes", f->name, done,
                f->len); /* the file ends behind a whole record */
    f->offset += done;
    f->len = 0;
    f->telling = 0;
    if (f->fd >= 0 && f->offset >= f->part_bytes)
        part_next(f);
}

/* Before a record: report lines that are missing. */
static void tell(struct tern_logs_file *f, int64_t wall_ns)
{
    char text[200];

    int n = snprintf(text, sizeof text, "%" PRIu64 " lines are missing here: %s", f->untold,
                     f->why ? strerror(f->why) : "the storage was slower than the program");
    f->telling += f->len == 0 ? f->untold : 0;
    f->untold = 0;
    f->why = 0;
    put(f, wall_ns, 't', ' ', text, (size_t)n);
}

void tern_logs_file_add(struct tern_logs_file *f, int64_t wall_ns, char stream, char mark,
                        const char *text, size_t len)
{
    do {
        size_t n = len < TERN_LOGS_TEXT_MAX ? len : TERN_LOGS_TEXT_MAX;
        if (f->len >= BUFFER - 256 || f->len >= f->part_bytes / 2)
            tern_logs_file_flush(f);
        if (f->untold)
            tell(f, wall_ns);
        put(f, wall_ns, stream, n < len ? '+' : mark, text, n);
        text += n;
        len -= n;
    } while (len);
}

void tern_logs_file_add_lost(struct tern_logs_file *f, uint64_t lines)
{
    f->untold += lines;
}

uint64_t tern_logs_file_unreported(const struct tern_logs_file *f)
{
    return f->untold;
}

void tern_logs_file_close(struct tern_logs_file *f)
{
    if (!f)
        return;
    if (f->untold && f->fd >= 0)
        tell(f, tern_clock_wall_ns());
    tern_logs_file_flush(f);
    if (f->fd >= 0)
        close(f->fd);
    free(f->buffer);
    free(f->dir);
    free(f);
}

/* ------------------------------------------------------------------ the end of a rank */

static const char told_to_end[] = ", told to end";

struct end {
    int64_t wall_ns;
    int status; /* wait(2)'s */
    bool told;
};

void tern_logs_file_add_end(struct tern_logs_file *f, int64_t wall_ns, int status, bool told)
{
    char text[60];
    bool signaled = WIFSIGNALED(status);

    int n = snprintf(text, sizeof text, "ended: %s %d%s", signaled ? "signal" : "status",
                     signaled ? WTERMSIG(status) : WEXITSTATUS(status), told ? told_to_end : "");
    tern_logs_file_add(f, wall_ns, 't', ' ', text, (size_t)n);
}

bool tern_logs_is_end(const char *text, size_t len)
{
    return len > 7 && memcmp(text, "ended: ", 7) == 0;
}

/* The last record of the log at `path`, if it is an end record. */
static bool read_ended(const char *path, struct end *ret)
{
    char tail[120], word[8];
    struct end e;
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC)), number;
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    size_t want = size > (off_t)sizeof tail - 1 ? sizeof tail - 1 : (size_t)(size > 0 ? size : 0);
    ssize_t n = fd >= 0 ? pread(fd, tail, want, size - (off_t)want) : -1;

    if (fd >= 0)
        close(fd);
    if (n < 2 || tail[n - 1] != '\n')
        return false;
    tail[n - 1] = '\0';
    const char *line = strrchr(tail, '\n');
    if (!line || sscanf(line + 1, "%" SCNd64 " t ended: %7s %d", &e.wall_ns, word, &number) != 3)
        return false;
    e.status = strcmp(word, "signal") == 0 ? number & 0x7f : (number & 0xff) << 8;
    e.told = strstr(line, told_to_end) != NULL;
    *ret = e;
    return true;
}

/* The ends of ranks, malloc'ed [n]; NULL when they cannot be read, or one has none.  `some`: then
 * its wall_ns is 0. */
static struct end *read_ends(const char *dir, size_t n, bool some)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int64_t *newest = tern_alloc(n + 1, sizeof *newest, "logs", NULL); /* part + 1; 0: no log */
    struct end *ends = tern_alloc(n + 1, sizeof *ends, "logs", NULL);
    bool all = d && newest && ends;

    for (struct dirent *e; all && (e = readdir(d));) {
        char name[32];
        unsigned part;
        int64_t rank;
        if (tern_logs_parse_name(e->d_name, name, &part) == 0 &&
            tern_str_int(name, 0, (int64_t)n - 1, &rank) == 0 && newest[rank] <= part)
            newest[rank] = (int64_t)part + 1;
    }
    if (d)
        closedir(d);
    for (size_t i = 0; i < n && all; i++) {
        char name[24];
        bool has = false;
        snprintf(name, sizeof name, "%zu", i);
        /* The newest part may have been started for records that never came. */
        for (int64_t part = newest[i] - 1; part >= 0 && part >= newest[i] - 2 && !has; part--) {
            char *path = tern_logs_path(dir, name, (unsigned)part);
            has = read_ended(path, &ends[i]);
            free(path);
        }
        all = has || some;
    }
    free(newest);
    if (all)
        return ends;
    free(ends);
    return NULL;
}

int64_t tern_logs_left(const char *dir, size_t n)
{
    struct end *ends = read_ends(dir, n, /* some= */ true);
    int64_t left = -1;
    bool any = false, failed = false;

    for (size_t i = 0; ends && i < n; i++) {
        any = any || ends[i].wall_ns;
        failed = failed || ends[i].status;
        if (left < 0 && !ends[i].wall_ns)
            left = (int64_t)i;
    }
    free(ends);
    return any && !failed ? left : -1;
}

bool tern_logs_ended(const char *dir, size_t n, int *status, int64_t *ret_last_ns)
{
    struct end *ends = read_ends(dir, n, /* some= */ false);
    const bool all = ends != NULL;
    int64_t last = 0;

    for (size_t i = 0; all && i < n; i++)
        last = ends[i].wall_ns > last ? ends[i].wall_ns : last;
    if (all && ret_last_ns)
        *ret_last_ns = last;
    *status = 0;
    for (size_t i = 0; all && i < n && !*status; i++)
        *status = ends[i].status;
    free(ends);
    return all;
}

static bool failed_untold(const struct end *e)
{
    return e->status && !e->told;
}

static bool exited(const struct end *e)
{
    return WIFEXITED(e->status) && WEXITSTATUS(e->status) > 0 && WEXITSTATUS(e->status) <= 128;
}

static int64_t find_first(const char *dir, size_t n, bool (*counts)(const struct end *),
                          int *ret_status)
{
    struct end *ends = read_ends(dir, n, /* some= */ false);
    int64_t first = -1;

    for (size_t i = 0; ends && i < n; i++)
        if (counts(&ends[i]) && (first < 0 || ends[i].wall_ns < ends[first].wall_ns))
            first = (int64_t)i;
    if (first >= 0)
        *ret_status = ends[first].status;
    free(ends);
    return first;
}

int64_t tern_logs_first_failed(const char *dir, size_t n, int *ret_status)
{
    return find_first(dir, n, failed_untold, ret_status);
}

int64_t tern_logs_first_exit(const char *dir, size_t n, int *ret_status)
{
    return find_first(dir, n, exited, ret_status);
}
