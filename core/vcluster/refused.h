/* Why a kernel or a container refuses namespaces, as far as it can be seen, and what to allow. */
#ifndef TERN_VCLUSTER_REFUSED_H
#define TERN_VCLUSTER_REFUSED_H

#include <stddef.h>

/* Sentences for who may change it, each with a space before it; "" when nothing is to be seen. */
void tern_refused_advice(char *to, size_t size);

#endif
