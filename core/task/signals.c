#include "core/task/signals.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>

static volatile sig_atomic_t told;

static void note(int sig)
{
    (void)sig;
    told = 1;
}

void tern_task_signals_ignore(void)
{
    static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,   SIGALRM, SIGUSR1,
                                  SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF};
    const struct sigaction term = {.sa_handler = note, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_IGN);
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        signal(i, SIG_IGN);
    sigaction(SIGTERM, &term, NULL);
}

bool tern_task_signals_told(void)
{
    return told;
}

int tern_task_signals_end_like(int status)
{
    const struct rlimit none = {0, 0};
    sigset_t set;

    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int sig = WTERMSIG(status);
    setrlimit(RLIMIT_CORE, &none);
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    return 128 + sig;
}
