/* One apply: compares, judges, writes, makes slurmctld read it, and compares again. */
#include "core/apply/parts.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of tern-nodes.conf before the first apply. */
static const char no_nodes[] = "# tern-nodes.conf: no nodes; `tern cluster apply` puts them here\n";

/* ------------------------------------------------------------------ backups */

int tern_apply_backup_newest(const char *file)
{
    char *dir = tern_fs_dirname(file);
    const char *base = tern_fs_basename(file);
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int64_t newest = 0, n;

    for (struct dirent *e; d && (e = readdir(d));)
        if (tern_str_starts(e->d_name, base) && e->d_name[strlen(base)] == '.' &&
            tern_str_int(e->d_name + strlen(base) + 1, 1, 1000000000, &n) == 0 && n > newest)
            newest = n;
    if (d)
        closedir(d);
    free(dir);
    return (int)newest;
}

char *tern_apply_backup_path(const char *file, int number)
{
    return tern_strf("%s.%d", file, number);
}

int tern_apply_use_backup(struct tern_apply *a, struct tern_err *err)
{
    const int newest = tern_apply_backup_newest(a->file);
    char *text, *path;
    size_t len;

    if (!newest)
        return tern_err_set(err, TERN_USAGE, "%s: there is no backup to put back.", a->file);
    path = tern_apply_backup_path(a->file, newest);
    int rc = tern_fs_read(path, TERN_APPLY_MAX_FILE, &text, &len, err);
    free(path);
    if (rc < 0)
        return -1;
    tern_buf_add(&a->text, text, len);
    free(text);
    return 0;
}

/* ------------------------------------------------------------------ what would change */

/* All files as one, with the new text in its place. */
static int try_text(const struct tern_apply *a, struct tern_err *err)
{
    const char *dir = getenv("TMPDIR");
    char *path = tern_strf("%s/tern-slurm.conf-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = tern_fs_temp(path), rc = 0;
    uint64_t at = 0;

    if (fd < 0) {
        tern_err_sys(err, "%s: cannot create", path);
        free(path);
        return -1;
    }
    const struct tern_buf *const parts[] = {&a->before, &a->text, &a->after};
    for (size_t i = 0; rc == 0 && i < 3; at += parts[i]->len, i++)
        if (parts[i]->len)
            rc = tern_fs_write_at(fd, at, parts[i]->data, parts[i]->len, path, err);
    close(fd);
    if (rc == 0)
        rc = tern_slurm_conf_try(path, err);
    unlink(path);
    free(path);
    return rc;
}

int tern_apply_collect(const struct tern_apply *a, const struct tern_apply_expected *want,
                       struct tern_apply_changes *ret, struct tern_err *err)
{
    struct tern_slurm_nodes *nodes = NULL;
    struct tern_slurm_partitions *partitions = NULL;
    int rc = tern_slurm_nodes_load_all(&nodes, err);

    if (rc == 0)
        rc = tern_slurm_partitions_load(&partitions, err);
    if (rc == 0)
        rc = tern_apply_compare(want, a->def, a->n_defs, nodes, partitions, ret, err);
    tern_slurm_partitions_free(partitions);
    tern_slurm_nodes_free(nodes);
    return rc;
}

/* Is it this slurm.conf that slurmctld has read? */
static int check_controller(struct tern_apply *a, struct tern_err *err)
{
    struct tern_slurm_about *about = NULL;

    if (tern_slurm_about_load(&about, err) < 0)
        return -1;
    char *theirs = realpath(about->conf, NULL);
    int rc = theirs && strcmp(theirs, a->conf) == 0
                 ? 0
                 : tern_err_set(err, TERN_USAGE,
                                "slurmctld reads %s, and %s is another file. Run this on its "
                                "machine, and set SLURM_CONF to the file.",
                                about->conf, a->conf);
    a->version = tern_strdup(about->version);
    free(theirs);
    tern_slurm_about_free(about);
    return rc;
}

int tern_apply_plan(struct tern_apply *a, struct tern_err *err)
{
    if (tern_apply_read(a->text.data ? a->text.data : "", a->file, &a->want, err) < 0 ||
        tern_apply_check_files(a, err) < 0 || try_text(a, err) < 0 || check_controller(a, err) < 0)
        return -1;
    return tern_apply_collect(a, &a->want, &a->changes, err);
}

int tern_apply_compare_now(struct tern_apply *a, struct tern_err *err)
{
    if (tern_apply_read(a->text.data ? a->text.data : "", a->file, &a->want, err) < 0)
        return -1;
    return tern_apply_collect(a, &a->want, &a->changes, err);
}

/* A text without its first line, if that is a comment: it has the layout's path, as given. */
static const char *body(const char *text)
{
    const char *end = *text == '#' ? strchr(text, '\n') : NULL;

    return end ? end + 1 : text;
}

static bool is_same_text(const struct tern_apply *a)
{
    return a->old && strcmp(body(a->old), body(a->text.data ? a->text.data : "")) == 0;
}

bool tern_apply_is_done(const struct tern_apply *a)
{
    return a->included && is_same_text(a) && a->changes.n == 0;
}

/* ------------------------------------------------------------------ what speaks against it */

/* Nodes come or go. */
static bool names_change(const struct tern_apply_changes *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->at[i].partition && all->at[i].kind != TERN_APPLY_CHANGE)
            return true;
    return false;
}

static bool needs_restart(const struct tern_apply *a, const struct tern_apply_changes *all)
{
    return names_change(all) && !tern_slurm_reconfigure_takes_nodes(a->version);
}

static int check_jobs(const struct tern_apply *a, struct tern_err *err)
{
    const struct tern_apply_change none = {0}, *nodes = &none, *partitions = &none;
    struct tern_buf jobs = {0};
    size_t n = 0;

    for (size_t i = 0; i < a->changes.n; i++)
        if (a->changes.at[i].kind == TERN_APPLY_REMOVE)
            *(a->changes.at[i].partition ? &partitions : &nodes) = &a->changes.at[i];
    if (!nodes->n && !partitions->n)
        return 0;
    int rc = tern_slurm_jobs_describe(nodes->names, nodes->n, partitions->names, partitions->n,
                                      &jobs, &n, err);
    if (rc == 0 && n)
        rc = tern_err_set(err, TERN_USAGE,
                          "nodes or partitions that would go have jobs, which Slurm would end: "
                          "%.600s. Wait for them, or end them with scancel. Nothing is written.",
                          jobs.data);
    tern_buf_free(&jobs);
    return rc;
}

static int check_rights(const struct tern_apply *a, struct tern_err *err)
{
    char *dir = tern_fs_dirname(a->file);
    int rc = 0;

    if (geteuid() != 0 && !tern_slurm_is_slurm_user(geteuid()))
        rc = tern_err_set(err, TERN_USAGE,
                          "only root and Slurm's own user may have slurmctld read its "
                          "configuration. Nothing is written; -n shows what would change.");
    else if (access(dir, W_OK) < 0)
        rc = tern_err_sys(err, "%s: cannot write there", dir);
    free(dir);
    return rc;
}

int tern_apply_check(const struct tern_apply *a, const struct tern_apply_options *o,
                     struct tern_err *err)
{
    if (!a->included && !o->init)
        return tern_err_set(err, TERN_USAGE,
                            "%s: does not include %s. Give --init, which adds the line, or add it: "
                            "include %s",
                            a->conf, tern_fs_basename(a->file), tern_fs_basename(a->file));
    if (needs_restart(a, &a->changes) && !o->restart)
        return tern_err_set(err, TERN_USAGE,
                            "nodes come or go, and slurmctld %s takes them at its start only: "
                            "`scontrol reconfigure` would end it. Name the command that restarts "
                            "it: --restart 'systemctl restart slurmctld'. Nothing is written.",
                            a->version);
    return check_jobs(a, err);
}

/* ------------------------------------------------------------------ doing it */

static int run_shell(const char *command, struct tern_err *err)
{
    pid_t pid = tern_again_fork();
    int status;

    if (pid == 0) {
        if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (pid < 0)
        return tern_err_sys(err, "cannot start a process");
    if (TERN_AGAIN(waitpid(pid, &status, 0)) != pid)
        return tern_err_sys(err, "%s: cannot wait for it", command);
    if (status == 0)
        return 0;
    return tern_err_set(err, TERN_FAILED, "--restart: '%.200s' ended with status %d", command,
                        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Until slurmctld has `want`, and no more. */
static int await(struct tern_apply *a, const struct tern_apply_expected *want, double timeout_s,
                 struct tern_err *err)
{
    const int64_t end_ns = tern_clock_boot_ns() + (int64_t)(timeout_s * 1e9);
    struct tern_apply_changes left = {0};
    int rc;

    for (;;) {
        tern_apply_changes_free(&left);
        rc = tern_apply_collect(a, want, &left, err);
        if ((rc == 0 && left.n == 0) || tern_clock_boot_ns() > end_ns)
            break;
        tern_clock_sleep_ns(200000000);
    }
    if (rc == 0 && left.n) {
        struct tern_buf all = {0};
        for (size_t i = 0; i < left.n; i++) {
            char *one = tern_apply_change_text(&left.at[i]);
            tern_buf_printf(&all, "%s%s", i ? "; " : "", one);
            free(one);
        }
        rc = tern_err_set(err, TERN_FAILED, "Slurm has not taken it after %g s: left is: %.400s%s",
                          timeout_s, all.data, all.len > 400 ? "..." : "");
        tern_buf_free(&all);
    }
    tern_apply_changes_free(&left);
    return rc;
}

/* Have slurmctld take `want`, where `changes` lead to it. */
static int tell(struct tern_apply *a, const struct tern_apply_expected *want,
                const struct tern_apply_changes *changes, const struct tern_apply_options *o,
                bool *ret_restarted, struct tern_err *err)
{
    *ret_restarted = needs_restart(a, changes);
    if (*ret_restarted && !o->restart)
        return tern_err_set(err, TERN_FAILED, "there is no --restart");
    if ((*ret_restarted ? run_shell(o->restart, err) : tern_slurm_reconfigure(err)) < 0)
        return -1;
    return await(a, want, o->timeout_s, err);
}

/* slurm.conf with one more line. */
static int add_line(const struct tern_apply *a, struct tern_err *err)
{
    struct tern_buf b = {0};
    struct tern_fs_new f;
    struct stat st;
    char *text;
    size_t len;

    if (stat(a->conf, &st) < 0)
        return tern_err_sys(err, "%s", a->conf);
    if (tern_fs_read(a->conf, TERN_APPLY_MAX_FILE, &text, &len, err) < 0)
        return -1;
    tern_buf_printf(&b, "%s%sinclude %s\n", text, len && text[len - 1] != '\n' ? "\n" : "",
                    tern_fs_basename(a->file));
    free(text);
    int rc = tern_fs_new_open(&f, a->conf, st.st_mode & 07777, err);
    if (rc == 0 && fchown(f.fd, st.st_uid, st.st_gid) < 0 && errno != EPERM)
        rc = tern_err_sys(err, "%s: cannot keep its owner", a->conf);
    if (rc == 0)
        rc = tern_fs_write_at(f.fd, 0, b.data, b.len, a->conf, err);
    if (rc == 0)
        rc = tern_fs_new_commit(&f, err);
    else
        tern_fs_new_abort(&f);
    tern_buf_free(&b);
    return rc;
}

static int write_files(const struct tern_apply *a, struct tern_apply_done *ret,
                       struct tern_err *err)
{
    const char *old = a->old ? a->old : no_nodes;
    char *backup = tern_apply_backup_path(a->file, tern_apply_backup_newest(a->file) + 1);
    int rc = 0;

    if (!is_same_text(a)) {
        rc = tern_fs_replace(backup, old, strlen(old), 0644, err);
        if (rc == 0)
            rc = tern_fs_replace(a->file, a->text.data ? a->text.data : "", a->text.len, 0644, err);
        if (rc == 0) /* else it stays: perhaps only the folder's fsync failed */
            snprintf(ret->backup, sizeof ret->backup, "%s", backup);
    }
    free(backup);
    if (rc == 0 && !a->included) {
        rc = add_line(a, err);
        ret->added_line = rc == 0;
    }
    return rc;
}

/* The old file again, and slurmctld as it was.  `err` gets what became of it. */
static void put_back(struct tern_apply *a, const struct tern_apply_options *o,
                     const struct tern_apply_done *done, struct tern_err *err)
{
    const char *old = a->old ? a->old : no_nodes;
    struct tern_apply_expected was = {0};
    struct tern_apply_changes changes = {0};
    struct tern_err why = {0}, cause = *err;
    bool restarted;

    if (!*done->backup) /* the file was right before */
        return;
    int rc = tern_fs_replace(a->file, old, strlen(old), 0644, &why);
    if (rc < 0) {
        tern_err_set(err, cause.code, "%.400s. The earlier file is %.200s, and not back: %.300s",
                     cause.text, done->backup, why.text);
        return;
    }
    unlink(done->backup); /* of the same bytes */
    rc = tern_apply_read(old, a->file, &was, &why);
    if (rc == 0)
        rc = tern_apply_collect(a, &was, &changes, &why);
    if (rc == 0 && changes.n)
        rc = tell(a, &was, &changes, o, &restarted, &why);
    else if (rc < 0 && o->restart && run_shell(o->restart, &why) == 0)
        rc = await(a, &was, o->timeout_s, &why);
    if (rc == 0)
        tern_err_set(err, cause.code, "%.600s. The earlier nodes are back, in %.200s and in Slurm.",
                     cause.text, a->file);
    else
        tern_err_set(err, cause.code,
                     "%.400s. The earlier nodes are back in %.200s; restart slurmctld, which does "
                     "not have them: %.200s",
                     cause.text, a->file, why.text);
    tern_apply_expected_free(&was);
    tern_apply_changes_free(&changes);
}

int tern_apply_commit(struct tern_apply *a, const struct tern_apply_options *o,
                      struct tern_apply_done *ret, struct tern_err *err)
{
    struct tern_apply_done done = {0};

    if (check_rights(a, err) < 0)
        return -1;
    int rc = write_files(a, &done, err);
    if (rc == 0)
        rc = tell(a, &a->want, &a->changes, o, &done.restarted, err);
    if (rc < 0)
        put_back(a, o, &done, err);
    else
        *ret = done;
    return rc;
}
