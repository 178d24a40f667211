/* libtern-ledger as a program of threads and children uses it, and as a wrong one does:
 *
 *     ledger-log threads|children|both LEDGER|- NAME     ledger-log bad LEDGER
 */
#include "plugins/libtern-ledger/ledger.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CHILDREN = 4, STEPS = 1000 };

static struct tern_log *handle;
static int failed;

static void check(int good, const char *name)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", name, tern_log_error());
    __atomic_store_n(&failed, 1, __ATOMIC_SEQ_CST);
}

static void log_steps(const char *kind, int i)
{
    char name[32];

    snprintf(name, sizeof name, "%s%d", kind, i);
    for (int step = 1; step <= STEPS; step++)
        check(tern_log_value(handle, step, name, i * STEPS + step) == 0, name);
}

static void *thread(void *i)
{
    log_steps("thread", (int)(size_t)i);
    return NULL;
}

static void begin_threads(pthread_t *threads)
{
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, (void *)i) != 0)
            exit(3);
}

static void join_threads(const pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* The parent logs on; a child of each child logs, too. */
static void children(void)
{
    pid_t pids[CHILDREN];

    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        log_steps("child", i);
        pid_t own = fork();
        if (own == 0)
            log_steps("grandchild", i);
        else
            waitpid(own, NULL, 0);
        check(tern_log_close(handle) == 0, "close in a child");
        _exit(failed);
    }
    log_steps("parent", 0);
    for (int i = 0; i < CHILDREN; i++) {
        int status = 1;
        waitpid(pids[i], &status, 0);
        failed |= status != 0;
    }
    log_steps("parent", 1);
}

/* The call is refused, and the error says why. */
static void refused(int rc, const char *call)
{
    printf("%s: %s\n", call, rc == -1 ? tern_log_error() : "taken");
}

static void bad(const char *ledger)
{
    static const char *const one[] = {"good", "bad\n"}, *const two[] = {"good", NULL},
                             *const same[] = {"loss", "loss"};
    static const double values[] = {1, 2};
    char longest[TERN_LOG_NAME_MAX + 2];

    memset(longest, 'x', sizeof longest);
    longest[TERN_LOG_NAME_MAX + 1] = '\0';
    refused(tern_log_value(NULL, 1, "loss", 1), "never opened");
    refused(tern_log_open(ledger, NULL) ? 0 : -1, "no name");
    refused(tern_log_open(ledger, "a b") ? 0 : -1, "blank");
    refused(tern_log_open(ledger, "-n") ? 0 : -1, "dash");
    refused(tern_log_open(ledger, "latest") ? 0 : -1, "latest");
    refused(tern_log_open(NULL, "run") ? 0 : -1, "no ledger");
    refused(tern_log_value(NULL, 1, "loss", 1), "failed open");
    handle = tern_log_open(ledger, "bad");
    check(handle != NULL, "open");
    refused(tern_log_value(handle, -1, "loss", 1), "step -1");
    refused(tern_log_value(handle, 1, NULL, 1), "name NULL");
    refused(tern_log_value(handle, 1, "", 1), "name empty");
    refused(tern_log_value(handle, 1, longest, 1), "name long");
    refused(tern_log_value(handle, 1, "a\033[2J", 1), "escape");
    refused(tern_log_value(handle, 1, "a\302\2332J", 1), "C1");
    refused(tern_log_values(handle, 1, one, values, 2), "second name");
    refused(tern_log_values(handle, 1, two, values, 2), "second NULL");
    refused(tern_log_values(handle, 1, NULL, values, 2), "no names");
    refused(tern_log_values(handle, 1, two, NULL, 2), "no values");
    refused(tern_log_values(handle, 1, same, values, 2), "a name twice");
    refused(tern_log_value(handle, (INT64_C(1) << 53) + 1, "loss", 1), "a step above 2^53");
    refused(tern_log_values(handle, 1, two, values, -1), "n -1");
    refused(tern_log_values(handle, 1, two, values, TERN_LOG_VALUES_MAX + 1), "n 1025");
    check(tern_log_values(handle, 1, NULL, NULL, 0) == 0, "n 0");
    longest[TERN_LOG_NAME_MAX] = '\0';
    check(tern_log_value(handle, 0, longest, 7) == 0, "longest name");
    check(tern_log_value(handle, 1, "nan", NAN) == 0, "NaN");
    check(tern_log_value(handle, 1, "inf", INFINITY) == 0, "infinity");
    check(tern_log_value(handle, INT64_C(1) << 53, "last", -INFINITY) == 0, "greatest step");
    check(tern_log_close(NULL) == 0, "close of NULL");
}

int main(int n_args, char **args)
{
    pthread_t threads[THREADS];
    const char *kind = n_args > 2 ? args[1] : "", *ledger = n_args > 2 ? args[2] : NULL;

    if (tern_log_version() != TERN_LOG_VERSION || *tern_log_error())
        return 4;
    if (strcmp(kind, "bad") == 0) {
        bad(ledger);
        return tern_log_close(handle) < 0 || failed;
    }
    if (n_args < 4)
        return 2;
    handle = tern_log_open(strcmp(ledger, "-") == 0 ? NULL : ledger, args[3]);
    if (!handle) {
        fprintf(stderr, "%s\n", tern_log_error());
        return 1;
    }
    if (strcmp(kind, "children") != 0)
        begin_threads(threads);
    if (strcmp(kind, "threads") != 0)
        children();
    if (strcmp(kind, "children") != 0)
        join_threads(threads);
    check(tern_log_close(handle) == 0, "close");
    return failed;
}
