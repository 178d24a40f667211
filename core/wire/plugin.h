/* Files of tern's own that are loaded at run time. */
#ifndef TERN_WIRE_PLUGIN_H
#define TERN_WIRE_PLUGIN_H

/* Beside the programs: build/bin (and build/tests/...) and build/plugins, PREFIX/bin and
 * PREFIX/lib/tern.  The path of `name` there, which the caller frees, or NULL. */
char *tern_wire_plugin(const char *name);

#endif
