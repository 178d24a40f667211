/* Permissions of a ledger that let in users that should not be: for `tern cluster doctor`. */
#include "core/base/fs.h"
#include "core/ledger/fold.h"
#include "core/ledger/homes.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { REPORTS = 20 }; /* of a ledger; they are mended one after the other */

struct permissions {
    void (*report)(void *arg, const char *id, const char *text);
    void *arg;
    int n;
};

static void report(struct permissions *g, const char *id, const char *path, const char *what)
{
    char *text = tern_strf("%s: %s", path, what);

    if (g->n++ < REPORTS)
        g->report(g->arg, id, text);
    free(text);
}

/* Does the catalogue show a run to users that may not read the run? */
static void look_at_catalogue(struct permissions *g, const char *home)
{
    char *path = tern_fs_join(home, "ledger.db");
    struct stat st;
    mode_t bits;

    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        tern_ledger_catalogue_bits(home, &bits, &(struct tern_err){0}) == 0 &&
        (st.st_mode & 0044 & ~bits))
        report(g, "ledger-open", path,
               "shows the name, recipe and losses of a private run to users that may not read it");
    free(path);
}

static void look_at_user(struct permissions *g, const char *home, uint32_t uid)
{
    struct stat st;

    if (lstat(home, &st) < 0)
        return;
    if (!S_ISDIR(st.st_mode))
        report(g, "ledger-taken", home, "is no folder: its user's runs are refused");
    else if (st.st_uid != uid)
        report(g, "ledger-taken", home, "is not its user's, whose runs are refused");
    else if (st.st_mode & 0022)
        report(g, "ledger-others", home, "other users may write there");
    else
        look_at_catalogue(g, home);
}

static void look_at_sharing(struct permissions *g, const char *dir)
{
    struct stat st;

    if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0002) &&
        !(st.st_mode & S_ISVTX))
        report(g, "ledger-sticky", dir, "every user may rename and remove files of others there");
}

void tern_ledger_check_permissions(const char *ledger_dir,
                                   void (*put)(void *arg, const char *id, const char *text),
                                   void *arg)
{
    struct permissions g = {.report = put, .arg = arg};
    char *users = tern_fs_join(ledger_dir, "u");
    DIR *d = opendir(users);
    uint32_t uid;

    look_at_sharing(&g, ledger_dir);
    look_at_sharing(&g, users);
    look_at_catalogue(&g, ledger_dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_ledger_home_parse_uid(e->d_name, &uid))
            continue;
        char *home = tern_fs_join(users, e->d_name);
        look_at_user(&g, home, uid);
        free(home);
    }
    if (d)
        closedir(d);
    free(users);
}
