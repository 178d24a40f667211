#include "core/store/cache.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* A 64th of the limit is written before the folder is looked through again: so far may each process
 * exceed it.  A temporary file of an hour was left by a process that is gone. */
enum { TRIM_SHARE = 64, TEMP_OLD_S = 3600, TOUCH_S = 60 };

static const char magic[] = "TERNBLK1"; /* without its NUL */

struct head {
    char magic[8];
    uint32_t crc; /* of what follows, the bytes included */
    uint32_t len;
    uint8_t key[TERN_SHA256_BYTES];
};

struct tern_store_cache {
    char *dir;
    uint64_t max_bytes, written; /* since the last look; atomic */
    bool told;
};

static char *folder(void)
{
    const char *own = tern_var("TERN_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");

    if (own)
        return tern_strdup(own);
    if (xdg && *xdg)
        return tern_strf("%s/tern", xdg);
    return home && *home ? tern_strf("%s/.cache/tern", home) : NULL;
}

static void trim(struct tern_store_cache *c);

struct tern_store_cache *tern_store_cache_open(void)
{
    const char *text = tern_var("TERN_CACHE_BYTES");
    struct tern_err err = {0};
    uint64_t max = (uint64_t)16 << 30;

    if (text && tern_str_size(text, &max) < 0) {
        tern_warn("TERN_CACHE_BYTES=%s: not a size such as 16G; nothing is cached", text);
        max = 0;
    }
    char *dir = max ? folder() : NULL, *blocks = dir ? tern_fs_join(dir, "blocks") : NULL;
    struct tern_store_cache *c = NULL;
    if (blocks && tern_fs_mkdirs(blocks, 0700, &err) < 0)
        tern_warn("%s; nothing is cached", err.text);
    else if (blocks)
        c = tern_alloc(1, sizeof *c, "a cache", NULL);
    free(blocks);
    if (!c) {
        free(dir);
        return NULL;
    }
    c->dir = dir;
    c->max_bytes = max;
    trim(c);
    return c;
}

void tern_store_cache_close(struct tern_store_cache *c)
{
    if (!c)
        return;
    free(c->dir);
    free(c);
}

static char *path_of(const struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES])
{
    char hex[TERN_SHA256_HEX];

    tern_hex(hex, key, TERN_SHA256_BYTES);
    return tern_strf("%s/blocks/%.2s/%s", c->dir, hex, hex + 2);
}

static uint32_t crc_of(const struct head *h, const void *data, size_t len)
{
    const uint32_t crc = tern_crc32c(0, &h->len, sizeof h->len + sizeof h->key);

    return tern_crc32c(crc, data, len);
}

/* ---- reading ---- */

static bool read_block(int fd, const uint8_t key[TERN_SHA256_BYTES], void *to, size_t len)
{
    struct head h;
    struct stat st;

    if (fstat(fd, &st) < 0 || st.st_size != (off_t)(sizeof h + len) ||
        tern_fs_pread(fd, &h, sizeof h, 0, "a cached block", NULL) < 0 ||
        tern_fs_pread(fd, to, len, sizeof h, "a cached block", NULL) < 0)
        return false;
    if (memcmp(h.magic, magic, sizeof h.magic) != 0 || h.len != len ||
        memcmp(h.key, key, sizeof h.key) != 0 || h.crc != crc_of(&h, to, len))
        return false;
    if (st.st_mtim.tv_sec < time(NULL) - TOUCH_S)
        futimens(fd, NULL); /* read lately: goes last */
    return true;
}

bool tern_store_cache_get(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES],
                          void *to, size_t len)
{
    if (!c)
        return false;
    char *path = path_of(c, key);
    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
    bool good = false;
    if (fd >= 0) {
        good = read_block(fd, key, to, len);
        close(fd);
        if (!good)
            unlink(path);
    }
    free(path);
    return good;
}

bool tern_store_cache_has(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES])
{
    if (!c)
        return false;
    char *path = path_of(c, key);
    const bool has = access(path, F_OK) == 0;
    free(path);
    return has;
}

void tern_store_cache_drop(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES])
{
    if (!c)
        return;
    char *path = path_of(c, key);
    unlink(path);
    free(path);
}

/* ---- writing ---- */

static bool write_block(int fd, const struct head *h, const void *data, size_t len)
{
    tern_assert_cmp(h->len, ==, len);
    return tern_fs_write_at(fd, 0, h, sizeof *h, "a cached block", NULL) == 0 &&
           tern_fs_write_at(fd, sizeof *h, data, len, "a cached block", NULL) == 0;
}

bool tern_store_cache_put(struct tern_store_cache *c, const uint8_t key[TERN_SHA256_BYTES],
                          const void *data, size_t len)
{
    struct head h = {.len = (uint32_t)len};

    if (!c || len > UINT32_MAX)
        return false;
    memcpy(h.magic, magic, sizeof h.magic);
    memcpy(h.key, key, sizeof h.key);
    h.crc = crc_of(&h, data, len);
    char *path = path_of(c, key), *dir = tern_fs_dirname(path),
         *temp = tern_strf("%s/.temp-XXXXXX", dir);
    bool good = false;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        goto out;
    /* No fsync: after a power cut the checksum finds what was lost. */
    const int fd = tern_fs_temp(temp);
    if (fd < 0)
        goto out;
    good = write_block(fd, &h, data, len);
    if (close(fd) < 0)
        good = false;
    if (good && rename(temp, path) < 0)
        good = false;
    if (!good)
        unlink(temp);
out:
    if (!good && !__atomic_exchange_n(&c->told, true, __ATOMIC_RELAXED))
        tern_warn("%s: cannot keep a block: %s; reading goes on without", c->dir, strerror(errno));
    free(temp);
    free(dir);
    free(path);
    if (good &&
        __atomic_add_fetch(&c->written, len, __ATOMIC_RELAXED) > c->max_bytes / TRIM_SHARE) {
        __atomic_store_n(&c->written, 0, __ATOMIC_RELAXED);
        trim(c);
    }
    return good;
}

/* ---- the limit ---- */

struct old {
    time_t used;
    uint32_t kib;
    uint8_t name[TERN_SHA256_BYTES];
};

struct all {
    struct old *files;
    size_t n, room;
    uint64_t bytes;
};

static bool unhex(const char *hex, uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        char *end;
        to[i] = (uint8_t)strtoul(two, &end, 16);
        if (end != two + 2)
            return false;
    }
    return hex[2 * n] == '\0';
}

static void add_file(struct all *a, int dir, unsigned first, const char *name)
{
    struct stat st;
    struct old f;

    if (name[0] == '.' && name[1] != 't')
        return;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return;
    if (name[0] == '.') {
        if (st.st_mtim.tv_sec < time(NULL) - TEMP_OLD_S)
            unlinkat(dir, name, 0);
        return;
    }
    f.name[0] = (uint8_t)first;
    if (strlen(name) != 2 * (sizeof f.name - 1) || !unhex(name, f.name + 1, sizeof f.name - 1))
        return;
    f.used = st.st_mtim.tv_sec;
    f.kib = (uint32_t)((st.st_size + 1023) / 1024);
    if (a->n == a->room) {
        const size_t room = a->room ? 2 * a->room : 1024;
        struct old *files = realloc(a->files, room * sizeof *files);
        if (!files)
            return;
        a->files = files;
        a->room = room;
    }
    a->files[a->n++] = f;
    a->bytes += (uint64_t)f.kib * 1024;
}

static int by_age(const void *a, const void *b)
{
    const struct old *x = a, *y = b;

    return (x->used > y->used) - (x->used < y->used);
}

static void look_through(struct tern_store_cache *c, struct all *a)
{
    for (unsigned i = 0; i < 256; i++) {
        char *path = tern_strf("%s/blocks/%02x", c->dir, i);
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));)
            add_file(a, dirfd(d), i, e->d_name);
        if (d)
            closedir(d);
        free(path);
    }
}

/* Removes what was not read for longest, down to nine tenths of the limit.  One process at a time;
 * another one goes on meanwhile. */
static void trim(struct tern_store_cache *c)
{
    char *path = tern_fs_join(c->dir, "lock");
    const int lock = TERN_AGAIN(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct all a = {0};

    free(path);
    if (lock < 0)
        return;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        look_through(c, &a);
        if (a.bytes > c->max_bytes) {
            qsort(a.files, a.n, sizeof *a.files, by_age);
            for (size_t i = 0; i < a.n && a.bytes > c->max_bytes / 10 * 9; i++) {
                tern_store_cache_drop(c, a.files[i].name);
                a.bytes -= (uint64_t)a.files[i].kib * 1024;
            }
        }
        free(a.files);
    }
    close(lock);
}
