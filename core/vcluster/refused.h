/* Why a kernel or a container refuses namespaces, as far as it can be seen, and what to allow. */
#ifndef TERN_VCLUSTER_REFUSED_H
#define TERN_VCLUSTER_REFUSED_H

#include <stddef.h>

/* Writes what an admin can change, as sentences with a space before each; "" when nothing is seen.
 */
void tern_vcluster_refused_explain(char *to, size_t size);

#endif
