/* core/slurm: what works without a controller.  tests/slurm has the rest. */
#include "tap.h"

#include "core/slurm/slurm.h"

static void hosts(void)
{
    struct tern_err err = {0};
    char **names = NULL;
    size_t n = 0;

    ok(tern_slurm_hosts_expand("trn1-st-a-[1-3,7],head,b[08-10]", &names, &n, &err) == 0 && n == 8,
       "a host list expands");
    is(n == 8 ? names[3] : "", "trn1-st-a-7", "ranges with gaps");
    is(n == 8 ? names[4] : "", "head", "order is kept");
    is(n == 8 ? names[5] : "", "b08", "leading zeros are kept");
    ok(n == 8 && names[8] == NULL, "ended by NULL");
    char *s = tern_slurm_hosts_compress(names, n);
    is(s, "trn1-st-a-[1-3,7],head,b[08-10]", "and compresses back");
    free(s);
    tern_slurm_hosts_free(names);
    s = tern_slurm_hosts_compress(NULL, 0);
    is(s, "", "no hosts: an empty text");
    free(s);
    ok(tern_slurm_hosts_expand("", &names, &n, &err) == 0 && n == 0, "an empty list is no hosts");
    tern_slurm_hosts_free(names);
}

static void no_configuration(void)
{
    struct tern_err err = {0};
    struct tern_slurm_job *job = NULL;

    setenv("SLURM_CONF", "/nonexistent/slurm.conf", 1);
    ok(!tern_slurm_available(), "no configuration: Slurm is not available");
    ok(tern_slurm_job_load(1, &job, &err) < 0 && !job, "a call then fails, and does not exit");
    has(err.text, "/nonexistent/slurm.conf", "the message names the file");
}

int main(void)
{
    hosts();
    no_configuration();
    return tap_done();
}
