#include "core/base/lustre.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/process.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define LUSTRE_MAGIC 0x0BD00BD0 /* lustre/include/uapi/linux/lustre/lustre_user.h */

enum { LFS_S = 20, OUT_MAX = 1 << 16 };

/* Amazon FSx for Lustre's own default (User Guide, "Striping data in your file system"): small
 * files stay on one target. Each target more costs a message at open. */
static const char *const ladder[] = {"lfs", "setstripe", "-E", "100M", "-c",   "1",  "-E",
                                     "10G", "-c",        "8",  "-E",   "100G", "-c", "16",
                                     "-E",  "-1",        "-c", "32",   NULL};
/* Before Lustre 2.10 a layout has one part. */
static const char *const plain[] = {"lfs", "setstripe", "-c", "8", NULL};
static const char *const ask[] = {"lfs", "getstripe", "-d", "-c", NULL};

bool tern_lustre_is(const char *dir)
{
    struct statfs fs;

    return TERN_AGAIN(statfs(dir, &fs)) == 0 && (unsigned long)fs.f_type == LUSTRE_MAGIC;
}

static void become(const char *const *words, const char *dir, int out)
{
    const char *argv[24];
    const int null = open("/dev/null", O_RDWR);
    sigset_t none;
    size_t n = 0;

    while (words[n]) {
        argv[n] = words[n];
        n++;
    }
    argv[n++] = dir;
    argv[n] = NULL;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    tern_close_from(3);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

/* Run lfs; what it prints is in `out`.  Its exit status; -1 where it did not end by itself. */
static int run_lfs(const char *const *words, const char *dir, struct tern_buf *out)
{
    const int64_t until = tern_clock_boot_ns() + LFS_S * (int64_t)1000000000;
    int ends[2], status = -1;
    char piece[4096];

    if (TERN_AGAIN(pipe2(ends, O_CLOEXEC)) < 0)
        return -1;
    const pid_t pid = tern_again_fork();
    if (pid == 0)
        become(words, dir, ends[1]);
    close(ends[1]);
    while (pid > 0) {
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        const int64_t left_ms = (until - tern_clock_boot_ns()) / 1000000;
        const int ready = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        const ssize_t n = ready > 0 ? read(ends[0], piece, sizeof piece) : -1;
        if (n <= 0) {
            if (n < 0) /* a file system that hangs */
                kill(pid, SIGKILL);
            break;
        }
        if (out->len < OUT_MAX)
            tern_buf_add(out, piece, (size_t)n);
    }
    close(ends[0]);
    if (pid < 0 || TERN_AGAIN(waitpid(pid, &status, 0)) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tern_lustre_stripes(const char *dir)
{
    struct tern_buf out = {0};
    int most = 0;

    if (!tern_lustre_is(dir) || !tern_fs_on_path("lfs", /* runs= */ true))
        return 0;
    if (run_lfs(ask, dir, &out) == 0 && !out.failed) {
        most = 1; /* 0 is the file system's default, which is one */
        for (char *save = NULL, *word = out.data ? strtok_r(out.data, " \t\n", &save) : NULL; word;
             word = strtok_r(NULL, " \t\n", &save)) {
            int64_t n;
            if (tern_str_int(word, -1, 1 << 20, &n) == 0 && most > 0 && (n < 0 || n > most))
                most = (int)n;
        }
    }
    tern_buf_free(&out);
    return most;
}

void tern_lustre_spread(const char *dir)
{
    struct tern_buf out = {0};
    struct stat st;

    /* In another user's folder lfs would refuse. */
    if (!tern_lustre_is(dir) || TERN_AGAIN(stat(dir, &st)) < 0 || st.st_uid != geteuid() ||
        tern_lustre_stripes(dir) != 1)
        return;
    int rc = run_lfs(ladder, dir, &out);
    if (rc != 0) {
        tern_buf_clear(&out);
        rc = run_lfs(plain, dir, &out);
    }
    if (rc == 0) {
        tern_info("%s: lfs setstripe: large files made there are spread over Lustre's targets",
                  dir);
    } else {
        char why[200];
        snprintf(why, sizeof why, "%s", out.data && !out.failed ? out.data : "lfs prints nothing");
        why[strcspn(why, "\n")] = '\0';
        tern_str_mask(why);
        tern_warn("%s: large files made there stay on one of Lustre's targets, and are slow: %s",
                  dir, why);
    }
    tern_buf_free(&out);
}
