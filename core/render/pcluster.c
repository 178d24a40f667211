/* AWS ParallelCluster: the layout in one form, whose nodes install tern, and the programs that make
 * and delete the cluster. */
#include "core/render/parts.h"

#include <stdlib.h>
#include <string.h>

#include "render_files.h" /* made from scripts/ by make */

static void put_programs(struct tern_render *r, const char *name, const char *bucket)
{
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const char *package = tern_render_package(r, ".tar.gz");
    struct tern_render_file *f;

    f = tern_render_program(r, "on-node-configured", render_on_node_configured);
    f = tern_render_program(r, "create.sh", render_pcluster_create_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
    tern_render_set(f, "bucket", bucket);
    tern_render_set(f, "package", package);
    f = tern_render_program(r, "delete.sh", render_pcluster_delete_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
}

/* As create.sh and delete.sh take them. */
static void put_steps(struct tern_render *r, const char *name, const char *bucket,
                      const char *script, const struct tern_layout_storage *there)
{
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const char *package = tern_render_package(r, ".tar.gz");

    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "s3", "cp", "--region",
                     region, "--only-show-errors", "PACKAGE", package);
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "s3", "cp", "--region",
                     region, "--only-show-errors", "on-node-configured", script);
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, tern_render_cost(r), "pcluster", "create-cluster",
                     "--region", region, "--cluster-name", name, "--cluster-configuration",
                     "cluster.yaml");
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "cloudformation", "wait",
                     "stack-create-complete", "--region", region, "--stack-name", name);
    TERN_RENDER_STEP(r, TERN_RENDER_USE, tern_strdup("there: tern cluster doctor; tern submit"),
                     "pcluster", "ssh", "--region", region, "--cluster-name", name);
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, /* effect= */ NULL, "pcluster", "delete-cluster",
                     "--region", region, "--cluster-name", name);
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, tern_strdup("the nodes cost nothing any more"), "aws",
                     "cloudformation", "wait", "stack-delete-complete", "--region", region,
                     "--stack-name", name);
    tern_render_unpriced(r, "root volumes of nodes (EBS), public addresses, traffic");
    tern_render_unpriced(r, "logs in CloudWatch");
    tern_render_unpriced(r, "bucket %s (S3)", bucket);
    tern_render_leave(r, "bucket %s: the package, on-node-configured, what jobs put there", bucket);
    tern_render_leave(r, "logs in CloudWatch, where Monitoring's DeletionPolicy is not Delete");
    tern_render_leave(r, "root volumes whose DeleteOnTermination is false");
    tern_render_storage(r, there);
}

int tern_render_pcluster(struct tern_render *r, struct tern_err *err)
{
    const struct tern_layout *l = r->layout;
    const struct tern_layout_storage *lustre = tern_render_lustre(l);
    const char *name = tern_render_name(r);
    const char *bucket = tern_render_value(r, "Bucket", NULL);
    const char *package = tern_render_package(r, ".tar.gz");
    const char *script = tern_render_keep(r, tern_strf("s3://%s/on-node-configured", bucket));
    const char *made = lustre && !lustre->fsx_id ? tern_render_known(r, "FileSystemId") : NULL;
    const struct tern_layout_more more = {
        .script = script, .arg = package, .bucket = bucket, .file_system = made};
    const char *readable = tern_render_keep(r, tern_strf("s3://%s/", bucket));
    struct tern_render_file *f = tern_render_add(r, "cluster.yaml");
    int with_role;

    if (tern_layout_normalise(l, &more, &f->text, &with_role, err) < 0)
        return -1;
    tern_render_note_variables(r, f->text.data);
    put_programs(r, name, bucket);
    put_steps(r, name, bucket, script, made ? lustre : NULL);
    tern_render_say(r, "create.sh [PACKAGE...] makes cluster %s; delete.sh takes it away", name);
    tern_render_say(r, "nodes install %s by on-node-configured", package);
    if (made)
        tern_render_say(r, "%s: is FSx %s of --vars, not a new one", lustre->mount_dir, made);
    if (!tern_str_starts(package, readable) && tern_str_starts(package, "s3://"))
        tern_render_say(r, "%s is not in %s, which nodes may read: add its bucket to S3Access",
                        package, readable);
    if (with_role)
        tern_render_say(r, "%s a role of the layout's: it must allow s3:GetObject of bucket %s",
                        with_role == 1 ? "a section has" : "sections have", bucket);
    if (l->n_logins)
        tern_render_say(r, "login nodes have no OnNodeConfigured of tern's: add one to the layout");
    return 0;
}
