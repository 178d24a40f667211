/* A document's values in memory, for the files yaml*.c alone. */
#ifndef TERN_BASE_YAML_NODE_H
#define TERN_BASE_YAML_NODE_H

#include "core/base/yaml.h"

struct tern_yaml_node {
    struct tern_yaml *doc;
    enum tern_yaml_kind kind;
    int line; /* 0: from --set */
    char *where;
    char *text;
    bool quoted;
    size_t n, cap;
    struct tern_yaml_node **values;
    char **keys;  /* of a map */
    bool *asked;  /* of a map: this key was read */
    char **known; /* of a map: absent keys that were read, for suggestions */
    size_t n_known;
};

struct tern_yaml {
    char *path;
    struct tern_yaml_node *root;
    struct tern_yaml_node *spare; /* a list: values that are no part of `root`, kept for aliases */
    size_t nodes;
    size_t n_remarks;
    struct tern_yaml_remark *remarks;
};

/* A value without members; takes over `where`. */
struct tern_yaml_node *tern_yaml_node_new(struct tern_yaml *doc, enum tern_yaml_kind kind, int line,
                                          char *where);
/* With all below it; NULL is fine. */
void tern_yaml_node_free(struct tern_yaml_node *n);
/* Append to a map or (with NULL for `key`) to a list; takes over both. */
void tern_yaml_node_add(struct tern_yaml_node *n, char *key, struct tern_yaml_node *value);
/* The place of `key` in a map; map->n where it is absent. */
size_t tern_yaml_node_find(const struct tern_yaml_node *map, const char *key);

#endif
