/* AWS CloudFormation: a network with what a cluster of any form needs, as one stack.  Its outputs
 * are values for --vars.
 *
 *     VPC 10.0.0.0/16, one zone
 *       public subnet  10.0.0.0/20     internet gateway, NAT gateway; the head node
 *       private subnet 10.0.128.0/17   out by the NAT gateway, S3 by an endpoint; other nodes
 *     security group   all from and to itself (EFA asks for both), FSx from the VPC, out anywhere
 *     bucket           kept when the stack goes, but not where it is made in vain
 *     FSx for Lustre   where the layout has one to make
 *     roles            of HyperPod's and Batch's nodes
 */
#include "core/render/parts.h"

#include <stdlib.h>
#include <string.h>

#include "render_files.h" /* made from scripts/ by make */

/* Where the layout says nothing, as when its file system is to be the stack's: ParallelCluster's
 * deployment, and the least that it can have. */
static const char default_deployment[] = "SCRATCH_2";
enum { DEFAULT_GIB = 1200 };

/* What a file system cannot be without. */
static const char *const its_network[] = {"Vpc", "PrivateSubnet", "SecurityGroup"};

static json_t *ref(const char *name)
{
    return json_pack("{ss}", "Ref", name);
}

static json_t *attribute(const char *of, const char *name)
{
    return json_pack("{s[ss]}", "Fn::GetAtt", of, name);
}

/* "STACK-what" as the tag Name. */
static json_t *named(const char *what)
{
    return json_pack("[{ss s{s[s[os]]}}]", "Key", "Name", "Value", "Fn::Join", "-",
                     ref("AWS::StackName"), what);
}

/* A resource; takes over `properties`. */
static void put(json_t *all, const char *name, const char *type, json_t *properties)
{
    json_object_set_new(all, name, json_pack("{ss so}", "Type", type, "Properties", properties));
}

static void put_subnet(json_t *all, const char *name, const char *range, bool public)
{
    put(all, name, "AWS::EC2::Subnet",
        json_pack("{so so ss sb so}", "VpcId", ref("Vpc"), "AvailabilityZone",
                  ref("AvailabilityZone"), "CidrBlock", range, "MapPublicIpOnLaunch", public,
                  "Tags", named(name)));
}

/* A table with a way to everywhere, for one subnet. */
static void put_routes(json_t *all, const char *which, const char *by, const char *gateway)
{
    char *table = tern_strf("%sRoutes", which), *route = tern_strf("%sRoute", which);
    char *link = tern_strf("%sRoutesOfSubnet", which), *subnet = tern_strf("%sSubnet", which);

    put(all, table, "AWS::EC2::RouteTable",
        json_pack("{so so}", "VpcId", ref("Vpc"), "Tags", named(table)));
    put(all, route, "AWS::EC2::Route",
        json_pack("{so ss so}", "RouteTableId", ref(table), "DestinationCidrBlock", "0.0.0.0/0", by,
                  ref(gateway)));
    put(all, link, "AWS::EC2::SubnetRouteTableAssociation",
        json_pack("{so so}", "RouteTableId", ref(table), "SubnetId", ref(subnet)));
    free(table);
    free(route);
    free(link);
    free(subnet);
}

static void put_network(json_t *all)
{
    put(all, "Vpc", "AWS::EC2::VPC",
        json_pack("{ss sb sb so}", "CidrBlock", "10.0.0.0/16", "EnableDnsSupport", 1,
                  "EnableDnsHostnames", 1, "Tags", named("Vpc")));
    put(all, "InternetGateway", "AWS::EC2::InternetGateway",
        json_pack("{so}", "Tags", named("InternetGateway")));
    put(all, "GatewayOfVpc", "AWS::EC2::VPCGatewayAttachment",
        json_pack("{so so}", "VpcId", ref("Vpc"), "InternetGatewayId", ref("InternetGateway")));
    /* Nodes with several network cards get no public address: theirs is the private subnet. */
    put_subnet(all, "PublicSubnet", "10.0.0.0/20", true);
    put_subnet(all, "PrivateSubnet", "10.0.128.0/17", false);
    put(all, "NatAddress", "AWS::EC2::EIP",
        json_pack("{ss so}", "Domain", "vpc", "Tags", named("NatAddress")));
    json_object_set_new(json_object_get(all, "NatAddress"), "DependsOn",
                        json_string("GatewayOfVpc"));
    put(all, "NatGateway", "AWS::EC2::NatGateway",
        json_pack("{so so so}", "AllocationId", attribute("NatAddress", "AllocationId"), "SubnetId",
                  ref("PublicSubnet"), "Tags", named("NatGateway")));
    put_routes(all, "Public", "GatewayId", "InternetGateway");
    json_object_set_new(json_object_get(all, "PublicRoute"), "DependsOn",
                        json_string("GatewayOfVpc"));
    put_routes(all, "Private", "NatGatewayId", "NatGateway");
    /* Checkpoints and texts do not go through the NAT gateway, which is paid by the byte. */
    put(all, "S3Endpoint", "AWS::EC2::VPCEndpoint",
        json_pack("{so s{s[s[sos]]} s[oo]}", "VpcId", ref("Vpc"), "ServiceName", "Fn::Join", "",
                  "com.amazonaws.", ref("AWS::Region"), ".s3", "RouteTableIds", ref("PublicRoutes"),
                  ref("PrivateRoutes")));
}

/* A rule of the security group from and to itself. */
static void put_self(json_t *all, const char *name, const char *type, const char *other)
{
    put(all, name, type,
        json_pack("{so ss so ss}", "GroupId", attribute("SecurityGroup", "GroupId"), "IpProtocol",
                  "-1", other, attribute("SecurityGroup", "GroupId"), "Description",
                  "EFA: all between nodes"));
}

static json_t *lustre_ports(int from, int to)
{
    return json_pack("{ss si si so ss}", "IpProtocol", "tcp", "FromPort", from, "ToPort", to,
                     "CidrIp", attribute("Vpc", "CidrBlock"), "Description", "FSx for Lustre");
}

static void put_group(json_t *all)
{
    put(all, "SecurityGroup", "AWS::EC2::SecurityGroup",
        json_pack("{so ss s[oo] s[{ss ss ss}] so}", "VpcId", ref("Vpc"), "GroupDescription",
                  "Nodes and file system of a cluster", "SecurityGroupIngress",
                  lustre_ports(988, 988), lustre_ports(1018, 1023), "SecurityGroupEgress",
                  "IpProtocol", "-1", "CidrIp", "0.0.0.0/0", "Description", "out", "Tags",
                  named("SecurityGroup")));
    put_self(all, "SecurityGroupFromItself", "AWS::EC2::SecurityGroupIngress",
             "SourceSecurityGroupId");
    put_self(all, "SecurityGroupToItself", "AWS::EC2::SecurityGroupEgress",
             "DestinationSecurityGroupId");
}

/* An update never deletes it.  `retained`: delete-stack does not, but a creation that fails leaves
 * nothing behind. */
static void keep(json_t *all, const char *name, bool retained)
{
    json_t *resource = json_object_get(all, name);

    json_object_set_new(resource, "DeletionPolicy",
                        json_string(retained ? "RetainExceptOnCreate" : "Delete"));
    json_object_set_new(resource, "UpdateReplacePolicy", json_string("Retain"));
}

/* It has checkpoints: the stack goes, the bucket stays. */
static void put_bucket(json_t *all)
{
    put(all, "Bucket", "AWS::S3::Bucket",
        json_pack("{s{s[{s{ss}}]} s{sb sb sb sb}}", "BucketEncryption",
                  "ServerSideEncryptionConfiguration", "ServerSideEncryptionByDefault",
                  "SSEAlgorithm", "AES256", "PublicAccessBlockConfiguration", "BlockPublicAcls", 1,
                  "BlockPublicPolicy", 1, "IgnorePublicAcls", 1, "RestrictPublicBuckets", 1));
    keep(all, "Bucket", true);
}

static void put_file_system(json_t *all, const struct tern_layout_storage *s)
{
    json_t *lustre = json_pack("{ss}", "DeploymentType",
                               s->fsx_deployment ? s->fsx_deployment : default_deployment);

    if (s->fsx_throughput)
        json_object_set_new(lustre, "PerUnitStorageThroughput", json_integer(s->fsx_throughput));
    if (s->fsx_compression)
        json_object_set_new(lustre, "DataCompressionType", json_string(s->fsx_compression));
    if (s->fsx_medium && strcmp(s->fsx_medium, "HDD") == 0)
        json_object_set_new(lustre, "DriveCacheType", json_string("NONE"));
    put(all, "FileSystem", "AWS::FSx::FileSystem",
        json_pack(
            "{ss ss ss sI s[o] s[o] so so}", "FileSystemType", "LUSTRE", "FileSystemTypeVersion",
            "2.15", "StorageType", s->fsx_medium ? s->fsx_medium : "SSD", "StorageCapacity",
            (json_int_t)(s->fsx_capacity_gib ? s->fsx_capacity_gib : DEFAULT_GIB), "SubnetIds",
            ref("PrivateSubnet"), "SecurityGroupIds", attribute("SecurityGroup", "GroupId"),
            "LustreConfiguration", lustre, "Tags", named("FileSystem")));
    keep(all, "FileSystem", s->retained);
    /* Its interfaces are in these, which could not be deleted before it. */
    for (size_t i = 0; s->retained && i < sizeof its_network / sizeof *its_network; i++)
        keep(all, its_network[i], true);
}

/* ------------------------------------------------------------------ roles */

static json_t *managed(const char *policy)
{
    return json_pack("{s[s[soss]]}", "Fn::Join", "", "arn:", ref("AWS::Partition"),
                     ":iam::aws:policy/", policy);
}

/* Objects of the bucket, and the list of them. */
static json_t *bucket_policy(void)
{
    json_t *arn = attribute("Bucket", "Arn");
    json_t *objects = json_pack("{s[s[os]]}", "Fn::Join", "/", attribute("Bucket", "Arn"), "*");

    return json_pack("{ss s{ss s[{ss s[ss] so} {ss s[sss] so}]}}", "PolicyName", "bucket",
                     "PolicyDocument", "Version", "2012-10-17", "Statement", "Effect", "Allow",
                     "Action", "s3:ListBucket", "s3:GetBucketLocation", "Resource", arn, "Effect",
                     "Allow", "Action", "s3:GetObject", "s3:PutObject", "s3:DeleteObject",
                     "Resource", objects);
}

/* Interfaces in the VPC, which HyperPod makes for its nodes. */
static json_t *network_policy(void)
{
    return json_pack("{ss s{ss s[{ss s[ssssssssss] ss} {ss s[s] s{s[s[soss]]}}]}}", "PolicyName",
                     "network", "PolicyDocument", "Version", "2012-10-17", "Statement", "Effect",
                     "Allow", "Action", "ec2:CreateNetworkInterface",
                     "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface",
                     "ec2:DeleteNetworkInterfacePermission", "ec2:DescribeNetworkInterfaces",
                     "ec2:DescribeVpcs", "ec2:DescribeDhcpOptions", "ec2:DescribeSubnets",
                     "ec2:DescribeSecurityGroups", "ec2:DetachNetworkInterface", "Resource", "*",
                     "Effect", "Allow", "Action", "ec2:CreateTags", "Resource", "Fn::Join", "",
                     "arn:", ref("AWS::Partition"), ":ec2:*:*:network-interface/", "*");
}

static void put_role(json_t *all, const char *name, const char *service, json_t *policies,
                     json_t *documents)
{
    put(all, name, "AWS::IAM::Role",
        json_pack("{s{ss s[{ss s{ss} ss}]} so so}", "AssumeRolePolicyDocument", "Version",
                  "2012-10-17", "Statement", "Effect", "Allow", "Principal", "Service", service,
                  "Action", "sts:AssumeRole", "ManagedPolicyArns", policies, "Policies",
                  documents));
}

static void put_roles(json_t *all)
{
    put_role(all, "ExecutionRole", "sagemaker.amazonaws.com",
             json_pack("[o]", managed("AmazonSageMakerClusterInstanceRolePolicy")),
             json_pack("[oo]", bucket_policy(), network_policy()));
    put_role(all, "InstanceRole", "ec2.amazonaws.com",
             json_pack("[o]", managed("service-role/AmazonEC2ContainerServiceforEC2Role")),
             json_pack("[o]", bucket_policy()));
    put(all, "InstanceProfile", "AWS::IAM::InstanceProfile",
        json_pack("{s[o]}", "Roles", ref("InstanceRole")));
}

/* ------------------------------------------------------------------ the stack */

/* Names of values.c; takes over `value`. */
static void put_output(json_t *all, const char *name, json_t *value, const char *what)
{
    json_object_set_new(all, name, json_pack("{ss so}", "Description", what, "Value", value));
}

static json_t *outputs(bool file_system)
{
    json_t *all = json_object();

    put_output(all, "Region", ref("AWS::Region"), "where the stack is");
    put_output(all, "PublicSubnet", ref("PublicSubnet"), "of the head node");
    put_output(all, "PrivateSubnet", ref("PrivateSubnet"), "of all other nodes");
    put_output(all, "SecurityGroup", attribute("SecurityGroup", "GroupId"),
               "open to itself in both directions, as EFA needs it");
    put_output(all, "Bucket", ref("Bucket"), "for packages, scripts, texts and checkpoints");
    put_output(all, "ExecutionRoleArn", attribute("ExecutionRole", "Arn"), "of HyperPod's nodes");
    put_output(all, "InstanceProfileArn", attribute("InstanceProfile", "Arn"), "of Batch's nodes");
    if (!file_system)
        return all;
    put_output(all, "FileSystemId", ref("FileSystem"), "FSx for Lustre");
    put_output(all, "FileSystemDnsName", attribute("FileSystem", "DNSName"), "its host");
    put_output(all, "FileSystemMountName", attribute("FileSystem", "LustreMountName"),
               "its mount name");
    return all;
}

static json_t *stack(const struct tern_layout_storage *lustre)
{
    json_t *all = json_object();

    put_network(all);
    put_group(all);
    put_bucket(all);
    if (lustre)
        put_file_system(all, lustre);
    put_roles(all);
    return json_pack("{ss ss s{s{ss ss}} so so}", "AWSTemplateFormatVersion", "2010-09-09",
                     "Description", "The network and storage of a tern cluster", "Parameters",
                     "AvailabilityZone", "Type", "AWS::EC2::AvailabilityZone::Name", "Description",
                     "a zone that has the layout's instance types", "Resources", all, "Outputs",
                     outputs(lustre != NULL));
}

/* Head, nodes and their settings are of the forms that make a cluster in the stack. */
static void say_left_out(struct tern_render *r)
{
    static const char *const keys[] = {"Region",
                                       "SharedStorage",
                                       "Image",
                                       "HeadNode",
                                       "LoginNodes",
                                       "Scheduling",
                                       "Monitoring",
                                       "Imds",
                                       "AdditionalPackages",
                                       "DevSettings",
                                       "CustomS3Bucket",
                                       "DirectoryService",
                                       "DeploymentSettings",
                                       "AdditionalResources",
                                       NULL};
    const struct tern_render_takes takes = {.keys = keys};

    tern_render_say_left_out(r, &takes);
    tern_render_say_other_storage(r, "the stack has one FSx for Lustre");
}

/* As create.sh and delete.sh take them. */
static void put_steps(struct tern_render *r, const char *name, const char *region,
                      const struct tern_layout_storage *lustre)
{
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD,
                     tern_strf("by the hour: NAT gateway, its public address%s",
                               lustre ? ", FSx for Lustre" : ""),
                     "aws", "cloudformation", "deploy", "--region", region, "--stack-name", name,
                     "--template-file", "stack.json", "--capabilities", "CAPABILITY_IAM",
                     "--no-fail-on-empty-changeset", "--parameter-overrides",
                     "AvailabilityZone=ZONE");
    TERN_RENDER_STEP(r, TERN_RENDER_BUILD, /* effect= */ NULL, "aws", "cloudformation",
                     "describe-stacks", "--region", region, "--stack-name", name, "--output",
                     "json", ">outputs.json");
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE, /* effect= */ NULL, "aws", "cloudformation",
                     "delete-stack", "--region", region, "--stack-name", name);
    TERN_RENDER_STEP(r, TERN_RENDER_REMOVE,
                     tern_strdup("gateway and address cost nothing any more"), "aws",
                     "cloudformation", "wait", "stack-delete-complete", "--region", region,
                     "--stack-name", name);
    tern_render_unpriced(r, "NAT gateway, its public address, traffic through it");
    tern_render_unpriced(r, "the bucket (S3)");
    tern_render_leave(r, "the stack's bucket with its objects, which is always retained");
    if (!lustre)
        return;
    tern_render_unpriced(
        r, "%s: FsxLustre of %lld GiB", lustre->mount_dir,
        (long long)(lustre->fsx_capacity_gib ? lustre->fsx_capacity_gib : DEFAULT_GIB));
    if (lustre->retained)
        tern_render_leave(r, "%s (FsxLustre): its DeletionPolicy is Retain", lustre->mount_dir);
}

int tern_render_cfn(struct tern_render *r, struct tern_err *err)
{
    const struct tern_layout_storage *lustre = tern_render_lustre(r->layout);
    const char *region = tern_render_value(r, "Region", r->layout->region);
    const char *name = tern_render_keep(r, tern_strf("%s-base", tern_render_name(r)));
    struct tern_render_file *f;

    if (lustre && lustre->fsx_id && !strstr(lustre->fsx_id, "${"))
        lustre = NULL; /* it is there already */
    if (tern_render_read_again(r, err) < 0 ||
        tern_render_add_json(r, "stack.json", stack(lustre), err) < 0)
        return -1;
    f = tern_render_program(r, "create.sh", render_cfn_create_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
    f = tern_render_program(r, "delete.sh", render_cfn_delete_sh);
    tern_render_set(f, "name", name);
    tern_render_set(f, "region", region);
    tern_render_set(f, "kept",
                    lustre && lustre->retained ? "Bucket FileSystem Vpc PrivateSubnet SecurityGroup"
                                               : "Bucket");
    put_steps(r, name, region, lustre);
    tern_render_say(r, "create.sh ZONE > outputs.json makes stack %s; delete.sh takes it away",
                    name);
    tern_render_say(r, "outputs.json is for --vars: ${PublicSubnet}, ${PrivateSubnet}, "
                       "${SecurityGroup}, ${Bucket}, ...");
    if (lustre)
        tern_render_say(
            r, "%s: the stack has an FSx for Lustre, %s, of %lld GiB", lustre->mount_dir,
            lustre->fsx_deployment ? lustre->fsx_deployment : default_deployment,
            (long long)(lustre->fsx_capacity_gib ? lustre->fsx_capacity_gib : DEFAULT_GIB));
    if (lustre && lustre->fsx_others)
        tern_render_say(r, "%s: the stack does not have %s of FsxLustreSettings", lustre->mount_dir,
                        lustre->fsx_others);
    say_left_out(r);
    tern_render_say(r, "the bucket is kept when the stack is deleted%s",
                    lustre && lustre->retained ? ", and the file system with its network" : "");
    return 0;
}
