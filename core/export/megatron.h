/* Megatron-LM's MMapIndexedDataset, all numbers little-endian
 * (megatron/core/datasets/indexed_dataset.py):
 *
 *     PREFIX.bin   the ids, sequence after sequence
 *     PREFIX.idx   0   "MMIDIDX", two NULs
 *                  9   u64 version, 1
 *                  17  u8  the code of the ids' type
 *                  18  u64 number of sequences, n
 *                  26  u64 number of document indices, d
 *                  34  i32 length of each sequence [n]
 *                      i64 its first byte in PREFIX.bin [n]
 *                      i64 document k is sequences [k] .. [k + 1] - 1 [d]
 */
#ifndef TERN_EXPORT_MEGATRON_H
#define TERN_EXPORT_MEGATRON_H

#include <stdint.h>

#define TERN_EXPORT_MEGATRON_MAGIC "MMIDIDX\0" /* and the NUL at its end */

struct __attribute__((packed)) tern_export_megatron_head {
    char magic[9];
    uint64_t version;
    uint8_t type;
    uint64_t n_sequences, n_documents;
};

/* On disk: do not renumber. */
enum tern_export_megatron_type {
    TERN_EXPORT_U8 = 1,
    TERN_EXPORT_I8 = 2,
    TERN_EXPORT_I16 = 3,
    TERN_EXPORT_I32 = 4,
    TERN_EXPORT_I64 = 5,
    TERN_EXPORT_U16 = 8,
};

#endif
