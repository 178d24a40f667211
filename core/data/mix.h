/* Inside the room: the mixes of several stages. */
#ifndef TERN_DATA_MIX_H
#define TERN_DATA_MIX_H

#include "core/data/data.h"

/* As tern_data_mix_open.  A set that one of `mixes` has open under the same path and for the same
 * `how` is shared with it.  That one is freed together with the new one. */
struct tern_data_mix *tern_data_mix_open_beside(struct tern_data_mix *const *mixes, size_t n_mixes,
                                                const struct tern_data_mix_source *sources,
                                                size_t n, const struct tern_data_pack_how *how,
                                                uint64_t seed, struct tern_err *err);

/* How many rows tern_data_mix_tokens has looked at. */
uint64_t tern_data_mix_looked_at(const struct tern_data_mix *m);

#endif
