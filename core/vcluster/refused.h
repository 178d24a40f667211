/* Why a kernel or a container refuses namespaces, and how to allow them. */
#ifndef TERN_VCLUSTER_REFUSED_H
#define TERN_VCLUSTER_REFUSED_H

#include <stddef.h>

/* Writes the settings that an admin can change, as sentences with a space before each; "" when the
 * cause is unknown. */
void tern_vcluster_refused_explain(char *to, size_t size);

#endif
