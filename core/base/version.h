/* tern's version: programs, packages and modules take it from here. */
#ifndef TERN_BASE_VERSION_H
#define TERN_BASE_VERSION_H

#define TERN_VERSION "0.4.0"
/* The date on man pages, which a build of the same source repeats. */
#define TERN_RELEASE_DATE "2026-11-26"

#endif
