/* What the spool files tell of a run's attempts without being read. */
#include "core/ledger/files.h"
#include "core/ledger/ledger.h"

#include <sys/stat.h>
#include <time.h>

double tern_ledger_silence(const char *ledger_dir, const char *run_id)
{
    struct tern_spool_files files;
    struct timespec now, newest = {0};
    struct stat st;

    if (tern_spool_files_list(ledger_dir, run_id, &files, NULL) < 0)
        return 0;
    for (size_t i = 0; i < files.n; i++)
        if (files.files[i].attempt == files.files[files.n - 1].attempt &&
            stat(files.files[i].path, &st) == 0 && st.st_mtim.tv_sec > newest.tv_sec)
            newest = st.st_mtim;
    tern_spool_files_free(&files);
    clock_gettime(CLOCK_REALTIME, &now);
    return newest.tv_sec && now.tv_sec > newest.tv_sec ? (double)(now.tv_sec - newest.tv_sec) : 0;
}

int tern_ledger_last_attempt(const char *ledger_dir, const char *run_id, unsigned *out,
                             struct tern_err *err)
{
    struct tern_spool_files files;

    if (tern_spool_files_list(ledger_dir, run_id, &files, err) < 0)
        return -1;
    *out = files.n ? files.files[files.n - 1].attempt : 0;
    tern_spool_files_free(&files);
    return 0;
}
