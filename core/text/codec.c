#include "core/text/codec.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#ifdef TERN_WITH_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif
#ifdef TERN_WITH_BZIP2
#include <bzlib.h>
#endif
#ifdef TERN_WITH_XZ
#include <lzma.h>
#endif

/* The libraries count in 32 bits. */
static unsigned at_most(size_t n)
{
    return n < UINT_MAX ? (unsigned)n : UINT_MAX;
}

static void used(struct tern_text_codec_io *io, size_t in, size_t out)
{
    io->in += in;
    io->n_in -= in;
    io->out += out;
    io->n_out -= out;
}

/* ---- gzip ---- */

static bool is_gzip(const uint8_t *in, size_t n)
{
    return n >= 2 && in[0] == 0x1f && in[1] == 0x8b;
}

/* zlib's gzread drops bytes behind a member that are not a member: it is not used. */
static void *gzip_open(void)
{
    enum { GZIP = 16 + MAX_WBITS }; /* inflateInit2's word for it */
    z_stream *z = calloc(1, sizeof *z);

    if (z && inflateInit2(z, GZIP) != Z_OK) {
        free(z);
        z = NULL;
    }
    return z;
}

static enum tern_text_codec_result gzip_step(void *state, struct tern_text_codec_io *io,
                                             const char **ret_why)
{
    z_stream *z = state;
    const unsigned in = at_most(io->n_in), out = at_most(io->n_out);

    z->next_in = (uint8_t *)io->in;
    z->avail_in = in;
    z->next_out = io->out;
    z->avail_out = out;
    int rc = inflate(z, Z_NO_FLUSH);
    used(io, in - z->avail_in, out - z->avail_out);
    *ret_why = z->msg ? z->msg : "no zlib stream";
    return rc == Z_STREAM_END                ? TERN_TEXT_CODEC_END
           : rc == Z_MEM_ERROR               ? TERN_TEXT_CODEC_NO_MEMORY
           : rc == Z_OK || rc == Z_BUF_ERROR ? TERN_TEXT_CODEC_MORE
                                             : TERN_TEXT_CODEC_DAMAGED;
}

static bool gzip_again(void *state)
{
    return inflateReset(state) == Z_OK;
}

static void gzip_close(void *state)
{
    inflateEnd(state);
    free(state);
}

/* ---- Zstandard ---- */

/* A frame, or one that decoders skip (pzstd begins with one). */
static bool is_zstd(const uint8_t *in, size_t n)
{
    return n >= 4 && (memcmp(in, "\x28\xb5\x2f\xfd", 4) == 0 ||
                      ((in[0] & 0xf0) == 0x50 && memcmp(in + 1, "\x2a\x4d\x18", 3) == 0));
}

#ifdef TERN_WITH_ZSTD
static void *zstd_open(void)
{
    return ZSTD_createDStream();
}

static enum tern_text_codec_result zstd_step(void *state, struct tern_text_codec_io *io,
                                             const char **ret_why)
{
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    size_t rc = ZSTD_decompressStream(state, &out, &in);

    used(io, in.pos, out.pos);
    *ret_why = ZSTD_getErrorName(rc);
    if (!ZSTD_isError(rc))
        return rc == 0 ? TERN_TEXT_CODEC_END : TERN_TEXT_CODEC_MORE;
    return ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation ? TERN_TEXT_CODEC_NO_MEMORY
                                                                 : TERN_TEXT_CODEC_DAMAGED;
}

static bool zstd_again(void *state)
{
    return !ZSTD_isError(ZSTD_initDStream(state));
}

static void zstd_close(void *state)
{
    ZSTD_freeDStream(state);
}
#endif

/* ---- bzip2 ---- */

/* "BZh9" may begin a text: the first block's mark, or that of an empty file, must follow. */
static bool is_bzip2(const uint8_t *in, size_t n)
{
    return n >= 10 && memcmp(in, "BZh", 3) == 0 && in[3] >= '1' && in[3] <= '9' &&
           (memcmp(in + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 ||
            memcmp(in + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

#ifdef TERN_WITH_BZIP2
static void *bzip2_open(void)
{
    bz_stream *z = calloc(1, sizeof *z);

    if (z && BZ2_bzDecompressInit(z, /* verbosity= */ 0, /* small= */ 0) != BZ_OK) {
        free(z);
        z = NULL;
    }
    return z;
}

static enum tern_text_codec_result bzip2_step(void *state, struct tern_text_codec_io *io,
                                              const char **ret_why)
{
    bz_stream *z = state;
    const unsigned in = at_most(io->n_in), out = at_most(io->n_out);

    z->next_in = (char *)io->in;
    z->avail_in = in;
    z->next_out = (char *)io->out;
    z->avail_out = out;
    int rc = BZ2_bzDecompress(z);
    used(io, in - z->avail_in, out - z->avail_out);
    *ret_why = rc == BZ_DATA_ERROR ? "a checksum is wrong" : "no bzip2 stream";
    return rc == BZ_STREAM_END  ? TERN_TEXT_CODEC_END
           : rc == BZ_MEM_ERROR ? TERN_TEXT_CODEC_NO_MEMORY
           : rc == BZ_OK        ? TERN_TEXT_CODEC_MORE
                                : TERN_TEXT_CODEC_DAMAGED;
}

static bool bzip2_again(void *state)
{
    bz_stream *z = state;

    BZ2_bzDecompressEnd(z);
    memset(z, 0, sizeof *z);
    return BZ2_bzDecompressInit(z, /* verbosity= */ 0, /* small= */ 0) == BZ_OK;
}

static void bzip2_close(void *state)
{
    BZ2_bzDecompressEnd(state);
    free(state);
}
#endif

/* ---- xz ---- */

static bool is_xz(const uint8_t *in, size_t n)
{
    return n >= 6 && memcmp(in,
                            "\xfd"
                            "7zXZ\0",
                            6) == 0;
}

#ifdef TERN_WITH_XZ
/* Of a decoder: xz -9 takes 65 MiB, and a crafted file may ask for 4 GiB. */
static const uint64_t xz_memory = 512 << 20;

static bool xz_again(void *state)
{
    return lzma_stream_decoder(state, xz_memory, /* flags= */ 0) == LZMA_OK;
}

static void xz_close(void *state)
{
    lzma_end(state);
    free(state);
}

static void *xz_open(void)
{
    const lzma_stream empty = LZMA_STREAM_INIT;
    lzma_stream *z = malloc(sizeof *z);

    if (!z)
        return NULL;
    *z = empty;
    if (xz_again(z))
        return z;
    xz_close(z);
    return NULL;
}

static enum tern_text_codec_result xz_step(void *state, struct tern_text_codec_io *io,
                                           const char **ret_why)
{
    lzma_stream *z = state;

    z->next_in = io->in;
    z->avail_in = io->n_in;
    z->next_out = io->out;
    z->avail_out = io->n_out;
    lzma_ret rc = lzma_code(z, LZMA_RUN);
    used(io, io->n_in - z->avail_in, io->n_out - z->avail_out);
    *ret_why = rc == LZMA_MEMLIMIT_ERROR  ? "it needs more than 512 MiB to decompress"
               : rc == LZMA_DATA_ERROR    ? "a checksum or a code is wrong"
               : rc == LZMA_OPTIONS_ERROR ? "it has options that liblzma does not know"
                                          : "no xz stream";
    return rc == LZMA_STREAM_END                   ? TERN_TEXT_CODEC_END
           : rc == LZMA_MEM_ERROR                  ? TERN_TEXT_CODEC_NO_MEMORY
           : rc == LZMA_OK || rc == LZMA_BUF_ERROR ? TERN_TEXT_CODEC_MORE
                                                   : TERN_TEXT_CODEC_DAMAGED;
}
#endif

static const struct tern_text_codec codecs[] = {
    {"gzip", "zlib", is_gzip, gzip_open, gzip_step, gzip_again, gzip_close},
#ifdef TERN_WITH_ZSTD
    {"Zstandard", "libzstd", is_zstd, zstd_open, zstd_step, zstd_again, zstd_close},
#else
    {.name = "Zstandard", .library = "libzstd", .begins = is_zstd},
#endif
#ifdef TERN_WITH_BZIP2
    {"bzip2", "libbz2", is_bzip2, bzip2_open, bzip2_step, bzip2_again, bzip2_close},
#else
    {.name = "bzip2", .library = "libbz2", .begins = is_bzip2},
#endif
#ifdef TERN_WITH_XZ
    {"xz", "liblzma", is_xz, xz_open, xz_step, xz_again, xz_close},
#else
    {.name = "xz", .library = "liblzma", .begins = is_xz},
#endif
};

const struct tern_text_codec *tern_text_codec_of(const uint8_t *in, size_t n)
{
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++)
        if (codecs[i].begins(in, n))
            return &codecs[i];
    return NULL;
}
