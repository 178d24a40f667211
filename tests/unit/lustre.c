/* Lustre's stripes, by a stand-in for lfs; a folder with "lustre" in its name is on Lustre. */
#include "core/base/lustre.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/data/data.h"
#include "core/doctor/doctor.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* In place of the C library's. */
int statfs(const char *path, struct statfs *to)
{
    *to = (struct statfs){.f_type = strstr(path, "lustre") ? 0x0BD00BD0 : 0x9123683E};
    return access(path, F_OK);
}

static void put(const char *path, const char *text, unsigned mode)
{
    if (tern_fs_replace(path, text, strlen(text), mode, NULL) < 0)
        abort();
}

/* lfs that answers `stripes`, and takes only those words that grep has for `takes`; what it was
 * asked for is in the file asked. */
static void lfs(const char *stripes, const char *takes)
{
    char *text =
        tern_strf("#!/bin/sh\necho \"$*\" >>asked\ncase $1 in getstripe) printf -- '%s' ;; *) echo "
                  "\"$*\" | grep -q -- '%s' || { echo 'lfs: no such layout'; exit 22; } ;; esac\n",
                  stripes, takes);

    put("bin/lfs", text, 0755);
    unlink("asked");
    free(text);
}

static const char *asked(void)
{
    static char last[4000];
    char *text = NULL;
    size_t len;

    last[0] = '\0';
    if (tern_fs_exists("asked") && tern_fs_read("asked", sizeof last - 1, &text, &len, NULL) == 0)
        snprintf(last, sizeof last, "%s", text);
    free(text);
    return last;
}

static void spreading(void)
{
    lfs("1\\n", ".");
    tern_lustre_spread("disk");
    is(asked(), "", "a folder that is not on Lustre is left alone");
    tern_lustre_spread("lustre");
    is(asked(),
       "getstripe -d -c lustre\n"
       "setstripe -E 100M -c 1 -E 10G -c 8 -E 100G -c 16 -E -1 -c 32 lustre\n",
       "a folder of one stripe is spread, small files are not");
    lfs("1\\n", "setstripe -c 8 lustre");
    tern_lustre_spread("lustre");
    has(asked(), "\nsetstripe -c 8 lustre\n", "an older Lustre gets a layout of one part");
    lfs("1\\n", "nothing");
    tern_lustre_spread("lustre");
    has(asked(), "setstripe -c 8", "a Lustre that refuses both is no failure");
    static const char *const others[] = {"4\\n", "-1\\n", "1\\n8\\n", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        lfs(others[i], ".");
        tern_lustre_spread("lustre");
        if (i < 3)
            is(asked(), "getstripe -d -c lustre\n", "a layout of %s stays", others[i]);
    }
    ok(tern_lustre_stripes("lustre") == 1, "no number is the file system's default, one");
    lfs("1\\n8\\n", ".");
    ok(tern_lustre_stripes("lustre") == 8, "of a layout with parts the widest counts");
    lfs("-1\\n", ".");
    ok(tern_lustre_stripes("lustre") == -1, "-1 from lfs means all targets");
    ok(tern_lustre_stripes("disk") == 0, "a file system without Lustre has no targets");
    if (geteuid() == 0 && chown("lustre", 65534, 65534) == 0) {
        lfs("1\\n", ".");
        tern_lustre_spread("lustre");
        is(asked(), "", "another user's folder keeps its layout");
        if (chown("lustre", 0, 0) < 0)
            abort();
    }
    unlink("bin/lfs");
    ok(tern_lustre_stripes("lustre") == 0, "without lfs no stripe count is known");
}

/* Doctor's findings of this rule, each on a line. */
static const char *found(const struct tern_doctor_facts *facts)
{
    static char lines[2000], none[] = "";
    const struct tern_slurm_about about = {.version = (char *)"24.11.0",
                                           .conf = none,
                                           .plugstack = none,
                                           .plugin_dir = none,
                                           .tmp_fs = none,
                                           .mpi_default = none,
                                           .auth_info = none,
                                           .scheduler = none,
                                           .task_plugin = none,
                                           .return_to_service = 2};
    struct tern_doctor_findings f = {0};
    size_t at = 0;

    lines[0] = '\0';
    tern_doctor_judge(&about, facts, &f);
    for (size_t i = 0; i < f.n; i++)
        if (strcmp(f.v[i].id, "storage-stripes") == 0)
            at += (size_t)snprintf(lines + at, sizeof lines - at, "%s %s\n",
                                   tern_doctor_severity_name(f.v[i].severity), f.v[i].what);
    tern_doctor_findings_free(&f);
    return lines;
}

static void doctors_warning(void)
{
    struct tern_doctor_facts facts = {0};

    lfs("1\\n", ".");
    tern_doctor_check_stripes("disk", &facts);
    tern_doctor_check_stripes("lustre-none", &facts);
    is(found(&facts), "",
       "doctor is silent about other file systems and folders that are not there");
    tern_doctor_check_stripes("lustre", &facts);
    tern_doctor_check_stripes("lustre-sets", &facts);
    tern_doctor_check_stripes("lustre", &facts);
    is(found(&facts),
       "warning lustre: a new file there lies on one of Lustre's storage targets\n"
       "warning lustre-sets: a new file there lies on one of Lustre's storage targets\n",
       "doctor warns of each folder of one stripe, once");
    tern_doctor_facts_free(&facts);
    facts = (struct tern_doctor_facts){0};
    lfs("4\\n", ".");
    tern_doctor_check_stripes("lustre", &facts);
    is(found(&facts), "", "doctor is silent about a folder of several stripes");
    tern_doctor_facts_free(&facts);
}

static void token_sets(void)
{
    const struct tern_data_set_kind kind = {.n_vocab = 100, .eos = 1};
    struct tern_err err = {0};

    lfs("1\\n", ".");
    struct tern_data_set_writer *w = tern_data_set_create("lustre/a.tds", &kind, &err);
    ok(w != NULL, "a token set begins on Lustre: %s", err.text);
    has(asked(), "setstripe -E 100M", "the folder of a token set is spread before it is made");
    tern_data_set_abort(w);
}

int main(void)
{
    char dir[] = "/tmp/tern-unit-stripes-XXXXXX";

    if (!mkdtemp(dir) || chdir(dir) < 0 || mkdir("disk", 0755) < 0 || mkdir("lustre", 0755) < 0 ||
        mkdir("lustre-sets", 0755) < 0 || mkdir("bin", 0755) < 0)
        return 1;
    char *path = tern_strf("%s/bin:/usr/bin:/bin", dir);
    setenv("PATH", path, 1);
    free(path);
    spreading();
    doctors_warning();
    token_sets();
    if (chdir("/") == 0)
        tern_fs_remove_tree(dir, NULL);
    return tap_done();
}
