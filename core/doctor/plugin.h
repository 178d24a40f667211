/* The plugin as Slurm would find it on this machine. */
#ifndef TERN_DOCTOR_PLUGIN_H
#define TERN_DOCTOR_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

struct tern_doctor_plugin {
    char file[512];  /* "" when no line of plugstack.conf and what it includes loads it */
    char tern[512];  /* its tern=PATH; "" without */
    char where[512]; /* the file with the line */
    bool required;
    bool health_prolog; /* health=prolog */
};

/* Read `plugstack`; what cannot be read holds no line. */
void tern_doctor_plugin_find(const char *plugstack, struct tern_doctor_plugin *to);

/* "22.05.8": the Slurm whose headers `file` was built with, from its symbol plugin_version; "" when
 * it is no such library.  The library is read, not loaded. */
void tern_doctor_plugin_release(const char *file, char to[16]);

#endif
