/* A node's file system: the host's programs and files, its own /etc/slurm, /etc/hosts, /proc, /sys,
 * /run, /tmp, /dev and /dev/shm, and the cluster's shared storage. */
#ifndef TERN_VCLUSTER_ROOTFS_H
#define TERN_VCLUSTER_ROOTFS_H

#include "core/base/err.h"
#include "core/layout/layout.h"

/* The cluster's folder, in every namespace of the cluster: a path without blanks. */
#define TERN_VCLUSTER_ROOT_STATE "/run/tern"
/* Where Slurm's clients look last: the configuration's place where this machine has no /etc/slurm
 * to mount it over. */
#define TERN_VCLUSTER_ROOT_CONF "/run/slurm/conf"
/* The socket of each node's munged, where libmunge looks for it. */
#define TERN_VCLUSTER_ROOT_MUNGE "/run/munge/munge.socket.2"

/* The head, in a mount namespace of its own: a new root of the host's folders.  `dir` is the
 * cluster's folder; `share` (NULL-ended) are folders kept visible where /run would hide them. */
int tern_vcluster_rootfs_mount_head(const char *dir, const struct tern_layout *l,
                                    char *const *share, struct tern_err *err);

/* A node's own mounts, in a copy of the head's mount namespace.  `n_devices` plain files
 * /dev/neuron0... stand for its Neuron devices. */
int tern_vcluster_rootfs_mount_node(const char *name, char *const *share, int n_devices,
                                    struct tern_err *err);

#endif
