/* core/vcluster without a cluster: names, plans and the files written from them, the lock, the
 * protocol with the supervisor.  The daemons are scripts that tell a version. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/layout/layout.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/ctl.h"
#include "core/vcluster/folders.h"
#include "core/vcluster/net.h"
#include "core/vcluster/plan.h"
#include "core/vcluster/programs.h"
#include "core/vcluster/rootfs.h"
#include "core/vcluster/vcluster.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/tern-vcluster-XXXXXX";

/* Texts of this test are freed at its end. */
static char *kept[500];
static size_t n_kept;

static char *keep(char *text)
{
    if (n_kept == sizeof kept / sizeof *kept)
        abort();
    return kept[n_kept++] = text;
}

#define textf(...) keep(tern_strf(__VA_ARGS__))
#define at(...) textf("%s/" __VA_ARGS__)

/* The call returns 0; else its error is shown. */
#define works(call, ...)                                                                           \
    do {                                                                                           \
        if (!ok((call) == 0, __VA_ARGS__))                                                         \
            printf("# %s\n", err.text);                                                            \
    } while (0)

static void put(const char *path, const char *text, mode_t mode)
{
    char *dir = tern_fs_dirname(path);

    if (tern_fs_mkdirs(dir, 0755, NULL) < 0 ||
        tern_fs_replace(path, text, strlen(text), mode, NULL) < 0)
        abort();
    free(dir);
}

static char *text_of(const char *dir, const char *name)
{
    char *path = tern_strf("%s/%s", dir, name), *text = NULL;
    size_t len;

    if (tern_fs_read(path, 1 << 20, &text, &len, NULL) < 0)
        text = tern_strdup("(cannot be read)");
    free(path);
    return keep(text);
}

/* Daemons in folder/NAME/sbin that say they are of `version`, and an srun in its bin. */
static char *slurm_of(const char *name, const char *version)
{
    char *script = textf("#!/bin/sh\necho 'slurm %s'\n", version);

    put(textf("%s/%s/sbin/slurmctld", folder, name), script, 0755);
    put(textf("%s/%s/sbin/slurmd", folder, name), script, 0755);
    put(textf("%s/%s/bin/srun", folder, name), "#!/bin/sh\n", 0755);
    return textf("%s/%s", folder, name);
}

/* A layout of `min` static nodes and of dynamic ones up to `max`, of which `up` starts `dynamic`.
 */
static struct tern_layout *layout_of(int min, int max, int dynamic)
{
    struct tern_err err = {0};
    char *path = at("trn/cluster.yaml", folder), *side = at("trn/cluster.tern.yaml", folder);
    char *text = textf("Image: {Os: ubuntu2204}\n"
                       "HeadNode:\n"
                       "  InstanceType: c5.4xlarge\n"
                       "  Networking: {SubnetId: subnet-0123456789abcdef0}\n"
                       "Scheduling:\n"
                       "  Scheduler: slurm\n"
                       "  SlurmQueues:\n"
                       "    - Name: q\n"
                       "      Networking: {SubnetIds: [subnet-0123456789abcdef1]}\n"
                       "      ComputeResources:\n"
                       "        - Name: cr\n"
                       "          InstanceType: trn1.32xlarge\n"
                       "          MinCount: %d\n"
                       "          MaxCount: %d\n"
                       "SharedStorage:\n"
                       "  - {Name: fsx, MountDir: /fsx, StorageType: FsxLustre,\n"
                       "     FsxLustreSettings: {StorageCapacity: 1200}}\n",
                       min, max);

    put(path, text, 0644);
    put(side, textf("virtual: {dynamic: %d}\n", dynamic), 0644);
    struct tern_layout *l = tern_layout_load(path, &err);
    if (!l || l->n_errors) {
        printf("# %s\n", l ? l->notes[0].text : err.text);
        abort();
    }
    return l;
}

/* ---- names, folders, addresses ---- */

static void test_names(void)
{
    static const char *const bad[] = {"", "-a", "a/b", "..", "a b", "a.b"};
    struct tern_err err = {0};
    char *dir = keep(tern_vcluster_plan_dir("trn1-4_b", &err)),
         *expected = at("home/trn1-4_b", folder);

    is(dir, expected, "a cluster's folder lies under TERN_CLUSTER_HOME");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(!tern_vcluster_plan_dir(bad[i], &err) && err.code == TERN_USAGE,
           "a cluster cannot be called '%s'", bad[i]);
    char name[42];
    memset(name, 'a', 41);
    name[41] = '\0';
    ok(!tern_vcluster_plan_dir(name, &err), "a cluster's name of 41 letters is refused");
    name[40] = '\0';
    ok(keep(tern_vcluster_plan_dir(name, &err)) != NULL, "a cluster's name of 40 letters is taken");
}

static void test_home(void)
{
    struct tern_err err = {0};

    setenv("TERN_CLUSTER_HOME", "clusters", 1);
    ok(!tern_vcluster_plan_home(&err) && err.code == TERN_USAGE,
       "a relative TERN_CLUSTER_HOME is refused");
    unsetenv("TERN_CLUSTER_HOME");
    setenv("XDG_STATE_HOME", "/x", 1);
    is(keep(tern_vcluster_plan_home(&err)), "/x/tern/cluster",
       "without TERN_CLUSTER_HOME clusters lie under XDG_STATE_HOME");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/h", 1);
    is(keep(tern_vcluster_plan_home(&err)), "/h/.local/state/tern/cluster",
       "without XDG_STATE_HOME clusters lie under HOME");
    unsetenv("HOME");
    ok(!tern_vcluster_plan_home(&err), "without HOME there is no place for clusters");
    setenv("TERN_CLUSTER_HOME", at("home", folder), 1);
    setenv("HOME", folder, 1);
}

static void test_addresses(void)
{
    char a[16];

    is(tern_vcluster_net_address(a, sizeof a, 0), TERN_VCLUSTER_NET_HEAD,
       "the head has the address that nodes look for");
    is(tern_vcluster_net_address(a, sizeof a, 1), "10.200.1.1", "node 1 has 10.200.1.1");
    is(tern_vcluster_net_address(a, sizeof a, 255), "10.200.1.255", "node 255 has 10.200.1.255");
    is(tern_vcluster_net_address(a, sizeof a, 256), "10.200.2.0", "node 256 has 10.200.2.0");
}

/* ---- the lock ---- */

static void test_lock(void)
{
    struct tern_err err = {0};
    char *dir = at("home/locked", folder), *old = at("home/locked/log/old", folder);
    struct stat st;

    ok(!tern_vcluster_plan_locked(dir), "a cluster that is not there is not locked");
    put(at("home/theirs/thesis.tex", folder), "x", 0644);
    ok(tern_vcluster_plan_lock(at("home/theirs", folder), "theirs", &err) < 0 &&
           err.code == TERN_USAGE,
       "a folder with somebody's files and no lock is refused");
    has(err.text, "holds files that are no cluster's", "a refused folder is named with the remedy");
    ok(tern_fs_exists(at("home/theirs/thesis.tex", folder)), "a refused folder keeps its files");

    put(at("home/locked/lock", folder), "", 0600);
    put(old, "of a former cluster", 0644);
    int fd = tern_vcluster_plan_lock(dir, "locked", &err);
    ok(fd >= 0 && stat(dir, &st) == 0 && (st.st_mode & 07777) == 0700,
       "a cluster's folder is its owner's alone");
    ok(!tern_fs_exists(old), "what a former cluster left is removed by the lock's new holder");
    ok(tern_vcluster_plan_locked(dir), "a held lock is seen");
    ok(tern_vcluster_plan_lock(dir, "locked", &err) < 0 && err.code == TERN_USAGE,
       "a second `up` of a name is refused");
    has(err.text, "tern cluster down locked", "a second `up` says how to end the first");
    close(fd);
    ok(!tern_vcluster_plan_locked(dir), "a lock ends with its holder");
    ok(tern_vcluster_down("locked", &err) == 0 && !tern_fs_exists(dir),
       "`down` removes what a dead cluster left");
    ok(tern_vcluster_down("locked", &err) < 0 && err.code == TERN_USAGE,
       "`down` of a name that is not there is refused");
}

/* ---- programs ---- */

static void test_programs(void)
{
    struct tern_err err = {0};
    const char *release = tern_slurm_release();
    struct tern_vcluster_plan p = {0};
    char *same = slurm_of("same", textf("%s.9", release));
    char *near = slurm_of("near", textf("%s9.1", release)), *far = slurm_of("far", "1.02.3");

    works(tern_vcluster_programs_find(&p, same, false, &err), "daemons of this release are taken");
    is(p.slurmd, textf("%s/sbin/slurmd", same), "slurmd is the prefix's");
    is(p.bin, textf("%s/bin", same), "commands are the prefix's");
    tern_vcluster_plan_free(&p);
    ok(tern_vcluster_programs_find(&p, far, false, &err) < 0 && err.code == TERN_USAGE,
       "daemons of another release are refused");
    has(err.text, "is of Slurm 1.02.3", "a refused daemon's release is named");
    tern_vcluster_plan_free(&p);
    ok(tern_vcluster_programs_find(&p, near, false, &err) < 0,
       "a release that only begins like this one is another one");
    tern_vcluster_plan_free(&p);
    unlink(textf("%s/sbin/slurmd", far));
    ok(tern_vcluster_programs_find(&p, far, false, &err) < 0 &&
           strstr(err.text, "no slurmd in its sbin"),
       "a prefix without slurmd is refused with its name");
    tern_vcluster_plan_free(&p);

    char *bin = textf("%s/bin", same);
    char *with = textf("%s:/usr/bin", bin), *first = textf("%s:/bin", bin);
    is(keep(tern_vcluster_programs_path("/bin", bin)), first,
       "another Slurm's commands are put before PATH");
    is(keep(tern_vcluster_programs_path(with, bin)), with, "a PATH that has them first stays");
    is(keep(tern_vcluster_programs_path("/bin", "")), "/bin",
       "without another Slurm PATH stays as it was");
    ok(tern_vcluster_programs_non_system(bin) && !tern_vcluster_programs_non_system("/usr/bin") &&
           !tern_vcluster_programs_non_system(""),
       "a Slurm outside /usr/bin is not the system's");
}

/* ---- plans ---- */

static void test_folders(struct tern_vcluster_plan p)
{
    p.share = (char *[]){folder, at("below", folder), folder, "/usr", NULL};
    const char *said = strstr(keep(tern_vcluster_folders_describe(&p)), folder);
    ok(said && !strstr(said + 1, folder) && !strstr(said, "/usr") && strstr(said, "own /tmp"),
       "each folder that nodes see is named once, and none that every node has");
    p.mode = TERN_VCLUSTER_PLAIN;
    ok(strstr(keep(tern_vcluster_folders_describe(&p)), "every") != NULL, "plain: all are shared");
}

static void test_plan(void)
{
    struct tern_err err = {0};
    struct tern_vcluster_plan p;
    const char *const share[] = {folder, NULL}, *const no_share[] = {"/no/such/folder", NULL};
    struct tern_vcluster_options o = {.slurm = at("same", folder), .share = share};

    struct tern_layout *l = layout_of(2, 5, 1);
    works(tern_vcluster_plan_make(&p, l, &o, &err), "a plan is made");
    ok(p.n_nodes == 5 && p.n_fleet == 2,
       "a plan begins with static nodes and as many dynamic ones as the sidecar says");
    ok(!p.nodes[2].fleet && p.nodes[3].fleet, "the others are started by Slurm");
    is(p.name, "trn", "a cluster without a name has its layout's");
    is(p.nodes[0].name, "q-st-cr-1", "static nodes come first");
    is(p.nodes[2].name, "q-dy-cr-1", "dynamic nodes come last");
    ok(p.nodes[0].chips == 16, "a node has its instance's 16 Neuron devices");
    is(p.share[0], folder, "a shared folder is visible on every node");
    test_folders(p);
    tern_vcluster_plan_free(&p);
    o.share = no_share;
    ok(tern_vcluster_plan_make(&p, l, &o, &err) < 0 && strstr(err.text, "--share: /no/such/folder"),
       "a shared folder that is not there is refused");
    o.share = NULL;
    o.name = "a/b";
    ok(tern_vcluster_plan_make(&p, l, &o, &err) < 0 && err.code == TERN_USAGE,
       "a plan with a bad name is refused");
    tern_layout_free(l);

    o.name = NULL;
    l = layout_of(0, 5, 0);
    ok(tern_vcluster_plan_make(&p, l, &o, &err) == 0 && p.n_nodes == 5 && p.n_fleet == 5 &&
           p.nodes[4].fleet,
       "nodes of a layout without static ones are started by Slurm");
    tern_vcluster_plan_free(&p);
    tern_layout_free(l);
    l = layout_of(3, 2049, 0);
    ok(tern_vcluster_plan_make(&p, l, &o, &err) == 0 && p.n_nodes == 3 && p.n_fleet == 0,
       "dynamic nodes that are too many for a machine are left out");
    tern_vcluster_plan_free(&p);
    tern_layout_free(l);
    l = layout_of(2049, 2049, 0);
    ok(tern_vcluster_plan_make(&p, l, &o, &err) < 0 && strstr(err.text, "more than the 2048"),
       "2049 nodes are refused");
    tern_layout_free(l);
    l = layout_of(2048, 2048, 0);
    ok(tern_vcluster_plan_make(&p, l, &o, &err) == 0 && p.n_nodes == 2048, "2048 nodes are taken");
    tern_vcluster_plan_free(&p);
    tern_layout_free(l);
}

static void test_namespaces_written(const struct tern_layout *l)
{
    struct tern_err err = {0};
    struct tern_vcluster_plan p;
    struct tern_vcluster_options o = {
        .slurm = at("same", folder), .name = "ns", .plugin = "/p/tern_spank.so a=1"};
    struct stat st;

    tern_vcluster_plan_make(&p, l, &o, &err);
    p.mode = TERN_VCLUSTER_NAMESPACES;
    works(tern_vcluster_plan_write(&p, &err), "a plan for namespaces is written");
    char *conf = text_of(p.dir, "etc/slurm.conf");
    has(conf, "\nClusterName=ns\n", "slurm.conf has the cluster's name");
    has(conf, "SlurmctldHost=head(" TERN_VCLUSTER_NET_HEAD ")", "slurmctld runs on the head");
    has(conf, "socket=" TERN_VCLUSTER_ROOT_MUNGE, "slurm.conf names each place's own munged");
    has(conf, "StateSaveLocation=" TERN_VCLUSTER_ROOT_STATE "/state",
        "slurmctld's state is where the head sees the cluster's folder");
    has(conf, "NodeName=q-st-cr-[1-2]", "slurm.conf has the static nodes");
    has(conf, "SuspendExcNodes=q-st-cr-[1-2],q-dy-cr-1\n", "Slurm does not switch off those nodes");
    ok(stat(textf("%s/etc/resume", p.dir), &st) == 0 && (st.st_mode & 0777) == 0755,
       "Slurm has a program that starts dynamic nodes");
    ok(!strstr(strchr(conf, '\n'), folder), "in namespaces slurm.conf knows no folder of the host");
    is(text_of(p.dir, "etc/hosts"),
       "127.0.0.1 localhost\n10.200.0.1 head\n10.200.1.1 q-st-cr-1\n10.200.1.2 q-st-cr-2\n"
       "10.200.1.3 q-dy-cr-1\n10.200.1.4 q-dy-cr-2\n10.200.1.5 q-dy-cr-3\n",
       "every node finds the head and the others by name");
    is(text_of(p.dir, "etc/plugstack.conf"),
       textf("optional /p/tern_spank.so a=1 bin=%s conf=%s/slurm.conf\n", p.bin,
             tern_vcluster_programs_conf_dir()),
       "the plugin learns where commands and slurm.conf are");
    is(text_of(p.dir, "bin"), p.bin, "the folder of Slurm's commands is noted");
    is(text_of(p.dir, "layout"), l->path, "the layout is noted");
    ok(stat(textf("%s/munge.key", p.dir), &st) == 0 && st.st_size == 128 &&
           (st.st_mode & 0777) == 0600,
       "munge's key has 128 bytes and is the owner's alone");
    ok(stat(textf("%s/fs/fsx", p.dir), &st) == 0 && (st.st_mode & 07777) == 01777,
       "shared storage is everybody's, as /tmp is");
    ok(stat(textf("%s/nodes/q-dy-cr-1/tmp", p.dir), &st) == 0 && (st.st_mode & 07777) == 01777,
       "every node has a /tmp of its own");
    tern_vcluster_plan_free(&p);
}

static void test_plain_written(const struct tern_layout *l)
{
    if (!getpwuid(geteuid())) {
        tap_skip("this user has no name, which plain mode refuses");
        return;
    }
    struct tern_err err = {0};
    struct tern_vcluster_plan p;
    struct tern_vcluster_options o = {.slurm = at("same", folder), .name = "plain"};

    tern_vcluster_plan_make(&p, l, &o, &err);
    p.mode = TERN_VCLUSTER_PLAIN;
    works(tern_vcluster_plan_write(&p, &err), "a plan for plain mode is written");
    char *conf = text_of(p.dir, "etc/slurm.conf");
    has(conf, textf("SlurmctldHost=%s(127.0.0.1)", p.host),
        "slurmctld of plain mode is on this machine");
    has(conf, textf("SlurmctldPort=%d\n", p.port), "slurmctld has a free port");
    has(conf, textf("Port=[%d-%d]", p.port + 1, p.port + 2),
        "static slurmds have ports of their own");
    has(conf, textf(" Port=%d ", p.port + 3), "a dynamic slurmd has the next port");
    has(conf, textf("socket=%s/run/munge.socket", p.dir), "munged is the cluster's own");
    has(conf, textf("SlurmdSpoolDir=%s/nodes/%%n/spool", p.dir),
        "nodes that share a file system have a spool each");
    tern_vcluster_plan_free(&p);

    setenv("TERN_CLUSTER_HOME", at("my home", folder), 1);
    tern_vcluster_plan_make(&p, l, &o, &err);
    p.mode = TERN_VCLUSTER_PLAIN;
    ok(tern_vcluster_plan_write(&p, &err) < 0 && strstr(err.text, "cannot hold this path"),
       "plain mode refuses a folder with a blank in its path");
    tern_vcluster_plan_free(&p);
    setenv("TERN_CLUSTER_HOME",
           at("long-enough-that-a-socket-below-it-has-a-path-of-more-than-107-bytes/0123456789",
              folder),
           1);
    tern_vcluster_plan_make(&p, l, &o, &err);
    p.mode = TERN_VCLUSTER_PLAIN;
    ok(tern_vcluster_plan_write(&p, &err) < 0 && strstr(err.text, "too long for a socket's path"),
       "plain mode refuses a folder whose path is too long for a socket");
    tern_vcluster_plan_free(&p);
    setenv("TERN_CLUSTER_HOME", at("home", folder), 1);
}

/* ---- the supervisor's socket ---- */

/* A supervisor of one cluster in plain mode that answers `n` requests.  A request to switch a node
 * off is refused. */
static pid_t supervisor(const char *name, int n)
{
    char *dir = at("home/%s", folder, name);
    struct tern_err err = {0};
    int ready[2];
    char byte;

    if (pipe(ready) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        int lock = tern_vcluster_plan_lock(dir, name, &err);
        int listener = tern_vcluster_ctl_listen(dir, &err);
        if (lock < 0 || listener < 0 || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (int i = 0; i < n; i++) {
            struct tern_vcluster_ctl_request q;
            struct tern_vcluster_ctl_answer a = {
                .size = sizeof a, .mode = TERN_VCLUSTER_PLAIN, .n_nodes = 7};
            int fd = tern_vcluster_ctl_accept(listener, &q);
            if (fd < 0)
                continue;
            if (q.op == TERN_VCLUSTER_CTL_OFF) {
                a.code = TERN_TEMPFAIL;
                snprintf(a.text, sizeof a.text, "%s stays on", q.node);
            } else if (strcmp(q.node, "spot") == 0) {
                a.code = TERN_TEMPFAIL;
                a.trouble = TERN_VCLUSTER_SPOT_RECLAIM;
            }
            tern_vcluster_ctl_answer(fd, &a, q.op == TERN_VCLUSTER_CTL_ENTER ? lock : -1);
        }
        pause();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        abort();
    close(ready[0]);
    return pid;
}

static int in_head(void *out, struct tern_err *err)
{
    const char *conf = getenv("SLURM_CONF");

    if (!conf)
        return tern_err_set(err, TERN_USAGE, "no SLURM_CONF in the head");
    snprintf(out, 200, "%s", conf);
    return 0;
}

static int fails_in_head(void *out, struct tern_err *err)
{
    (void)out;
    return tern_err_set(err, TERN_TEMPFAIL, "slurmctld is away");
}

static void test_list(pid_t pid)
{
    struct tern_err err = {0};
    struct tern_vcluster_info *list;
    size_t n;

    for (char dead[] = "e"; dead[0] >= 'a'; dead[0]--)
        put(at("home/%s/lock", folder, dead), "", 0600);
    ok(tern_vcluster_list(&list, &n, &err) == 0 && n == 6, "clusters are listed");
    bool sorted = true;
    for (size_t i = 1; i < n; i++)
        sorted = sorted && strcmp(list[i - 1].name, list[i].name) < 0;
    ok(sorted, "clusters are listed by name");
    ok(strcmp(list[0].name, "a") == 0 && !list[0].alive && list[0].pid == 0,
       "a cluster whose lock is free is listed as dead");
    ok(list[5].alive && list[5].pid == pid && list[5].n_nodes == 7 &&
           list[5].mode == TERN_VCLUSTER_PLAIN,
       "a live cluster is listed with its process, nodes and mode");
    tern_vcluster_list_free(list, n);
}

static void test_call(const char *dir)
{
    struct tern_err err = {0};
    char conf[200] = "";

    works(tern_vcluster_call("served", in_head, conf, sizeof conf, &err),
          "a function runs in the head");
    is(conf, textf("%s/etc/slurm.conf", dir), "in the head SLURM_CONF is the cluster's");
    ok(tern_vcluster_call("served", fails_in_head, conf, sizeof conf, &err) < 0 &&
           err.code == TERN_TEMPFAIL && strcmp(err.text, "slurmctld is away") == 0,
       "an error in the head is the caller's, with its code");
    setenv("SLURM_CONF", textf("%s/etc/slurm.conf", dir), 1);
    is(tern_vcluster_local_folder(), dir,
       "a process in a plain cluster knows the cluster's folder");
    unsetenv("SLURM_CONF");
}

static void test_protocol(void)
{
    struct tern_err err = {0};
    struct tern_vcluster_ctl_request q = {.size = sizeof q, .op = TERN_VCLUSTER_CTL_ENTER};
    struct tern_vcluster_ctl_answer a;
    struct stat lock, got;
    int folder_fd = -1;
    pid_t seen = 0;
    char *dir = at("home/served", folder);

    mkdir(dir, 0700);
    ok(tern_vcluster_ctl_call(dir, &q, &a, NULL, NULL, &err) < 0 && err.code == TERN_USAGE,
       "a cluster without a supervisor is bad input");
    has(err.text, "no supervisor answers", "a cluster without a supervisor is named so");
    put(at("home/served/lock", folder), "", 0600);
    pid_t pid = supervisor("served", 100);
    ok(tern_vcluster_ctl_call(dir, &q, &a, &folder_fd, &seen, &err) == 0 && a.n_nodes == 7 &&
           seen == pid,
       "a supervisor's answer comes with its process");
    ok(folder_fd >= 0 && fstat(folder_fd, &got) == 0 &&
           stat(at("home/served/lock", folder), &lock) == 0 && got.st_ino == lock.st_ino,
       "a descriptor travels beside an answer");
    close(folder_fd);
    bool lost;
    ok(tern_vcluster_power("served", "n1", false, &lost, &err) < 0 && err.code == TERN_TEMPFAIL,
       "a supervisor's refusal is the caller's error");
    is(err.text, "n1 stays on", "a supervisor's refusal keeps its words and the node");
    ok(!lost, "a passing error of the supervisor is no lost capacity");
    ok(tern_vcluster_power("served", "n1", true, &lost, &err) == 0 && !lost,
       "a node is switched on");
    ok(tern_vcluster_power("served", "spot", true, &lost, &err) < 0 && lost,
       "a node whose capacity is lost is distinguished from one that failed");
    q.size--;
    ok(tern_vcluster_ctl_call(dir, &q, &a, NULL, NULL, &err) < 0,
       "a request of another version of tern gets no answer");
    has(err.text, "another version of tern", "a request without an answer names the version");

    test_list(pid);
    is(keep(tern_vcluster_find(NULL, &err)), "served", "the only live cluster needs no name");
    ok(!tern_vcluster_find("a", &err) && strstr(err.text, "no cluster 'a' is up"),
       "a dead cluster is not found");

    test_call(dir);
    pid_t second = supervisor("second", 100);
    ok(!tern_vcluster_find(NULL, &err) &&
           strstr(err.text, "several clusters are up: second, served"),
       "of several live clusters one must be named");
    kill(second, SIGKILL);
    waitpid(second, NULL, 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ok(!tern_vcluster_find(NULL, &err) && strstr(err.text, "no cluster is up"),
       "a cluster ends with its supervisor");
}

static void test_exec(void)
{
    struct tern_err err = {0};
    char *out = at("seen", folder);
    char *const argv[] = {"sh", "-c", textf("echo $OMP_NUM_THREADS $SLURM_CONF >%s; exit 7", out),
                          NULL};
    char *const killed[] = {"sh", "-c", "kill -9 $$", NULL}, *const none[] = {"no-such-program", 0};
    int status = -1;
    pid_t pid = supervisor("exec", 100);

    fflush(stdout);
    pid_t child = fork(); /* exec changes the environment of its process */
    if (child == 0) {
        bool good = tern_vcluster_exec("exec", NULL, argv, &status, &err) == 0 && status == 7 &&
                    tern_vcluster_exec("exec", NULL, killed, &status, &err) == 0 &&
                    status == 128 + SIGKILL &&
                    tern_vcluster_exec("exec", NULL, none, &status, &err) == 0 && status == 127;
        _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    ok(status == 0, "exec returns exit status, signal or 127 of a program that is not there");
    is(text_of(folder, "seen"), textf("1 %s/home/exec/etc/slurm.conf\n", folder),
       "a program in a plain cluster finds its slurm.conf and takes one thread");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    struct tern_err err = {0};

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return tap_skip_all("no folder under /tmp");
    put(at("munge/munged", folder), "#!/bin/sh\n", 0755);
    setenv("PATH", textf("%s/munge:/usr/bin:/bin", folder), 1);
    unsetenv("SLURM_CONF");
    test_home();
    test_names();
    test_addresses();
    test_lock();
    test_programs();
    test_plan();
    struct tern_layout *l = layout_of(2, 5, 1);
    test_namespaces_written(l);
    test_plain_written(l);
    tern_layout_free(l);
    test_protocol();
    test_exec();
    tern_fs_remove_tree(folder, &err);
    while (n_kept)
        free(kept[--n_kept]);
    return tap_done();
}
