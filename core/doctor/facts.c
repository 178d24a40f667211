/* Facts of nodes as lines of text, to and from a node's child. */
#include "core/base/str.h"
#include "core/doctor/doctor.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "tern-doctor\t";

/* 65536 nodes, and the twenty facts of one. */
enum { MAX_FACTS = 2 << 20, BUCKETS = 1 << 16 };

/* FNV-1a. */
static size_t bucket_of(const char *node, const char *key)
{
    uint32_t h = 2166136261u;

    for (const char *s = node; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    for (const char *s = key; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h % BUCKETS;
}

void tern_doctor_facts_add(struct tern_doctor_facts *f, const char *node, const char *key,
                           const char *value)
{
    if (f->n == MAX_FACTS)
        return;
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 256;
        struct tern_doctor_fact *more = reallocarray(f->fact, cap, sizeof *more);
        if (!more)
            abort();
        f->fact = more;
        f->cap = cap;
    }
    struct tern_doctor_fact *to = &f->fact[f->n++];
    snprintf(to->node, sizeof to->node, "%s", node);
    snprintf(to->key, sizeof to->key, "%s", key);
    snprintf(to->value, sizeof to->value, "%s", value);
    /* A node may send what is not printable. */
    tern_str_mask(to->node);
    tern_str_mask(to->key);
    tern_str_mask(to->value);
    if (!f->bucket && !(f->bucket = calloc(BUCKETS, sizeof *f->bucket)))
        abort();
    size_t b = bucket_of(to->node, to->key);
    to->next = f->bucket[b];
    f->bucket[b] = f->n;
}

char *tern_doctor_line(const char *node, const char *key, const char *value)
{
    struct tern_doctor_fact f;

    snprintf(f.value, sizeof f.value, "%s", value);
    tern_str_mask(f.value);
    return tern_strf("%s%s\t%s\t%s", mark, node, key, f.value);
}

bool tern_doctor_facts_parse(struct tern_doctor_facts *f, const char *line)
{
    if (!tern_str_starts(line, mark))
        return false;
    char *copy = tern_strdup(line + sizeof mark - 1), *rest = copy;
    char *node = strsep(&rest, "\t"), *key = strsep(&rest, "\t");
    bool whole = node && *node && key && *key && rest;

    if (whole)
        tern_doctor_facts_add(f, node, key, rest);
    free(copy);
    return whole;
}

const char *tern_doctor_fact(const struct tern_doctor_facts *f, const char *node, const char *key)
{
    const char *first = NULL; /* the chain has the last one added first */

    for (size_t i = f->bucket ? f->bucket[bucket_of(node, key)] : 0; i; i = f->fact[i - 1].next)
        if (strcmp(f->fact[i - 1].key, key) == 0 && strcmp(f->fact[i - 1].node, node) == 0)
            first = f->fact[i - 1].value;
    return first;
}

void tern_doctor_facts_free(struct tern_doctor_facts *f)
{
    free(f->fact);
    free(f->bucket);
    *f = (struct tern_doctor_facts){0};
}
