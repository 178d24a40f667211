/* tern ledger: look at what happened to runs. */
#include "cmd/ledger/show.h"

#include "core/base/fs.h"
#include "core/base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool anew;

/* The named run, or all of the caller's, home by home. */
static int each_home(int n_args, char **args,
                     int (*each)(const struct tern_ledger_rows *ids, struct tern_err *err),
                     struct tern_err *err)
{
    static struct tern_ledger_rows homes; /* until the program ends: show.ledger is one of them */
    struct tern_ledger_rows ids = {0};
    char id[TERN_ULID_SIZE];
    int rc = -1;

    if (n_args) {
        const char *one[] = {id};
        if (show_find(args[0], id, err) < 0 || tern_ledger_ids(show.ledger, &ids, err) < 0)
            return -1;
        bool there = false;
        for (size_t i = 0; i < ids.n; i++)
            there = there || strcmp(ids.names[i], id) == 0;
        tern_ledger_rows_free(&ids);
        return there ? each(&(struct tern_ledger_rows){.n = 1, .names = one}, err)
                     : tern_err_set(err, TERN_USAGE, "%s: no run %s", show.ledger, id);
    }
    if (show_need_ledger(err) < 0 || tern_ledger_homes(show.ledger, show.all, &homes, err) < 0)
        return -1;
    rc = 0;
    for (size_t i = 0; i < homes.n && rc == 0; i++) {
        show.ledger = homes.names[i];
        rc = tern_ledger_ids(show.ledger, &ids, err);
        if (rc == 0)
            rc = each(&ids, err);
        tern_ledger_rows_free(&ids);
    }
    return rc;
}

static int fold_home(const struct tern_ledger_rows *ids, struct tern_err *err)
{
    int rc = 0;

    tern_progress_begin("runs", "%s", show.ledger);
    tern_progress_expect(ids->n);
    for (size_t i = 0; i < ids->n && rc == 0; i++) {
        rc = anew ? tern_ledger_rebuild(show.ledger, ids->names[i], err)
                  : tern_ledger_fold(show.ledger, ids->names[i], err);
        tern_progress_add(1);
    }
    tern_progress_end();
    return rc < 0 ? rc
           : anew ? tern_ledger_rebuild_catalog(show.ledger, err)
                  : tern_ledger_fold_catalog(show.ledger, err);
}

static int fold(int n_args, char **args, struct tern_err *err)
{
    return each_home(n_args, args, fold_home, err);
}

static int rebuild(int n_args, char **args, struct tern_err *err)
{
    anew = true;
    return each_home(n_args, args, fold_home, err);
}

static int print_check(const char *id, const struct tern_ledger_check *c)
{
    char bytes[32];

    return printf("%s  %s: %llu records in %llu files, %s%s%s%s\n", id,
                  c->damaged ? "DAMAGED" : "ok", (unsigned long long)c->records,
                  (unsigned long long)c->files, tern_str_bytes(bytes, sizeof bytes, c->bytes),
                  c->in_flight ? ", some still being written" : "",
                  c->unfolded ? ", not all folded" : "", c->lost ? ", not complete" : "");
}

static json_t *checks; /* with --json */
static uint64_t damaged;

/* One line of text each. */
static void print_findings(const struct tern_buf *found)
{
    for (char *line = found->data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        tern_str_mask(line);
        puts(line);
    }
}

/* The user hears of it only where something is wrong: it has no records of its own. */
static int verify_catalogue(const struct tern_ledger_rows *ids, struct tern_err *err)
{
    struct tern_buf found = {0};
    uint64_t n = 0;
    int rc = tern_ledger_verify_catalogue(show.ledger, ids, &n, &found, err);

    damaged += n;
    if (rc == 0 && n && show.json) {
        json_array_append_new(checks, json_pack("{s:n, s:i, s:i, s:i, s:i, s:I, s:b, s:o}", "run",
                                                "files", 1, "records", 0, "bytes", 0, "in_flight",
                                                0, "damaged", (json_int_t)n, "unfolded", 0,
                                                "findings", show_json_text(found.data)));
    } else if (rc == 0 && n) {
        tern_progress_hide();
        puts("ledger.db  DAMAGED");
        print_findings(&found);
    }
    tern_buf_free(&found);
    return rc;
}

static int verify_home(const struct tern_ledger_rows *ids, struct tern_err *err)
{
    struct tern_buf found = {0};
    int rc = 0;

    tern_progress_begin("runs", "%s", show.ledger);
    tern_progress_expect(ids->n);
    for (size_t i = 0; i < ids->n && rc == 0; i++) {
        struct tern_ledger_check c;
        tern_buf_clear(&found);
        rc = tern_ledger_verify(show.ledger, ids->names[i], &c, &found, err);
        if (rc < 0)
            break;
        tern_progress_add(1);
        tern_progress_hide(); /* of the lines that are printed now */
        damaged += c.damaged;
        if (!show.json) {
            print_check(ids->names[i], &c);
            print_findings(&found);
            continue;
        }
        json_t *j = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "run", ids->names[i], "files",
                              (json_int_t)c.files, "records", (json_int_t)c.records, "bytes",
                              (json_int_t)c.bytes, "in_flight", (json_int_t)c.in_flight, "damaged",
                              (json_int_t)c.damaged, "unfolded", c.unfolded);
        json_object_set_new(j, "findings", show_json_text(found.data ? found.data : ""));
        json_array_append_new(checks, j);
    }
    if (rc == 0)
        rc = verify_catalogue(ids, err);
    tern_progress_end();
    tern_buf_free(&found);
    return rc;
}

static int verify(int n_args, char **args, struct tern_err *err)
{
    checks = json_array();
    int rc = each_home(n_args, args, verify_home, err);

    if (show.json && rc == 0)
        rc = show_json(json_incref(checks), err);
    json_decref(checks);
    if (rc == 0 && damaged)
        rc = tern_err_set(err, TERN_FAILED, "%s: %llu places are damaged", show.ledger,
                          (unsigned long long)damaged);
    return rc;
}

static const struct tern_opt fold_opts[] = {
    SHOW_OPT_LEDGER,
    {"rebuild", 0, TERN_OPT_FLAG, .to.flag = &anew,
     .help = "from the spools alone, not from the last snapshot"},
    {0},
};
static const struct tern_cmd fold_cmd = {
    .name = "fold",
    .args = "[RUN]",
    .summary = "bring run.db and ledger.db up to the spools",
    .about = "`tern run` folds its run all the time. Use this command for runs whose `tern run` "
             "died. Any number of processes may fold at once, and you may kill them at any moment.",
    .opts = fold_opts,
    .args_max = 1,
    .run = fold,
};

static const struct tern_opt rebuild_opts[] = {SHOW_OPT_LEDGER, {0}};
static const struct tern_cmd rebuild_cmd = {
    .name = "rebuild",
    .args = "[RUN]",
    .summary = "make run.db and ledger.db anew, from the spools alone",
    .about = "Another name of `tern ledger fold --rebuild`. A run.db that holds more than the "
             "spools, of which some are gone, is kept, and the status is 2.",
    .opts = rebuild_opts,
    .args_max = 1,
    .run = rebuild,
};

static const struct tern_opt verify_opts[] = {
    SHOW_OPT_LEDGER,
    SHOW_OPT_ALL,
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};
static const struct tern_cmd verify_cmd = {
    .name = "verify",
    .args = "[RUN]",
    .summary = "check every record's checksum, and run.db and ledger.db against a rebuild",
    .about = "Exit status 1 when something is damaged. A torn end is not damage: it is a record "
             "whose write was interrupted. With --json a member whose run is null tells what is "
             "wrong with ledger.db.",
    .opts = verify_opts,
    .args_max = 1,
    .run = verify,
};

static const struct tern_cmd fsck_cmd = {
    .name = "fsck",
    .args = "[RUN]",
    .summary = "another name of verify",
    .about = "Exit status 1 when something is damaged.",
    .opts = verify_opts,
    .args_max = 1,
    .run = verify,
};

/* The program that looks at nodes, with the ledger's folder as the one to try. */
static int doctor(int n_args, char **args, struct tern_err *err)
{
    (void)n_args, (void)args;
    if (show_need_ledger(err) < 0)
        return -1;
    char *program = tern_fs_beside("tern-cluster");
    execlp(program, "tern-cluster", "doctor", "--ledger", show.ledger, show.json ? "--json" : NULL,
           NULL);
    tern_err_sys(err, "%s: cannot be run", program);
    free(program);
    return -1;
}

static const struct tern_opt doctor_opts[] = {
    SHOW_OPT_LEDGER,
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};
static const struct tern_cmd doctor_cmd = {
    .name = "doctor",
    .summary = "does shared storage serve the ledger on every node, with the rest of tern?",
    .about = "`tern cluster doctor --ledger DIR`: a short job on the idle nodes tries links, "
             "O_EXCL and locks in the ledger's folder. It checks its permissions and the "
             "installation, too. It has more options, and its exit status. A ledger's records are "
             "checked by `tern ledger verify`.",
    .opts = doctor_opts,
    .run = doctor,
};

int main(int argc, char **argv)
{
    static const struct tern_cmd *const verbs[] = {
        &ledger_list,      &ledger_show, &ledger_why,    &ledger_compare, &ledger_best,
        &ledger_goodput,   &ledger_cost, &ledger_plot,   &ledger_watch,   &ledger_report,
        &ledger_serve,     &ledger_sql,  &ledger_export, &ledger_tag,     &ledger_note,
        &ledger_reproduce, &fold_cmd,    &rebuild_cmd,   &verify_cmd,     &fsck_cmd,
        &doctor_cmd,       &ledger_gc,   &ledger_merge,  &ledger_import,  NULL};
    static const struct tern_cmd cmd = {
        .name = "ledger",
        .summary = "list, show, watch, compare, plot and query runs",
        .about = "Shows the records of runs: attempts, losses, checkpoints, held-out perplexities; "
                 "`tern ledger report` as a page for browsers. Answers include records that are "
                 "not folded yet.",
        .examples = "  export TERN_LEDGER=/shared/ledger\n"
                    "  tern ledger list\n"
                    "  tern ledger show latest\n"
                    "  tern ledger why latest\n"
                    "  tern ledger plot latest loss\n"
                    "  tern ledger watch latest\n"
                    "  tern ledger report latest -o latest.html\n",
        .verbs = verbs,
    };

    return tern_cmd_main(&cmd, argc, argv);
}
