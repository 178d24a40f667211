/* The options: one row each. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(word, WORD)                                                                          \
    .slurm = "SLURM_SPANK__SLURM_SPANK_OPTION_tern_" word, .handed = "SLURM_SPANK_TERN_" WORD,     \
    .control = "TERN_" WORD, .variable = "TERN_" WORD

struct tern_spank_names tern_spank_options[TERN_SPANK_OPTIONS] = {
    [TERN_SPANK_RECIPE] =
        {.option = "--tern",
         NAMES("tern", "RECIPE"),
         .o = {.name = "tern",
               .arginfo = "RECIPE",
               .usage = "check this run.yaml now, refuse the job if it cannot work, and give it "
                        "to `tern run`",
               .has_arg = 1}},
    [TERN_SPANK_HEALTH] =
        {.option = "--tern-health",
         NAMES("tern_health", "HEALTH"),
         .since = 1,
         .o = {.name = "tern-health",
               .arginfo = "off|quick|deep",
               .usage = "how `tern run` checks the nodes before each launch; over the recipe's "
                        "launch.health",
               .has_arg = 1}},
    [TERN_SPANK_RESTARTS] =
        {.option = "--tern-restarts",
         NAMES("tern_restarts", "RESTARTS"),
         .since = 1,
         .o = {.name = "tern-restarts",
               .arginfo = "N",
               .usage = "attempts that `tern run` may make after the first, 0 to 1000000; over the "
                        "recipe's launch.restarts",
               .has_arg = 1}},
    [TERN_SPANK_PROFILE] =
        {.option = "--tern-profile",
         NAMES("tern_profile", "PROFILE"),
         .since = 1,
         .o = {.name = "tern-profile",
               .arginfo = "NAME",
               .usage = "environment profile of the tasks (see `tern env`); over the recipe's "
                        "launch.profile",
               .has_arg = 1}},
};

static const char *const allowed[TERN_SPANK_OPTIONS] = {
    [TERN_SPANK_RECIPE] = "the path of a recipe (run.yaml)",
    [TERN_SPANK_HEALTH] = "off, quick or deep",
    [TERN_SPANK_RESTARTS] = "a number from 0 to 1000000",
    [TERN_SPANK_PROFILE] = "a profile's name: 1 to 32 of a-z, 0-9, '.' and '-'",
};

const char *tern_spank_allowed(enum tern_spank_option which)
{
    return allowed[which];
}

int tern_spank_options_register(spank_t sp, spank_opt_cb_f callback)
{
    for (int i = 0; i < TERN_SPANK_OPTIONS; i++) {
        struct tern_spank_names *n = &tern_spank_options[i];
        n->o.val = i;
        n->o.cb = callback;
        if (n->since <= TERN_SPANK_MINOR && spank_option_register(sp, &n->o) != ESPANK_SUCCESS)
            return -1;
    }
    return 0;
}

static bool is_health(const char *s)
{
    return strcmp(s, "off") == 0 || strcmp(s, "quick") == 0 || strcmp(s, "deep") == 0;
}

static bool is_restarts(const char *s)
{
    size_t digits = strspn(s, "0123456789");

    return digits > 0 && digits <= 7 && !s[digits] && strtol(s, NULL, 10) <= 1000000;
}

static bool is_profile(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-");

    /* A leading '-' would be an option of the program that is asked for it. */
    return n > 0 && n < TERN_SPANK_VALUE && !s[n] && s[0] != '-';
}

bool tern_spank_value(char to[TERN_SPANK_VALUE], enum tern_spank_option which, const char *text)
{
    switch (which) {
    case TERN_SPANK_HEALTH:
        if (!is_health(text))
            return false;
        break;
    case TERN_SPANK_RESTARTS:
        if (!is_restarts(text))
            return false;
        snprintf(to, TERN_SPANK_VALUE, "%ld", strtol(text, NULL, 10));
        return true;
    case TERN_SPANK_PROFILE:
        if (!is_profile(text))
            return false;
        break;
    default:
        return false;
    }
    snprintf(to, TERN_SPANK_VALUE, "%s", text);
    return true;
}
