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

/* Where nodes are. */
struct network {
    const char *group, *subnet;
};

/* A queue's, and of the first the cluster's; --vars has one for all. */
static struct network network(struct tern_render *r, size_t queue)
{
    const struct tern_layout *l = r->layout;
    const struct tern_layout_queue *q = queue < l->n_queues ? &l->queues[queue] : NULL;

    return (struct network){tern_render_value(r, "SecurityGroup", q ? q->group : NULL),
                            tern_render_value(r, "PrivateSubnet", q ? q->subnet : NULL)};
}

static json_t *network_json(const struct network *n)
{
    return json_pack("{s[s] s[s]}", "SecurityGroupIds", n->group, "Subnets", n->subnet);
}

struct group {
    const char *name, *type;
    long count;
    int threads;               /* a core */
    const struct network *own; /* NULL: the cluster's */
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

    if (g->own)
        json_object_set_new(j, "OverrideVpcConfig", network_json(g->own));
    free(type);
    free(uri);
    return j;
}

/* The resource before queue `queue`'s `resource` whose group has this name, or NULL. */
static const struct tern_layout_resource *find_group(const struct tern_layout *l, size_t queue,
                                                     size_t resource, const char *name)
{
    for (size_t i = 0; i <= queue; i++)
        for (size_t k = 0; k < (i < queue ? l->queues[i].n_resources : resource); k++) {
            char *other = group_name(&l->queues[i], &l->queues[i].resources[k]);
            const bool same = strcmp(other, name) == 0;
            free(other);
            if (same)
                return &l->queues[i].resources[k];
        }
    return NULL;
}

/* Can HyperPod have these nodes? */
static int check_nodes(const struct tern_layout *l, size_t queue, size_t resource,
                       struct tern_err *err)
{
    const struct tern_layout_queue *q = &l->queues[queue];
    const struct tern_layout_resource *n = &q->resources[resource];

    if (q->capacity != TERN_ONDEMAND)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%d: HyperPod has neither spot instances nor capacity blocks of "
                            "EC2. Set CapacityType: ONDEMAND.",
                            l->path, q->line);
    if (!is_offered(n->type->name))
        return tern_err_set(err, TERN_USAGE,
                            "%s:%d: HyperPod has no ml.%s. Take another InstanceType.", l->path,
                            n->line, n->type->name);
    if (n->min == 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%d: %s has no static nodes, and HyperPod starts none when "
                            "a job needs them. Set its MinCount.",
                            l->path, n->line, n->name);
    char *name = group_name(q, n);
    const struct tern_layout_resource *same = find_group(l, queue, resource, name);
    int rc = 0;
    if (same)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s:%d: its instance group would be %s, as that of line %d: HyperPod's "
                          "names are QUEUE-RESOURCE. Rename one of the two.",
                          l->path, n->line, name, same->line);
    free(name);
    return rc;
}

static void put_worker(struct tern_render *r, size_t queue, const struct tern_layout_resource *n,
                       json_t *groups, json_t *workers)
{
    const struct tern_layout_queue *q = &r->layout->queues[queue];
    const struct network all = network(r, 0), own = network(r, queue);
    const bool differs = strcmp(all.group, own.group) != 0 || strcmp(all.subnet, own.subnet) != 0;
    char *name = group_name(q, n);
    const struct group g = {name, n->type->name, n->min, n->smt && n->type->threads > 1 ? 2 : 1,
                            differs ? &own : NULL};

    json_array_append_new(groups, group_json(r, &g));
    json_array_append_new(
        workers, json_pack("{ss ss}", "instance_group_name", name, "partition_name", q->name));
    tern_render_say(r, "partition %s: %s of ml.%s, instance group %s%s", q->name,
                    tern_render_count(r, n->min, "node"), n->type->name, name,
                    n->max > n->min ? "; dynamic nodes are left out" : "");
    free(name);
}

static int put_workers(struct tern_render *r, json_t *groups, json_t *workers, struct tern_err *err)
{
    const struct tern_layout *l = r->layout;

    for (size_t i = 0; i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++) {
            if (check_nodes(l, i, k, err) < 0)
                return -1;
            put_worker(r, i, &l->queues[i].resources[k], groups, workers);
        }
    return 0;
}

static json_t *parameters(struct tern_render *r, json_t *workers, const char *region)
{
    const struct tern_layout_storage *lustre = tern_render_lustre(r->layout);
    json_t *j = json_pack("{ss ss ss}", "version", "1.0.0", "workload_manager", "slurm",
                          "controller_group", "controller");

    if (r->layout->n_logins)
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
    const struct network all = network(r, 0);

    return json_pack("{ss so so ss}", "ClusterName", tern_render_name(r), "InstanceGroups", groups,
                     "VpcConfig", network_json(&all), "NodeRecovery", "Automatic");
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

/* The first pool of login nodes that has some. */
static int login_pool(const struct tern_render *r)
{
    const char *count;
    int i = 0;

    while ((count = tern_render_given(r, "LoginNodes.Pools[%d].Count", i)) &&
           strcmp(count, "0") == 0)
        i++;
    return i;
}

static void say_left_out(struct tern_render *r)
{
#define QUEUE "Scheduling.SlurmQueues[]."
#define NODES QUEUE "ComputeResources[]."
    const int p = login_pool(r);
    const char *name = tern_render_keep(r, tern_strf("LoginNodes.Pools[%d].Name", p));
    const char *type = tern_render_keep(r, tern_strf("LoginNodes.Pools[%d].InstanceType", p));
    const char *count = tern_render_keep(r, tern_strf("LoginNodes.Pools[%d].Count", p));
    const char *subnet =
        tern_render_keep(r, tern_strf("=LoginNodes.Pools[%d].Networking.SubnetIds[]", p));
    const char *keys[] = {"Region",
                          "SharedStorage",
                          "HeadNode.InstanceType",
                          "=HeadNode.Networking.SubnetId",
                          "=HeadNode.Networking.SecurityGroups[]",
                          "=HeadNode.Networking.AdditionalSecurityGroups[]",
                          "Scheduling.Scheduler",
                          QUEUE "Name",
                          QUEUE "CapacityType",
                          "=" QUEUE "Networking.SubnetIds[]",
                          "=" QUEUE "Networking.SecurityGroups[]",
                          "=" QUEUE "Networking.AdditionalSecurityGroups[]",
                          NODES "Name",
                          NODES "InstanceType",
                          NODES "Instances[0]",
                          NODES "MinCount",
                          NODES "MaxCount",
                          NODES "Efa",
                          NODES "DisableSimultaneousMultithreading",
                          name,
                          type,
                          count,
                          subnet,
                          NULL};
    const struct tern_render_takes takes = {.keys = keys};

    tern_render_say_left_out(r, &takes);
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
    const struct group head = {"controller", l->head_type_name, 1, 2, /* own= */ NULL};

    if (tern_render_read_again(r, err) < 0) {
        json_decref(groups);
        json_decref(workers);
        return -1;
    }
    json_array_append_new(groups, group_json(r, &head));
    if (l->n_logins) {
        const struct tern_layout_login *first = &l->logins[0];
        const struct group login = {"login", first->type_name, first->count, 2, /* own= */ NULL};
        json_array_append_new(groups, group_json(r, &login));
    }
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
    say_left_out(r);
    tern_render_say_other_storage(r, "HyperPod's parameters have one FSx for Lustre");
    return 0;
}
