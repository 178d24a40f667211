#include "core/site/site.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/tern-site-XXXXXX";
static struct tern_err e;

static char *file(const char *name)
{
    return tern_fs_join(dir, name);
}

static struct tern_site *load(const char *text)
{
    char *path = file("tern.yaml");

    tern_fs_replace(path, text, strlen(text), 0644, NULL);
    struct tern_site *s = tern_site_load(path, &e);
    free(path);
    return s;
}

/* The message for `text`, without the folder. */
static const char *refused(const char *text)
{
    struct tern_site *s = load(text);
    const char *at = strstr(e.text, "tern.yaml");

    if (s) {
        tern_site_free(s);
        return "accepted";
    }
    return at ? at : e.text;
}

static void test_good(void)
{
    struct passwd *pw = getpwuid(geteuid());
    char *want = pw ? tern_strf("/fsx/ledger/%s", pw->pw_name)
                    : tern_strf("/fsx/ledger/%u", (unsigned)geteuid());
    struct tern_site *s = load("version: 1\n"
                               "ledger: {dir: /fsx/ledger/%u}\n"
                               "launch: {profile: trn1, restarts_max: 3, health: deep}\n"
                               "cluster: {platform: hyperpod}\n"
                               "health: {skip: 'kernel,stuck', mounts: '/fsx:1G'}\n"
                               "env:\n"
                               "  FI_LOG_LEVEL: warn\n"
                               "  EMPTY: ''\n");
    if (!ok(s && s->present, "a file with every key is read")) {
        printf("# %s\n", e.text);
        return;
    }
    is(s->ledger, want, "%%u is the user's name");
    is(s->profile, "trn1", "launch.profile is read");
    ok(s->restarts_max == 3 && s->health == TERN_RECIPE_HEALTH_DEEP,
       "launch.restarts_max and launch.health are read");
    is(s->platform, "hyperpod", "cluster.platform is read");
    is(s->health_skip, "kernel,stuck", "health.skip is read");
    is(s->health_mounts, "/fsx:1G", "health.mounts is read");
    ok(s->n_env == 2 && s->env[0].line == 7, "env: two variables, with their lines");
    is(s->env[0].name, "FI_LOG_LEVEL", "a variable's name");
    is(s->env[0].value, "warn", "env: a variable's value");
    is(s->env[1].value, "", "env: an empty value");
    tern_site_free(s);
    free(want);
    s = load("version: 1\n");
    ok(s && !s->ledger && !s->profile && s->restarts_max == -1 && s->health == -1 && !s->n_env,
       "a version alone sets no key");
    tern_site_free(s);
}

static void test_refused(void)
{
    is(refused("ledger: {dir: /x}\n"), "tern.yaml:1: no 'version'. Begin with 'version: 1'.",
       "refused: no version");
    has(refused("version: 2\n"), "tern.yaml:1: version: 2 is newer", "refused: a later version");
    is(refused("version: 1\nledgr: {dir: /x}\n"),
       "tern.yaml:2: ledgr: unknown key. Did you mean 'ledger'?", "refused: an unknown section");
    is(refused("version: 1\nlaunch: {profil: x}\n"),
       "tern.yaml:2: launch.profil: unknown key. Did you mean 'profile'?",
       "refused: an unknown key");
    has(refused("version: 1\nledger: {dir: ledger}\n"),
        "tern.yaml:2: ledger.dir: 'ledger' is no "
        "absolute path",
        "refused: a relative path");
    has(refused("version: 1\nledger: {dir: /l/%h}\n"), "no '%u'", "refused: a %% that is no %%u");
    has(refused("version: 1\nlaunch: {health: fast}\n"), "not one of: off, quick, deep",
        "refused: an unknown health level");
    has(refused("version: 1\nlaunch: {restarts_max: -1}\n"), "not a whole number from 0",
        "refused: a negative ceiling");
    has(refused("version: 1\ncluster: {platform: k8s}\n"), "not one of: none, hyperpod",
        "refused: an unknown platform");
    has(refused("version: 1\nhealth: {skip: 'kernel,efaa'}\n"),
        "tern.yaml:2: health.skip: 'efaa' is no check", "refused: an unknown check");
    has(refused("version: 1\nhealth: {mounts: '/fsx:1G,fsx'}\n"),
        "tern.yaml:2: health.mounts: 'fsx' is no absolute path",
        "refused: a folder without its path");
    has(refused("version: 1\nhealth: {mounts: '/fsx:lots'}\n"), "health.mounts: '/fsx:lots'",
        "refused: a folder's size that is no number");
    has(refused("version: 1\nhealth: {expect: 'neuron=2;n[1-2]:gpus=3'}\n"),
        "tern.yaml:2: health.expect: 'gpus=3' is none of",
        "refused: an unknown expectation of some nodes");
    has(refused("version: 1\nenv: {2X: a}\n"), "env.2X: is no name",
        "refused: no name of a variable");
    has(refused("version: 1\nenv: {TERN_LEDGER: a}\n"), "TERN_* and SLURM_*",
        "refused: tern's own variable");
    has(refused("version: 1\nenv: {A: \"x\\ny\"}\n"), "control character",
        "refused: a line break in a value");
    has(refused("version: 1\nenv: [A]\n"), "is a list where a map", "refused: a list of variables");
    has(refused("version: 1\nplugin: {check_seconds: 5}\n"), "plugstack.conf",
        "refused: plugin settings");
    has(refused("version: 1\nversion: 1\n"), "given twice", "refused: a key twice");
    has(refused("- a\n"), "a list where a map", "refused: no map");
    has(refused("\tversion: 1\n"), "not valid YAML", "refused: no YAML");
}

/* root's own group has no other user here, or some system's users, too. */
static void test_group(const char *path)
{
    bool alone = true;

    if (geteuid() != 0 || chown(path, 0, 4711) < 0) {
        tap_skip("a file that a group may write: only root can give it away");
        return;
    }
    chmod(path, 0664);
    ok(!tern_site_load(path, &e), "refused: a file that a group may write");
    chown(path, 0, 0);
    for (const struct passwd *p; (p = getpwent());)
        alone = alone && (p->pw_gid != 0 || p->pw_uid == 0);
    endpwent();
    struct tern_site *s = tern_site_load(path, &e);
    ok((s != NULL) == alone, "a file that its owner's private group may write is read");
    tern_site_free(s);
}

static void test_trust(void)
{
    char *path = file("tern.yaml"), *link = file("link.yaml"), *none = file("none.yaml");

    tern_site_free(load("version: 1\n"));
    chmod(path, 0666);
    ok(!tern_site_load(path, &e), "refused: a file that others may write");
    has(e.text, "chmod go-w", "a file that others may write: the message has the remedy");
    test_group(path);
    chmod(path, 0644);
    chmod(dir, 0777);
    ok(!tern_site_load(path, &e), "refused: a file in a folder that others may write");
    chmod(dir, 0755);
    ok(symlink(path, link) == 0, "set up: a link");
    struct tern_site *s = tern_site_load(link, &e);
    ok(s != NULL, "a link of the caller's own is followed");
    tern_site_free(s);
    chmod(path, 0666);
    ok(!tern_site_load(link, &e), "refused: a link to a file that others may write");
    chmod(path, 0644);
    if (geteuid() == 0) {
        ok(chown(path, 4711, 0) == 0 && !tern_site_load(path, &e), "refused: another user's file");
        has(e.text, "belongs to uid 4711", "another user's file: the message has the uid");
        chown(path, 0, 0);
        ok(lchown(link, 4711, 0) == 0 && !tern_site_load(link, &e), "refused: another user's link");
        lchown(link, 0, 0);
        char *folder = file("theirs"), *inner = file("theirs/tern.yaml");
        ok(mkdir(folder, 0755) == 0 && symlink(path, inner) == 0 && chown(folder, 4711, 0) == 0 &&
               !tern_site_load(inner, &e),
           "refused: a link in another user's folder");
        has(e.text, "theirs: belongs to uid 4711", "another user's folder: the message has it");
        unlink(inner);
        rmdir(folder);
        free(folder);
        free(inner);
    }
    ok(!tern_site_load(dir, &e), "refused: a folder in place of the file");
    ok(!tern_site_load(none, &e) && e.code == TERN_USAGE,
       "refused: a named file that is not there");
    setenv("TERN_CONFIG", none, 1);
    ok(!tern_site_load(NULL, &e), "refused: TERN_CONFIG's file that is not there");
    has(e.text, "none.yaml", "TERN_CONFIG's file that is not there is named");
    unsetenv("TERN_CONFIG");
    free(path);
    free(link);
    free(none);
}

/* What a recipe with `launch` gets from the site. */
static struct tern_recipe *filled(const struct tern_site *s, const char *ledger, const char *launch)
{
    char *path = file("run.yaml");
    char *text = tern_strf("version: 1\nname: x\nworkload: {command: [x]}\n%s\nlaunch: {%s}\n",
                           ledger, launch);

    tern_fs_replace(path, text, strlen(text), 0644, NULL);
    struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &e);
    if (r && tern_site_fill(s, r, &e) < 0) {
        tern_recipe_free(r);
        r = NULL;
    }
    free(text);
    free(path);
    return r;
}

static void test_fill(void)
{
    struct tern_site *s = load("version: 1\nledger: {dir: /fsx/l}\n"
                               "launch: {profile: trn1, restarts_max: 3, health: off}\n");
    struct tern_recipe *r = filled(s, "", "");

    if (!ok(r != NULL, "a recipe that leaves all keys open is filled")) {
        printf("# %s\n", e.text);
        return;
    }
    is(r->ledger.dir, "/fsx/l", "ledger.dir of the site");
    is(r->launch.profile, "trn1", "profile of the site");
    ok(r->launch.health == TERN_RECIPE_HEALTH_OFF && r->launch.restarts == 3,
       "health of the site, restarts down to the ceiling");
    tern_recipe_free(r);
    r = filled(s, "ledger: {dir: /own}", "profile: cpu, health: quick, restarts: 2");
    is(r->ledger.dir, "/own", "the recipe's ledger wins");
    is(r->launch.profile, "cpu", "the recipe's profile wins");
    ok(r->launch.health == TERN_RECIPE_HEALTH_QUICK,
       "the recipe's health wins, the default's value too");
    ok(r->launch.restarts == 2, "restarts below the ceiling are the recipe's");
    tern_recipe_free(r);
    r = filled(s, "", "restarts: 50");
    ok(r->launch.restarts == 3, "restarts above the ceiling are cut to it");
    tern_recipe_free(r);
    tern_site_free(s);
    s = load("version: 1\n");
    ok(!filled(s, "", ""), "refused: no ledger in site or recipe");
    has(e.text, "ledger.dir: is missing", "no ledger in site or recipe: the key is named");
    r = filled(s, "ledger: {dir: /own}", "");
    ok(r && r->launch.restarts == 20 && !r->launch.profile,
       "without site settings tern's defaults hold");
    tern_recipe_free(r);
    tern_site_free(s);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    unsetenv("TERN_CONFIG");
    test_good();
    test_refused();
    test_trust();
    test_fill();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
