"""Layouts beside AWS ParallelCluster: pcluster's own reader, schema and validators judge each file,
and so does `tern cluster check --json`.  boto3 is never asked: validators that need an account are
left out and listed, and facts of EC2 are those of TYPES.

    layout.py write DIR N TEMPLATE...  the files: the templates, BASES and TEXTS, and of the changes of
                                      one key each N-th
    layout.py compare TERN FILE...     both judge; "ok NAME" or "not ok NAME" a line
    layout.py same FILE RENDERED ...   each pair is one configuration to pcluster, but for what
                                      `tern cluster render --to pcluster` adds to nodes
"""
import copy
import functools
import json
import os
import subprocess
import sys
import types
import warnings

warnings.filterwarnings("ignore")
os.environ.update(AWS_DEFAULT_REGION="us-west-2", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x",
                  AWS_EC2_METADATA_DISABLED="true")

import yaml  # noqa: E402
from marshmallow import fields, validate  # noqa: E402
from pcluster.aws.aws_api import AWSApi  # noqa: E402
from pcluster.aws.aws_resources import InstanceTypeInfo  # noqa: E402
from pcluster.config.common import TypeMatchValidatorsSuppressor  # noqa: E402
from pcluster.schemas.cluster_schema import ClusterSchema  # noqa: E402
from pcluster.utils import yaml_load  # noqa: E402
from pcluster.validators.common import FailureLevel, ValidatorContext  # noqa: E402

# Of EC2: vCPUs, cores, MiB, network cards, EFA interfaces, disks, processors.
TYPES = {
    "trn1.2xlarge": (8, 4, 32768, 1, 0, True, "x86_64"),
    "trn1.32xlarge": (128, 64, 524288, 8, 8, True, "x86_64"),
    "trn1n.32xlarge": (128, 64, 524288, 16, 16, True, "x86_64"),
    "trn2.48xlarge": (192, 96, 2097152, 16, 16, True, "x86_64"),
    "t3.medium": (2, 1, 4096, 1, 0, False, "x86_64"),
    "t3.large": (2, 1, 8192, 1, 0, False, "x86_64"),
    "c5.large": (2, 1, 4096, 1, 0, False, "x86_64"),
    "c5.xlarge": (4, 2, 8192, 1, 0, False, "x86_64"),
    "c5.4xlarge": (16, 8, 32768, 1, 0, False, "x86_64"),
    "c5.9xlarge": (36, 18, 73728, 1, 0, False, "x86_64"),
    "c5n.18xlarge": (72, 36, 196608, 1, 1, False, "x86_64"),
    "c6i.32xlarge": (128, 64, 262144, 1, 1, False, "x86_64"),
    "m5.large": (2, 1, 8192, 1, 0, False, "x86_64"),
    "m5.xlarge": (4, 2, 16384, 1, 0, False, "x86_64"),
    "hpc6a.48xlarge": (96, 96, 393216, 1, 1, False, "x86_64"),
    "p5.48xlarge": (192, 96, 2097152, 32, 32, True, "x86_64"),
    "g5.xlarge": (4, 2, 16384, 1, 0, True, "x86_64"),
    "hpc7g.16xlarge": (64, 64, 131072, 1, 1, False, "arm64"),
    "c7g.xlarge": (4, 4, 8192, 1, 0, False, "arm64"),
}

# What only an account could say: keys, images, groups, subnets, reservations and the dry runs.
CANNOT = """AdditionalIamPolicyValidator AmiOsCompatibleValidator CapacityBlockHealthStatusValidator
CapacityReservationResourceGroupValidator CapacityReservationSizeValidator
CapacityReservationValidator ComputeResourceLaunchTemplateValidator
CustomAmiTagValidator EbsVolumeSizeSnapshotValidator EfaSecurityGroupValidator EfsIdValidator
ElasticIpValidator ExistingFsxNetworkingValidator FsxAutoImportValidator FsxBackupIdValidator
HeadNodeLaunchTemplateValidator HostedZoneValidator IamPolicyValidator
InstanceProfileValidator InstanceTypeBaseAMICompatibleValidator KeyPairValidator KmsKeyValidator
LambdaFunctionsVpcConfigValidator LaunchTemplateValidator MultiAzEbsVolumeValidator
MungeKeySecretSizeAndBase64Validator PlacementGroupCapacityReservationValidator RegionValidator
RoleValidator RootVolumeSizeValidator S3BucketRegionValidator S3BucketValidator
SecurityGroupsValidator SharedEbsVolumeIdValidator SubnetsValidator
UltraserverCapacityBlockSizeValidator UnmanagedFsxMultiAzValidator""".split()

# tern refuses what pcluster takes: by the id of the finding.
STRICTER = {
    "name-nodes": "node names are split at -st- and -dy-, and pcluster's own parser gets them wrong",
    "tag-reserved": "EC2 refuses tags that begin with aws:",
    "mount-form": "a blank or .. in a mount point breaks /etc/fstab",
    "mount-reserved": "/opt/ is /opt",
    "mount-overlap": "pcluster compares the storages' names, not their folders",
    "mount-inside": "pcluster compares the storages' names, not their folders",
    "mount-cache": "/home/ is /home",
    "reservation-id": "EC2 refuses ids without cr-",
    "reservation-arn": "EC2 refuses other ARNs",
    "storage-name": "a storage without a name",
    "setting-value": "it is no line of slurm.conf",
    "setting-denied": "Features names the nodes' types to the scheduler",
    "list-length": "a queue without compute resources fails in pcluster's dry run",
    "type-trainium": "EC2 has no such type",
    "iam-both": "two of three are one too many",
}
# pcluster refuses what tern takes: by the warning that tern gives.
WARNED = {
    "yaml-merge": "PyYAML takes merge keys, only pcluster's own reader does not",
    "type-unknown": "the catalogue does not have every type of EC2",
    "head-unknown": "the catalogue does not have every type of EC2",
    "pool-unknown": "the catalogue does not have every type of EC2",
}


# ------------------------------------------------------------------ pcluster without an account

def type_info(name):
    vcpus, cores, mib, cards, efa, disks, processor = TYPES[name]
    burstable = name.startswith("t") and not name.startswith("trn")
    return InstanceTypeInfo({
        "InstanceType": name,
        "SupportedUsageClasses": ["on-demand", "ondemand", "spot", "capacity-block"],
        "ProcessorInfo": {"SupportedArchitectures": [processor]},
        "VCpuInfo": {"DefaultVCpus": vcpus, "DefaultCores": cores,
                     "DefaultThreadsPerCore": vcpus // cores},
        "MemoryInfo": {"SizeInMiB": mib},
        "InstanceStorageSupported": disks,
        "EbsInfo": {"EbsOptimizedSupport": "default"},
        "NetworkInfo": {"EfaSupported": efa > 0, "MaximumNetworkCards": cards,
                        "EfaInfo": {"MaximumEfaInterfaces": efa} if efa else {},
                        "NetworkCards": [{"NetworkCardIndex": i, "MaximumNetworkInterfaces": 5}
                                         for i in range(cards)]},
        "PlacementGroupInfo": {"SupportedStrategies":
                               ["partition", "spread"] + ([] if burstable else ["cluster"])},
    })


class Anything:
    """A client whose every call works and says nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: {}


class Ec2(Anything):
    get_instance_type_info = staticmethod(type_info)

    def list_instance_types(self):
        return list(TYPES)

    def get_supported_architectures(self, name):
        return [TYPES[name][6]]

    def get_official_image_id(self, *args):
        return "ami-0123456789abcdef0"

    def describe_image(self, *args, **kwargs):
        return types.SimpleNamespace(device_name="/dev/xvda", volume_size=45, image_os=None, tags=[],
                                     architecture="x86_64", description="", id="ami-0")

    def get_subnets_az_mapping(self, subnets):
        return {s: "zone of " + s for s in subnets}

    def get_subnet_avail_zone(self, subnet):
        return "zone of " + subnet

    def describe_subnets(self, *args, **kwargs):
        return []

    def describe_capacity_reservations(self, *args):
        return []

    def get_instance_type_and_reservation_type_from_capacity_reservation(self, *args):
        return "trn1.32xlarge", "targeted"


class Fsx(Anything):
    def describe_volumes(self, ids):
        return [{"FileSystemId": "fs-" + ids[0][-17:]}]

    def get_file_systems_info(self, ids):
        return [types.SimpleNamespace(subnet_ids=[], dns_name="", mount_name="")]

    def describe_file_caches(self, ids):
        return self.get_file_systems_info(ids)


class S3(Anything):
    def get_bucket_region(self, *args):
        return "us-west-2"


class Api:
    ec2, fsx, s3 = Ec2(), Fsx(), S3()

    def __getattr__(self, name):
        return Anything()


@functools.lru_cache(None)
def setup():
    import asyncio
    import logging
    logging.disable(logging.CRITICAL)
    asyncio.set_event_loop(asyncio.new_event_loop())
    AWSApi.instance = staticmethod(lambda api=Api(): api)
    import contextlib
    import pcluster.validators.s3_validators as s3
    s3.urlopen = lambda url: contextlib.nullcontext()

    async def uncached(self, url, fail_on_https_error=False, fail_on_s3_error=False,
                       expected_bucket_owner=None):
        await self._validate_async_internal(url, fail_on_https_error, fail_on_s3_error,
                                            expected_bucket_owner)
    s3.UrlValidator._validate_async = uncached  # its cache outlives a file
    return [TypeMatchValidatorsSuppressor(set(CANNOT))]


def judged(path):
    """What pcluster has against the file: a text, or None."""
    suppressors = setup()
    try:
        tree = yaml_load(open(path, encoding="utf-8"))
        config = ClusterSchema(cluster_name="c").load(tree)
        config.source_config = tree
        failures = config.validate(suppressors, ValidatorContext())
    except Exception as e:  # whatever stops pcluster refuses the file
        return "%s: %s" % (type(e).__name__, " ".join(str(e).split())[:300])
    bad = ["%s: %s" % (f.validator_type, f.message) for f in failures
           if f.level == FailureLevel.ERROR]
    return "; ".join(bad)[:300] or None


# ------------------------------------------------------------------ files

A = "0123456789abcdef"
BASES = {
    "everything": """
Region: us-west-2
Image: {Os: ubuntu2204, CustomAmi: ami-A0}
CustomS3Bucket: my-bucket
AdditionalResources: https://example.com/more.yaml
Imds: {ImdsSupport: v2.0}
Tags:
  - {Key: team, Value: nlp}
  - {Key: cost, Value: "12"}
HeadNode:
  InstanceType: c5.4xlarge
  DisableSimultaneousMultithreading: false
  Networking:
    SubnetId: subnet-A0
    ElasticIp: true
    AdditionalSecurityGroups: [sg-A0]
    Proxy: {HttpProxyAddress: "https://proxy:3128"}
  Ssh: {KeyName: my-key, AllowedIps: 10.0.0.0/16}
  LocalStorage:
    RootVolume: {Size: 200, Encrypted: true, VolumeType: gp3, Iops: 4000, Throughput: 250, DeleteOnTermination: true}
    EphemeralVolume: {MountDir: /local}
  SharedStorageType: Efs
  SharedStorageEfsSettings: {Encrypted: true}
  Dcv: {Enabled: true, Port: 8443, AllowedIps: 10.0.0.0/16}
  CustomActions:
    OnNodeStart: {Script: "s3://b/start.sh", Args: [a, "1"]}
    OnNodeConfigured:
      Sequence:
        - {Script: "https://example.com/a.sh", Args: [x]}
        - {Script: "s3://b/c.sh"}
    OnNodeUpdated: {Script: "s3://b/update.sh"}
  Iam:
    AdditionalIamPolicies: [{Policy: "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}]
    S3Access: [{BucketName: b, KeyName: "data/*", EnableWriteAccess: true}]
  Imds: {Secured: true}
  Image: {CustomAmi: ami-A1}
LoginNodes:
  Pools:
    - Name: login
      InstanceType: c5.xlarge
      Count: 1
      GracetimePeriod: 10
      Image: {CustomAmi: ami-A2}
      Networking: {SubnetIds: [subnet-A0], SecurityGroups: [sg-A1], Proxy: {HttpProxyAddress: "https://p:1"}}
      Dcv: {Enabled: false, Port: 8443, AllowedIps: 10.0.0.0/16}
      Ssh: {AllowedIps: 10.0.0.0/16}
      CustomActions: {OnNodeConfigured: {Script: "s3://b/login.sh"}}
      Iam: {InstanceRole: "arn:aws:iam::123456789012:role/login"}
Scheduling:
  Scheduler: slurm
  ScalingStrategy: all-or-nothing
  SlurmSettings:
    ScaledownIdletime: 10
    QueueUpdateStrategy: DRAIN
    EnableMemoryBasedScheduling: true
    Dns: {DisableManagedDns: false, HostedZoneId: Z1, UseEc2Hostnames: false}
    Database: {Uri: "db.example.com:3306", UserName: slurm, PasswordSecretArn: "arn:aws:secretsmanager:us-west-2:123456789012:secret:db", DatabaseName: slurm_db}
    CustomSlurmSettings: [{SlurmdTimeout: 600}, {NodeName: extra, CPUs: 4}]
    MungeKeySecretArn: arn:aws:secretsmanager:us-west-2:123456789012:secret:munge
  SlurmQueues:
    - Name: trn1
      CapacityType: ONDEMAND
      JobExclusiveAllocation: true
      CustomSlurmSettings: {MaxTime: 60}
      Tags: [{Key: queue, Value: a}]
      HealthChecks: {Gpu: {Enabled: false}}
      Image: {CustomAmi: ami-A3}
      ComputeSettings:
        LocalStorage:
          RootVolume: {Size: 200, Encrypted: true, VolumeType: gp3, Iops: 3000, Throughput: 125}
          EphemeralVolume: {MountDir: /scratch}
      CustomActions: {OnNodeStart: {Script: "s3://b/q.sh"}, OnNodeConfigured: {Script: "s3://b/q.sh"}}
      Iam: {InstanceProfile: "arn:aws:iam::123456789012:instance-profile/p"}
      Networking:
        SubnetIds: [subnet-A1]
        AssignPublicIp: false
        AdditionalSecurityGroups: [sg-A0]
        PlacementGroup: {Enabled: true}
        Proxy: {HttpProxyAddress: "https://p:1"}
      ComputeResources:
        - Name: cr
          InstanceType: trn1.32xlarge
          MinCount: 2
          MaxCount: 4
          Efa: {Enabled: true, GdrSupport: true}
          DisableSimultaneousMultithreading: true
          SchedulableMemory: 500000
          HealthChecks: {Gpu: {Enabled: false}}
          CustomSlurmSettings: {CoreSpecCount: 1}
          Tags: [{Key: cr, Value: a}]
          StaticNodePriority: 1
          DynamicNodePriority: 1000
          LaunchTemplateOverrides: {LaunchTemplateId: lt-0, Version: 1}
          Networking: {PlacementGroup: {Name: mine}}
    - Name: spot
      CapacityType: SPOT
      AllocationStrategy: price-capacity-optimized
      Networking: {SubnetIds: [subnet-A1]}
      ComputeResources:
        - Name: c5
          Instances: [{InstanceType: c5.xlarge}, {InstanceType: m5.xlarge}]
          SpotPrice: 2.5
          MaxCount: 4
SharedStorage:
  - Name: ebs
    MountDir: /ebs
    StorageType: Ebs
    EbsSettings: {VolumeType: gp3, Iops: 4000, Size: 200, KmsKeyId: k, Throughput: 250, Encrypted: true, SnapshotId: snap-A0, Raid: {Type: 1, NumberOfVolumes: 2}, DeletionPolicy: Snapshot}
  - Name: efs
    MountDir: efs
    StorageType: Efs
    EfsSettings: {Encrypted: true, KmsKeyId: k, PerformanceMode: generalPurpose, ThroughputMode: provisioned, ProvisionedThroughput: 1024, DeletionPolicy: Retain, EncryptionInTransit: true, IamAuthorization: true}
  - Name: fsx
    MountDir: /fsx
    StorageType: FsxLustre
    FsxLustreSettings:
      StorageCapacity: 2400
      DeploymentType: PERSISTENT_2
      PerUnitStorageThroughput: 250
      WeeklyMaintenanceStartTime: "7:02:30"
      AutomaticBackupRetentionDays: 3
      CopyTagsToBackups: true
      DailyAutomaticBackupStartTime: "01:03"
      KmsKeyId: k
      DataCompressionType: LZ4
      StorageType: SSD
      DeletionPolicy: Retain
      DataRepositoryAssociations:
        - {Name: dra, BatchImportMetaDataOnCreate: true, DataRepositoryPath: "s3://b/p", FileSystemPath: /data, ImportedFileChunkSize: 1024, AutoExportPolicy: [NEW, CHANGED], AutoImportPolicy: [NEW]}
  - {Name: zfs, MountDir: /zfs, StorageType: FsxOpenZfs, FsxOpenZfsSettings: {VolumeId: fsvol-A0}}
  - {Name: ontap, MountDir: /ontap, StorageType: FsxOntap, FsxOntapSettings: {VolumeId: fsvol-A1}}
  - {Name: cache, MountDir: /cache, StorageType: FileCache, FileCacheSettings: {FileCacheId: fc-A0}}
Monitoring:
  DetailedMonitoring: true
  Logs: {CloudWatch: {Enabled: true, RetentionInDays: 30, DeletionPolicy: Retain}, Rotation: {Enabled: true}}
  Dashboards: {CloudWatch: {Enabled: true}}
  Alarms: {Enabled: true}
AdditionalPackages: {IntelSoftware: {IntelHpcPlatform: false}}
Iam:
  Roles: {LambdaFunctionsRole: "arn:aws:iam::123456789012:role/lambda"}
  PermissionsBoundary: arn:aws:iam::123456789012:policy/boundary
  ResourcePrefix: /path/name-
DirectoryService:
  DomainName: corp.example.com
  DomainAddr: ldaps://corp.example.com
  PasswordSecretArn: arn:aws:secretsmanager:us-west-2:123456789012:secret:ad
  DomainReadOnlyUser: cn=R,dc=corp
  LdapTlsCaCert: /opt/ca.pem
  LdapTlsReqCert: hard
  LdapAccessFilter: "(cn=a)"
  GenerateSshKeysForUsers: true
  AdditionalSssdConfigs: {debug_level: "0x1", id_provider: ldap, access_provider: ldap}
DevSettings:
  Cookbook: {ChefCookbook: "https://example.com/c.tgz", ExtraChefAttributes: '{"cluster": {"slurm": {"reconfigure_timeout": 400}}}'}
  NodePackage: s3://b/node.tgz
  ClusterTemplate: https://example.com/t.yaml
  AmiSearchFilters: {Tags: [{Key: a, Value: b}], Owner: self, NamePrefix: x}
  InstanceTypesData: '{}'
  Timeouts: {HeadNodeBootstrapTimeout: 3600, ComputeNodeBootstrapTimeout: 3600, ComputeInstanceInfoTimeout: 90}
  ComputeStartupTimeMetricEnabled: false
  EfaInterfaceType: efa-only
DeploymentSettings:
  LambdaFunctionsVpcConfig: {SecurityGroupIds: [sg-A0], SubnetIds: [subnet-A0]}
  DisableSudoAccessForDefaultUser: true
  DefaultUserHome: Local
""",
    "existing": """
Region: us-west-2
Image: {Os: alinux2023}
HeadNode:
  InstanceType: m5.large
  Networking: {SubnetId: subnet-A0, SecurityGroups: [sg-A0]}
  Iam: {InstanceRole: "arn:aws:iam::123456789012:role/head"}
Scheduling:
  Scheduler: slurm
  SlurmSettings:
    CustomSlurmSettingsIncludeFile: s3://b/slurm.conf
    ExternalSlurmdbd: {Host: dbd, Port: 6819}
    MungeKeySecretArn: arn:aws:secretsmanager:us-west-2:123456789012:secret:munge
  SlurmQueues:
    - Name: block
      CapacityType: CAPACITY_BLOCK
      CapacityReservationTarget: {CapacityReservationId: cr-A0}
      Networking: {SubnetIds: [subnet-A1], SecurityGroups: [sg-A0]}
      ComputeResources:
        - {Name: cr, InstanceType: trn1.32xlarge, MinCount: 4, MaxCount: 4, Efa: {Enabled: true}}
    - Name: reserved
      CapacityReservationTarget: {CapacityReservationResourceGroupArn: "arn:aws:resource-groups:us-west-2:123456789012:group/g"}
      Networking: {SubnetIds: [subnet-A1], PlacementGroup: {Enabled: false}}
      ComputeResources:
        - {Name: a, InstanceType: trn1.32xlarge, Efa: {Enabled: true}}
        - Name: b
          CapacityReservationTarget: {CapacityReservationId: cr-A1}
        - {Name: c, InstanceType: trn1.2xlarge, MaxCount: 1}
    - Name: flexible
      AllocationStrategy: prioritized
      Networking: {SubnetIds: [subnet-A1, subnet-A2]}
      ComputeResources:
        - {Name: a, Instances: [{InstanceType: c5.xlarge}], MinCount: 0, MaxCount: 2}
SharedStorage:
  - {Name: fsx, MountDir: /fsx, StorageType: FsxLustre, FsxLustreSettings: {FileSystemId: fs-A0}}
  - {Name: efs, MountDir: /efs, StorageType: Efs, EfsSettings: {FileSystemId: fs-A1, EncryptionInTransit: true, IamAuthorization: true, AccessPointId: fsap-A0}}
  - {Name: ebs, MountDir: /ebs, StorageType: Ebs, EbsSettings: {VolumeId: vol-A0}}
""",
    "scratch": """
Region: us-west-2
Image: {Os: ubuntu2404}
HeadNode:
  InstanceType: c5.xlarge
  Networking: {SubnetId: subnet-A0}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: efa
      Networking: {SubnetIds: [subnet-A1], PlacementGroup: {Id: mine}}
      ComputeResources:
        - {Name: c5n, InstanceType: c5n.18xlarge, MaxCount: 2, Efa: {Enabled: true}}
SharedStorage:
  - Name: fsx
    MountDir: /fsx
    StorageType: FsxLustre
    FsxLustreSettings: {StorageCapacity: 1200, DeploymentType: SCRATCH_2, ImportPath: "s3://b/in", ExportPath: "s3://b/out", ImportedFileChunkSize: 1024, AutoImportPolicy: NEW_CHANGED}
""",
    "hdd": """
Region: us-west-2
Image: {Os: rhel9}
HeadNode:
  InstanceType: c5.xlarge
  Networking: {SubnetId: subnet-A0}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: cpu
      Networking: {SubnetIds: [subnet-A1]}
      ComputeResources:
        - {Name: c5, InstanceType: c5.xlarge}
SharedStorage:
  - Name: fsx
    MountDir: /fsx
    StorageType: FsxLustre
    FsxLustreSettings: {StorageCapacity: 6000, DeploymentType: PERSISTENT_1, PerUnitStorageThroughput: 12, StorageType: HDD, DriveCacheType: READ}
  - Name: io
    MountDir: /io
    StorageType: Ebs
    EbsSettings: {VolumeType: io2, Size: 40, Iops: 2000}
""",
    "backup": """
Region: us-west-2
Image: {Os: rocky9, CustomAmi: ami-A0}
HeadNode:
  InstanceType: c7g.xlarge
  Networking: {SubnetId: subnet-A0}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: cpu
      Networking: {SubnetIds: [subnet-A1]}
      ComputeResources:
        - {Name: c, InstanceType: c7g.xlarge}
SharedStorage:
  - {Name: fsx, MountDir: /fsx, StorageType: FsxLustre, FsxLustreSettings: {BackupId: backup-0123456789}}
""",
}

# Changes of a base's text that no walk over keys makes.
TEXTS = {
    "everything": [("SubnetIds: [subnet-A1]\n        Assign", "SubnetIds: [subnet-A1, subnet-A2]\n        Assign"),
                   ("AssignPublicIp: false", "AssignPublicIp: true"),
                   ("trn1.32xlarge", "trn1.2xlarge"), ("trn1.32xlarge", "p5.48xlarge"),
                   ("trn1.32xlarge", "trn1.64xlarge"), ("trn1.32xlarge", "hpc7g.16xlarge"),
                   ("c5.4xlarge", "c5.9xlrage"), ("MaxCount: 4\n          Efa", "MaxCount: 900\n          Efa"),
                   ("c5.4xlarge", "c7g.xlarge"), ("m5.xlarge", "c5.xlarge"), ("m5.xlarge", "m5.large"),
                   ("CapacityType: ONDEMAND", "CapacityType: CAPACITY_BLOCK"),
                   ("price-capacity-optimized", "prioritized"), ("CapacityType: SPOT", "CapacityType: ONDEMAND"),
                   ("Name: trn1", "Name: spot"), ("Name: trn1", "Name: default"), ("Name: trn1", "Name: a-st-b"),
                   ("Name: trn1", "Name: T"), ("Name: trn1", "Name: " + 26 * "a"), ("Name: login", "Name: L"),
                   ("MountDir: /fsx", "MountDir: /ebs"), ("MountDir: /fsx", "MountDir: /ebs/a"),
                   ("MountDir: /fsx", "MountDir: fsx"), ("MountDir: /fsx", "MountDir: /tmp"),
                   ("MountDir: /fsx", "MountDir: /fsx2"), ("MountDir: /fsx", "MountDir: NONE"),
                   ("MountDir: /fsx", "MountDir: /scratch"), ("MountDir: /fsx", "MountDir: /scratch/a"), ("MountDir: /fsx", "MountDir: /home"),
                   ("MountDir: /cache", "MountDir: /home"), ("MountDir: /fsx", "MountDir: /a b"),
                   ("IntelHpcPlatform: false", "IntelHpcPlatform: true"),
                   ("SharedStorageType: Efs", "SharedStorageType: Ebs"), ("Key: cost", "Key: team"),
                   ("Key: cost", "Key: parallelcluster:x"), ("Key: cost", "Key: 'aws:x'"),
                   ("{SlurmdTimeout: 600}", "{Epilog: x}"), ("{SlurmdTimeout: 600}", "{epilog: x}"),
                   ("{SlurmdTimeout: 600}", "{AccountingStorageHost: x}"), ("NodeName: extra", "NodeName: a-st-b"),
                   ("{MaxTime: 60}", "{State: UP}"), ("{CoreSpecCount: 1}", "{Gres: 'neuron:1'}"),
                   ("{CoreSpecCount: 1}", "{Features: a}"),
                   ("ElasticIp: true", "ElasticIp: eipalloc-A0"), ("ElasticIp: true", "ElasticIp: 'true'"),
                   ("GdrSupport: true}", "GdrSupport: false}"), ("Efa: {Enabled: true,", "Efa: {Enabled: false,"),
                   ("{Name: mine}", "{Name: mine, Enabled: false}"), ("{Name: mine}", "{Name: mine, Id: yours}"),
                   ("{Name: mine}", "{}"), ("{Name: mine}", "{Enabled: false}"),
                   ("Scheduler: slurm", "Scheduler: awsbatch"), ("ubuntu2204", "alinux2"), ("ubuntu2204", "ubuntu2004"),
                   ("ubuntu2204", "rocky8"), ("Uri: \"db", "Uri: \"mysql://db"), ("Uri: \"db", "Uri: \"/db"),
                   ("3306", "99999"), ("s3://b/start.sh", "/home/x.sh"), ("s3://b/start.sh", "s3://b"),
                   ("s3://b/start.sh", "http://b/x"), ("https://example.com/a.sh", "ftp://b/x"),
                   ("s3://b/node.tgz", "node.tgz"), ("https://example.com/t.yaml", "t.yaml"),
                   ("https://example.com/c.tgz", "c.tgz"), ("reconfigure_timeout\": 400", "reconfigure_timeout\": 40"),
                   ("'{\"cluster\"", "'{cluster"), ("corp.example.com\n  DomainAddr", "corp example\n  DomainAddr"),
                   ("id_provider: ldap", "id_provider: ad"), ("access_provider: ldap", "access_provider: ad"),
                   ("ResourcePrefix: /path/name-", "ResourcePrefix: path/name-"),
                   ("ResourcePrefix: /path/name-", "ResourcePrefix: " + 31 * "n"),
                   ("ResourcePrefix: /path/name-", "ResourcePrefix: /path/"),
                   ("secret:ad", "other:ad"), ("Size: 200, KmsKeyId", "Size: 20000, KmsKeyId"),
                   ("Iops: 4000, Size: 200", "Iops: 100, Size: 200"), ("Iops: 4000, Size: 200", "Iops: 4000, Size: 4"),
                   ("Throughput: 250, DeleteOn", "Throughput: 2000, DeleteOn"),
                   ("Throughput: 250, DeleteOn", "Throughput: 1001, DeleteOn"),
                   ("Throughput: 125}", "Throughput: 900}"), ("k, Throughput: 250, Encrypted: true", "k, Throughput: 250, Encrypted: false"),
                   ("EfsSettings: {Encrypted: true", "EfsSettings: {Encrypted: false"),
                   ("EncryptionInTransit: true", "EncryptionInTransit: false"),
                   ("ThroughputMode: provisioned", "ThroughputMode: bursting"),
                   ("StorageCapacity: 2400", "StorageCapacity: 2500"), ("PERSISTENT_2", "SCRATCH_2"),
                   ("PERSISTENT_2", "PERSISTENT_1"), ("PerUnitStorageThroughput: 250", "PerUnitStorageThroughput: 200"),
                   ("StorageType: SSD", "StorageType: HDD"), ("StorageType: SSD", "StorageType: SSD\n      ImportPath: s3://b/i"),
                   ("StorageType: SSD", "StorageType: SSD\n      DriveCacheType: READ"), ("s3://b/p", "/b/p"),
                   ("AutomaticBackupRetentionDays: 3", "AutomaticBackupRetentionDays: 0"),
                   ("FsxOntapSettings: {VolumeId: fsvol-A1}", "FsxOntapSettings: {VolumeId: fsvol-A0}"),
                   ("SchedulableMemory: 500000", "SchedulableMemory: 600000"),
                   ("SchedulableMemory: 500000", "SchedulableMemory: 0"), ("MinCount: 2", "MinCount: 5"),
                   ("DynamicNodePriority: 1000", "DynamicNodePriority: 1"), ("Name: ebs", "Name: efs"),
                   ("Name: ebs", "Name: default"), ("Name: ebs", "Name: a b"), ("Name: ebs", "Name: " + 31 * "n"),
                   ("MinCount: 2", "MinCount: 2.5"), ("MinCount: 2", "MinCount: 2.0"), ("MinCount: 2", "MinCount: '2'"),
                   ("MinCount: 2", "MinCount: 02"), ("MinCount: 2", "MinCount: 0x2"), ("MinCount: 2", "MinCount: '0x2'"),
                   ("MinCount: 2", "MinCount: 0b10"), ("MinCount: 2", "MinCount: 1:30"), ("MinCount: 2", "MinCount: 1e0"),
                   ("MinCount: 2", "MinCount: 1_0"), ("MinCount: 2", "MinCount: '1_0'"), ("MinCount: 2", "MinCount: +2"),
                   ("MinCount: 2", "MinCount: 08"), ("MinCount: 2", "MinCount: .inf"), ("MinCount: 2", "MinCount: .nan"),
                   ("MinCount: 2", "MinCount: true"), ("MinCount: 2", "MinCount: 2026-01-31"), ("MinCount: 2", "MinCount: ="),
                   ("MinCount: 2", "MinCount: !!str 2"), ("MinCount: 2", "MinCount: !!int '2'"), ("MinCount: 2", "MinCount: ' 2 '"),
                   ("SpotPrice: 2.5", "SpotPrice: '2.5'"), ("SpotPrice: 2.5", "SpotPrice: 1e2"), ("SpotPrice: 2.5", "SpotPrice: .inf"),
                   ("SpotPrice: 2.5", "SpotPrice: 1:30"), ("SpotPrice: 2.5", "SpotPrice: yes"), ("SpotPrice: 2.5", "SpotPrice: 2"),
                   *[("JobExclusiveAllocation: true", "JobExclusiveAllocation: " + w) for w in
                     "yes no on off On OFF Yes y n Y t f T F 1 0 '1' 'yes' \"true\" 1.0 0.0 2 maybe 'oN' tRUE ~ =".split()],
                   ("Owner: self", "Owner: 12"), ("Owner: self", "Owner: yes"), ("Owner: self", "Owner: 2026-01-31"),
                   ("Owner: self", "Owner: 1:30"), ("Owner: self", "Owner: 08"), ("Owner: self", "Owner: 0o7"), ("Owner: self", "Owner: 1e3"),
                   ("Owner: self", "Owner: 1.5e+3"), ("Owner: self", "Owner: y"), ("Owner: self", "Owner: '12'"), ("Owner: self", "Owner: null"),
                   ("Owner: self", "Owner: !Ref X"), ("Owner: self", "Owner: !!str 12"), ("Owner: self", "Owner: &a self\n    X: *a"),
                   ("Owner: self", "Owner: *nothing"), ("Region: us-west-2", "Region: us-west-2\nRegion: us-west-2"),
                   ("Region: us-west-2", "Region: &r us-west-2\nCustomS3Bucket: *r"), ("Region: us-west-2", "<<: {Region: us-west-2}")],
    "existing": [("fs-A0", "fs-01234567"), ("fs-A1", "fs-01234567"), ("{FileSystemId: fs-A0}", "{FileSystemId: fs-A0, StorageCapacity: 1200}"),
                 ("FileSystemId: fs-A1,", "FileSystemId: fs-A1, Encrypted: true,"), ("FileSystemId: fs-A1, ", ""),
                 ("EncryptionInTransit: true, IamAuth", "EncryptionInTransit: false, IamAuth"),
                 ("{CapacityReservationId: cr-A1}", "{}"), ("{CapacityReservationId: cr-A0}", "{CapacityReservationId: cr-A0, CapacityReservationResourceGroupArn: 'arn:aws:resource-groups:us-west-2:1:group/g'}"),
                 ("cr-A0", "mine"), ("arn:aws:resource-groups", "arn:aws:other"),
                 ("MinCount: 4, MaxCount: 4", "MinCount: 0, MaxCount: 4"), ("MinCount: 4, MaxCount: 4", "MinCount: 4, MaxCount: 5"),
                 ("AllocationStrategy: prioritized", "AllocationStrategy: capacity-optimized"),
                 ("Instances: [{InstanceType: c5.xlarge}]", "InstanceType: c5.xlarge"),
                 ("subnet-A1, subnet-A2", "subnet-A1, subnet-A1"), ("PlacementGroup: {Enabled: false}", "AssignPublicIp: false"),
                 ("PlacementGroup: {Enabled: false}", "PlacementGroup: {}"),
                 ("SecurityGroups: [sg-A0]}\n  Iam", "SecurityGroups: [sg-A0], AdditionalSecurityGroups: [sg-A1]}\n  Iam"),
                 ("role/head\"}", "role/head\", S3Access: [{BucketName: b}]}"),
                 ("role/head\"}", "role/head\", AdditionalIamPolicies: [{Policy: 'arn:aws:iam::aws:policy/p'}]}"),
                 ("role/head\"}", "role/head\", InstanceProfile: 'arn:aws:iam::1:instance-profile/p'}"),
                 ("    MungeKeySecretArn: arn:aws:secretsmanager:us-west-2:123456789012:secret:munge\n", ""),
                 ("ExternalSlurmdbd: {Host: dbd, Port: 6819}", "ExternalSlurmdbd: {Host: dbd}\n    Database: {Uri: a, UserName: b, PasswordSecretArn: 'arn:aws:secretsmanager:r:1:secret:x'}"),
                 ("s3://b/slurm.conf", "slurm.conf"), ("s3://b/slurm.conf", "s3://b/slurm.conf\n    CustomSlurmSettings: [{MaxJobCount: 5}]"),
                 ("secretsmanager:us-west-2:123456789012:secret:munge", "ssm:us-west-2:1:parameter/munge")],
    "scratch": [("StorageCapacity: 1200", "StorageCapacity: 3600"), ("SCRATCH_2", "SCRATCH_1"), ("ImportPath: \"s3://b/in\", ", ""),
                ("SCRATCH_2,", "SCRATCH_2, AutomaticBackupRetentionDays: 3,"), ("{Id: mine}}", "{Id: mine}, AssignPublicIp: true}"),
                ("s3://b/in", "https://b/in"), ("SubnetIds: [subnet-A1]", "SubnetIds: [subnet-A1, subnet-A2]"),
                ("FsxLustreSettings", "EbsSettings"), ("StorageType: FsxLustre", "StorageType: FileCache"),
                ("SCRATCH_2,", "SCRATCH_2, KmsKeyId: k,"), (", PlacementGroup: {Id: mine}", ""), ("c5n.18xlarge", "t3.large")],
    "hdd": [("PERSISTENT_1", "PERSISTENT_2"), ("PerUnitStorageThroughput: 12", "PerUnitStorageThroughput: 40"),
            ("PerUnitStorageThroughput: 12", "PerUnitStorageThroughput: 50"), ("StorageCapacity: 6000", "StorageCapacity: 7200"),
            ("Iops: 2000", "Iops: 50000"), ("io2", "io1"), ("io2", "gp2"), ("io2", "st1"), ("StorageType: HDD", "StorageType: SSD"),
            ("Size: 40, ", ""), ("SubnetIds: [subnet-A1]", "SubnetIds: [subnet-A1, subnet-A2]")],
    "backup": [("BackupId: backup-0123456789", "BackupId: backup-0123456789, StorageCapacity: 1200"), ("ami-A0", "ami-1"),
               (", CustomAmi: ami-A0", ""), ("BackupId: backup-0123456789", "BackupId: backup-0123456789, ImportPath: s3://b/x"),
               ("{BackupId: backup-0123456789}", "{}"), (", FsxLustreSettings: {BackupId: backup-0123456789}", "")],
}


def field_at(schema, key):
    return next((f for f in schema.fields.values() if f.data_key == key), None)


def wrong_values(field):
    """Values that the key's type, range or form does not allow, and some that it does."""
    inner = field.inner if isinstance(field, fields.List) else field
    wrap = (lambda v: [v]) if inner is not field else (lambda v: v)
    yield None
    yield {"a": 1}
    yield [[1]]
    yield "nonsense!"
    yield 12
    yield True
    if isinstance(inner, fields.String):
        yield wrap(12)
        yield wrap("")
    if isinstance(inner, (fields.Integer, fields.Float)):
        yield "12"
    if isinstance(field, fields.List) or getattr(field, "many", False):
        yield []
    for v in [v for f in {field, inner} for v in f.validators]:
        if isinstance(v, validate.Range):
            yield from [wrap(b + d) for b in (v.min, v.max) if b is not None for d in (-1, 0, 1)]
        if isinstance(v, validate.OneOf):
            yield from [wrap(c) for c in v.choices]
        if isinstance(v, validate.Length) and (v.max or v.equal):
            n = v.max or v.equal
            yield from ["x" * n, "x" * (n + 1)] if inner is field else []


def changes(tree, schema):
    """(name, changed tree) of each single change at and below a map of the schema."""
    def changed(at, f):
        new = copy.deepcopy(tree)
        place = new
        for step in at:
            place = place[step]
        f(place)
        return new

    def walk(node, at, schema):
        where = ".".join(map(str, at))
        yield where + "+Colour", changed(at, lambda m: m.update(Colour="red"))
        for key in node:
            name, field = where + "." + key, field_at(schema, key)
            slip = key[:-2] + key[-1] + key[-2] if key[-1] != key[-2] else key + "s"
            yield name + "~", changed(at, lambda m: m.update({slip: m.pop(key)}))
            yield name + "-", changed(at, lambda m: m.pop(key))
            if field is None:
                continue
            for i, value in enumerate(wrong_values(field)):
                yield "%s=%d" % (name, i), changed(at, lambda m: m.update({key: value}))
            below = getattr(field, "schema", None)
            if below and isinstance(node[key], dict) and "Sequence" not in node[key]:
                yield from walk(node[key], at + [key], below)
            elif below and isinstance(node[key], list):
                for i, member in enumerate(node[key]):
                    yield from walk(member, at + [key, i], below)

    yield from walk(tree, [], schema)


def filled(text):
    """A0 is sixteen digits and a 0, as ids of AWS have."""
    for i in range(4):
        text = text.replace("A%d" % i, A + str(i))
    return text


def write(folder, step, templates):
    schema = ClusterSchema(cluster_name="c")
    n = 0

    def put(name, text):
        nonlocal n
        n += 1
        safe = "".join(c if c.isalnum() or c in "-_.~+=" else "_" for c in name)
        with open("%s/%04d-%s.yaml" % (folder, n, safe[:150]), "w", encoding="utf-8") as f:
            f.write(text)

    for path in templates:
        put("template", open(path, encoding="utf-8").read())
    for base, text in BASES.items():
        put(base, filled(text))
        for old, new in TEXTS[base]:
            assert old in text, (base, old)
            put(base + "-" + new, filled(text.replace(old, new, 1)))
        for i, (name, new) in enumerate(changes(yaml.safe_load(filled(text)), schema)):
            if i % step == 0:
                put(base + name, yaml.safe_dump(new, sort_keys=False))
    print(n)


# ------------------------------------------------------------------ both

def compare(tern, paths):
    out = subprocess.run([tern, "cluster", "check", "--json", *paths], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=False).stdout
    ours = {l["layout"]: l for l in json.loads(out)}
    refused = taken = 0
    reasons, misses = {}, []
    for path in paths:
        theirs = judged(path)
        ids = {f["id"] for f in ours[path]["findings"] if f["severity"] == "error"}
        notes = {f["id"] for f in ours[path]["findings"] if f["severity"] == "warning"}
        name = os.path.basename(path)
        refused += theirs is not None
        taken += theirs is None
        if theirs is None and ids and not ids <= set(STRICTER):
            misses.append("%s: pcluster takes it, tern says %s" % (name, " ".join(sorted(ids))))
        elif theirs is None and ids:
            for i in ids:
                reasons.setdefault(i, []).append(name)
        elif theirs and not ids and not notes & set(WARNED):
            misses.append("%s: tern takes it, pcluster says %s" % (name, theirs))
        elif theirs and not ids:
            for i in notes & set(WARNED):
                reasons.setdefault(i, []).append(name)
    print("# %d files: pcluster takes %d and refuses %d" % (len(paths), taken, refused))
    print("# validators that need an account, left out: %s" % ", ".join(CANNOT))
    for i, names in sorted(reasons.items()):
        print("# differs %d times, %s: %s (%s)" % (len(names), i, {**STRICTER, **WARNED}[i], names[0]))
    for m in misses:
        print("#", m)
    print("%sok both judge %d files alike, but for reasons that are printed" %
          ("" if not misses else "not ", len(paths)))
    print("%sok 300 files or more, of which pcluster takes 100 and refuses 100" %
          ("" if taken >= 100 and refused >= 100 and len(paths) >= 300 else "not "))


def configured(path):
    """What pcluster makes of the file, without OnNodeConfigured and S3Access of nodes."""
    setup()
    schema = ClusterSchema(cluster_name="c")
    tree = json.loads(json.dumps(schema.dump(schema.load(yaml_load(open(path, encoding="utf-8"))))))
    for nodes in [tree["HeadNode"], *tree["Scheduling"]["SlurmQueues"]]:
        for section, key in (("CustomActions", "OnNodeConfigured"), ("Iam", "S3Access")):
            (nodes.get(section) or {}).pop(key, None)
            if not any((nodes.get(section) or {}).values()):
                nodes.pop(section, None)
    return tree


def same(paths):
    for file, rendered in zip(paths[::2], paths[1::2]):
        theirs = judged(rendered)
        print("%sok pcluster takes what is rendered of %s" % ("not " if theirs else "", file))
        equal = configured(file) == configured(rendered)
        print("%sok and makes of it what it makes of %s" % ("" if equal else "not ", file))
        if theirs:
            print("#", theirs)


if __name__ == "__main__":
    if sys.argv[1] == "same":
        same(sys.argv[2:])
    elif sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        compare(sys.argv[2], sys.argv[3:])
