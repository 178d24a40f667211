/* All partitions as a list. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"
#include "core/slurm/start.h"

#include <slurm/slurm.h>
#include <stdlib.h>

static int fill(struct tern_slurm_partition *to, const partition_info_t *from, struct tern_err *err)
{
    if (tern_slurm_hosts_expand(from->nodes ? from->nodes : "", &to->nodes, &to->n_nodes, err) < 0)
        return -1;
    to->name = tern_slurm_text(from->name);
    to->max_time_s = from->max_time >= NO_VAL ? 0 : (int64_t)from->max_time * 60;
    to->is_default = from->flags & PART_FLAG_DEFAULT;
    to->up = from->state_up == PARTITION_UP;
    to->exclusive = from->max_share == 0;
    return 0;
}

int tern_slurm_partitions_load(struct tern_slurm_partitions **partitions, struct tern_err *err)
{
    partition_info_msg_t *msg = NULL;
    int rc = 0;

    if (tern_slurm_start(err) < 0)
        return -1;
    if (slurm_load_partitions(/* update_time= */ 0, &msg, SHOW_ALL | SHOW_LOCAL) != SLURM_SUCCESS)
        return tern_slurm_fail(err, "ask Slurm for its partitions", 0);
    struct tern_slurm_partitions *all = tern_alloc(1, sizeof *all, "partitions", err);
    if (all)
        all->partition =
            tern_alloc(msg->record_count + 1, sizeof *all->partition, "partitions", err);
    if (!all || !all->partition)
        rc = -1;
    for (uint32_t i = 0; rc == 0 && i < msg->record_count; i++)
        if ((rc = fill(&all->partition[all->n], &msg->partition_array[i], err)) == 0)
            all->n++;
    slurm_free_partition_info_msg(msg);
    if (rc == 0)
        *partitions = all;
    else
        tern_slurm_partitions_free(all);
    return rc;
}

void tern_slurm_partitions_free(struct tern_slurm_partitions *partitions)
{
    if (!partitions)
        return;
    for (size_t i = 0; i < partitions->n; i++) {
        free(partitions->partition[i].name);
        tern_slurm_hosts_free(partitions->partition[i].nodes);
    }
    free(partitions->partition);
    free(partitions);
}
