/* AWS Batch: a multi-node job on the layout's accelerated nodes, in containers.
 *
 *     placement group <- launch template <- compute environment <- queue;  job definition
 *
 * One compute resource becomes the environment: the first with accelerators, else the first. */
#include "core/render/parts.h"

#include "core/base/version.h"

#include <stdlib.h>
#include <string.h>

#include "render_files.h" /* made from scripts/ by make */

enum {
    DISK_GIB = 200,             /* images of the Neuron SDK have 20 and more */
    HOPS = 5,                   /* from a container to the instance's metadata */
    DAYS_S = 14 * 24 * 60 * 60, /* of a job; Slurm's counterpart is its --time */
    ATTEMPTS = 10,              /* Batch's most */
};

struct batch {
    const struct tern_layout_queue *queue;
    const struct tern_layout_resource *nodes;
    int queue_at, nodes_at; /* in the layout, from 0 */
    const struct tern_layout_storage *lustre;
    const char *name, *group, *subnet;
};

static void choose(const struct tern_layout *l, struct batch *b)
{
    for (size_t i = 0; i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++) {
            const struct tern_layout_resource *n = &l->queues[i].resources[k];
            if (b->nodes && (b->nodes->type->chips || !n->type->chips))
                continue;
            b->queue = &l->queues[i];
            b->nodes = n;
            b->queue_at = (int)i;
            b->nodes_at = (int)k;
        }
}

static int check(const struct tern_layout *l, const struct batch *b, struct tern_err *err)
{
    if (!b->nodes)
        return tern_err_set(err, TERN_USAGE, "%s: no compute resource. Add one.", l->path);
    if (b->queue->capacity != TERN_ONDEMAND)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%d: Batch runs no multi-node job on spot instances, and a capacity "
                            "block is not rendered for it. Set CapacityType: ONDEMAND.",
                            l->path, b->queue->line);
    return 0;
}

/* EFA on every network card; only the first card has device 0. */
static json_t *interfaces(const struct batch *b)
{
    const int cards = b->nodes->efa && b->nodes->type->efa ? b->nodes->type->efa : 0;
    json_t *all = json_array();

    for (int i = 0; i < (cards ? cards : 1); i++) {
        json_t *one =
            json_pack("{si si s[s] ss sb}", "NetworkCardIndex", i, "DeviceIndex", i > 0, "Groups",
                      b->group, "SubnetId", b->subnet, "DeleteOnTermination", 1);
        if (cards)
            json_object_set_new(one, "InterfaceType", json_string("efa"));
        json_array_append_new(all, one);
    }
    return all;
}

/* Of queue %d, its %s. */
static const char root_volume[] = "Scheduling.SlurmQueues[%d].ComputeSettings.LocalStorage."
                                  "RootVolume.%s";

/* The queue's root volume; room for images where the layout says nothing. */
static json_t *volume(const struct tern_render *r, const struct batch *b)
{
    static const char *const numbers[][2] = {
        {"Size", "VolumeSize"}, {"Iops", "Iops"}, {"Throughput", "Throughput"}};
    const char *type = tern_render_given(r, root_volume, b->queue_at, "VolumeType");
    const char *encrypted = tern_render_given(r, root_volume, b->queue_at, "Encrypted");
    json_t *j = json_pack("{si ss sb sb}", "VolumeSize", DISK_GIB, "VolumeType",
                          type ? type : "gp3", "Encrypted",
                          !encrypted || strcmp(encrypted, "false") != 0, "DeleteOnTermination", 1);

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *n = tern_render_given(r, root_volume, b->queue_at, numbers[i][0]);
        if (n)
            json_object_set_new(j, numbers[i][1], json_integer(strtoll(n, NULL, 10)));
    }
    return j;
}

/* Of the resource, else of its queue. */
static void put_reservation(const struct tern_render *r, const struct batch *b, json_t *data)
{
    static const char *const names[] = {"CapacityReservationId",
                                        "CapacityReservationResourceGroupArn"};
    json_t *target = json_object();

    for (int own = 1; own >= 0 && !json_object_size(target); own--)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char *at = own ? tern_strf(".ComputeResources[%d]", b->nodes_at) : tern_strdup("");
            const char *value =
                tern_render_given(r, "Scheduling.SlurmQueues[%d]%s.CapacityReservationTarget.%s",
                                  b->queue_at, at, names[i]);
            if (value)
                json_object_set_new(target, names[i], tern_json_text(value));
            free(at);
        }
    if (json_object_size(target))
        json_object_set_new(data, "CapacityReservationSpecification",
                            json_pack("{sO}", "CapacityReservationTarget", target));
    json_decref(target);
}

/* ImageId and UserData are put in by create.sh. */
static json_t *launch_template(struct tern_render *r, const struct batch *b)
{
    json_t *data =
        json_pack("{s{ss} s[{ss so}] s{ss si} so}", "IamInstanceProfile", "Arn",
                  tern_render_value(r, "InstanceProfileArn", NULL), "BlockDeviceMappings",
                  "DeviceName", "/dev/xvda", "Ebs", volume(r, b), "MetadataOptions", "HttpTokens",
                  "required", "HttpPutResponseHopLimit", HOPS, "NetworkInterfaces", interfaces(b));

    put_reservation(r, b, data);
    if (b->nodes->placement_group)
        json_object_set_new(data, "Placement", json_pack("{ss}", "GroupName", b->name));
    if (!b->nodes->smt && b->nodes->type->threads > 1)
        json_object_set_new(data, "CpuOptions",
                            json_pack("{si si}", "CoreCount",
                                      b->nodes->type->sockets * b->nodes->type->cores,
                                      "ThreadsPerCore", 1));
    return json_pack("{ss so}", "LaunchTemplateName", b->name, "LaunchTemplateData", data);
}

/* vCPUs of one node, as EC2 and its quotas count them. */
static int vcpus(const struct batch *b)
{
    return tern_layout_vcpus(b->nodes->type) / (b->nodes->smt ? 1 : b->nodes->type->threads);
}

static json_t *environment(struct tern_render *r, const struct batch *b)
{
    return json_pack("{ss ss ss s{ss si si sI ss s[s] s[s] s{ss ss}}}", "computeEnvironmentName",
                     b->name, "type", "MANAGED", "state", "ENABLED", "computeResources", "type",
                     "EC2", "minvCpus", 0, "desiredvCpus", 0, "maxvCpus",
                     (json_int_t)b->nodes->max * vcpus(b), "instanceRole",
                     tern_render_value(r, "InstanceProfileArn", NULL), "instanceTypes",
                     b->nodes->type->name, "subnets", b->subnet, "launchTemplate",
                     "launchTemplateName", b->name, "version", "$Latest");
}

static json_t *job_queue(const struct batch *b)
{
    return json_pack("{ss ss si s[{si ss}]}", "jobQueueName", b->name, "state", "ENABLED",
                     "priority", 1, "computeEnvironmentOrder", "order", 1, "computeEnvironment",
                     b->name);
}

static void put_devices(json_t *to, const char *stem, int n)
{
    for (int i = 0; i < n; i++) {
        char *path = tern_strf("%s%d", stem, i);
        json_array_append_new(to, json_pack("{ss ss s[ss]}", "hostPath", path, "containerPath",
                                            path, "permissions", "READ", "WRITE"));
        free(path);
    }
}

/* Of config.txt of AWS's sample, for the job's programs: NULL where nothing is known of it.  The
 * cache's name is the Neuron SDK's own. */
static json_t *variables(const struct tern_render *r)
{
    static const struct {
        const char *name, *as;
    } known[] = {{"NEURON_COMPILE_CACHE_URL", "NEURON_COMPILE_CACHE_URL"},
                 {"NEURON_COMPILE_CACHE_URI", "NEURON_COMPILE_CACHE_URL"},
                 {"CHECKPOINT_SAVE_URL", "CHECKPOINT_SAVE_URL"},
                 {"CHECKPOINT_SAVE_URI", "CHECKPOINT_SAVE_URI"},
                 {"TOKENIZED_DATASET_URI", "TOKENIZED_DATASET_URI"},
                 {"DO_PRE_COMPILATION", "DO_PRE_COMPILATION"}};
    json_t *all = json_array();

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *value = tern_render_known(r, known[i].name);
        if (value)
            json_array_append_new(
                all, json_pack("{ss so}", "name", known[i].as, "value", tern_json_text(value)));
    }
    return all;
}

static json_t *container(struct tern_render *r, const struct batch *b)
{
    const struct tern_layout_instance *t = b->nodes->type;
    const char *image = tern_render_keep(
        r, tern_strf("%s:tern-%s", tern_render_value(r, "ImageRepository", NULL), TERN_VERSION));
    char *cpus = tern_strf("%d", vcpus(b)), *memory = tern_strf("%ld", b->nodes->memory_mib);
    json_t *devices = json_array();

    put_devices(devices, "/dev/infiniband/uverbs", b->nodes->efa ? t->efa : 0);
    put_devices(devices, "/dev/neuron", t->chips);
    json_t *j =
        json_pack("{ss s[ss] s[{ss ss} {ss ss}] ss s[{ss si si}] s{so sI}}", "image", image,
                  "command", "tern", "--version", "resourceRequirements", "type", "VCPU", "value",
                  cpus, "type", "MEMORY", "value", memory, "user", "root", "ulimits", "name",
                  "memlock", "softLimit", -1, "hardLimit", -1, "linuxParameters", "devices",
                  devices, "sharedMemorySize", (json_int_t)b->nodes->memory_mib / 2);
    json_object_set_new(j, "environment", variables(r));
    if (b->lustre) {
        json_object_set_new(
            j, "volumes",
            json_pack("[{ss s{ss}}]", "name", "fsx", "host", "sourcePath", b->lustre->mount_dir));
        json_object_set_new(
            j, "mountPoints",
            json_pack("[{ss ss}]", "sourceVolume", "fsx", "containerPath", b->lustre->mount_dir));
    }
    free(cpus);
    free(memory);
    return j;
}

/* Exit status 75 of tern, and a lost host, are tried again; a failure of the program is not. */
static json_t *job_definition(struct tern_render *r, const struct batch *b)
{
    return json_pack("{ss ss s{si s[{ss ss} {ss ss} {ss ss}]} s{si} s{si si s[{ss so}]}}",
                     "jobDefinitionName", b->name, "type", "multinode", "retryStrategy", "attempts",
                     ATTEMPTS, "evaluateOnExit", "onStatusReason", "Host EC2*", "action", "RETRY",
                     "onExitCode", "75", "action", "RETRY", "onReason", "*", "action", "EXIT",
                     "timeout", "attemptDurationSeconds", DAYS_S, "nodeProperties", "mainNode", 0,
                     "numNodes", b->nodes->max, "nodeRangeProperties", "targetNodes",
                     "0:", "container", container(r, b));
}

static void put_programs(struct tern_render *r, const struct batch *b)
{
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const char *image = tern_render_value(r, "ImageRepository", NULL);
    const char *fsx = b->lustre ? tern_render_host(r, b->lustre, region) : "";
    static const char *const names[] = {"create.sh", "submit.sh", "delete.sh"};
    static const char *const texts[] = {render_batch_create_sh, render_batch_submit_sh,
                                        render_batch_delete_sh};
    struct tern_render_file *f;

    for (size_t i = 0; i < 3; i++) {
        f = tern_render_program(r, names[i], texts[i]);
        tern_render_set(f, "name", b->name);
        tern_render_set(f, "region", region);
        if (i == 0) /* of ECS's images: that with Neuron's driver, or the plain one */
            tern_render_set(f, "kind", b->nodes->type->chips ? "neuron/" : "");
    }
    f = tern_render_program(r, "node-setup.sh", render_batch_node_setup_sh);
    tern_render_set_int(f, "efa", b->nodes->efa ? b->nodes->type->efa : 0);
    tern_render_set(f, "mount_dir", b->lustre ? b->lustre->mount_dir : "");
    tern_render_set(f, "fsx_host", fsx);
    tern_render_set(f, "fsx_mount",
                    b->lustre ? tern_render_value(r, "FileSystemMountName", NULL) : "");
    f = tern_render_program(r, "build.sh", render_batch_build_sh);
    tern_render_set(f, "repository", image);
    tern_render_set(f, "tag", "tern-" TERN_VERSION);
    tern_render_set(f, "base", tern_render_value(r, "BaseImage", "debian:12"));
    tern_render_program(r, "batch-node", render_batch_node);
    tern_buf_puts(&tern_render_add(r, "Dockerfile")->text, render_batch_Dockerfile);
}

static void say_left_out(struct tern_render *r, const struct batch *b)
{
#define QUEUE "Scheduling.SlurmQueues[]."
#define NODES QUEUE "ComputeResources[]."
    static const char *const keys[] = {"Region",
                                       "SharedStorage",
                                       "Scheduling.Scheduler",
                                       QUEUE "Name",
                                       QUEUE "CapacityType",
                                       QUEUE "CapacityReservationTarget",
                                       QUEUE "ComputeSettings.LocalStorage.RootVolume",
                                       "=" QUEUE "Networking.SubnetIds[]",
                                       "=" QUEUE "Networking.SecurityGroups[]",
                                       "=" QUEUE "Networking.AdditionalSecurityGroups[]",
                                       QUEUE "Networking.PlacementGroup.Enabled",
                                       NODES "Name",
                                       NODES "InstanceType",
                                       NODES "Instances[0]",
                                       NODES "MinCount",
                                       NODES "MaxCount",
                                       NODES "Efa",
                                       NODES "DisableSimultaneousMultithreading",
                                       NODES "SchedulableMemory",
                                       NODES "CapacityReservationTarget",
                                       NODES "Networking.PlacementGroup.Enabled",
                                       NULL};
    const struct tern_render_takes takes = {
        .keys = keys, .one = true, .queue = b->queue_at, .resource = b->nodes_at};

    tern_render_say_left_out(r, &takes);
    tern_render_say_other_storage(r, "containers mount one FSx for Lustre");
}

/* One call of AWS Batch or EC2, in the form of create.sh and delete.sh. */
static void put_call(struct tern_render *r, enum tern_render_phase phase, char *effect,
                     const char *const call[4])
{
    const char *region = tern_render_value(r, "Region", r->layout->region);

    TERN_RENDER_STEP(r, phase, effect, "aws", call[0], call[1], "--region", region, call[2],
                     call[3]);
}
#define CALL(phase, effect, ...)                                                                   \
    put_call(r, TERN_RENDER_##phase, effect, (const char *const[4]){__VA_ARGS__})

static void put_removal(struct tern_render *r, const struct batch *b)
{
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const char *revision = tern_render_keep(r, tern_strf("%s:REVISION", b->name));

    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, tern_strdup("its jobs end, and their nodes go"), "aws",
                     "batch", "update-job-queue", "--region", region, "--job-queue", b->name,
                     "--state", "DISABLED");
    CALL(REMOVE, tern_strdup("when it is no longer UPDATING"), "batch", "delete-job-queue",
         "--job-queue", b->name);
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, tern_strdup("when the queue is gone"), "aws", "batch",
                     "update-compute-environment", "--region", region, "--compute-environment",
                     b->name, "--state", "DISABLED");
    CALL(REMOVE, tern_strdup("when it is no longer UPDATING"), "batch",
         "delete-compute-environment", "--compute-environment", b->name);
    CALL(REMOVE, tern_strdup("for each revision"), "batch", "deregister-job-definition",
         "--job-definition", revision);
    CALL(REMOVE, NULL, "ec2", "delete-launch-template", "--launch-template-name", b->name);
    CALL(REMOVE, NULL, "ec2", "delete-placement-group", "--group-name", b->name);
}

/* As build.sh, create.sh, submit.sh and delete.sh take them. */
static void put_steps(struct tern_render *r, const struct batch *b)
{
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const struct tern_layout_instance *t = b->nodes->type;
    const char *disk = tern_render_given(r, root_volume, b->queue_at, "Size");

    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, tern_strdup("an image in ECR, by its size and month"),
                     "./build.sh", "PACKAGE");
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, NULL, "aws", "ec2", "create-placement-group", "--region",
                     region, "--group-name", b->name, "--strategy", "cluster");
    CALL(BUILD, NULL, "ec2", "create-launch-template", "--cli-input-json",
         "file://launch-template.json");
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD,
                     tern_strdup("create.sh makes DATA of ECS's newest image and node-setup.sh"),
                     "aws", "ec2", "create-launch-template-version", "--region", region,
                     "--launch-template-name", b->name, "--source-version", "1",
                     "--launch-template-data", "DATA");
    CALL(BUILD, NULL, "batch", "create-compute-environment", "--cli-input-json",
         "file://compute-environment.json");
    CALL(BUILD, tern_strdup("again, until its status is VALID"), "batch",
         "describe-compute-environments", "--compute-environments", b->name);
    CALL(BUILD, NULL, "batch", "register-job-definition", "--cli-input-json",
         "file://job-definition.json");
    CALL(BUILD, NULL, "batch", "create-job-queue", "--cli-input-json", "file://job-queue.json");
    CALL(BUILD, tern_strdup("again, until its status is VALID"), "batch", "describe-job-queues",
         "--job-queues", b->name);
    TERN_RENDER_STEP(r, TERN_RENDER_USE,
                     t->usd_hour > 0
                         ? tern_strf("%.2f USD an hour for each node, while jobs run; %.2f for "
                                     "all %d %s",
                                     t->usd_hour, t->usd_hour * b->nodes->max, b->nodes->max,
                                     t->name)
                         : tern_strf("%s, while jobs run (price not known)", t->name),
                     "./submit.sh", "NAME", "COMMAND");
    put_removal(r, b);
    tern_render_unpriced(r, "disks of nodes (EBS, %s GiB each), logs in CloudWatch, traffic",
                         disk ? disk : tern_render_keep(r, tern_strf("%d", DISK_GIB)));
    tern_render_leave(r, "images in repository %s (ECR)",
                      tern_render_value(r, "ImageRepository", NULL));
    tern_render_leave(r, "logs in CloudWatch, /aws/batch/job");
    if (b->lustre)
        tern_render_leave(r, "%s (FsxLustre): it is not the queue's, and stays",
                          b->lustre->mount_dir);
}

static void say(struct tern_render *r, const struct batch *b)
{
    const struct tern_layout *l = r->layout;

    tern_render_say(r, "%s: at most %s of %s (%d vCPUs each), none while no job runs", b->name,
                    tern_render_count(r, b->nodes->max, "node"), b->nodes->type->name, vcpus(b));
    for (size_t i = 0; i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++)
            if (&l->queues[i].resources[k] != b->nodes)
                tern_render_say(r, "%s/%s is left out: Batch gets one compute environment",
                                l->queues[i].name, l->queues[i].resources[k].name);
    say_left_out(r, b);
    tern_render_say(r, "build.sh PACKAGE makes the image, create.sh the queue; submit.sh NAME "
                       "COMMAND...; delete.sh takes all away but the image");
    if (!tern_render_known(r, "BaseImage"))
        tern_render_say(r, "the image begins with debian:12; BaseImage of --vars names another, "
                           "such as AWS's for Neuron");
}

int tern_render_batch(struct tern_render *r, struct tern_err *err)
{
    const struct tern_layout *l = r->layout;
    struct batch b = {.lustre = tern_render_lustre(l), .name = tern_render_name(r)};

    choose(l, &b);
    if (check(l, &b, err) < 0 || tern_render_read_again(r, err) < 0)
        return -1;
    b.group = tern_render_value(r, "SecurityGroup", b.queue->group);
    b.subnet = tern_render_value(r, "PrivateSubnet", b.queue->subnet);
    if (tern_render_add_json(r, "launch-template.json", launch_template(r, &b), err) < 0 ||
        tern_render_add_json(r, "compute-environment.json", environment(r, &b), err) < 0 ||
        tern_render_add_json(r, "job-queue.json", job_queue(&b), err) < 0 ||
        tern_render_add_json(r, "job-definition.json", job_definition(r, &b), err) < 0)
        return -1;
    put_programs(r, &b);
    put_steps(r, &b);
    say(r, &b);
    return 0;
}
