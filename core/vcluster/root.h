/* What a node sees as its file system: the host's programs and files, and its own /etc/slurm,
 * /etc/hosts, /proc, /sys, /run, /tmp, /dev, /dev/shm and the cluster's shared storage. */
#ifndef TERN_VCLUSTER_ROOT_H
#define TERN_VCLUSTER_ROOT_H

#include "core/base/err.h"
#include "core/layout/layout.h"

/* In every namespace of the cluster the cluster's folder is here: a path without surprises. */
#define TERN_VCLUSTER_ROOT_STATE "/run/tern"
/* Where Slurm's clients look last; there the configuration is where this machine has no /etc/slurm
 * that it could be mounted over. */
#define TERN_VCLUSTER_ROOT_CONF "/run/slurm/conf"
/* And each place's munged, where libmunge looks for it. */
#define TERN_VCLUSTER_ROOT_MUNGE "/run/munge/munge.socket.2"

/* The head, in a mount namespace of its own: a new root of the host's folders.  `dir` is the
 * cluster's folder; `share` (NULL-ended) are folders kept visible where /run would hide them. */
int tern_vcluster_root_mount_head(const char *dir, const struct tern_layout *l, char *const *share,
                                  struct tern_err *err);

/* A node, in a copy of the head's mount namespace: what differs there.  `n_devices` plain files
 * /dev/neuron0... stand for its Neuron devices. */
int tern_vcluster_root_mount_node(const char *name, char *const *share, int n_devices,
                                  struct tern_err *err);

#endif
