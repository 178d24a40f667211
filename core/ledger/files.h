/* The spool files of a run, and what can be read of one. */
#ifndef TERN_LEDGER_FILES_H
#define TERN_LEDGER_FILES_H

#include <stdbool.h>

#include "core/ledger/record.h"

/* Begins the names of writers of tags and notes; run_row of schema.h knows it. */
#define TERN_LEDGER_NOTE_WRITER "note-"
/* A name for such a writer, malloc'ed, that no other has: copies of a run on two machines may each
 * get notes, and be merged. */
char *tern_ledger_note_writer(const char *what);

struct tern_ledger_spool_file {
    char *name; /* below the run's spool folder: "1/rank0.0.spool" */
    char *path;
    unsigned attempt, number;
    uint64_t bytes; /* when it was listed */
};

struct tern_ledger_spool_files {
    struct tern_ledger_spool_file *files; /* by attempt, writer, number */
    size_t n;
};

/* A run without a spool folder has none. */
int tern_ledger_spool_files_list(const char *ledger_dir, const char *run_id,
                                 struct tern_ledger_spool_files *out, struct tern_err *err);
void tern_ledger_spool_files_free(struct tern_ledger_spool_files *l);

/* How far a file was read: all before is sound. */
struct tern_ledger_spool_mark {
    uint64_t bytes;
    uint32_t crc;
    uint64_t seq;
    int64_t wall_ns; /* of the last record */
};

struct tern_ledger_spool_find {
    enum tern_ledger_frame_found found; /* DAMAGE, BREAK, TORN or ZEROS */
    uint64_t from, to;                  /* bytes of the file */
    uint64_t seq_before, seq_after;     /* DAMAGE, BREAK: of the frames around it; 0 for none */
};

/* Read the file from *mark on, call `frame` for each sound record and `find` (may be NULL) for
 * bytes that are none.  Afterwards *mark stands before the first that was not sound.  A `frame`
 * that returns 1 (makes no sense) is reported to `find` as DAMAGE over its bytes; one that returns
 * -1 ends all. */
struct tern_ledger_spool_reader {
    int (*frame)(void *arg, const struct tern_ledger_record_head *head,
                 const struct tern_ledger_frame *f, struct tern_err *err);
    int (*find)(void *arg, const struct tern_ledger_spool_file *file,
                const struct tern_ledger_spool_find *find, struct tern_err *err);
    void *arg;
};
int tern_ledger_spool_file_read(const struct tern_ledger_spool_file *file, const char *run_id,
                                struct tern_ledger_spool_mark *mark,
                                const struct tern_ledger_spool_reader *r, struct tern_err *err);

#endif
