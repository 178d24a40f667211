/* `tern help TOPIC`: pages of text and tables, which are man pages, too.
 *
 * Adding a topic: its text in topics_*.c, its row in the table of help.c.  A line "@recipe lora."
 * of a text stands for the recipe's keys that begin so; help.c lists the other tables.  The test
 * tests/cli/help.sh holds every page to 80 columns.
 */
#ifndef TERN_CMD_TERN_HELP_H
#define TERN_CMD_TERN_HELP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct topic {
    const char *name;    /* "parallel" */
    const char *also;    /* another name for it, such as "run.yaml"; NULL for none */
    const char *heading; /* in the list, above this topic: where a group begins; else NULL */
    const char *summary; /* one line, no full stop */
    const char *text;    /* for tern_page_text */
    int section;         /* of the manual: 5 for files, 7 for the rest */
};

/* The `i`-th topic, or NULL past the last. */
const struct topic *topic_at(size_t i);
/* By either name; NULL: there is none. */
const struct topic *topic_find(const char *name);
/* On a terminal of `columns`; 0: as a man page. */
void topic_print(FILE *to, const struct topic *t, int columns);

/* Texts, by file. */
extern const char topic_parallel[], topic_lora[], topic_precision[], topic_launch[],
    topic_workload[], topic_figures[], topic_c_api[]; /* topics_run.c */
extern const char topic_env[], topic_fabric[], topic_faults[], topic_install[], topic_layout[],
    topic_layout_settings[], topic_checks[], topic_environment[]; /* topics_node.c */
extern const char topic_recipe[], topic_site[], topic_checkpoint[], topic_token_set[],
    topic_ledger_files[], topic_log_files[], topic_flight_dump[]; /* topics_files.c */
extern const char topic_ledger_schema[];                          /* topics_schema.c */

#endif
