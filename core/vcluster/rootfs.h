/* A node's file system: the host's programs and files, its own /etc/slurm, /etc/hosts, /proc, /sys,
 * /run, /tmp, /dev and /dev/shm, and the cluster's shared storage. */
#ifndef TERN_VCLUSTER_ROOTFS_H
#define TERN_VCLUSTER_ROOTFS_H

#include "core/base/err.h"
#include "core/layout/layout.h"

#include <stdbool.h>

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
 * /dev/neuron0... stand for its Neuron devices.  Its /tmp is a folder of the cluster's; with
 * `tmp_mib` it is in memory, and has so much room. */
int tern_vcluster_rootfs_mount_node(const char *name, char *const *share, int n_devices,
                                    int tmp_mib, struct tern_err *err);

/* In a node's PID and mount namespaces: /tmp and the layout's shared storage cannot be written to,
 * or can be again.  Where files are open for writing they stay so, and processes whose current
 * folder is there can still make files in it. */
int tern_vcluster_rootfs_set_read_only(const struct tern_layout *l, bool read_only,
                                       struct tern_err *err);
/* /tmp of a limited size has no room (full), or `tmp_mib` again. */
int tern_vcluster_rootfs_fill_tmp(int tmp_mib, bool full, struct tern_err *err);

#endif
