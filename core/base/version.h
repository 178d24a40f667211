/* tern's version: programs, packages and modules take it from here. */
#ifndef TERN_BASE_VERSION_H
#define TERN_BASE_VERSION_H

#define TERN_VERSION "0.4.0"

#endif
