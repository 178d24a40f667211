/* Slurm's release and configuration. */
#include "core/base/str.h"
#include "core/slurm/release.h"
#include "core/slurm/start.h"
#include "core/slurm/slurm.h"

#include <dlfcn.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tern_slurm_release(void)
{
    static char text[16];

    snprintf(text, sizeof text, "%d.%02d", SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER));
    return text;
}

char *tern_slurm_library(void)
{
    /* (POSIX's way from a function to the void * that it was loaded as.) */
    long (*function)(void) = slurm_api_version;
    void *address;
    Dl_info at;

    memcpy(&address, &function, sizeof address);
    return dladdr(address, &at) && at.dli_fname ? realpath(at.dli_fname, NULL) : NULL;
}

static char *text(const char *s)
{
    return tern_strdup(s && strcmp(s, "(null)") != 0 ? s : "");
}

static void fill(struct tern_slurm_about *to, const slurm_conf_t *c)
{
    to->version = text(c->version);
    to->conf = text(c->slurm_conf);
    to->plugstack = text(c->plugstack);
    to->plugin_dir = text(c->plugindir);
    to->tmp_fs = text(c->tmp_fs);
    to->mpi_default = text(c->mpi_default);
    to->auth_info = text(c->authinfo);
    to->scheduler = text(c->sched_params);
    to->task_plugin = text(c->task_plugin);
    to->requeue = c->job_requeue != 0;
    to->prolog_alloc = (c->prolog_flags & PROLOG_FLAG_ALLOC) != 0;
    to->return_to_service = c->ret2service;
    to->kill_wait_s = c->kill_wait;
}

static int fill_nodes(struct tern_slurm_about *to, const node_info_msg_t *from,
                      struct tern_err *err)
{
    to->node = tern_alloc(from->record_count + 1, sizeof *to->node, "nodes", err);
    for (uint32_t i = 0; to->node && i < from->record_count; i++) {
        const node_info_t *n = &from->node_array[i];
        if (!n->name) /* removed nodes keep their places */
            continue;
        to->node[to->n] = (struct tern_slurm_about_node){
            .name = text(n->name), .version = text(n->version), .partition = text(n->partitions)};
        to->node[to->n].partition[strcspn(to->node[to->n].partition, ",")] = '\0';
        to->n++;
    }
    return to->node ? 0 : -1;
}

/* The controller's configuration; NULL with `err`. */
static slurm_conf_t *load(struct tern_err *err)
{
    slurm_conf_t *conf = NULL;

    if (tern_slurm_start(err) < 0)
        return NULL;
    if (slurm_load_ctl_conf(0, &conf) == SLURM_SUCCESS)
        return conf;
    tern_err_set(err, TERN_TEMPFAIL, "cannot ask Slurm for its configuration: %s",
                 slurm_strerror(errno));
    return NULL;
}

int tern_slurm_about_load(struct tern_slurm_about **about, struct tern_err *err)
{
    slurm_conf_t *conf = load(err);
    node_info_msg_t *nodes = NULL;
    int rc = -1;

    if (!conf)
        return -1;
    if (slurm_load_node(0, &nodes, SHOW_ALL) != SLURM_SUCCESS) {
        tern_err_set(err, TERN_TEMPFAIL, "cannot ask Slurm for its nodes: %s",
                     slurm_strerror(errno));
    } else {
        struct tern_slurm_about *a = tern_alloc(1, sizeof *a, "Slurm's configuration", err);
        if (a) {
            fill(a, conf);
            rc = fill_nodes(a, nodes, err);
        }
        if (rc == 0)
            *about = a;
        else
            tern_slurm_about_free(a);
    }
    tern_slurm_release_conf_free(conf);
    slurm_free_node_info_msg(nodes);
    return rc;
}

void tern_slurm_about_free(struct tern_slurm_about *a)
{
    if (!a)
        return;
    char *const texts[] = {a->version,     a->conf,      a->plugstack, a->plugin_dir, a->tmp_fs,
                           a->mpi_default, a->auth_info, a->scheduler, a->task_plugin};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    for (size_t i = 0; i < a->n; i++) {
        free(a->node[i].name);
        free(a->node[i].version);
        free(a->node[i].partition);
    }
    free(a->node);
    free(a);
}

int tern_slurm_file_append_load(bool *ret_append, struct tern_err *err)
{
    slurm_conf_t *conf = load(err);

    if (!conf)
        return -1;
    *ret_append = conf->job_file_append != 0;
    tern_slurm_release_conf_free(conf);
    return 0;
}

int tern_slurm_tcp_timeout_load(int *ret_s, struct tern_err *err)
{
    slurm_conf_t *conf = load(err);

    if (!conf)
        return -1;
    *ret_s = conf->tcp_timeout;
    tern_slurm_release_conf_free(conf);
    return 0;
}

bool tern_slurm_is_slurm_user(uint32_t uid)
{
    slurm_conf_t *conf = load(NULL);
    bool is = conf && conf->slurm_user_id == uid;

    tern_slurm_release_conf_free(conf);
    return is;
}
