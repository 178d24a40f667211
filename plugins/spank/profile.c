/* --tern-profile without `tern run`: sets the profile's variables in the task's environment.  Runs
 * in the task, as the user. */
#include "plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    LIMIT_MS = 10000,  /* it takes 10 ms, but the first start from shared storage more */
    OUT_BYTES = 65536, /* a profile has some thirty short variables */
    SET_BYTES = 8192,
};

/* The names that a plugin has set and the hash of each value, "NAME=1a2b3c4d NAME=...".  A batch
 * script's steps inherit its environment: a variable that a plugin set is not the user's choice,
 * unless the script has changed it. */
static const char set_before[] = "TERN_PROFILE_SET";

static uint32_t hash(const char *s)
{
    uint32_t h = 2166136261U; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619U;
    return h;
}

/* "NAME=VALUE" of `env` stands in `list` with that value's hash. */
static bool was_ours(const char *list, const char *pair)
{
    size_t n = strcspn(pair, "=");
    char mark[10];

    if (!pair[n])
        return false;
    snprintf(mark, sizeof mark, "=%08x", hash(pair + n + 1));
    for (const char *at = list; (at = strstr(at, mark)); at++)
        if (at - list >= (ptrdiff_t)n && memcmp(at - n, pair, n) == 0 &&
            ((size_t)(at - list) == n || at[-(ptrdiff_t)n - 1] == ' '))
            return true;
    return false;
}

/* The task's environment without a plugin's variables; its texts belong to the task. */
static char **users_own(spank_t sp, char **env)
{
    char list[SET_BYTES] = "";
    size_t n = 0, kept = 0;

    while (env[n])
        n++;
    char **own = calloc(n + 1, sizeof *own);
    if (!own)
        return NULL;
    spank_getenv(sp, set_before, list, sizeof list);
    for (size_t i = 0; i < n; i++)
        if (!was_ours(list, env[i]))
            own[kept++] = env[i];
    return own;
}

/* Unset a plugin's variables in the environment that this task inherited: the profile may leave
 * them unset here.  Names are copied first, since unsetenv moves the others. */
static void take_back(spank_t sp, char **env)
{
    char list[SET_BYTES] = "", names[SET_BYTES];
    size_t used = 0;

    spank_getenv(sp, set_before, list, sizeof list);
    for (size_t i = 0; env[i]; i++) {
        size_t n = strcspn(env[i], "=");
        if (was_ours(list, env[i]) && used + n + 1 <= sizeof names) {
            memcpy(names + used, env[i], n);
            names[used + n] = '\0';
            used += n + 1;
        }
    }
    for (char *name = names; name < names + used; name += strlen(name) + 1)
        spank_unsetenv(sp, name);
}

/* The length of NAME in NAME=VALUE; 0 when that is no name. */
static size_t name_length(const char *pair)
{
    size_t n = strspn(pair, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

    if (n == 0 || n > 64 || pair[n] != '=' || (pair[0] >= '0' && pair[0] <= '9'))
        return 0;
    return n;
}

/* `text`: NAME=VALUE, each ended by a NUL. */
static int set_all(spank_t sp, const char *profile, char *text, size_t n)
{
    char list[SET_BYTES] = "";
    size_t used = 0;

    if (n && text[n - 1]) {
        slurm_error("tern: profile %s: `tern env --export0` ended in the middle", profile);
        return -1;
    }
    for (char *at = text; at < text + n; at += strlen(at) + 1) {
        size_t name = name_length(at);
        if (!name || used + name + 12 > sizeof list) {
            slurm_error(
                "tern: profile %s: `tern env --export0` printed a line that is not a variable",
                profile);
            return -1;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s=%08x", used ? " " : "",
                                 (int)name, at, hash(at + name + 1));
    }
    for (char *at = text; at < text + n;) {
        size_t all = strlen(at) + 1, name = name_length(at);
        at[name] = '\0';
        if (spank_setenv(sp, at, at + name + 1, 1) != ESPANK_SUCCESS) {
            slurm_error("tern: profile %s: cannot set %s", profile, at);
            return -1;
        }
        at += all;
    }
    if (spank_setenv(sp, set_before, list, 1) != ESPANK_SUCCESS) {
        slurm_error("tern: profile %s: cannot set %s", profile, set_before);
        return -1;
    }
    return 0;
}

/* Logs the reason when it failed. */
static bool worked(struct tern_spank_child *c, const char *profile)
{
    if (c->late)
        slurm_error("tern: profile %s: `%s env` took more than %d s on this node", profile,
                    c->program, LIMIT_MS / 1000);
    else if (c->more)
        slurm_error("tern: profile %s: `%s env` printed more than %d bytes", profile, c->program,
                    OUT_BYTES);
    else if (WIFSIGNALED(c->status))
        slurm_error("tern: profile %s: `%s env` ended by signal %d", profile, c->program,
                    WTERMSIG(c->status));
    else if (c->status != 0)
        slurm_error("tern: profile %s is not available on this node (`%s env` ended with %d)",
                    profile, c->program, WEXITSTATUS(c->status));
    else
        return true;
    tern_spank_repeat(c->said, "tern env: error: ");
    return false;
}

int tern_spank_profile(spank_t sp, const char *program, const char *profile)
{
    const char *argv[] = {program, "env", "--profile", profile, "--export0", NULL};
    struct tern_spank_child c = {.program = program,
                                 .argv = (char *const *)argv,
                                 .limit_ms = LIMIT_MS,
                                 .out_size = OUT_BYTES};
    char **env = NULL, **own = NULL;
    int rc = -1;

    c.out = malloc(OUT_BYTES);
    if (spank_get_item(sp, S_JOB_ENV, &env) == ESPANK_SUCCESS && env)
        c.env = own = users_own(sp, env);
    if (!c.out || !own || tern_spank_child(&c) < 0)
        slurm_error("tern: profile %s: cannot run `%s env`: %s", profile, program, strerror(errno));
    else if (worked(&c, profile)) {
        take_back(sp, env);
        rc = set_all(sp, profile, c.out, c.n_out);
    }
    free(own);
    free(c.out);
    return rc;
}
