/* core/env: marks of outer calls, advice at its limits, and Debian's word on the SDK. */
#include "tests/unit/env.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/env/profile.h"
#include "core/env/sdk.h"

#include <unistd.h>

/* The mark of NAME=x that the site's settings gave: "NAME=1a2b3c4d:site"; malloc'ed. */
static char *mark_of(const char *name, const char *value)
{
    const struct tern_env_setting site = {name, value};
    struct tern_env_facts f = facts(NULL);
    struct tern_env_rows rows;
    char *mark = NULL;

    f.site = &site;
    f.n_site = 1;
    if (tern_env_build("cpu", &f, nothing, &rows, &e) < 0)
        abort();
    char *all = tern_env_marks(&rows), *at = NULL;
    for (char *w = strtok_r(all, " ", &at); w; w = strtok_r(NULL, " ", &at))
        if (tern_str_starts(w, name) && w[strlen(name)] == '=')
            mark = tern_strdup(w);
    tern_env_rows_free(&rows);
    free(all);
    if (!mark)
        abort();
    return mark;
}

static void test_marks(void)
{
    struct tern_env_facts f = facts(NULL);
    struct tern_env_rows rows;
    char *mark = mark_of("FOO", "x"), *set = tern_strf("TERN_PROFILE_SET=%s", mark);
    char *env[] = {set, (char *)"FOO=x", NULL};

    f.launched = true;
    tern_env_build("cpu", &f, env, &rows, &e);
    ok(row(&rows, "FOO") && row(&rows, "FOO")->by == TERN_ENV_SITE && rows.n_stale == 0,
       "a launched task keeps what the site's settings gave its job");
    tern_env_rows_free(&rows);
    f.launched = false;
    tern_env_build("cpu", &f, env, &rows, &e);
    ok(!row(&rows, "FOO") && rows.n_stale == 1 && strcmp(rows.stale[0], "FOO") == 0,
       "in a shell a setting that the site has no more is stale");
    tern_env_rows_free(&rows);
    free(set);

    env[0] = set = tern_strf("TERN_PROFILE_SET=9%s", mark);
    env[1] = (char *)"9FOO=x";
    tern_env_build("cpu", &f, env, &rows, &e);
    ok(rows.n_stale == 0, "a mark whose name is none of a shell's variables is passed over");
    tern_env_rows_free(&rows);
    free(set);
    free(mark);

    /* The value is the user's own; MY_FI_PROVIDER has a mark with the same hash. */
    mark = mark_of("FI_PROVIDER", "tcp");
    env[0] = set = tern_strf("TERN_PROFILE_SET=MY_%s", mark);
    env[1] = (char *)"FI_PROVIDER=tcp";
    tern_env_build("cpu", &f, env, &rows, &e);
    ok(row(&rows, "FI_PROVIDER")->by == TERN_ENV_USER,
       "a mark of a longer name that ends alike is no mark of this one");
    tern_env_rows_free(&rows);
    free(set);
    free(mark);
}

/* How many pieces of advice there are under `profile`. */
static size_t advised(const char *profile, const struct tern_env_facts *f)
{
    struct tern_env_rows rows;

    if (tern_env_build(profile, f, nothing, &rows, &e) < 0)
        return 99;
    const size_t n = rows.n_advice;
    tern_env_rows_free(&rows);
    return n;
}

static void test_advice(void)
{
    static const char *const trn1[] = {"instance=trn1.32xlarge", "tasks=2", NULL};
    struct tern_env_facts f = facts(NULL);

    f.job = 1;
    const int port = tern_env_port(&f);
    f.port_low = 1024;
    f.port_high = port;
    ok(advised("cpu", &f) == 1, "the last port of the ephemeral range: advice");
    f.port_high = port - 1;
    ok(advised("cpu", &f) == 0, "a port behind the ephemeral range: none");
    f.port_high = 65535;
    snprintf(f.ports, sizeof f.ports, "100,200-%d", port);
    ok(advised("cpu", &f) == 0, "the last port of a reserved range is reserved");
    snprintf(f.ports, sizeof f.ports, "100,200-%d", port - 1);
    ok(advised("cpu", &f) == 1, "the port behind it is not");

    f = facts(NULL);
    f.tasks_to_come = 1;
    ok(advised("cpu", &f) == 0, "the batch script of one task a node: no advice");
    f.tasks_to_come = 2;
    ok(advised("cpu", &f) == 1, "of two: their own values differ");

    f = facts(trn1);
    f.neuron_cores = 64;
    ok(advised("trn1-2.31", &f) == 0, "32 NeuronCores a process can do collectives");
    f.neuron_cores = 32;
    ok(advised("trn1-2.31", &f) == 1, "16 cannot, and a warning says so");
}

/* The SDK by Debian's list of packages, whose text is `status`; "" where there is none. */
static const char *sdk_of(const char *root, const char *status)
{
    static struct tern_env_facts f;
    char *file = tern_strf("%s/var/lib/dpkg/status", root), *dir = tern_fs_dirname(file),
         *info = tern_fs_join(dir, "info"),
         *trace = tern_fs_join(info, "aws-neuronx-runtime-lib.list");

    f = facts(NULL);
    if (tern_fs_mkdirs(info, 0755, &e) < 0 || tern_fs_replace(trace, "", 0, 0644, &e) < 0 ||
        tern_fs_replace(file, status, strlen(status), 0644, &e) < 0)
        abort();
    tern_env_sdk_find(root, &f);
    free(trace), free(info), free(dir), free(file);
    return f.sdk;
}

static void test_sdk(void)
{
    char root[] = "/tmp/tern-env-marks-XXXXXX";

    if (!mkdtemp(root))
        abort();
    is(sdk_of(root, "Package: a\n\nPackage: aws-neuronx-runtime-lib\nVersion: 2.33.10.0-x\n\n"),
       "2.31", "the SDK by the version of its runtime's package");
    is(sdk_of(root, "Package: a\n\nPackage: aws-neuronx-runtime-lib\nStatus: deinstall\n\n"
                    "Package: b\nVersion: 2.33.10.0-x\n\n"),
       "", "a package without a version does not have that of the next one");
    tern_fs_remove_tree(root, NULL);
}

int main(void)
{
    test_marks();
    test_advice();
    test_sdk();
    return tap_done();
}
