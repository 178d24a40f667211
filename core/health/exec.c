/* Checks that need libfabric: tern-link, beside this program, makes them. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* tern-link with `option` (or NULL); its stdout to be read, NULL when it cannot be started. */
static FILE *start(const char *option, pid_t *pid)
{
    char *exe = tern_fs_beside("tern-link");
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) < 0) {
        free(exe);
        return NULL;
    }
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(fd[1], 1) >= 0)
            execl(exe, "tern-link", option, (char *)NULL);
        _exit(127);
    }
    free(exe);
    close(fd[1]);
    if (*pid < 0) {
        close(fd[0]);
        return NULL;
    }
    return fdopen(fd[0], "r");
}

/* Its rows, one a line of JSON, become this check's. */
static void relay(struct tern_health_probe *p, const char *option)
{
    char line[2048];
    pid_t pid;
    int n = 0, status = 0;
    FILE *f = start(option, &pid);

    while (f && fgets(line, sizeof line, f)) {
        struct tern_health_row r;
        if (tern_health_row_parse(line, strlen(line), &r, NULL) < 0)
            continue;
        n++;
        tern_health_say(p, r.verdict, r.subject, r.value, r.unit, "%s", r.text);
    }
    if (f) {
        fclose(f);
        waitpid(pid, &status, 0);
    }
    if (n == 0)
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "", 0, "",
                        "tern-link, beside this program, %s. Was tern installed whole?",
                        f ? "said nothing" : "cannot be started");
}

void tern_health_check_provider(struct tern_health_probe *p)
{
    const char *name = tern_var("TERN_FABRIC_PROVIDER");

    if (p->options->unattended)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "", "a job chooses the provider");
    else if (!name || strcmp(name, "tcp") == 0)
        /* Asking would cost more than all other checks. */
        tern_health_say(p, TERN_HEALTH_OK, "", 0, "", "tcp, a part of every libfabric");
    else
        relay(p, "--provider");
}

void tern_health_check_link(struct tern_health_probe *p)
{
    if (p->options->fabric)
        setenv("TERN_RUN_SOCKET", p->options->fabric, 1);
    relay(p, p->options->stage == TERN_HEALTH_STAGE_DEEP ? "--deep" : NULL);
}
