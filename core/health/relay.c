/* Facts that need libfabric: tern-link, beside this program, finds them. */
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

/* Its rows, one a line of JSON.  Each is reported as it is read: the runner may end this process
 * while tern-link hangs, and the rows before that count. */
static void relay(const struct tern_health_probe *p, struct tern_health_facts *f,
                  const char *option)
{
    char line[2048];
    pid_t pid;
    int status = 0;
    FILE *from = start(option, &pid);

    while (from && fgets(line, sizeof line, from)) {
        struct tern_health_row r;
        if (tern_health_row_parse(line, strlen(line), &r, NULL) < 0)
            continue;
        f->relayed.n++;
        tern_health_report(p, r.verdict, r.subject, r.value, r.unit, "%s", r.text);
    }
    f->relayed.started = from != NULL;
    if (from) {
        fclose(from);
        waitpid(pid, &status, 0);
    }
}

void tern_health_gather_provider(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    const char *name = tern_var("TERN_FABRIC_PROVIDER");

    /* tcp is a part of every libfabric, and finding that out costs more than all other checks. */
    if (!p->options->unattended && name && strcmp(name, "tcp") != 0)
        relay(p, f, "--provider");
}

void tern_health_gather_link(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    if (p->options->fabric)
        setenv("TERN_RUN_SOCKET", p->options->fabric, 1);
    relay(p, f, p->options->stage == TERN_HEALTH_STAGE_DEEP ? "--deep" : NULL);
}
