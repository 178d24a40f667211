/* A storage takes fewer bytes than it says: writers compare after each write, and give the file up.
 */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/fabric/fabric.h"
#include "core/flight/flight.h"
#include "core/ledger/db.h"
#include "core/ledger/ledger.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char work[] = "/tmp/tern-written-XXXXXX";
static struct tern_err err;
static bool loses; /* the last byte of each write to a regular file */

ssize_t write(int fd, const void *data, size_t len)
{
    struct stat st;
    const bool less = loses && len > 1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    const ssize_t n = syscall(SYS_write, fd, data, len - less);

    return n > 0 && less ? n + 1 : n;
}

static void test_seal(void)
{
    char *path = tern_fs_join(work, "ledger.db");
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    ok(fd >= 0 && tern_fs_write(fd, "pages of a database", 19, path, &err) == 0,
       "pages without a seal are written");
    loses = true;
    const int rc = tern_ledger_db_seal(NULL, fd, path, &err);
    loses = false;
    ok(rc == -1 && err.code == TERN_TEMPFAIL, "a seal that loses a byte is an error");
    has(err.text, "ledger.db: has 34 bytes after 35 were written",
        "the error of a lost byte names the file and both sizes");
    if (fd >= 0)
        close(fd);
    free(path);
}

static void test_merge(void)
{
    char id[TERN_ULID_SIZE], *from = tern_fs_join(work, "from"), *to = tern_fs_join(work, "to");
    struct tern_ledger_merged merged;

    tern_ledger_ulid_new(id);
    char *spool = tern_strf("%s/runs/%s/spool/1/run.0.spool", to, id);
    struct tern_ledger_spool *s = tern_ledger_spool_open(from, id, 1, "run", &err);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "x"}, &err);
    tern_ledger_spool_close(s, &err);
    err = (struct tern_err){0};
    loses = true;
    const int rc = tern_ledger_merge(from, to, id, /* dry_run= */ false, &merged, &err);
    loses = false;
    ok(rc == -1 && err.code == TERN_TEMPFAIL && !tern_fs_exists(spool),
       "a merge whose copy loses a byte is an error, and no spool appears");
    has(err.text, "bytes after", "the error of a merge says how many bytes were written");
    ok(tern_ledger_merge(from, to, id, /* dry_run= */ false, &merged, &err) == 0 &&
           tern_fs_exists(spool),
       "the same merge is done once the storage is sound: %s", err.text);
    free(spool);
    free(from);
    free(to);
}

static void test_tree(void)
{
    char *from = tern_fs_join(work, "step_1"), *aside = tern_fs_join(work, ".step_1.new"),
         *to = tern_fs_join(work, "copy"), *file = tern_fs_join(from, "a");
    struct tern_tree t = {0};

    ok(mkdir(from, 0700) == 0 && tern_fs_replace(file, "weights", 7, 0600, &err) == 0 &&
           tern_tree_list(from, &t, &err) == 0,
       "a folder of one file is listed");
    loses = true;
    const int rc = tern_tree_copy(from, &t, aside, to, &err);
    loses = false;
    ok(rc == -1 && err.code == TERN_TEMPFAIL && !tern_fs_exists(to),
       "a copied folder whose file loses a byte does not appear");
    has(err.text, ".step_1.new/a: has 6 bytes after 7 were written",
        "the error of a copied folder names the short file, not its source");
    tern_tree_free(&t);
    free(from);
    free(aside);
    free(to);
    free(file);
}

static void test_dump(void)
{
    setenv("TERN_FABRIC_DUMP", work, 1);
    const struct tern_fabric_options o = {.wireup = TERN_WIREUP_ALONE};
    struct tern_fabric *f = tern_fabric_open(&o, &err);
    char *path = tern_fs_join(work, "fabric-rank-00000.tfr"),
         *temp = tern_fs_join(work, "fabric-rank-00000.00000.new");

    loses = true;
    tern_flight_write(false);
    loses = false;
    ok(f && !tern_fs_exists(path) && !tern_fs_exists(temp),
       "a dump of the flight recorder that loses a byte does not appear");
    tern_flight_write(false);
    ok(tern_fs_exists(path), "a dump that loses nothing appears");
    tern_fabric_close(f);
    free(path);
    free(temp);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_seal();
    test_merge();
    test_tree();
    test_dump();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}
