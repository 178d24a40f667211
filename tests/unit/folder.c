/* core/base/folder: a folder that cannot be put in place is refused before it is filled. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/temp.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-folder-XXXXXX";

static char *at(const char *name)
{
    return tern_fs_join(work, name);
}

/* Exit status of a child: 0 refused with the words of `why`, 1 otherwise, 77 the child cannot be
 * set up. */
static int child(int (*set_up)(const char *dir), const char *dir, const char *why)
{
    int status = 0;
    const pid_t pid = fork();

    if (pid == 0) {
        struct tern_err err = {0};
        if (set_up(dir) < 0)
            _exit(77);
        const bool refused = tern_fs_is_free(dir, &err) < 0 && err.code == TERN_USAGE;
        char *temp = tern_fs_folder_beside(dir, NULL);
        /* It is right to refuse: the rename fails. */
        const bool fails = temp && rename(temp, dir) < 0;
        _exit(refused && fails && strstr(err.text, why) ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int become_nobody(const char *dir)
{
    (void)dir;
    return geteuid() == 0 ? seteuid(65534) : -1;
}

static int apart(void)
{
    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return -1;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int mount_another(const char *dir)
{
    return apart() < 0 ? -1 : mount("none", dir, "tmpfs", 0, NULL);
}

static int mount_same(const char *dir)
{
    return apart() < 0 ? -1 : mount(dir, dir, NULL, MS_BIND, NULL);
}

static void refused(int (*set_up)(const char *dir), const char *dir, const char *why,
                    const char *name)
{
    const int rc = child(set_up, dir, why);

    if (rc == 77)
        tap_skip("another user or a mount is not to be had here");
    else
        ok(rc == 0, "%s: refused, as the rename fails", name);
}

static void test_refused(void)
{
    char *sticky = at("sticky"), *dir = at("sticky/d");

    if (mkdir(sticky, 0777) < 0 || chmod(sticky, 01777) < 0 || mkdir(dir, 0777) < 0 ||
        chmod(work, 0755) < 0)
        abort();
    refused(become_nobody, dir, "is another user's folder",
            "an empty folder of another user in a sticky one");
    refused(mount_another, dir, "is a mount point", "a file system that is mounted");
    refused(mount_same, dir, "is a mount point", "a folder that is mounted on itself");
    ok(tern_fs_is_free(dir, NULL) == 0, "the same folder is free without all that");
    free(sticky);
    free(dir);
}

static void test_beside(void)
{
    struct tern_err err = {0};
    struct stat st;
    char *dir = at("new/deep/"), *file = at("file"), *below = at("file/d");
    const mode_t mask = umask(027);
    char *temp = tern_fs_folder_beside(dir, &err);

    umask(mask);
    ok(temp && stat(temp, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0750,
       "a new folder has the permissions that the umask leaves: %s", err.text);
    has(temp ? temp : "", "new/deep.tmp-", "the temporary folder lies beside its place");
    ok(temp && rename(temp, dir) == 0, "a rename puts it there");
    free(temp);
    tern_fs_replace(file, "x", 1, 0644, NULL);
    ok(tern_fs_is_free(below, &err) < 0 && !tern_fs_folder_beside(below, &err),
       "below a file there is no folder");
    ok(tern_fs_is_free(file, &err) < 0 && err.code == TERN_USAGE, "a file is no free folder");
    free(dir);
    free(file);
    free(below);
}

/* A process makes a folder and a file for `dir`, and is killed. */
static void leave(const char *dir)
{
    pid_t pid = fork();

    if (pid == 0) {
        char *temp = tern_fs_folder_beside_swept(dir, NULL), *file = tern_fs_temp_name(dir);
        char *inside = temp ? tern_fs_join(temp, "file") : NULL;
        if (inside && tern_fs_replace(inside, "x", 1, 0644, NULL) == 0 && tern_fs_temp(file) >= 0)
            raise(SIGKILL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
}

/* Names that begin with `start` in the work folder. */
static int count(const char *start)
{
    DIR *d = opendir(work);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += tern_str_starts(e->d_name, start);
    if (d)
        closedir(d);
    return n;
}

static void test_swept(void)
{
    char *dir = at("swept"), *old = at("swept.tmp-abcdef"), *other = at("swept2");

    mkdir(old, 0755);
    leave(other);
    leave(dir);
    ok(count("swept.tmp-") == 3, "a killed process leaves its folder and its file");
    char *temp = tern_fs_folder_beside_swept(dir, NULL);
    ok(temp && count("swept.tmp-") == 2, "the next one for the same place takes both away");
    ok(tern_fs_exists(old) && count("swept2.tmp-") == 2,
       "a folder whose process is not known stays, and so do those of another place");
    char *more = tern_fs_folder_beside_swept(dir, NULL);
    ok(more && temp && tern_fs_exists(temp), "the folder of a process that lives stays");
    free(more);
    free(temp);
    free(other);
    free(old);
    free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_refused();
    test_beside();
    test_swept();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
