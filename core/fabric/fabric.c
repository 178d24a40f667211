#include "core/fabric/state.h"

int tern_fabric_rank(const struct tern_fabric *f)
{
    return f->wire.rank;
}
int tern_fabric_size(const struct tern_fabric *f)
{
    return f->wire.size;
}
size_t tern_fabric_cache(const struct tern_fabric *f)
{
    return f->coll.cache;
}
double tern_fabric_load(const struct tern_fabric *f)
{
    return f->coll.model.load;
}
int tern_fabric_node(const struct tern_fabric *f)
{
    return f->wire.node;
}
int tern_fabric_nodes(const struct tern_fabric *f)
{
    return f->wire.nodes;
}
int tern_fabric_local_rank(const struct tern_fabric *f)
{
    return f->wire.local;
}
int tern_fabric_local_size(const struct tern_fabric *f)
{
    return f->wire.local_size;
}
bool tern_fabric_is_peer(const struct tern_fabric *f, int rank)
{
    return f->wire.peers[rank].node == f->wire.node;
}
const char *tern_fabric_node_name(const struct tern_fabric *f, int rank)
{
    return f->wire.peers[rank].node_name;
}
const char *tern_fabric_about(const struct tern_fabric *f)
{
    return f->about;
}

void tern_fabric_set_activity(struct tern_fabric *f, enum tern_fabric_activity doing,
                              double seconds)
{
    tern_fabric_liveness_tell(f->wait.liveness, doing, (int64_t)(seconds * 1e9));
}

int64_t tern_fabric_slept_ns(const struct tern_fabric *f)
{
    return f->wait.slept_ns;
}

int64_t tern_fabric_lost_ns(const struct tern_fabric *f, int64_t now_ns)
{
    return tern_fabric_liveness_lost_ns(f->wait.liveness, now_ns);
}

void *tern_fabric_alloc(struct tern_fabric *f, size_t bytes, struct tern_err *err)
{
    return tern_wire_alloc(&f->wire, bytes, /* huge= */ true, err);
}

void tern_fabric_free(struct tern_fabric *f, void *p)
{
    tern_wire_free(&f->wire, p);
}

uint64_t tern_fabric_peers_bytes(const struct tern_fabric *f)
{
    uint64_t resident, own = tern_wire_shm_own_bytes(&f->wire.own);

    if (f->wire.local_size < 2 || tern_wire_shm_resident(&resident) < 0)
        return 0;
    return resident > own ? resident - own : 0;
}

uint64_t tern_fabric_staged_bytes(const struct tern_fabric *f)
{
    return f->coll.staged_bytes;
}
