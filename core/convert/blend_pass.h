/* A blend's tensors, one after the other, in pieces. */
#ifndef TERN_CONVERT_BLEND_PASS_H
#define TERN_CONVERT_BLEND_PASS_H

#include "core/convert/blend.h"
#include "core/convert/export.h"

struct tern_convert_blend_pass;

/* `x` [n]: the models, the base before them if there is one; they and `b` are borrowed. */
struct tern_convert_blend_pass *tern_convert_blend_pass_new(const struct tern_convert_blend *b,
                                                            struct tern_convert_export *x, size_t n,
                                                            struct tern_err *err);
void tern_convert_blend_pass_free(struct tern_convert_blend_pass *p); /* NULL is fine */
/* Append the bytes of tensor `i` of x[0]'s list, in the type that stands there, to `out`. */
int tern_convert_blend_pass_write(struct tern_convert_blend_pass *p, size_t i,
                                  struct tern_behind *out, struct tern_err *err);

#endif
