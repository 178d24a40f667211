/* Credentials from the environment and from profile files. */
#include "core/base/fs.h"
#include "core/store/credentials.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20 };

/* A file of the user's: the variable's, else `name` in ~/.aws. */
static char *file_of(const char *variable, const char *name)
{
    const char *path = getenv(variable), *home = getenv("HOME");

    if (path && *path)
        return path[0] == '~' && path[1] == '/' && home ? tern_strf("%s%s", home, path + 1)
                                                        : tern_strdup(path);
    return home && *home ? tern_strf("%s/.aws/%s", home, name) : NULL;
}

static const char *profile(void)
{
    const char *name = getenv("AWS_PROFILE");

    if (!name || !*name)
        name = getenv("AWS_DEFAULT_PROFILE");
    return name && *name ? name : "default";
}

/* Ends the line at its newline and trailing blanks; what follows it. */
static char *cut_line(char *line)
{
    char *next = line + strcspn(line, "\n");

    if (*next)
        *next++ = '\0';
    size_t n = strlen(line);
    while (n && strchr(" \t\r", line[n - 1]))
        line[--n] = '\0';
    return next;
}

/* Is `line` the head of that section?  In a config file all but the default's say "profile". */
static bool is_section(char *line, const char *section)
{
    char *name = line + 1 + strspn(line + 1, " \t"), *end = strchr(name, ']');

    if (!end)
        return false;
    *end = '\0';
    if (tern_str_starts(name, "profile") && strchr(" \t", name[7]) && name[7])
        name += 7 + strspn(name + 7, " \t");
    cut_line(name);
    return strcmp(name, section) == 0;
}

/* The value in "key = value", or NULL. */
static char *value_of(char *line, const char *key)
{
    const size_t n = strlen(key);

    if (strncmp(line, key, n) != 0)
        return NULL;
    line += n + strspn(line + n, " \t");
    return *line == '=' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

static char *find(char *text, const char *section, const char *under, const char *key)
{
    bool inside = false, below = false;
    char *value, *found = NULL;

    for (char *line = text, *next; *line; line = next) {
        next = cut_line(line);
        const bool indented = *line == ' ' || *line == '\t';
        line += strspn(line, " \t");
        if (!*line || *line == '#' || *line == ';')
            continue;
        if (*line == '[') {
            inside = is_section(line, section);
            below = false;
            continue;
        }
        if (!inside)
            continue;
        if (!indented)
            below = under && value_of(line, under);
        if (indented == (under != NULL) && (!under || below) && (value = value_of(line, key)))
            found = value; /* the last one counts */
    }
    return found && *found ? found : NULL;
}

int tern_store_profile(const char *path, const char *section, const char *under, const char *key,
                       char **ret_value, struct tern_err *err)
{
    char *text;
    size_t len;

    *ret_value = NULL;
    if (!path || !tern_fs_exists(path))
        return 0;
    if (tern_fs_read(path, FILE_BYTES, &text, &len, err) < 0)
        return -1;
    if (strlen(text) == len) {
        const char *value = find(text, section, under, key);
        *ret_value = value ? tern_strdup(value) : NULL;
    }
    explicit_bzero(text, len);
    free(text);
    return 0;
}

int tern_store_config(const char *under, const char *key, char **ret_value, struct tern_err *err)
{
    char *path = file_of("AWS_CONFIG_FILE", "config");
    int rc = tern_store_profile(path, profile(), under, key, ret_value, err);

    free(path);
    return rc;
}

/* ---- credentials ---- */

static int from_environment(struct tern_store_credentials *k, struct tern_err *err)
{
    const char *access = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY"),
               *token = getenv("AWS_SESSION_TOKEN");

    access = access && *access ? access : NULL;
    secret = secret && *secret ? secret : NULL;
    if (!access && !secret)
        return 0;
    if (!access || !secret)
        return tern_err_set(err, TERN_USAGE, "%s is set without %s: set both or none",
                            access ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                            access ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    *k = (struct tern_store_credentials){.access = tern_strdup(access),
                                         .secret = tern_strdup(secret),
                                         .token = token && *token ? tern_strdup(token) : NULL};
    return 1;
}

static int from_file(const char *path, struct tern_store_credentials *k, struct tern_err *err)
{
    if (tern_store_profile(path, profile(), NULL, "aws_access_key_id", &k->access, err) < 0 ||
        tern_store_profile(path, profile(), NULL, "aws_secret_access_key", &k->secret, err) < 0 ||
        tern_store_profile(path, profile(), NULL, "aws_session_token", &k->token, err) < 0)
        goto fail;
    if (k->access && k->secret)
        return 1;
    if (k->access || k->secret) {
        tern_err_set(err, TERN_USAGE, "%s: profile %s has %s alone; it needs %s, too", path,
                     profile(), k->access ? "aws_access_key_id" : "aws_secret_access_key",
                     k->access ? "aws_secret_access_key" : "aws_access_key_id");
        goto fail;
    }
    tern_store_credentials_free(k);
    return 0;
fail:
    tern_store_credentials_free(k);
    return -1;
}

/* What this tern does not do, and what would give other keys than the user means. */
static int refuse_others(const char *path, struct tern_err *err)
{
    static const char *const keys[] = {"credential_process", "role_arn", "sso_session",
                                       "sso_start_url", "web_identity_token_file"};
    char *value;

    for (size_t i = 0; path && i < sizeof keys / sizeof *keys; i++) {
        if (tern_store_profile(path, profile(), NULL, keys[i], &value, err) < 0)
            return -1;
        if (!value)
            continue;
        free(value);
        return tern_err_set(err, TERN_USAGE,
                            "%s: profile %s has %s, which tern does not follow. Put its keys into "
                            "the environment: eval \"$(aws configure export-credentials --format "
                            "env)\"",
                            path, profile(), keys[i]);
    }
    return 0;
}

int tern_store_credentials_files(struct tern_store_credentials *ret_credentials,
                                 struct tern_err *err)
{
    const char *web = getenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    char *credentials = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
         *config = file_of("AWS_CONFIG_FILE", "config");
    int rc = from_environment(ret_credentials, err);

    if (rc == 0 && web && *web)
        rc = tern_err_set(err, TERN_USAGE,
                          "AWS_WEB_IDENTITY_TOKEN_FILE is set, which tern does not follow. Put the "
                          "role's keys into the environment: eval \"$(aws configure "
                          "export-credentials --format env)\"");
    if (rc == 0)
        rc = from_file(credentials, ret_credentials, err);
    if (rc == 0)
        rc = refuse_others(credentials, err);
    if (rc == 0)
        rc = refuse_others(config, err);
    if (rc == 0)
        rc = from_file(config, ret_credentials, err);
    if (rc == 0 && strcmp(profile(), "default") != 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "AWS_PROFILE=%s: no credentials of that profile in %s or %s", profile(),
                          credentials ? credentials : "~/.aws/credentials",
                          config ? config : "~/.aws/config");
    free(credentials);
    free(config);
    return rc;
}
