/* Generations of the Neuron SDK: which are known, and which is installed. */
#ifndef TERN_ENV_SDK_H
#define TERN_ENV_SDK_H

#include "core/env/env.h"

/* All SDKs so far are 2.N; the profiles are for these. */
enum { TERN_ENV_SDK_FIRST = 18, TERN_ENV_SDK_LAST = 31 };

/* Fill f->sdk and f->sdk_from with the SDK under `root`; "" without one. */
void tern_env_sdk_find(const char *root, struct tern_env_facts *f);

/* "2.31", "2.31.0" -> 31; -1 when it is no SDK 2. */
int tern_env_sdk_generation(const char *version);

#endif
