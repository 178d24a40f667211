#include "core/ledger/files.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/ledger/homes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_FILES = 1 << 20, /* in one run */
    /* A writer ends its file at 64 MiB and one record. */
    MAX_BYTES = 80 << 20,
};

static int add_file(struct tern_ledger_spool_files *l, struct tern_ledger_spool_file f,
                    struct tern_err *err)
{
    if (l->n == MAX_FILES)
        return tern_err_set(err, TERN_FAILED, "%s: more than %d spool files in one run", f.path,
                            MAX_FILES);
    if ((l->n & (l->n - 1)) == 0) { /* full at each power of two */
        struct tern_ledger_spool_file *more =
            realloc(l->files, (l->n ? 2 * l->n : 1) * sizeof *more);
        if (!more)
            return tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu spool files", l->n);
        l->files = more;
    }
    l->files[l->n++] = f;
    return 0;
}

/* "WRITER.N.spool" */
static bool parse_name(const char *name, unsigned *number)
{
    const char *end = strrchr(name, '.');
    int64_t n;

    if (!end || strcmp(end, ".spool") != 0 || end == name)
        return false;
    const char *dot = end - 1;
    while (dot > name && *dot != '.')
        dot--;
    char *digits = tern_strf("%.*s", (int)(end - dot - 1), dot + 1);
    bool good = dot > name && tern_str_int(digits, 0, UINT32_MAX, &n) == 0;
    free(digits);
    if (good)
        *number = (unsigned)n;
    return good;
}

static int list_attempt(const char *spool, const char *attempt, unsigned n,
                        struct tern_ledger_spool_files *out, struct tern_err *err)
{
    char *dir = tern_strf("%s/%s", spool, attempt);
    if (!tern_ledger_home_sound(dir, S_IFDIR)) {
        free(dir);
        return 0;
    }
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int rc = d ? 0 : tern_err_sys(err, "%s: cannot open folder", dir);

    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        struct tern_ledger_spool_file f = {.attempt = n};
        struct stat st;
        if (!parse_name(e->d_name, &f.number))
            continue;
        f.name = tern_strf("%s/%s", attempt, e->d_name);
        f.path = tern_strf("%s/%s", dir, e->d_name);
        bool taken = tern_ledger_home_sound(f.path, S_IFREG) &&
                     TERN_AGAIN(stat(f.path, &st)) == 0 && S_ISREG(st.st_mode);
        if (taken) {
            f.bytes = (uint64_t)st.st_size;
            rc = add_file(out, f, err);
        }
        if (rc < 0 || !taken) {
            free(f.name);
            free(f.path);
        }
    }
    if (d && rc == 0 && errno)
        rc = tern_err_sys(err, "%s: cannot read folder", dir);
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

static int by_order(const void *x, const void *y)
{
    const struct tern_ledger_spool_file *a = x, *b = y;

    if (a->attempt != b->attempt)
        return a->attempt < b->attempt ? -1 : 1;
    size_t la = strlen(a->name), lb = strlen(b->name);
    /* "rank0.9.spool" before "rank0.10.spool": same writer, shorter number. */
    size_t common = 0;
    while (a->name[common] && a->name[common] == b->name[common])
        common++;
    bool digits = true;
    for (const char *s = a->name + common; *s && *s != '.'; s++)
        digits = digits && *s >= '0' && *s <= '9';
    if (digits && la != lb && a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return strcmp(a->name, b->name);
}

int tern_ledger_spool_files_list(const char *ledger_dir, const char *run_id,
                                 struct tern_ledger_spool_files *out, struct tern_err *err)
{
    char *spool = tern_strf("%s/runs/%s/spool", ledger_dir, run_id), *run = tern_fs_dirname(spool);
    bool sound = tern_ledger_home_sound(run, S_IFDIR) && tern_ledger_home_sound(spool, S_IFDIR);
    DIR *d = sound ? TERN_AGAIN_PTR(opendir(spool)) : NULL;
    int rc = 0;

    free(run);
    *out = (struct tern_ledger_spool_files){0};
    if (sound && !d && errno != ENOENT)
        rc = tern_err_sys(err, "%s: cannot open folder", spool);
    for (struct dirent *e; d && rc == 0 && (errno = 0, e = readdir(d));) {
        int64_t n;
        if (tern_str_int(e->d_name, 1, 999999, &n) == 0)
            rc = list_attempt(spool, e->d_name, (unsigned)n, out, err);
    }
    if (d && rc == 0 && errno)
        rc = tern_err_sys(err, "%s: cannot read folder", spool);
    if (d)
        closedir(d);
    free(spool);
    if (rc < 0) {
        tern_ledger_spool_files_free(out);
        return -1;
    }
    if (out->n)
        qsort(out->files, out->n, sizeof *out->files, by_order);
    return 0;
}

void tern_ledger_spool_files_free(struct tern_ledger_spool_files *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->files[i].name);
        free(l->files[i].path);
    }
    free(l->files);
    *l = (struct tern_ledger_spool_files){0};
}

char *tern_ledger_note_writer(const char *what)
{
    uint64_t r;

    tern_rand_system(&r, sizeof r);
    return tern_strf(TERN_LEDGER_NOTE_WRITER "%s%d-%016" PRIx64, what, (int)getpid(), r);
}

/* ---------------------------------------------------------------- reading one */

static int report(const struct tern_ledger_spool_reader *r,
                  const struct tern_ledger_spool_file *file,
                  const struct tern_ledger_spool_find *find, struct tern_err *err)
{
    return r->find ? r->find(r->arg, file, find, err) : 0;
}

/* Reads; a handle that went stale is opened anew: a spool's bytes never change, they only grow. */
static int spool_pread(const struct tern_ledger_spool_file *file, int fd, void *to, size_t len,
                       uint64_t offset, struct tern_err *err)
{
    struct tern_again a = {0};

    for (;;) {
        errno = 0;
        if (tern_fs_pread(fd, to, len, offset, file->path, err) == 0)
            return 0;
        if (!tern_again_stale(&a) || tern_fs_reopen(fd, file->path, err) < 0)
            return -1;
    }
}

/* The head of the file: 1 when it has none (reported). */
static int read_head(const struct tern_ledger_spool_file *file, int fd, uint64_t bytes,
                     const char *run_id, struct tern_ledger_record_head *head,
                     const struct tern_ledger_spool_reader *r, struct tern_err *err)
{
    uint8_t start[1024]; /* run id, writer, host and numbers: under 300 */
    size_t n = bytes < sizeof start ? (size_t)bytes : sizeof start;
    struct tern_ledger_frame_scan scan = {.data = start, .len = n};
    struct tern_ledger_frame f;
    struct tern_err why = {0};

    if (spool_pread(file, fd, start, n, 0, err) < 0)
        return -1;
    enum tern_ledger_frame_found found = tern_ledger_frame_next(&scan, &f);
    if (found == TERN_FRAME_NO_MORE)
        return 1;
    if (found == TERN_FRAME_OK && tern_ledger_record_get_head(&f, file->path, head, &why) == 0 &&
        strcmp(head->run_id, run_id) == 0 && head->attempt == file->attempt) {
        struct tern_ledger_spool_find odd = {.found = TERN_FRAME_DAMAGE, .to = scan.at};
        return head->odd && report(r, file, &odd, err) < 0 ? -1 : 0;
    }
    if ((found != TERN_FRAME_TORN && found != TERN_FRAME_ZEROS) || n == sizeof start)
        found = TERN_FRAME_DAMAGE;
    struct tern_ledger_spool_find find = {.found = found, .from = 0, .to = bytes};
    return report(r, file, &find, err) < 0 ? -1 : 1;
}

/* One pass over `data`, which begins at `base` of the file. */
static int walk(const struct tern_ledger_spool_file *file,
                const struct tern_ledger_record_head *head, struct tern_ledger_frame_scan *scan,
                uint64_t base, struct tern_ledger_spool_mark *mark,
                const struct tern_ledger_spool_reader *r, struct tern_err *err)
{
    bool sound = true;
    uint64_t before = 0;

    for (;;) {
        struct tern_ledger_frame f;
        size_t at = scan->at;
        uint64_t last = scan->seq;
        enum tern_ledger_frame_found found = tern_ledger_frame_next(scan, &f);
        if (found == TERN_FRAME_NO_MORE)
            return 0;
        if (found != TERN_FRAME_OK) {
            bool ends = found == TERN_FRAME_TORN || found == TERN_FRAME_ZEROS;
            sound = false;
            before = last;
            struct tern_ledger_frame_scan next = *scan;
            struct tern_ledger_frame g;
            next.reported = true;
            uint64_t after =
                !ends && tern_ledger_frame_next(&next, &g) == TERN_FRAME_OK ? g.seq : 0;
            struct tern_ledger_spool_find find = {found, base + (ends ? at : scan->from),
                                                  base + (ends ? scan->len : scan->to), before,
                                                  after};
            if (report(r, file, &find, err) < 0)
                return -1;
            if (ends)
                return 0;
            continue;
        }
        int rc = r->frame(r->arg, head, &f, err);
        struct tern_ledger_spool_find find = {TERN_FRAME_DAMAGE, base + at, base + scan->at,
                                              f.seq - 1, f.seq + 1};
        if (rc < 0 || (rc > 0 && report(r, file, &find, err) < 0))
            return -1;
        if (rc > 0)
            sound = false;
        if (sound)
            *mark = (struct tern_ledger_spool_mark){base + scan->at, f.crc, f.seq, f.wall_ns};
    }
}

int tern_ledger_spool_file_read(const struct tern_ledger_spool_file *file, const char *run_id,
                                struct tern_ledger_spool_mark *mark,
                                const struct tern_ledger_spool_reader *r, struct tern_err *err)
{
    struct tern_ledger_record_head head;
    struct stat st;
    uint8_t *data = NULL;
    int rc = -1, fd = TERN_AGAIN(open(file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));

    if (fd < 0)
        return tern_err_sys(err, "%s: cannot open", file->path);
    if (TERN_AGAIN(fstat(fd, &st)) < 0 || !S_ISREG(st.st_mode)) {
        tern_err_set(err, TERN_FAILED, "%s: is no file", file->path);
        goto out;
    }
    uint64_t bytes = (uint64_t)st.st_size;
    if (bytes < mark->bytes || bytes > MAX_BYTES) {
        bool cut = bytes < mark->bytes;
        rc = report(r, file,
                    &(struct tern_ledger_spool_find){.found = TERN_FRAME_DAMAGE,
                                                     .from = cut ? bytes : MAX_BYTES,
                                                     .to = cut ? mark->bytes : bytes},
                    err);
        goto out;
    }
    rc = read_head(file, fd, bytes, run_id, &head, r, err);
    if (rc != 0) {
        rc = rc < 0 ? -1 : 0;
        goto out;
    }
    rc = -1;
    data = tern_alloc((size_t)(bytes - mark->bytes) + 1, 1, file->path, err);
    if (!data || spool_pread(file, fd, data, (size_t)(bytes - mark->bytes), mark->bytes, err) < 0)
        goto out;
    struct tern_ledger_frame_scan scan = {.data = data,
                                          .len = (size_t)(bytes - mark->bytes),
                                          .linked = mark->bytes > 0,
                                          .prev = mark->crc,
                                          .seq = mark->seq};
    rc = walk(file, &head, &scan, mark->bytes, mark, r, err);
out:
    free(data);
    close(fd);
    return rc;
}
