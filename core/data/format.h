/* The .tds file, all numbers little-endian.
 *
 *     0     struct tern_tds_header, zeros up to TERN_TDS_HEAD
 *     4096  tokens   u16 or u32 each; then the other sections, each at a multiple of 8
 *
 * The header's CRC covers the header with its crc field zero.  The digests section has the CRC-32C
 * of every MiB (the last may be shorter) from TERN_TDS_HEAD to where it begins itself.  Its own CRC
 * is in the header: every byte of the file is covered.  A reader skips section types that it does
 * not know.
 */
#ifndef TERN_DATA_FORMAT_H
#define TERN_DATA_FORMAT_H

#include <stdint.h>

#include "core/base/hash.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token sets are read and written as they lie in memory: little-endian"
#endif

enum {
    TERN_TDS_VERSION = 1,
    TERN_TDS_HEAD = 4096, /* a page, so that tokens could be mapped */
    TERN_TDS_SECTIONS = 16,
    TERN_TDS_BLOCK = 1 << 20, /* bytes under one digest */
    TERN_TDS_META_MAX = 1 << 20,
};

#define TERN_TDS_MAGIC "ternTDS\n"

/* On disk: do not renumber. */
enum tern_tds_type {
    TERN_TDS_TOKENS = 1,
    TERN_TDS_DOCS = 2,    /* struct tern_tds_doc, n_docs + 1 of them; the last has the totals */
    TERN_TDS_MASK = 3,    /* optional; bit i % 8 of byte i / 8: token i is a target */
    TERN_TDS_META = 4,    /* JSON text */
    TERN_TDS_DIGESTS = 5, /* u32 CRC-32C each */
    TERN_TDS_HASHES = 6,  /* of parts of a set: TERN_DATA_HASH bytes of each document's text */
    TERN_TDS_PART = 7,    /* of parts: JSON text, how they belong together (part.h) */
};

struct tern_tds_section {
    uint32_t type, zero;
    uint64_t offset, bytes;
};

struct tern_tds_doc {
    uint64_t first_token; /* tokens in all documents before */
    uint64_t first_byte;  /* bytes of text in all documents before */
};

struct tern_tds_header {
    char magic[8];
    uint32_t version;
    uint32_t crc;
    uint64_t file_bytes;
    uint64_t n_tokens, n_docs, text_bytes;
    uint32_t token_bytes; /* 2 or 4 */
    uint32_t n_vocab;
    uint32_t eos;
    int32_t bos; /* -1: none */
    uint8_t vocab_hash[TERN_SHA256_BYTES];
    uint32_t digests_crc;
    uint32_t n_sections;
    struct tern_tds_section sections[TERN_TDS_SECTIONS];
};

#endif
