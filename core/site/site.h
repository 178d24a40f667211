/* tern.yaml: settings of an admin for all users of a site.
 *
 *     struct tern_site *site = tern_site_load(NULL, err);   // NULL: refused, see err
 *     tern_site_fill(site, recipe, err);                    // keys that the recipe leaves open
 *
 * The file is --config's, else TERN_CONFIG's, else /etc/tern/tern.yaml, which may be absent.  The
 * first of these wins: command line, the job's options (TERN_PROFILE, TERN_HEALTH, TERN_RESTARTS),
 * recipe, this file, tern's defaults.  `launch.restarts_max` is a ceiling of all of them.
 *
 * The file decides where ledgers lie and the environment of all ranks.  So it is refused when users
 * other than root and the caller could change it, directly or by a folder above it.
 *
 * The plugin does not read it: it links libc alone and, as root, opens no file.  Its settings are
 * arguments on its line in plugstack.conf.
 */
#ifndef TERN_SITE_SITE_H
#define TERN_SITE_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/recipe/recipe.h"

struct tern_page; /* core/base/page.h */

/* Most variables of `env`, and most bytes of a name and a value: the bounds of the plugin, which
 * takes them over from `tern env`. */
enum { TERN_SITE_VARS = 64, TERN_SITE_NAME = 64, TERN_SITE_VALUE = 512 };

struct tern_site_var {
    char *name, *value;
    int line; /* in the file */
};

/* Every text is owned by the site.  A NULL text, and a number of -1, is a key that was not given.
 */
struct tern_site {
    char *path;   /* of the file, there or not */
    bool present; /* the file is there */

    char *ledger;         /* ledger.dir, absolute; %u is the user's name by now */
    int64_t ledger_mode;  /* ledger.mode */
    char *profile;        /* launch.profile */
    int64_t restarts_max; /* launch.restarts_max: ceiling of launch.restarts */
    int64_t health;       /* launch.health: enum tern_recipe_health */
    char *platform;       /* cluster.platform: none, hyperpod, pcluster or virtual */
    char *health_skip;    /* health.skip: ids of checks with commas between */
    char *health_mounts;  /* health.mounts: "/fsx:100G,/scratch" */
    char *health_expect;  /* health.expect: "hugepages=5128" */
    struct tern_site_var *env;
    size_t n_env; /* at most TERN_SITE_VARS */
};

/* `path` NULL: TERN_CONFIG's file, else the usual one.  A file that was named and is not there is
 * an error.  TERN_USAGE with file:line for mistakes in it. */
struct tern_site *tern_site_load(const char *path, struct tern_err *err);
void tern_site_free(struct tern_site *site); /* NULL is fine */

/* The ledger of a command that names none: the site's, else the folder "ledger" of the current
 * folder.  That one counts if it is a ledger and the caller's or root's own.  malloc'ed; NULL with
 * TERN_USAGE. */
char *tern_site_find_ledger(struct tern_err *err);

/* Set the keys of `r` that it leaves open: ledger.dir (with it workload.precompile.cache, below
 * it), ledger.mode, launch.profile, launch.health, and launch.restarts down to the ceiling.  Fails
 * when there is no ledger.dir in either.  Identity and hashes of the recipe are as before. */
int tern_site_fill(const struct tern_site *site, struct tern_recipe *r, struct tern_err *err);

/* Write every key with its meaning as items of a page of help: `tern help site`. */
void tern_site_describe(struct tern_page *page);

#endif
