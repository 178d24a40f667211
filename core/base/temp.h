/* Temporary files and folders whose names tell the process that made them.  Files that a killed
 * process left are removed by the next one for the same place.  fs.h has those that appear whole.
 *
 *     char *temp = tern_fs_folder_beside_swept(dir, err);      // fill it, rename it to `dir`
 */
#ifndef TERN_BASE_TEMP_H
#define TERN_BASE_TEMP_H

#include "core/base/err.h"

/* malloc'ed: "PATH.tmp-HOST-NAMESPACE-PID-XXXXXX", for mkstemp(3): the form that
 * tern_fs_temp_left (fs.h) knows. */
char *tern_fs_temp_name(const char *path);
/* Remove files and folders with such names that ended processes of this machine and of this user
 * left beside `path`. */
void tern_fs_temp_sweep(const char *path);
/* tern_fs_folder_beside (fs.h) with such a name; swept first.  malloc'ed; NULL with `err`. */
char *tern_fs_folder_beside_swept(const char *dir, struct tern_err *err);

#endif
