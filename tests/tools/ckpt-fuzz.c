/* Mutate safetensors headers and manifests, and read what comes out: no crash, no hang, no memory
 * beyond the file's own size, and one line for every refusal.
 *
 *     ckpt-fuzz HF-DIR CHECKPOINT ROUNDS SEED     both folders are copies that may be spoiled
 *
 * Mutated manifests are sealed anew, so that the digest does not keep them out.
 */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t seed, turn;

static uint64_t below(uint64_t n)
{
    return tern_rand_below(seed, 1, turn++, n);
}

static const char *const words[] = {
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "18446744073709551616",
    "4611686018427387904",
    "1e9",
    "null",
    "[]",
    "{}",
    "\"F64\"",
    "\"BF16\"",
    "[1,2,3,4,5]",
    "[0]",
    "\"\"",
    "\"../x\"",
    "4294967296",
    "\"F8_E4M3\"",
    "[[[[",
    "\\u0000",
};

/* One to four changes inside text [*len], which has room for 256 bytes more. */
static void mutate(char *text, size_t *len)
{
    for (uint64_t k = 1 + below(4); k > 0 && *len > 16; k--) {
        size_t at = below(*len), n;
        const char *w = words[below(sizeof words / sizeof *words)];
        switch (below(5)) {
        case 0:
            text[at] ^= (char)(1 << below(8));
            break;
        case 1: /* cut */
            n = 1 + below(12);
            n = n < *len - at ? n : *len - at;
            memmove(text + at, text + at + n, *len - at - n);
            *len -= n;
            break;
        case 2: /* digits become another number */
            while (at < *len && (text[at] < '0' || text[at] > '9'))
                at++;
            for (n = 0; at + n < *len && text[at + n] >= '0' && text[at + n] <= '9';)
                n++;
            memmove(text + at, text + at + n, *len - at - n);
            *len -= n;
            /* fall through */
        case 3:
            n = strlen(w);
            memmove(text + at + n, text + at, *len - at);
            memcpy(text + at, w, n);
            *len += n;
            break;
        default: /* swap two bytes */
            n = below(*len);
            char c = text[at];
            text[at] = text[n];
            text[n] = c;
        }
    }
}

static void spill(const char *path, const char *a, size_t na, const char *b, size_t nb)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd < 0 || tern_fs_write(fd, a, na, path, NULL) < 0 ||
        tern_fs_write(fd, b, nb, path, NULL) < 0) {
        perror(path);
        exit(2);
    }
    close(fd);
}

static struct {
    uint64_t opened, refused, read;
} seen;

/* Read everything that claims to be there; nothing may claim more than the files hold. */
static void use(struct tern_ckpt *c, const struct tern_err *err, uint64_t file_bytes)
{
    struct tern_ckpt_info info;
    struct tern_err why;

    if (!c) {
        seen.refused++;
        if (!*err->text || strchr(err->text, '\n')) {
            printf("a refusal without one line: '%s'\n", err->text);
            exit(1);
        }
        return;
    }
    seen.opened++;
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        uint64_t bytes = tern_ckpt_type_bytes(info.type);
        for (int d = 0; d < info.ndim; d++)
            bytes *= info.shape[d];
        if (bytes > file_bytes) {
            printf("'%s' claims %" PRIu64 " bytes of %" PRIu64 "\n", info.name, bytes, file_bytes);
            exit(1);
        }
        char *to = malloc(bytes + 1);
        seen.read += tern_ckpt_read(c, info.name, info.type, NULL, NULL, to, &why) == 0;
        free(to);
    }
    tern_ckpt_close(c);
}

static void fuzz_safetensors(const char *dir, uint64_t rounds)
{
    char *path = tern_fs_join(dir, "model.safetensors"), *file;
    struct tern_err err;
    size_t len;
    uint64_t word;

    if (tern_fs_read(path, 16 << 20, &file, &len, &err) < 0)
        exit(2);
    memcpy(&word, file, 8);
    size_t head = 8 + le64toh(word);
    char *copy = malloc(head + 4096);
    for (uint64_t i = 0; i < rounds; i++) {
        size_t n = head - 8;
        memcpy(copy + 8, file + 8, n);
        mutate(copy + 8, &n);
        word = htole64(below(16) ? n : below(UINT64_MAX >> below(64)));
        memcpy(copy, &word, 8);
        size_t data = below(4) ? len - head : below(len - head);
        spill(path, copy, 8 + n, file + head, data);
        struct tern_ckpt *c = tern_ckpt_open_hf(dir, &err);
        use(c, &err, 8 + n + data);
    }
    free(copy);
    free(file);
    free(path);
}

static void fuzz_manifest(const char *dir, uint64_t rounds)
{
    char *path = tern_fs_join(dir, "manifest.json"), *text, hex[TERN_SHA256_HEX];
    uint8_t sha[TERN_SHA256_BYTES];
    struct tern_err err;
    size_t len;

    if (tern_fs_read(path, 16 << 20, &text, &len, &err) < 0)
        exit(2);
    len = (size_t)(strrchr(text, ',') - 1 - text); /* before the digest and its line break */
    char *copy = malloc(len + 4096);
    for (uint64_t i = 0; i < rounds; i++) {
        size_t n = len;
        memcpy(copy, text, n);
        mutate(copy, &n);
        tern_sha256(copy, n, sha);
        char *tail = tern_strf("\n,\"digest\":\"%s\"}\n", tern_hex(hex, sha, sizeof sha));
        spill(path, copy, n, tail, strlen(tail));
        free(tail);
        struct tern_ckpt *c = tern_ckpt_open(dir, &err);
        use(c, &err, 16 << 20);
    }
    free(copy);
    free(text);
    free(path);
}

int main(int argc, char **argv)
{
    int64_t rounds, s;

    if (argc != 5 || tern_str_int(argv[3], 1, 100000000, &rounds) < 0 ||
        tern_str_int(argv[4], 0, INT64_MAX, &s) < 0) {
        fputs("usage: ckpt-fuzz HF-DIR CHECKPOINT ROUNDS SEED\n", stderr);
        return 2;
    }
    seed = (uint64_t)s;
    tern_log_threshold(TERN_LOG_ERROR);
    fuzz_safetensors(argv[1], (uint64_t)rounds);
    fuzz_manifest(argv[2], (uint64_t)rounds);
    printf("%" PRIu64 " opened, %" PRIu64 " refused, %" PRIu64 " arrays read\n", seen.opened,
           seen.refused, seen.read);
    return seen.opened && seen.refused ? 0 : 1;
}
