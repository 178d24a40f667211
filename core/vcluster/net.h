/* The virtual network: routed veth pairs with permanent ARP entries (rtnetlink(7)).
 *
 * Node i (from 1) is 10.200.0.0 + 256 + i with a /32 on its eth0; its other end "v<i>" stands in
 * the head's namespace, which routes.  With `nics` interfaces a node has eth0, eth1 and so on, on
 * the networks 10.200.0.0/16, 10.201.0.0/16 and so on, each with its own pair "v<i>.<interface>".
 * No bridge: a bridge ends at 1023 ports, and its ARP traffic fills a table that the kernel shares
 * between all namespaces.
 */
#ifndef TERN_VCLUSTER_NET_H
#define TERN_VCLUSTER_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/err.h"

#define TERN_VCLUSTER_NET_HEAD "10.200.0.1"

/* "10.200.1.1" of node `i`; writes at most `n` bytes (16 suffice) and returns `to`. */
char *tern_vcluster_net_address(char *to, size_t n, int i);

/* In the head's namespace: an eth0 with the head's address on each network, forwarding on. */
int tern_vcluster_net_setup_head(int nics, struct tern_err *err);
/* In the head's namespace: the pairs for node `i`, whose first process is `pid`, and the routes to
 * it.  They vanish with the node's namespace. */
int tern_vcluster_net_link_node(int i, int nics, pid_t pid, struct tern_err *err);
/* In the head's namespace: messages to node `i` are lost (reach = false), or arrive again.  In the
 * node's, of its messages to the head and so to all others. */
int tern_vcluster_net_reach_node(int i, int nics, bool reach, struct tern_err *err);
int tern_vcluster_net_reach_head(int i, int nics, bool reach, struct tern_err *err);
/* In the node's namespace, after tern_vcluster_net_link_node: addresses and routes of each. */
int tern_vcluster_net_setup_node(int i, int nics, struct tern_err *err);

#endif
