/* tern cluster render: the files made from a layout. */
#include "cmd/cluster/layout.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/render/render.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tern_layout *cluster_load_layout(const char *path, const char *vars, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_load_with(path, vars, err);

    if (!l)
        return NULL;
    cluster_print_notes(l, /* variables= */ true);
    if (cluster_count_errors(l, err) < 0) {
        tern_layout_free(l);
        return NULL;
    }
    return l;
}

struct tern_layout *cluster_load_draft(const char *path, const char *vars, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_load_with(path, vars, err);

    if (!l)
        return NULL;
    const bool draft = l->n_errors == l->n_variables;
    cluster_print_notes(l, !draft);
    if (!draft) {
        cluster_count_errors(l, err);
        tern_layout_free(l);
        return NULL;
    }
    return l;
}

static const char *render_to = "slurm", *render_out, *render_diff, *render_vars, *render_release;
static const struct tern_opt render_opts[] = {
    {"to", 0, TERN_OPT_TEXT, "FORM", "slurm", .to.text = &render_to,
     .help = "slurm, pcluster, cfn (CloudFormation), hyperpod (SageMaker) or batch"},
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &render_out,
     .help =
         "write the files there; without it all go to stdout. The folder appears whole. An "
         "earlier rendering is replaced; other files, or edited ones, are refused. slurm: single "
         "files of a folder, such as /etc/slurm, and tern-render.json, which tells edited ones"},
    {"diff", 0, TERN_OPT_TEXT, "DIR", .to.text = &render_diff,
     .help = "print how the files in DIR would change, and write nothing; exit status 1 if they "
             "would"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &render_vars, .help = cluster_vars_help},
    {"slurm", 0, TERN_OPT_TEXT, "RELEASE", .to.text = &render_release,
     .help = "of --to slurm: the release that will read the files, 22.05 to 26.05; else lines that "
             "all of them take"},
    {0},
};

/* "25.11" is 2511; 0 where nothing was said. */
static int read_release(const char *text, int *ret_release, struct tern_err *err)
{
    int year, month, end = 0;

    *ret_release = 0;
    if (!text)
        return 0;
    if (sscanf(text, "%2d.%2d%n", &year, &month, &end) != 2 || text[end] || month < 1 ||
        month > 12 || year * 100 + month < 2205 || year * 100 + month > 2605)
        return tern_err_set(err, TERN_USAGE,
                            "--slurm: '%s' is no release that tern knows. Write 22.05 to 26.05.",
                            text);
    *ret_release = year * 100 + month;
    return 0;
}

/* What was decided, and what is left to fill in. */
static void print_summary(const struct tern_render *r)
{
    FILE *to = render_out ? stdout : stderr;

    fputs(r->said.data ? r->said.data : "", to);
    if (r->n_missing)
        fputs("to fill in, with --vars FILE:", to);
    for (size_t i = 0; i < r->n_missing; i++)
        fprintf(to, " ${%s}", r->missing[i]);
    if (r->n_missing)
        fputs("\n", to);
}

static int put_out(struct tern_render *r, struct tern_err *err)
{
    bool differs = false;

    if (render_diff) {
        if (tern_render_diff(r, render_diff, stdout, isatty(STDOUT_FILENO), &differs, err) < 0)
            return -1;
        return differs ? TERN_FAILED : 0;
    }
    if (render_out && tern_render_write(r, render_out, err) < 0)
        return -1;
    for (size_t i = 0; i < r->n_files && !render_out; i++)
        printf("%s######## %s\n%s", i ? "\n" : "", r->file[i].name, r->file[i].text.data);
    fflush(stdout);
    print_summary(r);
    return 0;
}

static int run_render(int n, char **args, struct tern_err *err)
{
    const bool slurm = strcmp(render_to, "slurm") == 0;
    struct tern_render r;
    int release, rc = -1;

    (void)n;
    if (!tern_render_is_form(render_to))
        return tern_err_set(err, TERN_USAGE, "--to: '%s' is not one of: %s.", render_to,
                            tern_render_forms);
    if (render_out && render_diff)
        return tern_err_set(err, TERN_USAGE, "--out and --diff: give one of the two.");
    if (render_release && !slurm)
        return tern_err_set(err, TERN_USAGE, "--slurm is for --to slurm.");
    if (read_release(render_release, &release, err) < 0)
        return -1;
    struct tern_layout *l = slurm ? cluster_load_layout(args[0], render_vars, err)
                                  : cluster_load_draft(args[0], render_vars, err);
    if (!l)
        return -1;
    l->slurm_release = release;
    if (tern_render_make(&r, l, render_to, err) == 0) {
        rc = put_out(&r, err);
        tern_render_free(&r);
    }
    tern_layout_free(l);
    return rc;
}

const struct tern_cmd render_cmd = {
    .name = "render",
    .args = "LAYOUT",
    .summary = "write a layout's files for Slurm, ParallelCluster and other tools of AWS",
    .about =
        "slurm: slurm.conf, gres.conf (Neuron devices), topology.conf (from 25.05 on "
        "topology.yaml), "
        "cgroup.conf and plugstack.conf for a real cluster with these nodes. Dynamic nodes are "
        "FUTURE ones.\n\n"
        "pcluster: cluster.yaml with its keys in one order and its values in one form; the head "
        "node "
        "and every queue run on-node-configured, which installs tern.\n\n"
        "cfn: stack.json, a CloudFormation stack. It has a VPC, a public and a private subnet, "
        "NAT, a security group for EFA, a bucket, the layout's FSx for Lustre and roles. Its "
        "outputs are a file for --vars.\n\nhyperpod: cluster-config.json, and in lifecycle/ "
        "provisioning_parameters.json and on_create.sh, which mounts FSx, installs tern and starts "
        "Slurm. A compute resource is an instance group of its static nodes.\n\nbatch: what AWS "
        "Batch needs for multi-node jobs on one compute resource, with Dockerfile, build.sh and "
        "submit.sh.\n\nWith each come create.sh, which makes it and waits, and delete.sh, which "
        "takes it away. Each key of the layout that a form leaves out is reported. The same layout "
        "gives the same bytes. A value that is not known stays as ${Name}, and is listed; programs "
        "refuse to run until --vars has it: Region, Bucket, PublicSubnet, PrivateSubnet, "
        "SecurityGroup, ExecutionRoleArn, FileSystemId, FileSystemDnsName, FileSystemMountName, "
        "InstanceProfileArn, ImageRepository, BaseImage, TernPackage (else a file of this release "
        "in Bucket).",
    .examples = "  tern cluster render cluster.yaml -o /etc/slurm\n"
                "  tern cluster render cluster.yaml --to cfn -o base\n"
                "  tern cluster render cluster.yaml --to pcluster --vars outputs.json -o trn1\n"
                "  tern cluster render cluster.yaml --to pcluster --diff trn1\n",
    .opts = render_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_render,
};
