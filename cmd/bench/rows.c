#include "cmd/bench/rows.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char ours_format[] =
    "%c%11s %12s %6s %6s %4s %-15s %10s %8s %8s %6s %10s %10s %10s %10s %6s";
static const char peer_format[] = "  %10s %8s %6s %10s %10s %10s %6s %s";

int bench_rows_explain(const struct tern_fabric *f, FILE *to, struct tern_err *err)
{
    struct tern_buf text = {0};

    tern_fabric_choices(f, &text);
    int rc = tern_buf_check(&text, "the choices", err);
    for (char *at = text.data, *end; rc == 0 && *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        fprintf(to, "# %.*s\n", (int)(end - at), at);
    }
    tern_buf_free(&text);
    return rc;
}

void bench_rows_heading(bool compared)
{
    printf(ours_format, '#', "size", "count", "type", "redop", "root", "op", "time", "algbw",
           "busbw", "#wrong", "p50", "p99", "cpu", "memory", "share");
    if (compared)
        printf(peer_format, "peer time", "busbw", "#wrong", "p50", "p99", "cpu", "ratio",
               "setting");
    printf("\n");
    printf(ours_format, '#', "(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "",
           "(us)", "(us)", "(us)", "(us)", "(p50)");
    if (compared)
        printf(peer_format, "(us)", "(GB/s)", "", "(us)", "(us)", "(us)", "(p50)", "");
    printf("\n");
}

double bench_rows_ratio(const struct bench_row *r)
{
    return r->ours.p50_us > 0 ? r->peer.p50_us / r->ours.p50_us : 0;
}

double bench_rows_share(const struct bench_row *r)
{
    return r->ours.p50_us > 0 ? r->memory_us / r->ours.p50_us : 0;
}

void bench_rows_print(const struct bench_row *r)
{
    const struct bench_times *o = &r->ours, *p = &r->peer;

    printf("%12zu %12zu %6s %6s %4d %-15s %10.2f %8.2f %8.2f %6.0f %10.2f %10.2f %10.2f", r->bytes,
           r->count, r->type, r->redop, r->root, r->op, o->mean_us, o->algbw, o->busbw, o->wrong,
           o->p50_us, o->p99_us, o->cpu_us);
    if (r->memory_us > 0)
        printf(" %10.2f %6.2f", r->memory_us, bench_rows_share(r));
    else
        printf(" %10s %6s", "-", "-");
    if (r->compared)
        printf("  %10.2f %8.2f %6.0f %10.2f %10.2f %10.2f %6.2f %s", p->mean_us, p->busbw, p->wrong,
               p->p50_us, p->p99_us, p->cpu_us, bench_rows_ratio(r),
               r->setting ? r->setting : "as started");
    printf("\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------- JSON */

static json_t *times_json(const struct bench_times *t)
{
    return json_pack("{s:f s:f s:f s:I s:f s:f s:f}", "time_us", t->mean_us, "algbw", t->algbw,
                     "busbw", t->busbw, "wrong", (json_int_t)t->wrong, "p50_us", t->p50_us,
                     "p99_us", t->p99_us, "cpu_us", t->cpu_us);
}

json_t *bench_rows_json(const struct bench_row *r)
{
    json_t *j =
        json_pack("{s:s s:I s:I s:s s:s s:i}", "op", r->op, "bytes", (json_int_t)r->bytes, "count",
                  (json_int_t)r->count, "type", r->type, "redop", r->redop, "root", r->root);
    json_t *times = times_json(&r->ours);

    json_object_update(j, times);
    json_decref(times);
    if (r->memory_us > 0) {
        json_object_set_new(j, "memory_us", json_real(r->memory_us));
        json_object_set_new(j, "memory_share", json_real(bench_rows_share(r)));
    }
    if (r->compared) {
        json_t *peer = times_json(&r->peer);
        json_object_set_new(peer, "setting", r->setting ? json_string(r->setting) : json_null());
        json_object_set_new(j, "peer", peer);
        json_object_set_new(j, "ratio", json_real(bench_rows_ratio(r)));
    }
    return j;
}

static int parse_times(const json_t *j, struct bench_times *t)
{
    return json_unpack((json_t *)(uintptr_t)j, "{s:F s:F s:F s:F s:F s:F s:F}", "time_us",
                       &t->mean_us, "algbw", &t->algbw, "busbw", &t->busbw, "wrong", &t->wrong,
                       "p50_us", &t->p50_us, "p99_us", &t->p99_us, "cpu_us", &t->cpu_us);
}

int bench_rows_parse(const json_t *j, struct bench_row *r, struct tern_err *err)
{
    const json_t *peer = json_object_get(j, "peer");
    json_int_t bytes, count;

    *r = (struct bench_row){.compared = peer != NULL};
    if (json_unpack((json_t *)(uintptr_t)j, "{s:s s:I s:I s:s s:s s:i}", "op", &r->op, "bytes",
                    &bytes, "count", &count, "type", &r->type, "redop", &r->redop, "root",
                    &r->root) < 0 ||
        parse_times(j, &r->ours) < 0 || (peer && parse_times(peer, &r->peer) < 0))
        return tern_err_set(err, TERN_FAILED, "the ranks printed a row that is none");
    r->memory_us = json_number_value(json_object_get(j, "memory_us"));
    r->setting = json_string_value(json_object_get(peer, "setting"));
    r->bytes = (size_t)bytes;
    r->count = (size_t)count;
    return 0;
}

json_t *bench_rows_table(const char *fabric, const char *peer, int ranks, bool in_place,
                         json_t *rows)
{
    double sum = 0, wrong = 0;
    struct bench_row r;
    const json_t *row;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        if (bench_rows_parse(row, &r, NULL) < 0)
            continue;
        sum += r.ours.busbw;
        wrong += r.ours.wrong + r.peer.wrong;
    }
    size_t n = json_array_size(rows);
    json_t *all = json_pack("{s:s s:i s:b s:O s:f s:I}", "fabric", fabric, "ranks", ranks,
                            "in_place", in_place, "rows", rows, "average_busbw",
                            n ? sum / (double)n : 0, "wrong", (json_int_t)wrong);
    if (peer)
        json_object_set_new(all, "peer", json_string(peer));
    return all;
}

int bench_rows_finish(json_t *table, bool json, bool silent, struct tern_err *err)
{
    double wrong = json_number_value(json_object_get(table, "wrong"));
    double busbw = json_number_value(json_object_get(table, "average_busbw"));
    int rc = 0;

    if (!silent && json)
        rc = tern_json_print(stdout, table, err);
    else if (!silent)
        printf("# out of bounds values: %.0f %s\n# average bus bandwidth: %.4g GB/s\n", wrong,
               wrong > 0 ? "FAILED" : "OK", busbw);
    json_decref(table);
    if (rc == 0 && wrong > 0)
        return tern_err_set(err, TERN_FAILED, "%.0f values are wrong", wrong);
    return rc;
}
