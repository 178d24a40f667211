#include "core/intake/tensorboard.h"

#include "core/base/again.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/intake/tags.h"
#include "core/intake/writers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILES_MAX = 1024,      /* a trainer opens a few */
    DEPTH_MAX = 4,         /* lightning_logs/version_0/train/ */
    CHUNK = 1 << 20,       /* read at once; longer records are graphs and pictures, stepped over */
    LOOK_BYTES = 32 << 20, /* of a file in one look */
    FRAME = 16,            /* bytes of a record beside its data */
    SKEW_S = 3600,         /* how far a storage's clock may be behind this node's */
    EARLY_S = 2,           /* ...and the clock of the node where a file was made */
    TRIES = 2,             /* a file's writer runs when the file is new, or never again */
};

/* ------------------------------------------------------------------ protobuf */

/* One field of a message; false at its end and where it is damaged. */
struct field {
    unsigned number, type;
    uint64_t number_value; /* types 0, 1, 5: the bits */
    const uint8_t *data;   /* type 2 */
    size_t len;
};

struct bytes {
    const uint8_t *p, *end;
};

static bool varint(struct bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && b->p < b->end; shift += 7) {
        uint8_t c = *b->p++;
        *out |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return true;
    }
    return false;
}

static uint64_t little(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = n; i > 0; i--)
        v = v << 8 | p[i - 1];
    return v;
}

static bool next(struct bytes *b, struct field *f)
{
    uint64_t key, len;

    if (!varint(b, &key))
        return false;
    *f = (struct field){.number = (unsigned)(key >> 3), .type = key & 7};
    if (f->type == 0)
        return varint(b, &f->number_value);
    if (f->type == 1 || f->type == 5)
        len = f->type == 1 ? 8 : 4;
    else if (f->type != 2 || !varint(b, &len))
        return false;
    if (len > (size_t)(b->end - b->p))
        return false;
    f->data = b->p;
    f->len = (size_t)len;
    b->p += len;
    if (f->type != 2)
        f->number_value = little(f->data, f->len);
    return true;
}

static double as_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float v;

    memcpy(&v, &low, sizeof v);
    return (double)v;
}

static double as_double(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ------------------------------------------------------------------ events */

enum { FLOAT = 1, DOUBLE = 2, INT32 = 3, INT64 = 9 /* tensorflow.DataType */ };

/* A tensor of one number: tensor.proto's dtype 1, tensor_content 4, float_val 5, double_val 6,
 * int_val 7, int64_val 10. */
static bool tensor_value(const struct field *tensor, double *out)
{
    struct bytes b = {tensor->data, tensor->data + tensor->len};
    struct field f;
    uint64_t type = 0, bits = 0;
    size_t n = 0;

    while (next(&b, &f)) {
        size_t width = type == DOUBLE || type == INT64 ? 8 : 4;
        if (f.number == 1 && f.type == 0) {
            type = f.number_value;
        } else if (f.number == 4 || f.number == 5 || f.number == 6) {
            if (f.number == 5)
                width = 4;
            if (f.number == 6)
                width = 8;
            if (f.type == 2 && f.len == width)
                bits = little(f.data, width);
            else if (f.type != 2)
                bits = f.number_value;
            else
                n++; /* several, or none */
            n += f.type != 2 || f.len > 0;
        } else if (f.number == 7 || f.number == 10) {
            struct bytes packed = {f.data, f.data + f.len};
            if (f.type == 2 && (!varint(&packed, &bits) || packed.p != packed.end))
                return false;
            if (f.type == 0)
                bits = f.number_value;
            n++;
        }
    }
    if (n != 1)
        return false;
    switch (type) {
    case FLOAT:
        *out = as_float(bits);
        return true;
    case DOUBLE:
        *out = as_double(bits);
        return true;
    case INT32:
        *out = (double)(int32_t)bits;
        return true;
    case INT64:
        *out = (double)(int64_t)bits;
        return true;
    }
    return false;
}

static void summary_value(const struct field *value, struct tern_intake_tb_value *v,
                          tern_intake_tb_take *take, void *self)
{
    struct bytes b = {value->data, value->data + value->len};
    struct field f;
    bool has = false;

    v->tag[0] = '\0';
    while (next(&b, &f)) {
        if (f.number == 1 && f.type == 2) {
            size_t n = f.len < sizeof v->tag - 1 ? f.len : sizeof v->tag - 1;
            for (size_t i = 0; i < n; i++)
                v->tag[i] = f.data[i] <= ' ' || f.data[i] == 0x7f ? '_' : (char)f.data[i];
            v->tag[n] = '\0';
            tern_str_mask(v->tag); /* C1 in UTF-8 */
        } else if (f.number == 2 && f.type == 5) {
            v->value = as_float(f.number_value);
            has = true;
        } else if (f.number == 8 && f.type == 2) {
            has = tensor_value(&f, &v->value);
        }
    }
    if (has && v->tag[0])
        take(self, v);
}

static bool session_starts(const struct field *session)
{
    enum { STATUS_START = 1 };
    struct bytes b = {session->data, session->data + session->len};
    struct field f;
    bool starts = false;

    while (next(&b, &f))
        if (f.number == 1 && f.type == 0)
            starts = f.number_value == STATUS_START;
    return starts;
}

static void event(const uint8_t *data, size_t len, tern_intake_tb_take *take, void *self)
{
    struct tern_intake_tb_value v = {0};
    struct bytes b = {data, data + len}, inner;
    struct field f, g, summary = {0}, session = {0};

    while (next(&b, &f)) {
        if (f.number == 1 && f.type == 1)
            v.wall_s = as_double(f.number_value);
        else if (f.number == 2 && f.type == 0)
            v.step = (int64_t)f.number_value;
        else if (f.number == 5 && f.type == 2)
            summary = f;
        else if (f.number == 7 && f.type == 2)
            session = f;
    }
    if (session.data && session_starts(&session) && v.step > 0) {
        v.restart = true;
        take(self, &v);
        return;
    }
    if (!summary.data || v.step < 0)
        return;
    inner = (struct bytes){summary.data, summary.data + summary.len};
    while (next(&inner, &g))
        if (g.number == 1 && g.type == 2)
            summary_value(&g, &v, take, self);
}

/* ------------------------------------------------------------------ records */

/* Length of the record's data at `p`, which has 12 bytes at least; -1 when it is damaged. */
static int64_t record_length(const uint8_t *p)
{
    uint64_t len = little(p, 8);

    if (tern_crc32c_masked(p, 8) != (uint32_t)little(p + 8, 4) || len > INT64_MAX / 2)
        return -1;
    return (int64_t)len;
}

int tern_intake_tb_parse(const char *data, size_t len, tern_intake_tb_take *take, void *self,
                         size_t *used, uint64_t *bad)
{
    const uint8_t *p = (const uint8_t *)data;

    *used = 0;
    while (len - *used >= 12) {
        const uint8_t *r = p + *used;
        int64_t n = record_length(r);
        if (n < 0)
            return -1;
        if ((uint64_t)n + FRAME > len - *used)
            return 0;
        if (tern_crc32c_masked(r + 12, (size_t)n) == (uint32_t)little(r + 12 + n, 4))
            event(r + 12, (size_t)n, take, self);
        else
            ++*bad;
        *used += (size_t)n + FRAME;
    }
    return 0;
}

/* ------------------------------------------------------------------ files */

struct file {
    char *path;
    const char *folder; /* below the folder that is read, ended by `folder_len` */
    size_t folder_len;
    struct tern_intake_writer writer;
    enum tern_intake_owner owner;
    int tries;
    struct stat st; /* as of the last look */
    uint64_t offset;
    bool damaged;
};

struct tern_intake_tb {
    char *dir;
    double since_s;
    struct file *files;
    size_t n;
    char *chunk;
    struct tern_intake_tags *tags;
    struct tern_intake_writers *writers;
    const struct file *reads;  /* during a look */
    tern_intake_tb_take *take; /* likewise */
    void *self;
    bool full, unsure; /* too many files; files of several writers */
    bool looked;       /* at processes */
};

struct tern_intake_tb *tern_intake_tb_open(const char *dir, double since_s)
{
    struct tern_intake_tb *t = tern_alloc(1, sizeof *t, "event files", NULL);

    if (!t)
        return NULL;
    t->dir = tern_strdup(dir);
    t->since_s = since_s;
    t->files = tern_alloc(FILES_MAX, sizeof *t->files, "event files", NULL);
    t->chunk = tern_alloc(1, CHUNK, "event files", NULL);
    t->tags = tern_intake_tags_open();
    t->writers = tern_intake_writers_open();
    if (t->files && t->chunk && t->tags && t->writers)
        return t;
    tern_intake_tb_close(t);
    return NULL;
}

void tern_intake_tb_close(struct tern_intake_tb *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        free(t->files[i].path);
    free(t->files);
    tern_intake_tags_close(t->tags);
    tern_intake_writers_close(t->writers);
    free(t->chunk);
    free(t->dir);
    free(t);
}

static struct file *find_file(struct tern_intake_tb *t, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->files[i].path, path) == 0)
            return &t->files[i];
    if (t->n == FILES_MAX) {
        if (!t->full)
            tern_warn("%s: more than %d event files; the others are not read", t->dir, FILES_MAX);
        t->full = true;
        return NULL;
    }
    struct file *f = &t->files[t->n++];
    f->path = tern_strdup(path);
    f->folder = f->path + strlen(t->dir);
    f->folder += *f->folder == '/';
    const char *name = strrchr(f->path, '/') + 1;
    f->folder_len = name > f->folder ? (size_t)(name - 1 - f->folder) : 0;
    tern_intake_writer_read(&f->writer, name);
    return f;
}

static void since(void *self, const struct tern_intake_tb_value *v)
{
    struct tern_intake_tb *t = self;
    const struct file *f = t->reads;
    struct tern_intake_tb_value named = *v;

    if (v->wall_s < t->since_s)
        return;
    if (!v->restart) {
        char *folder = strndup(f->folder, f->folder_len);
        if (!folder)
            return;
        tern_intake_tags_name(t->tags, folder, &f->writer, (size_t)(f - t->files), v->tag,
                              named.tag, sizeof named.tag);
        free(folder);
    }
    t->take(t->self, &named);
}

static void damaged(struct file *f)
{
    f->damaged = true;
    tern_warn("%s: damaged at byte %llu; what follows is not read", f->path,
              (unsigned long long)f->offset);
}

/* Step over a record that is longer than a chunk, if all of it is there. */
static bool step_over(struct file *f, const char *head, uint64_t size)
{
    int64_t n = record_length((const uint8_t *)head);

    if (n < 0) {
        damaged(f);
        return false;
    }
    if (f->offset + (uint64_t)n + FRAME > size)
        return false;
    f->offset += (uint64_t)n + FRAME;
    return true;
}

static void read_file(struct tern_intake_tb *t, struct file *f)
{
    uint64_t bad = 0, limit, size = (uint64_t)f->st.st_size;
    size_t used;

    if (f->damaged || size == f->offset)
        return;
    t->reads = f;
    int fd = TERN_AGAIN(open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    for (limit = f->offset + LOOK_BYTES; fd >= 0 && f->offset < limit;) {
        ssize_t n = pread(fd, t->chunk, CHUNK, (off_t)f->offset);
        if (n < 12)
            break;
        int rc = tern_intake_tb_parse(t->chunk, (size_t)n, since, t, &used, &bad);
        f->offset += used;
        if (rc < 0) {
            damaged(f);
            break;
        }
        if (used == 0 && (n < CHUNK || !step_over(f, t->chunk, size)))
            break;
    }
    if (fd >= 0)
        close(fd);
    if (bad)
        tern_warn("%s: %llu damaged records left out", f->path, (unsigned long long)bad);
}

/* A file not written to since is from an earlier run; a folder may keep thousands. */
static bool is_new(const struct tern_intake_tb *t, const struct stat *st)
{
    return (double)st->st_mtim.tv_sec >= t->since_s - SKEW_S;
}

static void note_file(struct tern_intake_tb *t, const char *path, const struct stat *st)
{
    struct file *f = find_file(t, path);

    if (!f)
        return;
    if (f->st.st_ino != st->st_ino || (uint64_t)st->st_size < f->offset) {
        f->offset = 0;
        f->damaged = false;
        f->owner = TERN_INTAKE_UNKNOWN;
        f->tries = 0;
    }
    f->st = *st;
}

/* A folder's files come before those of the folders in it. */
static void walk(struct tern_intake_tb *t, const char *dir, int depth)
{
    struct dirent **entries = NULL;
    struct stat st;
    int n = scandir(dir, &entries, NULL, alphasort); /* names begin with their time */

    for (int i = 0; i < 2 * n; i++) {
        const char *name = entries[i % n]->d_name;
        char *path = tern_strf("%s/%s", dir, name);
        if (name[0] != '.' && TERN_AGAIN(lstat(path, &st)) == 0) {
            if (i >= n && S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
                walk(t, path, depth + 1);
            else if (i < n && S_ISREG(st.st_mode) && strstr(name, "tfevents") && is_new(t, &st))
                note_file(t, path, &st);
        }
        free(path);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
}

/* ------------------------------------------------------------------ whose files */

/* Processes are looked at when there are new files, and once at the beginning: a short program may
 * have ended when its files are seen. */
static void find_owners(struct tern_intake_tb *t)
{
    bool fresh = !t->looked;

    for (size_t i = 0; i < t->n; i++)
        fresh = fresh || (t->files[i].owner == TERN_INTAKE_UNKNOWN && t->files[i].tries < TRIES);
    if (fresh)
        tern_intake_writers_look(t->writers);
    t->looked = true;
    for (size_t i = 0; i < t->n; i++) {
        struct file *f = &t->files[i];
        if (f->owner == TERN_INTAKE_UNKNOWN && f->tries < TRIES) {
            f->tries++;
            f->owner = tern_intake_writers_owner(t->writers, &f->writer, &f->st);
        }
    }
}

/* Made before this attempt began. */
static bool is_early(const struct tern_intake_tb *t, const struct file *f)
{
    return f->writer.time_s >= 0 && (double)f->writer.time_s < t->since_s - EARLY_S;
}

/* A file of this node, closed, that tells no process: no other run is known to have written it. */
static bool is_taken_anyway(const struct file *f)
{
    return f->owner == TERN_INTAKE_UNKNOWN && f->writer.pid < 0 &&
           (!f->writer.host[0] || tern_intake_writer_is_local(&f->writer));
}

/* The trainer has ended, and no file is known to be ours (its writer was in a container, or had
 * ended when its file was seen).  One writer's files are.  NULL: there is none, or more than one.
 */
static const struct file *assume(struct tern_intake_tb *t)
{
    for (int early = 1; early >= 0; early--) {
        const struct file *one = NULL;
        bool several = false;
        for (size_t i = 0; i < t->n; i++) {
            const struct file *f = &t->files[i];
            if (f->owner != TERN_INTAKE_UNKNOWN || (!early && is_early(t, f)))
                continue;
            several = several || (one && !tern_intake_writer_same(&one->writer, &f->writer));
            one = one ? one : f;
        }
        if (one && !several)
            return one;
        t->unsure = several;
    }
    return NULL;
}

/* Is there a file of a process of this node that had ended when its file was seen? */
static bool missed_one(const struct tern_intake_tb *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct file *f = &t->files[i];
        if (f->owner == TERN_INTAKE_UNKNOWN && f->writer.pid > 0 && !is_early(t, f) &&
            tern_intake_writer_is_local(&f->writer))
            return true;
    }
    return false;
}

void tern_intake_tb_look(struct tern_intake_tb *t, tern_intake_tb_take *take, void *self, bool end)
{
    const struct file *one = NULL;
    bool known = false;

    t->take = take;
    t->self = self;
    walk(t, t->dir, 0);
    find_owners(t);
    for (size_t i = 0; i < t->n; i++)
        known = known || t->files[i].owner == TERN_INTAKE_OURS ||
                (is_taken_anyway(&t->files[i]) && !is_early(t, &t->files[i]));
    if (end && known)
        t->unsure = missed_one(t);
    else if (end)
        one = assume(t);
    for (size_t i = 0; i < t->n; i++) {
        struct file *f = &t->files[i];
        if (f->owner == TERN_INTAKE_OURS || is_taken_anyway(f) ||
            (one && f->owner == TERN_INTAKE_UNKNOWN &&
             tern_intake_writer_same(&one->writer, &f->writer)))
            read_file(t, f);
    }
}

bool tern_intake_tb_is_unsure(const struct tern_intake_tb *t)
{
    return t->unsure;
}

const char *tern_intake_tb_dir(const struct tern_intake_tb *t)
{
    return t->dir;
}
