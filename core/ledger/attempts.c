/* Attempts by the names and times of their spool files, and names of jobs. */
#include "core/ledger/files.h"

#include "core/base/again.h"
#include "core/ledger/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

double tern_ledger_silence(const char *ledger_dir, const char *run_id)
{
    struct tern_ledger_spool_files files;
    struct timespec now, newest = {0};
    struct stat st;

    if (tern_ledger_spool_files_list(ledger_dir, run_id, &files, NULL) < 0)
        return 0;
    for (size_t i = 0; i < files.n; i++)
        if (files.files[i].attempt == files.files[files.n - 1].attempt &&
            !strstr(files.files[i].name, "/" TERN_LEDGER_NOTE_WRITER) &&
            TERN_AGAIN(stat(files.files[i].path, &st)) == 0 && st.st_mtim.tv_sec > newest.tv_sec)
            newest = st.st_mtim;
    tern_ledger_spool_files_free(&files);
    clock_gettime(CLOCK_REALTIME, &now);
    return newest.tv_sec && now.tv_sec > newest.tv_sec ? (double)(now.tv_sec - newest.tv_sec) : 0;
}

int tern_ledger_last_attempt(const char *ledger_dir, const char *run_id, unsigned *out,
                             struct tern_err *err)
{
    struct tern_ledger_spool_files files;

    if (tern_ledger_spool_files_list(ledger_dir, run_id, &files, err) < 0)
        return -1;
    *out = files.n ? files.files[files.n - 1].attempt : 0;
    tern_ledger_spool_files_free(&files);
    return 0;
}

char *tern_ledger_job_name(char to[TERN_LEDGER_JOB_SIZE], int64_t job_id, int64_t array_job,
                           int64_t array_task)
{
    to[0] = '\0';
    if (array_job > 0)
        snprintf(to, TERN_LEDGER_JOB_SIZE, "%" PRId64 "_%" PRId64, array_job, array_task);
    else if (job_id > 0)
        snprintf(to, TERN_LEDGER_JOB_SIZE, "%" PRId64, job_id);
    return to;
}

int tern_ledger_job_is(const char *name, const struct tern_ledger_attempt *a)
{
    char master[24];
    const char *task = strchr(name, '_');
    int64_t job, member = -1;

    snprintf(master, sizeof master, "%.*s", (int)(task ? task - name : 23), name);
    if (strlen(name) >= TERN_LEDGER_JOB_SIZE || tern_str_int(master, 1, INT64_MAX, &job) < 0 ||
        (task && tern_str_int(task + 1, 0, INT64_MAX, &member) < 0))
        return -1;
    if (task)
        return a->array_job == job && a->array_task == member;
    return a->job_id == job || a->array_job == job;
}
