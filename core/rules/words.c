/* The words in which users and sites choose among checks and say what nodes must have. */
#include "core/rules/rules.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tern_rules_node_ids[] = {
    "neuron",   "ecc",       "kernel", "efa",     "nic",       "provider",
    "memory",   "hugepages", "limits", "clock",   "leftovers", "stuck",
    "software", "mount",     "triad",  "compute", "link",      NULL,
};

/* ------------------------------------------------------------------ ids */

bool tern_rules_listed(const char *list, const char *id)
{
    size_t n = strlen(id);

    for (const char *c = list; c && *c; c = strchr(c, ',') ? strchr(c, ',') + 1 : NULL)
        if (strncmp(c, id, n) == 0 && (c[n] == ',' || c[n] == '\0'))
            return true;
    return false;
}

int tern_rules_ids_check(const char *list, const char *what, struct tern_err *err)
{
    const char *const *all = tern_rules_node_ids;
    char names[400] = "";
    size_t len = 0;

    for (size_t i = 0; all[i]; i++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", all[i]);
    for (const char *c = list; c && *c;) {
        size_t n = strcspn(c, ","), i = 0;
        while (all[i] && (strncmp(all[i], c, n) != 0 || all[i][n] != '\0'))
            i++;
        if (!all[i])
            return tern_err_set(err, TERN_USAGE, "%s: '%.*s' is no check (there are: %s).", what,
                                (int)(n < 100 ? n : 100), c, names);
        c += n + (c[n] == ',');
    }
    return 0;
}

/* ------------------------------------------------------------------ folders */

int tern_rules_folder_read(const char *text, const char *what, struct tern_rules_folder *ret_folder,
                           struct tern_err *err)
{
    struct tern_rules_folder f = {.need_bytes = 0};
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);

    if (text[0] != '/' || n >= sizeof f.dir ||
        (colon && tern_str_size(colon + 1, &f.need_bytes) < 0))
        return tern_err_set(err, TERN_USAGE,
                            "%s: '%.200s' is no absolute path of fewer than %zu bytes, or no "
                            "'DIR:SIZE' (the free space it must have, as in /fsx:10G).",
                            what, text, sizeof f.dir);
    snprintf(f.dir, sizeof f.dir, "%.*s", (int)n, text);
    *ret_folder = f;
    return 0;
}

int tern_rules_folders_check(const char *list, const char *what, struct tern_err *err)
{
    char *copy = tern_strdup(list), *save = NULL;
    struct tern_rules_folder f;
    size_t n = 0;
    int rc = 0;

    for (char *one = strtok_r(copy, ",", &save); rc == 0 && one; one = strtok_r(NULL, ",", &save))
        rc = ++n > TERN_RULES_MAX_FOLDERS ? tern_err_set(err, TERN_USAGE, "%s: %d folders at most.",
                                                         what, TERN_RULES_MAX_FOLDERS)
                                          : tern_rules_folder_read(one, what, &f, err);
    free(copy);
    return rc;
}

/* ------------------------------------------------------------------ expectations */

static int take_number(struct tern_rules_expected *to, const char *word, const char *what,
                       struct tern_err *err)
{
    const struct {
        const char *key;
        int64_t *to;
    } keys[] = {{"neuron=", &to->neuron},
                {"efa=", &to->efa},
                {"memory=", &to->memory_mib},
                {"hugepages=", &to->hugepages}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (tern_str_starts(word, keys[i].key) &&
            tern_str_int(word + strlen(keys[i].key), 0, INT64_C(1) << 40, keys[i].to) == 0)
            return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: '%.80s' is none of neuron=N, efa=N, memory=MIB, hugepages=N.", what,
                        word);
}

int tern_rules_expected_read(const char *text, const char *what,
                             bool (*is_in)(const char *hosts, const char *node), const char *node,
                             struct tern_rules_expected *to, struct tern_err *err)
{
    char *copy = tern_strdup(text), *save = NULL, *save2 = NULL;
    int rc = 0;

    for (char *part = strtok_r(copy, ";", &save); rc == 0 && part;
         part = strtok_r(NULL, ";", &save)) {
        char *colon = strchr(part, ':');
        if (colon) {
            *colon = '\0';
            if (is_in && !is_in(part, node))
                continue;
            part = colon + 1;
        }
        for (char *word = strtok_r(part, ",", &save2); rc == 0 && word;
             word = strtok_r(NULL, ",", &save2))
            rc = take_number(to, word, what, err);
    }
    free(copy);
    return rc;
}

int tern_rules_expected_check(const char *text, const char *what, struct tern_err *err)
{
    struct tern_rules_expected ignored;

    return tern_rules_expected_read(text, what, /* is_in= */ NULL, /* node= */ NULL, &ignored, err);
}
