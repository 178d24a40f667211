/* Rules of EBS volumes: root volumes and EbsSettings. */
#include "core/layout/rules.h"

#include <string.h>

/* EBS's bounds, as ParallelCluster has them; 0: the type takes no Iops. */
static const struct {
    const char *type;
    int64_t size_lo, size_hi, iops_lo, iops_hi, iops_per_gib;
} volumes[] = {{"standard", 1, 1024, 0, 0, 0},       {"io1", 4, 16384, 100, 64000, 50},
               {"io2", 4, 65536, 100, 256000, 1000}, {"gp2", 1, 16384, 0, 0, 0},
               {"gp3", 1, 16384, 3000, 16000, 500},  {"st1", 500, 16384, 0, 0, 0},
               {"sc1", 500, 16384, 0, 0, 0}};
enum { N_VOLUMES = sizeof volumes / sizeof *volumes, DEFAULT_SIZE = 40 };

/* The row of the volume's type; N_VOLUMES where it is none. */
static size_t volume_of(const struct tern_yaml_node *m)
{
    const char *type = tern_layout_text(m, "VolumeType");
    size_t i = 0;

    while (i < N_VOLUMES && strcmp(volumes[i].type, type ? type : "gp3") != 0)
        i++;
    return i;
}

/* Its size, or 0 where the machine image decides it. */
static int64_t size_of(const struct tern_layout_scope *s, bool ebs)
{
    return tern_layout_int(s->at, "Size", ebs ? DEFAULT_SIZE : 0);
}

void tern_layout_rule_volume_size(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    size_t v = volume_of(s->at);
    bool ebs = s->list != NULL;
    int64_t size = size_of(s, ebs);

    if (v < N_VOLUMES && (size || tern_yaml_get(s->at, "Size")) &&
        (size < volumes[v].size_lo || size > volumes[v].size_hi))
        tern_layout_found(c, tern_layout_at(s->at, "Size", s->at),
                          "%lld GiB: %s volumes have %lld to %lld.", (long long)size,
                          volumes[v].type, (long long)volumes[v].size_lo,
                          (long long)volumes[v].size_hi);
}

void tern_layout_rule_volume_throughput(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    size_t v = volume_of(s->at);
    int64_t rate = tern_layout_int(s->at, "Throughput", 125);
    int64_t iops = tern_layout_int(s->at, "Iops", 3000);

    if (v == N_VOLUMES || strcmp(volumes[v].type, "gp3") != 0)
        return;
    if (rate < 125 || rate > 1000)
        tern_layout_found(c, tern_yaml_get(s->at, "Throughput"),
                          "%lld MB/s: gp3 volumes have 125 to 1000.", (long long)rate);
    else if (rate * 4 > iops)
        tern_layout_found(c, tern_layout_at(s->at, "Throughput", s->at),
                          "%lld MB/s need %lld Iops, and there are %lld.", (long long)rate,
                          (long long)rate * 4, (long long)iops);
}

void tern_layout_rule_volume_iops(struct tern_rules_case *c)
{
    const struct tern_layout_scope *s = c->facts;
    const struct tern_yaml_node *n = tern_yaml_get(s->at, "Iops");
    size_t v = volume_of(s->at);
    int64_t iops = tern_layout_int(s->at, "Iops", 0), size = size_of(s, s->list != NULL);

    if (v == N_VOLUMES) {
        if (iops)
            tern_layout_found(c, n, "this VolumeType has no Iops.");
        return;
    }
    if (!iops && v < N_VOLUMES && volumes[v].iops_lo) /* the defaults */
        iops = volumes[v].iops_lo;
    if (!iops)
        return;
    if (!volumes[v].iops_lo)
        tern_layout_found(c, n, "%s volumes have no Iops.", volumes[v].type);
    else if (iops < volumes[v].iops_lo || iops > volumes[v].iops_hi)
        tern_layout_found(c, n, "%lld Iops: %s volumes have %lld to %lld.", (long long)iops,
                          volumes[v].type, (long long)volumes[v].iops_lo,
                          (long long)volumes[v].iops_hi);
    else if (size && iops > size * volumes[v].iops_per_gib)
        tern_layout_found(c, tern_layout_at(s->at, "Iops", tern_layout_at(s->at, "Size", s->at)),
                          "%lld Iops: %s volumes have %lld a GiB, which are %lld here.",
                          (long long)iops, volumes[v].type, (long long)volumes[v].iops_per_gib,
                          (long long)(size * volumes[v].iops_per_gib));
}
