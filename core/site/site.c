#include "core/site/site.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/page.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/base/yaml.h"
#include "core/rules/rules.h"
#include "core/site/trust.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usual[] = "/etc/tern/tern.yaml";

enum { MAX_BYTES = 1 << 20 };

enum kind { TEXT, PATH, COUNT, WORD };

struct key {
    const char *section, *name;
    enum kind kind;
    size_t offset;
    int64_t hi; /* of COUNT */
    const char *const *words;
    int (*check)(const char *text, const char *what, struct tern_err *err); /* NULL: any text */
    const char *help;
};

/* In the order of enum tern_ledger_mode. */
static const char *const ledger_modes[] = {"umask", "private", "group", "all", NULL};
/* In the order of enum tern_recipe_health, of core/recipe. */
static const char *const health_levels[] = {"off", "quick", "deep", NULL};
static const char *const platforms[] = {"none", "hyperpod", "pcluster", "virtual", NULL};

#define AT(member) offsetof(struct tern_site, member)
static const struct key keys[] = {
    {"ledger", "dir", PATH, AT(ledger),
     .help = "the ledger for recipes without ledger.dir; %u in it is the user's name"},
    {"ledger", "mode", WORD, AT(ledger_mode), .words = ledger_modes,
     .help =
         "users who can read a run whose recipe lacks that key: by the umask, its user alone, the "
         "group or all"},
    {"launch", "profile", TEXT, AT(profile),
     .help = "profile of the ranks' environment (`tern env`) if neither job nor recipe names one"},
    {"launch", "restarts_max", COUNT, AT(restarts_max), 1000000,
     .help = "most attempts after the first that a job may have, even if it requests more"},
    {"launch", "health", WORD, AT(health), .words = health_levels,
     .help = "checks before a launch if neither job nor recipe names them"},
    {"health", "skip", TEXT, AT(health_skip), .check = tern_rules_ids_check,
     .help = "checks that `tern health` leaves out on every node, with commas between"},
    {"health", "mounts", TEXT, AT(health_mounts), .check = tern_rules_folders_check,
     .help = "folders that must take a file on every node, with the space they must have: "
             "/fsx:100G,/scratch"},
    {"health", "expect", TEXT, AT(health_expect), .check = tern_rules_expected_check,
     .help = "what every node must have: neuron=16,efa=8,memory=498073,hugepages=5128"},
    {"cluster", "platform", TEXT, AT(platform), .words = platforms,
     .help = "the platform that replaces bad nodes"},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* ------------------------------------------------------------------ reading */

static int read_section(struct tern_yaml_node *root, const char *name, struct tern_yaml_node **out,
                        struct tern_err *err)
{
    *out = tern_yaml_get(root, name);
    return tern_yaml_expect(*out, TERN_YAML_MAP, err);
}

/* "/shared/ledger/%u" with the user's name in it; other percent signs are refused. */
static int put_user(const struct tern_yaml_node *n, char **path, struct tern_err *err)
{
    struct passwd *pw = getpwuid(geteuid());
    struct tern_buf b = {.max = 4096};

    for (const char *s = *path; *s; s++) {
        if (*s != '%') {
            tern_buf_add(&b, s, 1);
        } else if (*++s == '%') {
            tern_buf_puts(&b, "%");
        } else if (*s == 'u') {
            if (pw)
                tern_buf_puts(&b, pw->pw_name);
            else
                tern_buf_printf(&b, "%u", (unsigned)geteuid());
        } else {
            tern_buf_free(&b);
            return tern_yaml_fail(n, err,
                                  "a '%%' that is no '%%u' (the user's name). Write '%%%%' for a "
                                  "percent sign.");
        }
    }
    if (tern_buf_check(&b, "the path", err) < 0) {
        tern_buf_free(&b);
        return -1;
    }
    free(*path);
    *path = tern_strdup(b.data);
    tern_buf_free(&b);
    return 0;
}

static int read_word(const struct tern_yaml_node *n, const struct key *k, void *to,
                     struct tern_err *err)
{
    int word = -1;

    if (!n)
        return 0;
    if (tern_yaml_read_word(n, k->words, &word, err) < 0)
        return -1;
    if (k->kind == TEXT)
        *(char **)to = tern_strdup(k->words[word]);
    else
        *(int64_t *)to = word;
    return 0;
}

static int check_text(const struct tern_site *s, const struct tern_yaml_node *n,
                      const struct key *k, const char *text, struct tern_err *err)
{
    char *what = tern_strf("%s:%d: %s.%s", s->path, tern_yaml_line(n), k->section, k->name);
    int rc = k->check(text, what, err);

    free(what);
    return rc;
}

static int read_key(struct tern_site *s, struct tern_yaml_node *root, const struct key *k,
                    struct tern_err *err)
{
    struct tern_yaml_node *section, *n;
    void *to = (char *)s + k->offset;

    if (read_section(root, k->section, &section, err) < 0)
        return -1;
    n = tern_yaml_get(section, k->name);
    if (k->words)
        return read_word(n, k, to, err);
    if (k->kind == COUNT)
        return tern_yaml_read_int(n, 0, k->hi, to, err);
    if (!n)
        return 0;
    char **text = to;
    if (tern_yaml_read_text(n, text, err) < 0)
        return -1;
    if (!**text)
        return tern_yaml_fail(n, err, "has no value.");
    if (k->check)
        return check_text(s, n, k, *text, err);
    if (k->kind != PATH)
        return 0;
    if (**text != '/')
        return tern_yaml_fail(n, err, "'%s' is no absolute path. It holds in every folder.", *text);
    return k->offset == AT(ledger) ? put_user(n, text, err) : 0;
}

static int read_env(struct tern_site *s, struct tern_yaml_node *root, struct tern_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    struct tern_yaml_node *map;

    if (read_section(root, "env", &map, err) < 0)
        return -1;
    size_t n = map ? tern_yaml_count(map) : 0;
    if (n > TERN_SITE_VARS)
        return tern_yaml_fail(map, err,
                              "%zu variables; %d at most. Set the others where jobs start (module "
                              "files, TaskProlog).",
                              n, (int)TERN_SITE_VARS);
    s->env = tern_alloc(n + 1, sizeof *s->env, "variables", err);
    if (!s->env)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct tern_yaml_node *v = tern_yaml_at(map, i);
        const char *name = tern_yaml_key(map, i);
        struct tern_site_var *to = &s->env[s->n_env++];
        to->name = tern_strdup(name);
        to->line = tern_yaml_line(v);
        if (!*name || strspn(name, letters) != strlen(name) || (*name >= '0' && *name <= '9'))
            return tern_yaml_fail(v, err, "is no name of a variable.");
        if (strlen(name) > TERN_SITE_NAME)
            return tern_yaml_fail(v, err, "a name of %zu bytes; %d at most.", strlen(name),
                                  (int)TERN_SITE_NAME);
        if (tern_str_starts(name, "TERN_") || tern_str_starts(name, "SLURM_"))
            return tern_yaml_fail(v, err,
                                  "TERN_* and SLURM_* are set by tern and Slurm themselves. Take "
                                  "it out.");
        if (tern_yaml_read_text(v, &to->value, err) < 0)
            return -1;
        if (strlen(to->value) > TERN_SITE_VALUE)
            return tern_yaml_fail(v, err, "%zu bytes; %d at most.", strlen(to->value),
                                  (int)TERN_SITE_VALUE);
        for (const char *c = to->value; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127)
                return tern_yaml_fail(v, err, "holds a control character.");
    }
    return 0;
}

static int read_version(struct tern_yaml_node *root, const char *path, struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_get(root, "version");
    int64_t version;

    if (!n)
        return tern_err_set(err, TERN_USAGE, "%s:1: no 'version'. Begin with 'version: 1'.", path);
    if (tern_yaml_read_int(n, 1, 1000000, &version, err) < 0)
        return -1;
    if (version != 1)
        return tern_yaml_fail(n, err, "%" PRId64 " is newer than this tern, which reads 1.",
                              version);
    return 0;
}

static int refuse_plugin(struct tern_yaml_node *root, struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_get(root, "plugin");

    if (!n)
        return 0;
    return tern_yaml_fail(n, err,
                          "the plugin reads no file: as root it trusts plugstack.conf alone. Write "
                          "its settings as arguments on its line there.");
}

static int read_all(struct tern_site *s, struct tern_yaml *doc, struct tern_err *err)
{
    struct tern_yaml_node *root = tern_yaml_root(doc);

    if (tern_yaml_expect(root, TERN_YAML_MAP, err) < 0 || read_version(root, s->path, err) < 0 ||
        refuse_plugin(root, err) < 0)
        return -1;
    for (size_t i = 0; i < N_KEYS; i++)
        if (read_key(s, root, &keys[i], err) < 0)
            return -1;
    if (read_env(s, root, err) < 0)
        return -1;
    return tern_yaml_no_others(root, err);
}

struct tern_site *tern_site_load(const char *path, struct tern_err *err)
{
    const char *named = path ? path : tern_var("TERN_CONFIG");
    struct tern_site *s = tern_alloc(1, sizeof *s, "site settings", err);
    char *text = NULL;
    size_t len;

    if (!s)
        return NULL;
    s->restarts_max = s->health = s->ledger_mode = -1;
    s->path = tern_strdup(named ? named : usual);
    if (!named && access(usual, F_OK) < 0 && errno == ENOENT)
        return s;
    if (tern_site_read_trusted(s->path, MAX_BYTES, &text, &len, err) < 0) {
        tern_site_free(s);
        return NULL;
    }
    struct tern_yaml *doc = tern_yaml_parse(text, len, s->path, err);
    int rc = doc ? read_all(s, doc, err) : -1;
    tern_yaml_free(doc);
    free(text);
    if (rc < 0) {
        tern_site_free(s);
        return NULL;
    }
    s->present = true;
    return s;
}

void tern_site_free(struct tern_site *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_env; i++) {
        free(s->env[i].name);
        free(s->env[i].value);
    }
    free(s->env);
    free(s->path);
    free(s->ledger);
    free(s->profile);
    free(s->platform);
    free(s->health_skip);
    free(s->health_mounts);
    free(s->health_expect);
    free(s);
}

/* ------------------------------------------------------------------ use */

int tern_site_fill(const struct tern_site *s, struct tern_recipe *r, struct tern_err *err)
{
    if (!r->ledger.dir && !s->ledger)
        return tern_recipe_fail(r, "ledger.dir", err,
                                "is missing, and %s names none for the site. For example: ledger: "
                                "{dir: ledger}",
                                s->path);
    if (!r->ledger.dir)
        r->ledger.dir = tern_strdup(s->ledger);
    if (r->workload.precompile.command && !r->workload.precompile.cache)
        r->workload.precompile.cache = tern_fs_join(r->ledger.dir, "graphs");
    if (!r->launch.profile && s->profile)
        r->launch.profile = tern_strdup(s->profile);
    if (s->ledger_mode >= 0 && !tern_recipe_given(r, "ledger.mode"))
        r->ledger.mode = s->ledger_mode;
    if (s->health >= 0 && !tern_recipe_given(r, "launch.health"))
        r->launch.health = s->health;
    if (s->restarts_max >= 0 && r->launch.restarts > s->restarts_max) {
        if (tern_recipe_given(r, "launch.restarts"))
            tern_warn("launch.restarts: %" PRId64 " where %s allows %" PRId64 ", which holds",
                      r->launch.restarts, s->path, s->restarts_max);
        r->launch.restarts = s->restarts_max;
    }
    return 0;
}

/* "ledger", malloc'ed; NULL: there is none, or another user made it. */
static char *local_ledger(bool *ret_other)
{
    static const char *const parts[] = {"ledger/runs", "ledger/u", "ledger/ledger.db"};
    struct stat st;
    bool is = false;

    *ret_other = false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        is = is || tern_fs_exists(parts[i]);
    if (!is || TERN_AGAIN(lstat("ledger", &st)) < 0)
        return NULL;
    *ret_other = !S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0);
    return *ret_other ? NULL : tern_strdup("ledger");
}

char *tern_site_find_ledger(struct tern_err *err)
{
    struct tern_site *site = tern_site_load(NULL, err);
    bool other = false;

    if (!site)
        return NULL;
    char *dir = site->ledger ? tern_strdup(site->ledger) : local_ledger(&other);
    tern_site_free(site);
    if (!dir && other)
        tern_err_set(err, TERN_USAGE,
                     "no ledger is named, and the folder ledger here is a link or another user's. "
                     "If you mean it: --ledger ledger.");
    else if (!dir)
        tern_err_set(err, TERN_USAGE,
                     "no ledger is named, and the current folder has none. Give --ledger DIR or "
                     "set TERN_LEDGER (a recipe's ledger.dir).");
    return dir;
}

void tern_site_describe(struct tern_page *page)
{
    tern_page_item(page, "version", "of the format: 1; required");
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct key *k = &keys[i];
        struct tern_buf help = {0};
        char name[64];
        snprintf(name, sizeof name, "%s.%s", k->section, k->name);
        tern_buf_puts(&help, k->help);
        for (size_t w = 0; k->words && k->words[w]; w++)
            tern_buf_printf(&help, "%s%s", w ? " | " : " (", k->words[w]);
        tern_buf_puts(&help, k->words ? ")" : "");
        tern_page_item(page, name, help.data);
        tern_buf_free(&help);
    }
    tern_page_item(page, "env",
                   "variables for all users' ranks, after the user's own and before the profile's: "
                   "{NAME: value, ...}");
}
