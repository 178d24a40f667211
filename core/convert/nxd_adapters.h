/* Adapters (LoRA) on Optimum Neuron's ranks, as PEFT keeps them.
 *
 *     OUT/adapter_default/adapter_config.json
 *     OUT/adapter_default/adapter_shards/mp_metadata_pp_rank_0.json     see nxd_specs.h
 *     OUT/adapter_default/adapter_shards/model/dp_rank_00_tp_rank_00_pp_rank_00.pt ...
 *
 * Releases before 0.2 wrote the adapter `default` to OUT itself, others to OUT/NAME.
 */
#ifndef TERN_CONVERT_NXD_ADAPTERS_H
#define TERN_CONVERT_NXD_ADAPTERS_H

#include <jansson.h>
#include <signal.h>

#include "core/ckpt/ckpt.h"

/* 1: `path` is such a folder, holds one, or is its adapter_shards; *ret_dir, malloc'ed, has
 * adapter_shards.  0: none of them.  -1: it holds several. */
int tern_convert_nxd_adapters_find(const char *path, char **ret_dir, struct tern_err *err);

/* The arrays of such a folder, put together and with PEFT's names, as a handle without steps and
 * digests.  Its config, as PEFT reads it, is a new reference.  Both are set on success only.
 * `stop`: not 0: give up; NULL: never. */
int tern_convert_nxd_adapters_open(const char *dir, const volatile sig_atomic_t *stop,
                                   struct tern_ckpt **ret_arrays, json_t **ret_config,
                                   struct tern_err *err);

#endif
