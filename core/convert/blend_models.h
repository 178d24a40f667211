/* The models of a blend: opened, and compared with the first of them. */
#ifndef TERN_CONVERT_BLEND_MODELS_H
#define TERN_CONVERT_BLEND_MODELS_H

#include "core/convert/export.h"

/* Open the weights of `path`: `x` has its options.  Then config and list of tensors are there, each
 * of which is a kind of float.  To be freed in any case. */
int tern_convert_blend_open(struct tern_convert_export *x, const char *path, struct tern_err *err);
/* TERN_USAGE with the key of the config where `x` describes other weights, or another computation
 * with them, than `first` does. */
int tern_convert_blend_compare(const struct tern_convert_export *x,
                               const struct tern_convert_export *first, struct tern_err *err);
/* The same of the tokenizers' pieces, as far as both models have tokenizers that tern reads. */
int tern_convert_blend_compare_tokenizers(const struct tern_convert_export *x,
                                          const struct tern_convert_export *first,
                                          struct tern_err *err);

#endif
