/* Owners in a shared ledger: LEDGER/u/UID and all below it belong to UID.
 *
 * A path below a home names the owner (.../u/1000/runs/...), so it is enough to check what lies
 * there. */
#ifndef TERN_LEDGER_HOMES_H
#define TERN_LEDGER_HOMES_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/ledger/ledger.h"

/* May a folder (S_IFDIR) or file (S_IFREG) of a ledger be read?  Within a home it must be of the
 * home's owner, or root's, and no link; anything else is logged once.  True of a path that does not
 * exist, or lies in no home. */
bool tern_ledger_home_sound(const char *path, mode_t type);

/* Bytes of `path` that name the home it lies in (".../u/1000"), and its owner; 0 for none. */
size_t tern_ledger_home_part(const char *path, uint32_t *uid);
/* A uid as such a folder is called. */
bool tern_ledger_home_parse_uid(const char *word, uint32_t *uid);
/* The error of a user's folder that is another's, or none; -1. */
int tern_ledger_home_not_yours(const char *home, const struct stat *st, struct tern_err *err);

/* Is it a user's home, or a ledger that others write to? */
bool tern_ledger_home_shared(const char *ledger_dir);
/* The owner of a run in a shared ledger, by its folder, malloc'ed; NULL where the ledger is not
 * shared, or its own user has all of it (storage may give every file one owner). */
char *tern_ledger_home_user(const char *ledger_dir, const char *run_id);

/* The folder of a run (NULL: the home alone, if it is a user's), made with all above it that is
 * missing.  `bits`: the permissions of a new one; negative: by the umask. */
int tern_ledger_home_make_run(const char *home, const char *run_id, int bits, struct tern_err *err);

/* An attempt's spool folder (LEDGER[/u/UID]/runs/RUN/spool/N), with missing folders above it;
 * *bits: as of tern_ledger_home_make_run, and then the permissions that all of the run has. */
int tern_ledger_home_make_attempt(const char *dir, const char *run_id, int *bits,
                                  struct tern_err *err);
/* Make it and those above it, up to the ledger's, survive a power cut. */
int tern_ledger_home_sync(const char *dir, struct tern_err *err);

/* The permissions of a run's folder, which all in it shares; -1 where it is not there. */
int tern_ledger_home_bits(const char *home, const char *run_id);

#endif
