/* The keys of ParallelCluster 3.16.1's cluster configuration: names, types, ranges and forms are
 * facts of its schema (aws-parallelcluster, pcluster/schemas).  A section is an array; the last,
 * tern_layout_cluster_keys, is the whole file. */
#include "core/layout/keys.h"

#include <stdint.h>

/* No bound. */
#define MOST INT64_MAX
#define KEY(n, t, ...)                                                                             \
    {                                                                                              \
        .name = (n), .type = t, ##__VA_ARGS__                                                      \
    }

static const struct tern_layout_form
    addresses = {"^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}"
                 "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])/(3[0-2]|[12]?[0-9])$|"
                 "^pl-[a-zA-Z0-9]",
                 "10.0.0.0/16 or a prefix list's pl-..."},
    path = {"^/?[^/.\\][^/\\]*(/[^/.\\][^/]*)*$", "/fsx"},
    group = {"^sg-([0-9a-z]{8}|[0-9a-z]{17})$", "sg-0123456789abcdef0"},
    subnet = {"^subnet-([0-9a-z]{8}|[0-9a-z]{17})$", "subnet-0123456789abcdef0"},
    ami = {"^ami-([0-9a-z]{8}|[0-9a-z]{17})$", "ami-0123456789abcdef0"},
    snapshot = {"^snap-([0-9a-z]{8}|[0-9a-z]{17})$", "snap-0123456789abcdef0"},
    volume = {"^vol-([0-9a-z]{8}|[0-9a-z]{17})$", "vol-0123456789abcdef0"},
    efs = {"^fs-([0-9a-z]{8}|[0-9a-z]{17})$", "fs-0123456789abcdef0"},
    lustre = {"^fs-[0-9a-z]{17}$", "fs-0123456789abcdef0"},
    access_point = {"^fsap-[0-9a-z]{17}$", "fsap-0123456789abcdef0"},
    fsx_volume = {"^fsvol-[0-9a-f]{17}$", "fsvol-0123456789abcdef0"},
    file_cache = {"^fc-[0-9a-f]{8,18}$", "fc-0123456789abcdef0"},
    backup = {"^backup-[0-9a-f]{8,}$", "backup-0123456789abcdef0"},
    weekly = {"^[1-7]:([01][0-9]|2[0-3]):[0-5][0-9]$", "7:02:30 (day:hour:minute, day 1 to 7)"},
    daily = {"^([01][0-9]|2[0-3]):[0-5][0-9]$", "02:30"}, bucket = {"^[*a-z0-9.-]+$", "my-bucket"},
    database_name = {"^[0-9a-z_]+$", "slurm_accounting"}, one_line = {"^[^\r\n]+$", "/data"},
    role = {"^arn:.*:role/", "arn:aws:iam::123456789012:role/name"},
    profile = {"^arn:.*:instance-profile/", "arn:aws:iam::123456789012:instance-profile/name"},
    policy = {"^arn:.*:policy/", "arn:aws:iam::aws:policy/name"},
    secret = {"^arn:.*:secret", "arn:aws:secretsmanager:REGION:123456789012:secret:name"},
    password = {"^arn:.*:(secretsmanager:.*:.*:secret:|ssm:.*:.*:parameter/)",
                "arn:aws:secretsmanager:REGION:123456789012:secret:name"};

static const struct tern_layout_key enabled[] = {
    KEY("Enabled", BOOL),
    {0},
};

static const struct tern_layout_key action_script[] = {
    KEY("Script", TEXT, .required = true),
    KEY("Args", TEXTS),
    {0},
};

/* One script, or a Sequence of them. */
const struct tern_layout_key tern_layout_action_keys[] = {
    KEY("Script", TEXT),
    KEY("Args", TEXTS),
    KEY("Sequence", LIST, .of = action_script),
    {0},
};

static const struct tern_layout_key custom_image[] = {
    KEY("CustomAmi", TEXT, .required = true, .form = &ami),
    {0},
};

static const struct tern_layout_key proxy[] = {
    KEY("HttpProxyAddress", TEXT),
    {0},
};

static const struct tern_layout_key login_nodes_networking[] = {
    KEY("AdditionalSecurityGroups", TEXTS, .form = &group),
    KEY("SecurityGroups", TEXTS, .form = &group),
    KEY("SubnetIds", TEXTS, .required = true, .lo = 1, .hi = 1, .form = &subnet),
    KEY("Proxy", MAP, .of = proxy),
    {0},
};

static const struct tern_layout_key dcv[] = {
    KEY("Enabled", BOOL, .required = true),
    KEY("Port", INT),
    KEY("AllowedIps", TEXT, .form = &addresses),
    {0},
};

static const struct tern_layout_key login_nodes_ssh[] = {
    KEY("AllowedIps", TEXT, .form = &addresses),
    {0},
};

static const struct tern_layout_key actions[] = {
    KEY("OnNodeStart", ACTION, .of = tern_layout_action_keys),
    KEY("OnNodeConfigured", ACTION, .of = tern_layout_action_keys),
    KEY("OnNodeUpdated", ACTION, .of = tern_layout_action_keys),
    {0},
};

static const struct tern_layout_key iam_policy[] = {
    KEY("Policy", TEXT, .required = true, .form = &policy),
    {0},
};

static const struct tern_layout_key login_nodes_iam[] = {
    KEY("InstanceRole", TEXT, .form = &role),
    KEY("AdditionalIamPolicies", LIST, .of = iam_policy),
    KEY("InstanceProfile", TEXT, .form = &profile),
    {0},
};

static const struct tern_layout_key login_nodes_pool[] = {
    KEY("Name", TEXT, .required = true),
    KEY("InstanceType", TEXT, .required = true),
    KEY("Image", MAP, .of = custom_image),
    KEY("Networking", MAP, .required = true, .of = login_nodes_networking),
    KEY("Count", INT, .required = true, .lo = 0, .hi = MOST),
    KEY("Dcv", MAP, .of = dcv),
    KEY("Ssh", MAP, .of = login_nodes_ssh),
    KEY("CustomActions", MAP, .of = actions),
    KEY("Iam", MAP, .of = login_nodes_iam),
    KEY("GracetimePeriod", INT, .lo = 3, .hi = 120),
    {0},
};

static const struct tern_layout_key login_nodes[] = {
    KEY("Pools", LIST, .required = true, .lo = 0, .hi = 10, .of = login_nodes_pool),
    {0},
};

static const struct tern_layout_key image[] = {
    KEY("Os", TEXT, .required = true,
        .words = "alinux2023|ubuntu2204|ubuntu2404|rhel8|rocky8|rhel9|rocky9"),
    KEY("CustomAmi", TEXT, .form = &ami),
    {0},
};

static const struct tern_layout_key head_node_networking[] = {
    KEY("AdditionalSecurityGroups", TEXTS, .form = &group),
    KEY("SecurityGroups", TEXTS, .form = &group),
    KEY("SubnetId", TEXT, .required = true, .form = &subnet),
    KEY("ElasticIp", ANY),
    KEY("Proxy", MAP, .of = proxy),
    {0},
};

static const struct tern_layout_key head_node_ssh[] = {
    KEY("KeyName", TEXT),
    KEY("AllowedIps", TEXT, .form = &addresses),
    {0},
};

static const struct tern_layout_key head_node_root_volume[] = {
    KEY("VolumeType", TEXT, .words = "standard|io1|io2|gp2|st1|sc1|gp3"),
    KEY("Iops", INT),
    KEY("Size", INT),
    KEY("Throughput", INT),
    KEY("Encrypted", BOOL),
    KEY("DeleteOnTermination", BOOL),
    {0},
};

static const struct tern_layout_key ephemeral[] = {
    KEY("MountDir", TEXT, .form = &path),
    {0},
};

static const struct tern_layout_key head_node_storage[] = {
    KEY("RootVolume", MAP, .of = head_node_root_volume),
    KEY("EphemeralVolume", MAP, .of = ephemeral),
    {0},
};

static const struct tern_layout_key shared_storage_efs_settings[] = {
    KEY("Encrypted", BOOL),
    {0},
};

static const struct tern_layout_key s3_access[] = {
    KEY("BucketName", TEXT, .required = true, .form = &bucket),
    KEY("KeyName", TEXT),
    KEY("EnableWriteAccess", BOOL),
    {0},
};

static const struct tern_layout_key iam[] = {
    KEY("InstanceRole", TEXT, .form = &role),
    KEY("AdditionalIamPolicies", LIST, .of = iam_policy),
    KEY("S3Access", LIST, .of = s3_access),
    KEY("InstanceProfile", TEXT, .form = &profile),
    {0},
};

static const struct tern_layout_key imds[] = {
    KEY("Secured", BOOL),
    {0},
};

static const struct tern_layout_key head_node[] = {
    KEY("InstanceType", TEXT, .required = true),
    KEY("DisableSimultaneousMultithreading", BOOL),
    KEY("Networking", MAP, .required = true, .of = head_node_networking),
    KEY("Ssh", MAP, .of = head_node_ssh),
    KEY("LocalStorage", MAP, .of = head_node_storage),
    KEY("SharedStorageType", TEXT, .words = "Ebs|Efs"),
    KEY("SharedStorageEfsSettings", MAP, .of = shared_storage_efs_settings),
    KEY("Dcv", MAP, .of = dcv),
    KEY("CustomActions", MAP, .of = actions),
    KEY("Iam", MAP, .of = iam),
    KEY("Imds", MAP, .of = imds),
    KEY("Image", MAP, .of = custom_image),
    {0},
};

static const struct tern_layout_key dns[] = {
    KEY("DisableManagedDns", BOOL),
    KEY("HostedZoneId", TEXT),
    KEY("UseEc2Hostnames", BOOL),
    {0},
};

static const struct tern_layout_key database[] = {
    KEY("Uri", TEXT, .required = true),
    KEY("UserName", TEXT, .required = true),
    KEY("PasswordSecretArn", TEXT, .required = true, .form = &secret),
    KEY("DatabaseName", TEXT, .form = &database_name, .hi = 64),
    {0},
};

static const struct tern_layout_key external_slurmdbd[] = {
    KEY("Host", TEXT, .required = true),
    KEY("Port", INT),
    {0},
};

static const struct tern_layout_key slurm_settings[] = {
    KEY("ScaledownIdletime", INT, .lo = -1, .hi = MOST),
    KEY("Dns", MAP, .of = dns),
    KEY("QueueUpdateStrategy", TEXT, .words = "DRAIN|COMPUTE_FLEET_STOP|TERMINATE"),
    KEY("EnableMemoryBasedScheduling", BOOL),
    KEY("Database", MAP, .of = database),
    KEY("CustomSlurmSettings", SETTINGS_LIST),
    KEY("CustomSlurmSettingsIncludeFile", TEXT),
    KEY("MungeKeySecretArn", TEXT),
    KEY("ExternalSlurmdbd", MAP, .of = external_slurmdbd),
    {0},
};

static const struct tern_layout_key queue_root_volume[] = {
    KEY("Size", INT), KEY("Encrypted", BOOL), KEY("VolumeType", TEXT),
    KEY("Iops", INT), KEY("Throughput", INT), {0},
};

static const struct tern_layout_key queue_storage[] = {
    KEY("RootVolume", MAP, .of = queue_root_volume),
    KEY("EphemeralVolume", MAP, .of = ephemeral),
    {0},
};

static const struct tern_layout_key compute_settings[] = {
    KEY("LocalStorage", MAP, .of = queue_storage),
    {0},
};

static const struct tern_layout_key queue_custom_actions[] = {
    KEY("OnNodeStart", ACTION, .of = tern_layout_action_keys),
    KEY("OnNodeConfigured", ACTION, .of = tern_layout_action_keys),
    {0},
};

static const struct tern_layout_key reservation[] = {
    KEY("CapacityReservationId", TEXT),
    KEY("CapacityReservationResourceGroupArn", TEXT),
    {0},
};

static const struct tern_layout_key instance_type[] = {
    KEY("InstanceType", TEXT, .required = true),
    {0},
};

static const struct tern_layout_key efa[] = {
    KEY("Enabled", BOOL),
    KEY("GdrSupport", BOOL),
    {0},
};

static const struct tern_layout_key placement_group[] = {
    KEY("Enabled", BOOL),
    KEY("Id", TEXT),
    KEY("Name", TEXT),
    {0},
};

static const struct tern_layout_key slurm_compute_resource_networking[] = {
    KEY("PlacementGroup", MAP, .of = placement_group),
    {0},
};

static const struct tern_layout_key health_checks[] = {
    KEY("Gpu", MAP, .of = enabled),
    {0},
};

static const struct tern_layout_key tag[] = {
    KEY("Key", TEXT, .required = true, .lo = 0, .hi = 128),
    KEY("Value", TEXT, .required = true, .lo = 0, .hi = 256),
    {0},
};

static const struct tern_layout_key launch_template_overrides[] = {
    KEY("LaunchTemplateId", TEXT, .required = true),
    KEY("Version", INT, .required = true, .lo = 1, .hi = MOST),
    {0},
};

static const struct tern_layout_key slurm_compute_resource[] = {
    KEY("Name", TEXT, .required = true),
    KEY("InstanceType", TEXT),
    KEY("Instances", LIST, .of = instance_type),
    KEY("MaxCount", INT, .lo = 1, .hi = TERN_LAYOUT_MAX_COUNT),
    KEY("MinCount", INT, .lo = 0, .hi = TERN_LAYOUT_MAX_COUNT),
    KEY("SpotPrice", REAL, .lo = 0, .hi = MOST),
    KEY("Efa", MAP, .of = efa),
    KEY("DisableSimultaneousMultithreading", BOOL),
    KEY("SchedulableMemory", INT),
    KEY("CapacityReservationTarget", MAP, .of = reservation),
    KEY("Networking", MAP, .of = slurm_compute_resource_networking),
    KEY("HealthChecks", MAP, .of = health_checks),
    KEY("CustomSlurmSettings", SETTINGS),
    KEY("Tags", LIST, .of = tag),
    KEY("StaticNodePriority", INT, .lo = 1, .hi = 4294967295),
    KEY("DynamicNodePriority", INT, .lo = 1, .hi = 4294967295),
    KEY("LaunchTemplateOverrides", MAP, .of = launch_template_overrides),
    {0},
};

static const struct tern_layout_key slurm_queue_networking[] = {
    KEY("AdditionalSecurityGroups", TEXTS, .form = &group),
    KEY("SecurityGroups", TEXTS, .form = &group),
    KEY("AssignPublicIp", BOOL),
    KEY("SubnetIds", TEXTS, .required = true, .lo = 1, .hi = MOST, .form = &subnet),
    KEY("PlacementGroup", MAP, .of = placement_group),
    KEY("Proxy", MAP, .of = proxy),
    {0},
};

static const struct tern_layout_key slurm_queue[] = {
    KEY("Name", TEXT, .required = true),
    KEY("CapacityType", TEXT, .words = "CAPACITY_BLOCK|ONDEMAND|SPOT"),
    KEY("ComputeSettings", MAP, .of = compute_settings),
    KEY("CustomActions", MAP, .of = queue_custom_actions),
    KEY("Iam", MAP, .of = iam),
    KEY("Image", MAP, .of = custom_image),
    KEY("CapacityReservationTarget", MAP, .of = reservation),
    KEY("AllocationStrategy", TEXT,
        .words = "lowest-price|capacity-optimized|price-capacity-optimized|prioritized|capacity-"
                 "optimized-prioritized"),
    KEY("ComputeResources", LIST, .required = true, .lo = 1, .hi = 50,
        .of = slurm_compute_resource),
    KEY("Networking", MAP, .required = true, .of = slurm_queue_networking),
    KEY("HealthChecks", MAP, .of = health_checks),
    KEY("CustomSlurmSettings", SETTINGS),
    KEY("Tags", LIST, .of = tag),
    KEY("JobExclusiveAllocation", BOOL),
    {0},
};

static const struct tern_layout_key scheduling[] = {
    KEY("Scheduler", TEXT, .required = true, .words = "slurm"),
    KEY("ScalingStrategy", TEXT, .words = "all-or-nothing|best-effort|greedy-all-or-nothing"),
    KEY("SlurmSettings", MAP, .of = slurm_settings),
    KEY("SlurmQueues", LIST, .required = true, .lo = 1, .hi = 50, .of = slurm_queue),
    {0},
};

static const struct tern_layout_key raid[] = {
    KEY("Type", INT, .required = true, .words = "0|1"),
    KEY("NumberOfVolumes", INT, .lo = 2, .hi = 5),
    {0},
};

static const struct tern_layout_key ebs_settings[] = {
    KEY("VolumeType", TEXT, .words = "standard|io1|io2|gp2|st1|sc1|gp3"),
    KEY("Iops", INT),
    KEY("Size", INT),
    KEY("KmsKeyId", TEXT),
    KEY("Throughput", INT),
    KEY("Encrypted", BOOL),
    KEY("SnapshotId", TEXT, .form = &snapshot),
    KEY("VolumeId", TEXT, .form = &volume),
    KEY("Raid", MAP, .of = raid),
    KEY("DeletionPolicy", TEXT, .words = "Delete|Retain|Snapshot"),
    {0},
};

static const struct tern_layout_key efs_settings[] = {
    KEY("Encrypted", BOOL),
    KEY("KmsKeyId", TEXT),
    KEY("PerformanceMode", TEXT, .words = "generalPurpose|maxIO"),
    KEY("ThroughputMode", TEXT, .words = "provisioned|bursting"),
    KEY("ProvisionedThroughput", INT, .lo = 1, .hi = 1024),
    KEY("FileSystemId", TEXT, .form = &efs),
    KEY("DeletionPolicy", TEXT, .words = "Delete|Retain"),
    KEY("AccessPointId", TEXT, .form = &access_point),
    KEY("EncryptionInTransit", BOOL),
    KEY("IamAuthorization", BOOL),
    {0},
};

static const struct tern_layout_key data_repository_association[] = {
    KEY("Name", TEXT, .required = true),
    KEY("BatchImportMetaDataOnCreate", BOOL),
    KEY("DataRepositoryPath", TEXT, .required = true),
    KEY("FileSystemPath", TEXT, .required = true, .lo = 1, .hi = 4096, .form = &one_line),
    KEY("ImportedFileChunkSize", INT, .lo = 1, .hi = 512000),
    KEY("AutoExportPolicy", TEXTS, .lo = 0, .hi = 3, .words = "NEW|CHANGED|DELETED"),
    KEY("AutoImportPolicy", TEXTS, .lo = 0, .hi = 3, .words = "NEW|CHANGED|DELETED"),
    {0},
};

static const struct tern_layout_key fsx_lustre_settings[] = {
    KEY("StorageCapacity", INT),
    KEY("DeploymentType", TEXT, .words = "SCRATCH_1|SCRATCH_2|PERSISTENT_1|PERSISTENT_2"),
    KEY("ImportedFileChunkSize", INT, .lo = 1, .hi = 512000),
    KEY("ExportPath", TEXT),
    KEY("ImportPath", TEXT),
    KEY("WeeklyMaintenanceStartTime", TEXT, .form = &weekly),
    KEY("AutomaticBackupRetentionDays", INT, .lo = 0, .hi = 90),
    KEY("CopyTagsToBackups", BOOL),
    KEY("DailyAutomaticBackupStartTime", TEXT, .form = &daily),
    KEY("PerUnitStorageThroughput", INT),
    KEY("BackupId", TEXT, .form = &backup),
    KEY("KmsKeyId", TEXT),
    KEY("FileSystemId", TEXT, .form = &lustre),
    KEY("AutoImportPolicy", TEXT, .words = "NEW|NEW_CHANGED|NEW_CHANGED_DELETED"),
    KEY("DriveCacheType", TEXT, .words = "READ"),
    KEY("DataCompressionType", TEXT, .words = "LZ4"),
    KEY("StorageType", TEXT, .words = "HDD|SSD"),
    KEY("DeletionPolicy", TEXT, .words = "Delete|Retain"),
    KEY("DataRepositoryAssociations", LIST, .of = data_repository_association),
    {0},
};

static const struct tern_layout_key existing_fsx[] = {
    KEY("VolumeId", TEXT, .required = true, .form = &fsx_volume),
    {0},
};

static const struct tern_layout_key file_cache_settings[] = {
    KEY("FileCacheId", TEXT, .required = true, .form = &file_cache),
    {0},
};

static const struct tern_layout_key shared_storage[] = {
    KEY("MountDir", TEXT, .required = true, .form = &path),
    KEY("Name", TEXT, .required = true),
    KEY("StorageType", TEXT, .required = true,
        .words = "Ebs|FsxLustre|FsxOpenZfs|FsxOntap|Efs|FileCache"),
    KEY("EbsSettings", MAP, .of = ebs_settings),
    KEY("EfsSettings", MAP, .of = efs_settings),
    KEY("FsxLustreSettings", MAP, .of = fsx_lustre_settings),
    KEY("FsxOpenZfsSettings", MAP, .of = existing_fsx),
    KEY("FsxOntapSettings", MAP, .of = existing_fsx),
    KEY("FileCacheSettings", MAP, .of = file_cache_settings),
    {0},
};

static const struct tern_layout_key cloud_watch_logs[] = {
    KEY("Enabled", BOOL),
    KEY("RetentionInDays", INT,
        .words = "0|1|3|5|7|14|30|60|90|120|150|180|365|400|545|731|1827|3653"),
    KEY("DeletionPolicy", TEXT, .words = "Delete|Retain"),
    {0},
};

static const struct tern_layout_key logs[] = {
    KEY("CloudWatch", MAP, .of = cloud_watch_logs),
    KEY("Rotation", MAP, .of = enabled),
    {0},
};

static const struct tern_layout_key dashboards[] = {
    KEY("CloudWatch", MAP, .of = enabled),
    {0},
};

static const struct tern_layout_key monitoring[] = {
    KEY("DetailedMonitoring", BOOL),
    KEY("Logs", MAP, .of = logs),
    KEY("Dashboards", MAP, .of = dashboards),
    KEY("Alarms", MAP, .of = enabled),
    {0},
};

static const struct tern_layout_key intel_software[] = {
    KEY("IntelHpcPlatform", BOOL),
    {0},
};

static const struct tern_layout_key additional_packages[] = {
    KEY("IntelSoftware", MAP, .of = intel_software),
    {0},
};

static const struct tern_layout_key roles[] = {
    KEY("LambdaFunctionsRole", TEXT),
    {0},
};

static const struct tern_layout_key cluster_iam[] = {
    KEY("Roles", MAP, .of = roles),
    KEY("PermissionsBoundary", TEXT, .form = &policy),
    KEY("ResourcePrefix", TEXT),
    {0},
};

static const struct tern_layout_key directory_service[] = {
    KEY("DomainName", TEXT, .required = true),
    KEY("DomainAddr", TEXT, .required = true),
    KEY("PasswordSecretArn", TEXT, .required = true, .form = &password),
    KEY("DomainReadOnlyUser", TEXT, .required = true),
    KEY("LdapTlsCaCert", TEXT),
    KEY("LdapTlsReqCert", TEXT, .words = "never|allow|try|demand|hard"),
    KEY("LdapAccessFilter", TEXT),
    KEY("GenerateSshKeysForUsers", BOOL),
    KEY("AdditionalSssdConfigs", SETTINGS),
    {0},
};

static const struct tern_layout_key cookbook[] = {
    KEY("ChefCookbook", TEXT),
    KEY("ExtraChefAttributes", TEXT),
    {0},
};

static const struct tern_layout_key ami_search_filters[] = {
    KEY("Tags", LIST, .of = tag),
    KEY("Owner", TEXT),
    KEY("NamePrefix", TEXT),
    {0},
};

static const struct tern_layout_key timeouts[] = {
    KEY("HeadNodeBootstrapTimeout", INT, .lo = 1, .hi = MOST),
    KEY("ComputeNodeBootstrapTimeout", INT, .lo = 1, .hi = MOST),
    KEY("ComputeInstanceInfoTimeout", INT, .lo = 1, .hi = MOST),
    {0},
};

static const struct tern_layout_key cluster_dev_settings[] = {
    KEY("Cookbook", MAP, .of = cookbook),
    KEY("NodePackage", TEXT),
    KEY("ClusterTemplate", TEXT),
    KEY("AmiSearchFilters", MAP, .of = ami_search_filters),
    KEY("InstanceTypesData", TEXT),
    KEY("Timeouts", MAP, .of = timeouts),
    KEY("ComputeStartupTimeMetricEnabled", BOOL),
    KEY("EfaInterfaceType", TEXT),
    {0},
};

static const struct tern_layout_key lambda_functions_vpc_config[] = {
    KEY("SecurityGroupIds", TEXTS, .required = true, .lo = 1, .hi = 5, .form = &group),
    KEY("SubnetIds", TEXTS, .required = true, .lo = 1, .hi = 16, .form = &subnet),
    {0},
};

static const struct tern_layout_key cluster_deployment_settings[] = {
    KEY("LambdaFunctionsVpcConfig", MAP, .of = lambda_functions_vpc_config),
    KEY("DisableSudoAccessForDefaultUser", BOOL),
    KEY("DefaultUserHome", TEXT, .words = "Shared|Local"),
    {0},
};

static const struct tern_layout_key cluster_imds[] = {
    KEY("ImdsSupport", TEXT, .words = "v1.0|v2.0"),
    {0},
};

const struct tern_layout_key tern_layout_cluster_keys[] = {
    KEY("LoginNodes", MAP, .of = login_nodes),
    KEY("Image", MAP, .required = true, .of = image),
    KEY("HeadNode", MAP, .required = true, .of = head_node),
    KEY("Scheduling", MAP, .required = true, .of = scheduling),
    KEY("SharedStorage", LIST, .of = shared_storage),
    KEY("Monitoring", MAP, .of = monitoring),
    KEY("AdditionalPackages", MAP, .of = additional_packages),
    KEY("Tags", LIST, .of = tag),
    KEY("Iam", MAP, .of = cluster_iam),
    KEY("DirectoryService", MAP, .of = directory_service),
    KEY("Region", TEXT),
    KEY("Imds", MAP, .of = cluster_imds),
    KEY("CustomS3Bucket", TEXT),
    KEY("AdditionalResources", TEXT),
    KEY("DevSettings", MAP, .of = cluster_dev_settings),
    KEY("DeploymentSettings", MAP, .of = cluster_deployment_settings),
    {0},
};
