/* Files that programs and topics of help are about: FILES of their pages. */
#include "core/base/opt.h"

#include "core/base/opt_row.h"
#include "core/base/page.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* `programs` and `topics` have blanks around each name; programs "*": all of them.  `see`, `more`:
 * pages about it, or NULL. */
static const struct {
    const char *path, *programs, *topics, *what, *see, *more;
} files[] = {
    {"/etc/tern/tern.yaml", "*", " launch env environment site checks install ", "Site settings",
     "site(5)", NULL},
    {"run.yaml", " data submit run eval train env cluster ledger ckpt ",
     " recipe parallel lora precision launch workload env figures ", "A recipe", "recipe(5)", NULL},
    {"cluster.yaml, cluster.tern.yaml", " cluster run train ",
     " parallel launch layout layout-settings checks ",
     "A ParallelCluster layout, and beside it settings for tern alone", "layout(7)", NULL},
    {"cluster-config.json, provisioning_parameters.json", " cluster ", " layout checks ",
     "A layout for HyperPod", NULL, NULL},
    {"NAME.tds", " data train eval run ", " recipe token-set ", "A token set", "token-set(5)",
     NULL},
    {"NAME.tds.parts/", " data ", " token-set ",
     "Parts of a token set that several processes build", "token-set(5)", NULL},
    {"checkpoint.dir/step-NNNNNNNN/", " ckpt train eval generate run ",
     " recipe parallel lora precision launch faults ", "A checkpoint", "checkpoint(5)", NULL},
    {"adapter_config.json, adapter_model.safetensors", " ckpt ", " lora ",
     "Adapters as PEFT reads them, which `tern ckpt export` writes", NULL, NULL},
    {"LEDGER/ledger.db", " ledger metric run submit logs eval ",
     " recipe c-api environment figures ledger-schema ", "The catalogue of runs", "ledger-files(5)",
     "ledger-schema(5)"},
    {"LEDGER/runs/RUN/run.db, spool/", " ledger metric run train task eval ",
     " workload c-api faults ledger-schema ", "What one run recorded", "ledger-files(5)", NULL},
    {"LEDGER/runs/RUN/external/, keep.json", " run ckpt ", " workload ",
     "Checkpoints of another trainer than tern's, and what is kept of them", "ledger-files(5)",
     NULL},
    {"$TERN_METRIC_FILE", " task ", " workload environment ",
     "Takes values from a trainer's processes: lines such as step=7 loss=2.31", NULL, NULL},
    {"LEDGER/runs/RUN/logs/ATTEMPT/RANK.log", " logs run task inside ", " launch workload faults ",
     "What a rank printed", "log-files(5)", NULL},
    {"LEDGER/runs/RUN/logs/ATTEMPT/fabric-rank-NNNNN.tfr", " fabric run train logs ",
     " fabric faults flight-dump ", "What a rank called last", "flight-dump(5)", NULL},
    {"build/figures/figure-N.txt, figures.html", "", " figures ", "What `make figures` draws", NULL,
     NULL},
    {"DIR/.tern-fetch/", " fetch ", "", "Files that are not whole yet", NULL, NULL},
    {"$XDG_CACHE_HOME/tern/blocks/", " data train eval ", " token-set environment ",
     "Blocks of objects that were read from s3:// and https:// (TERN_CACHE)", NULL, NULL},
    {"$XDG_STATE_HOME/tern/cluster/NAME/", " cluster ", " layout environment ",
     "The state of a virtual cluster (TERN_CLUSTER_HOME)", NULL, NULL},
    {"/etc/slurm/tern-nodes.conf, tern-nodes.conf.N", " cluster ", " layout ",
     "The nodes that `tern cluster apply` put into Slurm, and earlier ones", NULL, NULL},
    {"/etc/slurm/plugstack.conf.d/tern.conf", " submit cluster health env ",
     " launch env site install checks ", "The line that has Slurm load the plugin", "install(7)",
     NULL},
    {"/opt/aws/neuron/lib/libnrt.so.1", " env ", " env ",
     "Neuron's runtime library, whose version tells the SDK's, and so the profile", NULL, NULL},
    {"PREFIX/bin/tern, tern-NAME", "", " install ", "The programs", NULL, NULL},
    {"PREFIX/lib/slurm/tern_spank-RELEASE.so", "", " install ",
     "The plugin, for one release of Slurm", NULL, NULL},
    {"PREFIX/lib/tern/tern_fabric_mpi.so", " fabric bench link train eval ", " fabric install ",
     "The plugin for MPI (TERN_FABRIC=mpi)", NULL, NULL},
    {"PREFIX/include/tern/ledger.h", "", " c-api install ",
     "The calls of libtern-ledger, with their contracts", NULL, NULL},
    {"PREFIX/lib/libtern-ledger.so.0", "", " c-api install ", "libtern-ledger", "c-api(7)", NULL},
    {"PREFIX/share/pkgconfig/tern-ledger.pc", "", " c-api install ",
     "The flags of libtern-ledger, for pkg-config", NULL, NULL},
    {"PREFIX/share/tern/modulefiles/", "", " install ", "A module file for Lmod", NULL, NULL},
    {"PREFIX/share/tern/installed", "", " install ",
     "The paths that `make install` wrote, with digests; `make uninstall` removes them", NULL,
     NULL},
};

/* `name` in a row's names. */
static bool is_among(const char *names, const char *name)
{
    char *word = tern_strf(" %s ", name);
    const bool is = strstr(names, word) != NULL;

    free(word);
    return is;
}

/* ": see tern-PAGE(5)", unless that is the page `self`.  Whether it was added. */
static bool add_see(struct tern_buf *to, const char *between, const char *see, const char *self,
                    bool man)
{
    const int name = see ? (int)strcspn(see, "(") : 0;

    if (!name || (strncmp(see, self, (size_t)name) == 0 && !self[name]))
        return false;
    if (man)
        tern_buf_printf(to, "%stern-%s", between, see);
    else
        tern_buf_printf(to, "%s`tern help %.*s`", between, name, see);
    return true;
}

/* The `i`-th file, on the page `self`. */
static void put_file(struct tern_page *page, size_t i, const char *self)
{
    const bool man = page->columns == 0;
    struct tern_buf text = {0};

    tern_buf_puts(&text, files[i].what);
    const bool one = add_see(&text, ": see ", files[i].see, self, man);
    add_see(&text, one ? " and " : ": see ", files[i].more, self, man);
    tern_buf_puts(&text, ".");
    tern_page_item(page, files[i].path, text.data ? text.data : "");
    tern_buf_free(&text);
}

void tern_opt_program_files(struct tern_page *page, const char *program)
{
    const bool all = strcmp(program, "tern") == 0;

    tern_page_heading(page, "FILES");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *names = files[i].programs;
        if (*names && (all || *names == '*' || is_among(names, program)))
            put_file(page, i, /* self= */ "");
    }
}

void tern_opt_topic_files(struct tern_page *page, const char *topic)
{
    bool begun = false;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!is_among(files[i].topics, topic))
            continue;
        if (!begun)
            tern_page_heading(page, "FILES");
        begun = true;
        put_file(page, i, topic);
    }
}
