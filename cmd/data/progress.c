/* The line of progress, and the summary. */
#include "cmd/data/build.h"
#include "cmd/data/summary.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    SHOW_MS = 200,      /* on a terminal */
    LOG_MS = 60 * 1000, /* elsewhere */
};

void data_progress_begin(struct data_progress *p, const char *name, const char *what, bool quiet)
{
    const int64_t now = tern_clock_boot_ns();

    *p = (struct data_progress){.name = name,
                                .what = what,
                                .terminal = isatty(STDERR_FILENO),
                                .quiet = quiet,
                                .start_ns = now,
                                .shown_ns = now};
}

bool data_progress_due(const struct data_progress *p)
{
    const int64_t every = (p->terminal ? SHOW_MS : LOG_MS) * INT64_C(1000000);

    return !p->quiet && tern_clock_boot_ns() - p->shown_ns >= every;
}

void data_progress(struct data_progress *p, uint64_t done, uint64_t all, uint64_t text,
                   const char *of)
{
    char left[32], share[80] = "";

    if (!data_progress_due(p))
        return;
    p->shown_ns = tern_clock_boot_ns();
    const double s = (double)(p->shown_ns - p->start_ns) / 1e9,
                 rate = (double)(done - p->before) / s; /* s is a fifth of a second or more */
    if (all && rate > 0)
        snprintf(share, sizeof share, "%.0f %%, %s left, ", 100.0 * (double)done / (double)all,
                 tern_str_seconds(left, sizeof left, done < all ? (double)(all - done) / rate : 0));
    const double mb = (text ? (double)text / s : rate) / 1e6;
    if (p->terminal)
        fprintf(stderr, "\r\033[K%s: %s%s%s%.1f MB/s", p->name, p->what, share, of, mb);
    else
        tern_info("%s: %s%s%s%.1f MB/s", p->name, p->what, share, of, mb);
}

void data_progress_end(const struct data_progress *p)
{
    if (p->terminal && !p->quiet)
        fputs("\r\033[K", stderr);
}

void data_report(const char *out, const struct data_sums *s, double seconds)
{
    char bytes[32], time[32], rate[64] = "";
    json_t *summary = data_summary(s);
    struct tern_buf words = {0};

    if (!s->resumed)
        snprintf(rate, sizeof rate, ", in %s (%.1f MB/s)",
                 tern_str_seconds(time, sizeof time, seconds), (double)s->bytes / 1e6 / seconds);
    tern_info("%s: %" PRIu64 " documents, %" PRIu64 " tokens, %s of text (%.2f bytes a token)%s",
              out, s->docs, s->tokens, tern_str_bytes(bytes, sizeof bytes, s->bytes),
              s->tokens ? (double)s->bytes / (double)s->tokens : 0.0, rate);
    data_summary_words(summary, s->records, &words);
    if (words.len)
        tern_info("%s", words.data);
    tern_buf_free(&words);
    json_decref(summary);
}
