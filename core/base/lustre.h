/* Lustre's stripes: over how many storage targets the bytes of a new file are spread.  A file on
 * one target is written and read at that target's speed.
 *
 * By `lfs` (lfs-setstripe(1)), where it is on PATH.  Only a folder whose new files would lie on one
 * target gets another layout; another one is its owner's wish and stays.
 */
#ifndef TERN_BASE_LUSTRE_H
#define TERN_BASE_LUSTRE_H

#include <stdbool.h>

#include "core/base/err.h"

/* Is `dir` on Lustre? */
bool tern_lustre_is(const char *dir);

/* Targets of a new file in `dir`, of a layout with several parts the most of any; -1: all of them.
 * 0 where that is not known: no Lustre, no lfs, or it failed. */
int tern_lustre_stripes(const char *dir);

/* Spread the large files that will be made in `dir`, if it is this user's and they would lie on one
 * target.  Logs what it
 * did, or why it could not: that is no failure of the caller's work. */
void tern_lustre_spread(const char *dir);

#endif
