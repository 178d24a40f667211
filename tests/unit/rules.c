/* Tables of checks: their rows, and rules of a node on facts that no machine has. */
#include "core/rules/rules.h"

#include "core/doctor/doctor.h"
#include "core/health/probe.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_whole(const struct tern_rule *r)
{
    return r->id && *r->id && r->rule && r->where && r->holds && *r->holds && r->remedy &&
           *r->remedy;
}

static void rows(void)
{
    const struct tern_rule *r;
    struct tern_health_about a;
    size_t n = 0, whole = 0;

    for (; tern_health_about(n, &a); n++)
        whole +=
            is_whole(a.rule) && strlen(a.rule->id) < sizeof((struct tern_health_row *)0)->check;
    ok(n > 20 && whole == n, "%zu of %zu rows of health are whole", whole, n);
    for (n = whole = 0; (r = tern_doctor_rule(n)); n++)
        whole += is_whole(r);
    ok(n > 40 && whole == n, "%zu of %zu rows of doctor are whole", whole, n);
}

static int order[3], n_order;

static void first(struct tern_rules_case *c)
{
    order[n_order++] = 1 + (c->rule->severity == TERN_RULES_WARN);
}

static void loop(void)
{
    static const struct tern_rule table[] = {
        {"a", TERN_RULES_ERROR, 1, first, "", ""},
        {"b", TERN_RULES_ERROR, 2, first, "", ""},
        {"c", TERN_RULES_WARN, 3, first, "", ""},
    };

    tern_rules_apply(table, 3, 1, &(struct tern_rules_case){.subject = ""});
    ok(n_order == 2 && order[0] == 1 && order[1] == 2,
       "rules apply in their order, and only where they should");
}

/* ------------------------------------------------------------------ words */

static bool on_n1(const char *hosts, const char *node)
{
    return strcmp(hosts, "n1") == 0 && strcmp(node, "n1") == 0;
}

static void words(void)
{
    struct tern_rules_expected has = {-1, -1, -1, -1};
    struct tern_rules_folder folder;
    struct tern_err err = {0};
    char list[400] = "";

    ok(tern_rules_listed("efa,nic", "nic") && tern_rules_listed("nic,efa", "nic"),
       "a list names a check, wherever it stands");
    ok(!tern_rules_listed("nicer,efa", "nic") && !tern_rules_listed("nic", "nicer"),
       "a longer word of a list is another check");
    ok(tern_rules_ids_check("efa,nic", "x", &err) == 0 &&
           tern_rules_ids_check("efa,ni", "x", &err) < 0,
       "half a check's name is refused");
    ok(tern_rules_folder_read("/fsx:10G", "x", &folder, &err) == 0 &&
           folder.need_bytes == 10ull << 30 && strcmp(folder.dir, "/fsx") == 0,
       "a folder and the space that it must have");
    ok(tern_rules_folder_read("fsx", "x", &folder, &err) < 0, "a relative folder is refused");
    ok(tern_rules_folder_read("/fsx:many", "x", &folder, &err) < 0,
       "a size that is none is refused");
    for (int i = 0; i < TERN_RULES_MAX_FOLDERS; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s/f%d", i ? "," : "", i);
    ok(tern_rules_folders_check(list, "x", &err) == 0, "as many folders as there may be");
    strcat(list, ",/more");
    ok(tern_rules_folders_check(list, "x", &err) < 0, "a folder too many is refused");
    ok(tern_rules_expected_read("n1:neuron=16;n2:neuron=2,efa=8;memory=7", "x", on_n1, "n1", &has,
                                &err) == 0 &&
           has.neuron == 16 && has.efa == -1 && has.memory_mib == 7,
       "what is expected of other nodes is not expected of this one");
    ok(tern_rules_expected_check("neuron=16,efas=8,memory=7", "x", &err) < 0,
       "a misspelt expectation is refused");
}

/* ------------------------------------------------------------------ rules of a node */

static struct tern_health_expected expected;
static struct tern_health_options options;
static struct tern_health_facts facts;

/* The rule of check `id` on `facts` and `expected`: does its row say `words`? */
static void says(const char *id, const char *words)
{
    const struct tern_health_check *check = tern_health_checks;
    struct tern_health_probe p = {.expected = &expected, .options = &options, .check = id};
    struct tern_rules_case c = {.subject = "", .facts = &facts, .to = &p};
    static char said[8192];
    int fd[2];

    while (strcmp(check->rule.id, id) != 0)
        check++;
    if (pipe(fd) < 0) {
        ok(false, "a pipe for the rows of %s", id);
        return;
    }
    p.out = fd[1];
    tern_rules_apply(&check->rule, 1, check->rule.where, &c);
    close(fd[1]);
    /* The row's texts stand in its message as they are. */
    ssize_t n = read(fd[0], said, sizeof said - 1);
    close(fd[0]);
    for (ssize_t i = 0; i < n; i++)
        if (!said[i])
            said[i] = ' ';
    said[n > 0 ? n : 0] = '\0';
    ok(strstr(said, words) != NULL, "check %s: '%s'", id, words);
    facts = (struct tern_health_facts){0};
}

static void node(void)
{
    expected.has = (struct tern_rules_expected){16, 8, 1000, 100};
    facts.neuron.n = 15;
    says("neuron", "15 of 16 Neuron devices are there");
    facts.neuron.n = 16;
    facts.neuron.hidden = 2;
    says("neuron", "2 of 16 Neuron devices are not allocated to this job");
    facts.ecc.n_read = 2;
    facts.ecc.n_bad = 1;
    facts.ecc.bad[0] = (struct tern_health_counter){"neuron3", 1, 7};
    says("ecc", "neuron3: mem_ecc_uncorrected is 7. Replace the instance");
    facts.kernel.error = EPERM;
    says("kernel", "root alone may read");
    facts.efa.n = 8;
    facts.efa.up = 7;
    says("efa", "7 of 8 EFA devices are active");
    facts.memory.total_kib = 999 << 10;
    says("memory", "999 MiB of memory, and Slurm believes 1000");
    facts.memory.hugepages = 99;
    says("hugepages", "99 of 100 huge pages");
    facts.limits.memlock = facts.limits.memlock_soft = (16ull << 30) - 1;
    facts.limits.nofile = 4096;
    says("limits", "Set LimitMEMLOCK=infinity");
    facts.limits.memlock = facts.limits.memlock_soft = 16ull << 30;
    facts.limits.nofile = 4096;
    says("limits", "memlock and nofile suffice");
    facts.leftovers.pid = 4711;
    facts.leftovers.job = 77;
    says("leftovers", "process 4711 of job 77, which is over");
    facts.triad.n = 8 << 20;
    facts.triad.wrong = 1;
    says("triad", "1 of 8388608 sums came back from memory wrong");
    says("provider", "tcp, a part of every libfabric");
}

static void mounts(void)
{
    expected.n_mounts = 1;
    expected.mount[0] = (struct tern_health_mount){.folder = {"/fsx", 0}, .asked = true};
    facts.mount.open_error = ENOENT;
    says("mount", "/fsx is not there");
    facts.mount.has_blocks = true;
    facts.mount.free_bytes = TERN_HEALTH_LEAST_BYTES - 1;
    says("mount", "are needed. Make room.");
    facts.mount.has_blocks = facts.mount.has_inodes = true;
    facts.mount.free_bytes = TERN_HEALTH_LEAST_BYTES;
    facts.mount.free_inodes = TERN_HEALTH_LEAST_INODES - 1;
    says("mount", "999 inodes are left");
    facts.mount.taken = (struct tern_health_taken){TERN_HEALTH_FSYNC, EROFS};
    says("mount", "cannot fsync a file");
    facts.mount.taken = (struct tern_health_taken){TERN_HEALTH_DONE, 0};
    says("mount", "/fsx: takes a file");
    expected.mount[0].asked = false;
    facts.mount.taken = (struct tern_health_taken){TERN_HEALTH_CREATE, EACCES};
    says("mount", "/fsx: answers");
    expected.mount[0].fstab = true;
    says("mount", "is in /etc/fstab but not mounted");
}

int main(void)
{
    unsetenv("TERN_FABRIC_PROVIDER");
    rows();
    loop();
    words();
    node();
    mounts();
    return tap_done();
}
