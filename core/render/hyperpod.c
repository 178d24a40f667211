/* SageMaker HyperPod with Slurm: create-cluster's input, what the lifecycle scripts read, these
 * scripts, and the programs that make and delete the cluster.
 *
 * A compute resource is an instance group QUEUE-RESOURCE of its static nodes; the queue is its
 * partition.  HyperPod's own agent writes slurm.conf from the second file. */
#include "core/render/parts.h"

#include <stdlib.h>
#include <string.h>

#include "render_files.h" /* made from scripts/ by make */

/* Types of the catalogue that HyperPod does not have. */
static bool is_offered(const char *type)
{
    static const char *const none[] = {"trn1.2xlarge", "hpc6a.48xlarge"};

    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(none[i], type) == 0)
            return false;
    return true;
}

/* "QUEUE-RESOURCE", which ends in no hyphen: malloc'ed. */
static char *group_name(const struct tern_layout_queue *q, const struct tern_layout_resource *n)
{
    char *name = tern_strf("%s-%s", q->name, n->name);

    for (size_t len = strlen(name); name[len - 1] == '-';)
        name[--len] = '\0';
    return name;
}

struct group {
    const char *name, *type;
    long count;
    int threads; /* a core */
};

static json_t *group_json(struct tern_render *r, const struct group *g)
{
    const char *bucket = tern_render_value(r, "Bucket", NULL);
    char *type = tern_strf("ml.%s", g->type);
    char *uri = tern_strf("s3://%s/%s/lifecycle", bucket, tern_render_name(r));
    json_t *j =
        json_pack("{ss ss sI s{ss ss} ss si}", "InstanceGroupName", g->name, "InstanceType", type,
                  "InstanceCount", (json_int_t)g->count, "LifeCycleConfig", "SourceS3Uri", uri,
                  "OnCreate", "on_create.sh", "ExecutionRole",
                  tern_render_value(r, "ExecutionRoleArn", NULL), "ThreadsPerCore", g->threads);

    free(type);
    free(uri);
    return j;
}

static int put_workers(struct tern_render *r, json_t *groups, json_t *workers, struct tern_err *err)
{
    const struct tern_layout *l = r->layout;

    for (size_t i = 0; i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++) {
            const struct tern_layout_queue *q = &l->queues[i];
            const struct tern_layout_resource *n = &q->resources[k];
            if (!is_offered(n->type->name))
                return tern_err_set(err, TERN_USAGE,
                                    "%s:%d: HyperPod has no ml.%s. Take another InstanceType.",
                                    l->path, n->line, n->type->name);
            if (n->min == 0)
                return tern_err_set(err, TERN_USAGE,
                                    "%s:%d: %s has no static nodes, and HyperPod starts none when "
                                    "a job needs them. Set its MinCount.",
                                    l->path, n->line, n->name);
            char *name = group_name(q, n);
            const struct group g = {name, n->type->name, n->min,
                                    n->smt && n->type->threads > 1 ? 2 : 1};
            json_array_append_new(groups, group_json(r, &g));
            json_array_append_new(workers, json_pack("{ss ss}", "instance_group_name", name,
                                                     "partition_name", q->name));
            tern_render_say(r, "partition %s: %s of ml.%s, instance group %s%s", q->name,
                            tern_render_count(r, n->min, "node"), n->type->name, name,
                            n->max > n->min ? "; dynamic nodes are left out" : "");
            free(name);
        }
    return 0;
}

static json_t *parameters(struct tern_render *r, json_t *workers, const char *region)
{
    const struct tern_layout_storage *lustre = tern_render_lustre(r->layout);
    json_t *j = json_pack("{ss ss ss}", "version", "1.0.0", "workload_manager", "slurm",
                          "controller_group", "controller");

    if (r->layout->login_type)
        json_object_set_new(j, "login_group", json_string("login"));
    json_object_set_new(j, "worker_groups", workers);
    if (!lustre)
        return j;
    json_object_set_new(j, "fsx_dns_name", tern_json_text(tern_render_host(r, lustre, region)));
    json_object_set_new(j, "fsx_mountname",
                        tern_json_text(tern_render_value(r, "FileSystemMountName", NULL)));
    return j;
}

static json_t *cluster(struct tern_render *r, json_t *groups)
{
    const struct tern_layout_queue *q = r->layout->n_queues ? &r->layout->queues[0] : NULL;

    return json_pack("{ss so s{s[s] s[s]} ss}", "ClusterName", tern_render_name(r),
                     "InstanceGroups", groups, "VpcConfig", "SecurityGroupIds",
                     tern_render_value(r, "SecurityGroup", q ? q->group : NULL), "Subnets",
                     tern_render_value(r, "PrivateSubnet", q ? q->subnet : NULL), "NodeRecovery",
                     "Automatic");
}

static void put_programs(struct tern_render *r, const char *region)
{
    const struct tern_layout_storage *lustre = tern_render_lustre(r->layout);
    const char *name = tern_render_name(r), *bucket = tern_render_value(r, "Bucket", NULL);
    const char *package = tern_render_package(r, "/");
    struct tern_render_file *f;

    f = tern_render_program(r, "lifecycle/on_create.sh", render_hyperpod_on_create_sh);
    tern_render_set(f, "package", package);
    tern_render_set(f, "mount_dir", lustre ? lustre->mount_dir : "");
    tern_render_program(r, "lifecycle/on-node-configured", render_on_node_configured);
    f = tern_render_program(r, "create.sh", render_hyperpod_create_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
    tern_render_set(f, "bucket", bucket);
    tern_render_set(f, "package", package);
    f = tern_render_program(r, "delete.sh", render_hyperpod_delete_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
}

/* As create.sh and delete.sh take them; where they ask until it is so, the question stands once. */
static void put_steps(struct tern_render *r, const char *region)
{
    const char *name = tern_render_name(r), *bucket = tern_render_value(r, "Bucket", NULL);
    const char *package = tern_render_package(r, "/");
    const char *to = tern_render_keep(r, tern_strf("s3://%s/%s/lifecycle", bucket, name));
    const struct tern_layout_storage *lustre = tern_render_lustre(r->layout);
    char *nodes = tern_render_cost(r);

    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "s3", "cp", "--region",
                     region, "--only-show-errors", "PACKAGE", package);
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "s3", "cp", "--region",
                     region, "--only-show-errors", "--recursive", "lifecycle", to);
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD,
                     tern_strf("HyperPod's prices of ml.* instances. EC2's of the same: %s", nodes),
                     "aws", "sagemaker", "create-cluster", "--region", region, "--cli-input-json",
                     "file://cluster-config.json");
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, tern_strdup("again, until it says InService"), "aws",
                     "sagemaker", "describe-cluster", "--region", region, "--cluster-name", name,
                     "--query", "ClusterStatus", "--output", "text");
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, /* effect= */ NULL, "aws", "sagemaker",
                     "delete-cluster", "--region", region, "--cluster-name", name);
    TERN_RENDER_STEP(
        r, TERN_RENDER_REMOVE,
        tern_strdup("again, until it says ResourceNotFound: the nodes cost nothing any more"),
        "aws", "sagemaker", "describe-cluster", "--region", region, "--cluster-name", name);
    free(nodes);
    tern_render_unpriced(r, "HyperPod's instances: the numbers above are EC2's");
    tern_render_unpriced(r, "logs in CloudWatch, traffic, bucket %s (S3)", bucket);
    tern_render_leave(r, "bucket %s: the package, lifecycle scripts, what jobs put there", bucket);
    tern_render_leave(r, "logs in CloudWatch, /aws/sagemaker/Clusters/%s", name);
    if (lustre)
        tern_render_leave(r, "%s (FsxLustre): it is not the cluster's, and stays",
                          lustre->mount_dir);
}

int tern_render_hyperpod(struct tern_render *r, struct tern_err *err)
{
    const struct tern_layout *l = r->layout;
    const char *region = tern_render_value(r, "Region", l->region);
    json_t *groups = json_array(), *workers = json_array();
    const struct group head = {"controller", l->head_type_name, 1, 2};
    const struct group login = {"login", l->login_type, l->login_count, 2};

    json_array_append_new(groups, group_json(r, &head));
    if (l->login_type)
        json_array_append_new(groups, group_json(r, &login));
    if (put_workers(r, groups, workers, err) < 0) {
        json_decref(groups);
        json_decref(workers);
        return -1;
    }
    if (tern_render_add_json(r, "cluster-config.json", cluster(r, groups), err) < 0) {
        json_decref(workers);
        return -1;
    }
    if (tern_render_add_json(r, "lifecycle/provisioning_parameters.json",
                             parameters(r, workers, region), err) < 0)
        return -1;
    put_programs(r, region);
    put_steps(r, region);
    tern_render_say(r, "create.sh [PACKAGE...] makes cluster %s; delete.sh takes it away",
                    tern_render_name(r));
    for (size_t i = 0; i < l->n_storage; i++)
        if (&l->storage[i] != tern_render_lustre(l))
            tern_render_say(r,
                            "%s: %s is not mounted: HyperPod's parameters have one FSx for "
                            "Lustre",
                            l->storage[i].mount_dir, l->storage[i].type);
    return 0;
}
