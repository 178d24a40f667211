/* Checkpoints on the nodes: which of them is complete, and which go. */
#include "core/ckpt/local.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the folder */

/* 1: a folder that only its user could write to or replace.  0: there is no folder. */
static int is_own(const char *dir, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(lstat(dir, &st)) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : tern_err_sys(err, "%s: cannot stat", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return tern_err_set(err, TERN_USAGE, "%s: is no folder that its user alone can write to",
                            dir);
    return 1;
}

int tern_ckpt_local_check(const char *dir, struct tern_err *err)
{
    char *run = tern_fs_dirname(dir);
    int rc = is_own(run, err);

    if (rc > 0)
        rc = is_own(dir, err);
    free(run);
    return rc;
}

static int make_own(const char *dir, struct tern_err *err)
{
    if (TERN_AGAIN(mkdir(dir, 0700)) == 0)
        return tern_fs_sync_parent(dir, err);
    if (errno != EEXIST)
        return tern_err_sys(err, "%s: cannot make folder", dir);
    return is_own(dir, err) < 0 ? -1 : 0;
}

/* Runs of all users may have folders in it, as in /tmp. */
static int make_root(const char *dir, struct tern_err *err)
{
    char *above = tern_fs_dirname(dir);
    int rc = tern_fs_exists(dir) ? 0 : tern_fs_mkdirs(above, 0777, err);

    free(above);
    if (rc < 0 || tern_fs_exists(dir))
        return rc;
    if (TERN_AGAIN(mkdir(dir, 0777)) < 0)
        return errno == EEXIST ? 0 : tern_err_sys(err, "%s: cannot make folder", dir);
    if (TERN_AGAIN(chmod(dir, 01777)) < 0)
        return tern_err_sys(err, "%s: cannot be opened to other users", dir);
    return tern_fs_sync_parent(dir, err);
}

int tern_ckpt_local_make(const char *dir, struct tern_err *err)
{
    char *run = tern_fs_dirname(dir), *root = tern_fs_dirname(run);
    const int rc =
        make_root(root, err) < 0 || make_own(run, err) < 0 || make_own(dir, err) < 0 ? -1 : 0;

    free(root);
    free(run);
    return rc;
}

int tern_ckpt_local_prune(const char *dir, const uint64_t kept[TERN_CKPT_KEPT],
                          struct tern_err *err)
{
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    bool newest = true;

    if (tern_ckpt_local_check(dir, err) < 0 || tern_ckpt_list(dir, &have, &n, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = n; rc == 0 && i-- > 0;) {
        const bool named = have[i].state == TERN_CKPT_GOOD || have[i].state == TERN_CKPT_BROKEN;
        bool stays = newest;
        for (int k = 0; k < TERN_CKPT_KEPT; k++)
            stays |= have[i].step == kept[k];
        if (!named || !stays)
            rc = tern_fs_remove_tree(have[i].path, err);
        newest = newest && !named;
    }
    tern_ckpt_list_free(have, n);
    return rc;
}

static char *mark_of(const char *path)
{
    return tern_strf("%s/flushed", path);
}

int tern_ckpt_local_mark(const char *dir, uint64_t step, struct tern_err *err)
{
    char *path = tern_strf("%s/step-%08" PRIu64, dir, step), *mark = mark_of(path);
    /* Not durable: it says nothing that is worth a wait. */
    const int fd = TERN_AGAIN(open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const int rc =
        fd < 0 && errno != ENOENT ? tern_err_sys(err, "%s: cannot be marked as flushed", path) : 0;

    if (fd >= 0)
        close(fd);
    free(mark);
    free(path);
    return rc;
}

bool tern_ckpt_local_is_marked(const char *path)
{
    char *mark = mark_of(path);
    const bool is = tern_fs_exists(mark);

    free(mark);
    return is;
}

/* 1: `path` has the manifest of digest `digest`; 0: it has none now, nor files of another's. */
static int clear_other(const char *path, const char *manifest, const char *digest,
                       struct tern_err *err)
{
    struct tern_err why = {0};

    if (!tern_fs_exists(manifest))
        return 0;
    struct tern_ckpt *c = tern_ckpt_local_open(path, &why);
    const bool same = c && strcmp(tern_ckpt_digest(c), digest) == 0;
    tern_ckpt_close(c);
    if (!c && why.code == TERN_TEMPFAIL) {
        *err = why;
        return -1;
    }
    return same ? 1 : tern_fs_remove_tree(path, err);
}

int tern_ckpt_local_put_manifest(const char *dir, uint64_t step, const char *digest,
                                 const char *text, size_t len, struct tern_err *err)
{
    char *path = tern_strf("%s/step-%08" PRIu64, dir, step);
    char *manifest = tern_strf("%s/%s", path, TERN_CKPT_MANIFEST);
    int rc = tern_ckpt_local_make(dir, err);

    if (rc == 0)
        rc = clear_other(path, manifest, digest, err);
    if (rc == 0 && (tern_fs_mkdirs(path, 0700, err) < 0 ||
                    tern_fs_replace(manifest, text, len, 0600, err) < 0))
        rc = -1;
    rc = rc < 0 ? -1 : 0;
    free(manifest);
    free(path);
    return rc;
}

/* By the run's name, which the manifest has, too. */
static bool is_on_node(const char *whole, const struct tern_ckpt *c)
{
    char *node = tern_fs_dirname(whole), *run = tern_fs_dirname(node);
    const char *of = json_string_value(json_object_get(tern_ckpt_meta(c), "run"));
    const bool is = of && strcmp(of, tern_fs_basename(run)) == 0;

    free(run);
    free(node);
    return is;
}

bool tern_ckpt_local_count(const char *path, size_t *ret_here, size_t *ret_all)
{
    char *whole = TERN_AGAIN_PTR(realpath(path, NULL));
    struct tern_ckpt *c = whole ? tern_ckpt_local_open(whole, NULL) : NULL;
    const bool is = c && is_on_node(whole, c);
    size_t here = 0;

    for (size_t i = 0; is && i < c->n_shards; i++) {
        char *file = tern_fs_join(whole, c->shards[i].name);
        here += tern_fs_exists(file); /* of the right size, or it would not open */
        free(file);
    }
    if (is) {
        *ret_here = here;
        *ret_all = c->n_shards;
    }
    tern_ckpt_close(c);
    free(whole);
    return is;
}

/* ------------------------------------------------------------------ find */

/* A search on one rank. */
struct search {
    const struct tern_ckpt_local_options *o;
    int rank, size;
    int nth, of;      /* this rank among those of its node */
    char unread[500]; /* why a file cannot be read now; "": each can */
};

/* The state of a file on this node: it is not there or damaged, or has its digest. Or it cannot be
 * read for a reason that may pass, and may be whole. */
enum { ABSENT, WHOLE, UNREAD };

/* What a node proposes: the newest checkpoint whose manifest it has. */
struct proposal {
    uint64_t step, parts; /* parts 0: there is none */
    char digest[65];
    char refused[500]; /* why a newer one may not be taken; "": there is none */
    int32_t failed;    /* for a reason that may pass: nothing can be said now */
};

static int gather(const struct search *f, const void *in, void *out, size_t bytes,
                  struct tern_err *err)
{
    const struct tern_ckpt_peers *peers = f->o->peers;

    if (f->size > 1)
        return peers->all_gather(peers->ctx, in, out, bytes, err);
    memcpy(out, in, bytes);
    return 0;
}

static int find_node_peers(struct search *f, struct tern_err *err)
{
    int32_t mine = f->o->node, *all = tern_alloc((size_t)f->size, sizeof *all, "nodes", err);

    if (!all || gather(f, &mine, all, sizeof mine, err) < 0) {
        free(all);
        return -1;
    }
    for (int r = 0; r < f->size; r++) {
        f->of += all[r] == mine;
        f->nth += all[r] == mine && r < f->rank;
    }
    free(all);
    return 0;
}

static char *step_path(const struct search *f, uint64_t step)
{
    return tern_strf("%s/step-%08" PRIu64, f->o->dir, step);
}

static void refuse(struct proposal *p, uint64_t step, const struct tern_err *why)
{
    p->failed = why->code == TERN_TEMPFAIL;
    if (p->failed)
        snprintf(p->refused, sizeof p->refused, "%.490s", why->text);
    else if (!p->refused[0])
        snprintf(p->refused, sizeof p->refused,
                 "the nodes' checkpoint of step %" PRIu64 " is passed over: %.400s", step,
                 why->text);
}

/* A node's first rank: the newest before step `before` that may be taken. */
static void propose(const struct search *f, uint64_t before, struct proposal *p)
{
    struct tern_ckpt_entry *have = NULL;
    struct tern_err why = {0};
    size_t n = 0;

    memset(p, 0, sizeof *p);
    if (f->nth != 0 || !tern_fs_exists(f->o->dir))
        return;
    if (tern_ckpt_local_check(f->o->dir, &why) < 0 ||
        tern_ckpt_list(f->o->dir, &have, &n, &why) < 0) {
        if (why.code == TERN_TEMPFAIL)
            refuse(p, 0, &why);
        else
            tern_warn("the nodes' checkpoints are passed over: %s", why.text);
        return;
    }
    for (size_t i = n; i-- > 0 && !p->parts && !p->failed;) {
        if (have[i].step >= before ||
            (have[i].state != TERN_CKPT_GOOD && have[i].state != TERN_CKPT_BROKEN))
            continue;
        struct tern_ckpt *c = tern_ckpt_local_open(have[i].path, &why);
        const int may = c ? f->o->may_take(f->o->ctx, c, &why) : -1;
        if (may < 0) {
            refuse(p, have[i].step, &why);
        } else if (may > 0) {
            p->step = have[i].step;
            p->parts = tern_ckpt_parts(c);
            snprintf(p->digest, sizeof p->digest, "%s", tern_ckpt_digest(c));
        }
        tern_ckpt_close(c);
    }
    tern_ckpt_list_free(have, n);
}

/* A checkpoint that cannot be read now may be whole: the run must not go on without it. */
static int check_failed(const struct search *f, const struct proposal *all, struct tern_err *err)
{
    for (int r = 0; r < f->size; r++)
        if (all[r].failed)
            return tern_err_set(err, TERN_TEMPFAIL, "rank %d: checkpoints on its node: %.490s", r,
                                all[r].refused);
    return 0;
}

/* The newest of the nodes' proposals, of the lowest rank; NULL: there is none.  Rank 0 says what is
 * refused. */
static const struct proposal *choose(const struct search *f, const struct proposal *all)
{
    const struct proposal *best = NULL;
    const char *said = "";

    for (int r = 0; r < f->size; r++) {
        if (all[r].parts && (!best || all[r].step > best->step))
            best = &all[r];
        if (f->rank != 0 || !all[r].refused[0] || strcmp(all[r].refused, said) == 0)
            continue;
        said = all[r].refused;
        tern_info("%.*s", (int)sizeof all[r].refused, said);
    }
    return best;
}

/* The next proposal of the step of `p`, of another save than those before it; NULL: there is none.
 */
static const struct proposal *choose_next(const struct search *f, const struct proposal *all,
                                          const struct proposal *p)
{
    const uint64_t step = p->step;

    while (++p < all + f->size) {
        bool tried = !p->parts || p->step != step;
        for (const struct proposal *q = all; q < p && !tried; q++)
            tried = q->parts && q->step == step && strcmp(q->digest, p->digest) == 0;
        if (!tried)
            return p;
    }
    return NULL;
}

static void note_unread(struct search *f, const struct tern_err *why)
{
    if (!f->unread[0])
        snprintf(f->unread, sizeof f->unread, "%.490s", why->text);
}

/* File `i`, which is here: WHOLE, or why not. */
static unsigned char look_at(struct search *f, struct tern_ckpt *c, size_t i)
{
    uint64_t bytes;
    struct tern_err why = {0};
    const char *name = tern_ckpt_part(c, i, &bytes);
    const int rc = i < c->n_shards ? tern_ckpt_walk(c, (unsigned)i, NULL, NULL, &why)
                                   : tern_ckpt_file_read(c, name, NULL, NULL, &why);

    if (rc >= 0)
        return rc == 0 ? WHOLE : ABSENT;
    tern_warn("%s", why.text);
    if (why.code != TERN_TEMPFAIL)
        return ABSENT;
    note_unread(f, &why);
    return UNREAD;
}

/* This rank's share of the proposal's files in its node's folder, verified: `found` [parts]. */
static void verify(struct search *f, const struct proposal *p, unsigned char *found)
{
    char *path = step_path(f, p->step);
    struct tern_err why = {0};
    struct tern_ckpt *c = tern_fs_exists(path) && tern_ckpt_local_check(f->o->dir, &why) > 0
                              ? tern_ckpt_local_open(path, &why)
                              : NULL;
    int here = 0;

    if (!c && why.code == TERN_TEMPFAIL) {
        note_unread(f, &why);
        memset(found, UNREAD, p->parts);
    }
    for (size_t i = 0; c && strcmp(tern_ckpt_digest(c), p->digest) == 0 && i < p->parts; i++) {
        uint64_t bytes;
        char *file = tern_fs_join(path, tern_ckpt_part(c, i, &bytes));
        if (tern_fs_exists(file) && here++ % f->of == f->nth)
            found[i] = look_at(f, c, i);
        free(file);
    }
    tern_ckpt_close(c);
    free(path);
}

/* The files that no rank has whole. */
struct lack {
    size_t n, first; /* how many, and the first of them */
    int unread;      /* a rank that may have one, and cannot read it now; -1: none */
};

/* Each file is brought by the first rank that has it. */
static struct lack share_out(const struct search *f, const unsigned char *all, size_t parts,
                             unsigned char *mine)
{
    struct lack lack = {.unread = -1};

    for (size_t i = parts; i-- > 0;) {
        int r = 0;
        while (r < f->size && all[(size_t)r * parts + i] != WHOLE)
            r++;
        mine[i] = r == f->rank;
        if (r < f->size)
            continue;
        lack.n++;
        lack.first = i;
        for (r = f->size; r-- > 0;)
            if (all[(size_t)r * parts + i] == UNREAD)
                lack.unread = r;
    }
    return lack;
}

/* All ranks know the reason. */
static int fail_unread(struct search *f, int rank, struct tern_err *err)
{
    char(*all)[sizeof f->unread] = tern_alloc((size_t)f->size, sizeof *all, "reasons", err);

    if (all && gather(f, f->unread, all, sizeof *all, err) == 0)
        tern_err_set(err, TERN_TEMPFAIL,
                     "rank %d: checkpoints on its node: %.490s. It stays there; to go on without "
                     "it, remove it.",
                     rank, all[rank]);
    free(all);
    return -1;
}

static void tell_absent(const struct search *f, const struct proposal *p, const struct lack *lack)
{
    char *path = step_path(f, p->step);
    struct tern_ckpt *c = tern_ckpt_local_open(path, NULL);
    uint64_t bytes;

    tern_info("the nodes' checkpoint of step %" PRIu64
              " is passed over: no node of this attempt has %zu of its %" PRIu64 " files whole%s%s",
              p->step, lack->n, p->parts, c ? ", such as " : "",
              c ? tern_ckpt_part(c, lack->first, &bytes) : "");
    tern_ckpt_close(c);
    free(path);
}

/* 1: the proposal is complete; 0: it is not. */
static int examine(struct search *f, const struct proposal *p, unsigned char **ret_parts,
                   struct tern_err *err)
{
    unsigned char *found = tern_alloc(p->parts, 1, "list of files", err);
    unsigned char *all = tern_alloc((size_t)f->size, p->parts, "lists of files", err);
    struct lack lack;
    int rc = -1;

    if (!found || !all)
        goto out;
    verify(f, p, found);
    if (gather(f, found, all, p->parts, err) < 0)
        goto out;
    lack = share_out(f, all, p->parts, found);
    if (lack.unread >= 0) {
        fail_unread(f, lack.unread, err);
        goto out;
    }
    if (lack.n && f->rank == 0)
        tell_absent(f, p, &lack);
    rc = lack.n == 0;
out:
    free(all);
    if (rc == 1)
        *ret_parts = found;
    else
        free(found);
    return rc;
}

int tern_ckpt_local_find(const struct tern_ckpt_local_options *o, struct tern_ckpt_local *ret_found,
                         struct tern_err *err)
{
    struct search f = {
        .o = o, .rank = o->peers ? o->peers->rank : 0, .size = o->peers ? o->peers->size : 1};
    struct proposal mine, *all = tern_alloc((size_t)f.size, sizeof *all, "proposals", err);
    const struct proposal *best = NULL;
    uint64_t before = UINT64_MAX;
    unsigned char *parts = NULL;
    int rc = all ? find_node_peers(&f, err) : -1;

    while (rc == 0) {
        propose(&f, before, &mine);
        rc = gather(&f, &mine, all, sizeof mine, err);
        if (rc == 0)
            rc = check_failed(&f, all, err);
        best = rc == 0 ? choose(&f, all) : NULL;
        if (!best)
            break;
        before = best->step;
        for (const struct proposal *p = best; rc == 0 && p; p = choose_next(&f, all, p)) {
            best = p;
            rc = examine(&f, p, &parts, err);
        }
    }
    if (rc == 1) {
        *ret_found =
            (struct tern_ckpt_local){.step = before, .rank = (int)(best - all), .parts = parts};
        memcpy(ret_found->digest, best->digest, sizeof ret_found->digest);
    }
    free(all);
    return rc;
}
