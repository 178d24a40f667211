/* The keys that a layout may have, as one table (keys.c), and the judgement of a file by it. */
#ifndef TERN_LAYOUT_KEYS_H
#define TERN_LAYOUT_KEYS_H

#include "core/layout/layout.h"
#include "core/layout/value.h"

enum tern_layout_key_type {
    TEXT = 1,
    INT,
    REAL,
    BOOL,
    TEXTS,         /* a list of texts */
    MAP,           /* of the keys `of` */
    LIST,          /* of such maps */
    ACTION,        /* a script, or a Sequence of them */
    SETTINGS,      /* a map of any keys */
    SETTINGS_LIST, /* a list of such maps */
    ANY
};

/* What a text must look like. */
struct tern_layout_form {
    const char *pattern; /* extended regular expression */
    const char *example;
};

/* A key of a section; a section ends with a row without a name. */
struct tern_layout_key {
    const char *name;
    enum tern_layout_key_type type;
    bool required;
    const struct tern_layout_key *of;
    int64_t lo, hi;    /* of the number, of a text's letters or of a list's members; hi 0: any */
    const char *words; /* "ONDEMAND|SPOT": of a text, a number, or each member of TEXTS */
    const struct tern_layout_form *form; /* of a text, or of each member of TEXTS */
    const char *help, *def; /* of the keys of cluster.tern.yaml alone: meaning, default in words */
};

extern const struct tern_layout_key tern_layout_cluster_keys[], tern_layout_action_keys[];

/* Note every unknown or missing key and every wrong value of the map `root` and of all below. */
void tern_layout_check_keys(struct tern_layout *l, const struct tern_yaml_node *root,
                            const struct tern_layout_key *keys);

#endif
