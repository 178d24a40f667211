/* What puts and parts of uploads have in common. */
#ifndef TERN_STORE_WRITE_H
#define TERN_STORE_WRITE_H

#include "core/store/call.h"

int tern_store_may_write(const struct tern_store *s, struct tern_err *err);
/* An answer that `c` has no use for; returns -1. */
int tern_store_wrong_status(const struct tern_store *s, const struct tern_store_call *c,
                            long status, struct tern_err *err);
/* A PUT of `len` bytes, with their digest; `c` has key, what and query. */
int tern_store_send(struct tern_store *s, struct tern_store_call *c, const void *data, size_t len,
                    char ret_etag[TERN_STORE_ETAG], struct tern_err *err);

#endif
