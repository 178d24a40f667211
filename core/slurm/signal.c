/* --signal of a job: the controller does not say it, and the batch script may. */
#include "core/slurm/slurm.h"

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/slurm/start.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_S = 60, /* sbatch's, of --signal without a time */
    MOST_S = 65535,
};

int64_t tern_slurm_signal_read(const char *value)
{
    const char *at = strchr(value, '@');
    int64_t seconds = DEFAULT_S;

    if (!*value || (at && tern_str_int(at + 1, 0, MOST_S, &seconds) < 0))
        return -1;
    return seconds;
}

/* The next word of a line, as sbatch takes it: blanks part words, quotes and backslashes go, and a
 * '#' begins a comment.  NULL at the end.  It changes the line. */
static char *next_word(char **line)
{
    char *from = *line + strspn(*line, " \t\r"), *to = from, *const word = from;
    char quote = '\0';

    if (!*from || *from == '#')
        return NULL;
    for (; *from && (quote || !strchr(" \t\r", *from)); from++) {
        if (quote ? *from == quote : *from == '\'' || *from == '"') {
            quote = quote ? '\0' : *from;
        } else {
            if (*from == '\\' && quote != '\'' && from[1])
                from++;
            *to++ = *from;
        }
    }
    *line = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

/* The last --signal of a line's words; `was` where it has none. */
static int64_t read_line(char *line, int64_t was)
{
    static const char name[] = "--signal";

    for (char *w; (w = next_word(&line)) != NULL;) {
        const size_t n = strcspn(w, "=");
        if (n < sizeof "--sig" - 1 || n >= sizeof name || strncmp(w, name, n) != 0)
            continue;
        const char *value = w[n] ? w + n + 1 : next_word(&line);
        const int64_t s = value ? tern_slurm_signal_read(value) : -1;
        if (s >= 0)
            was = s;
    }
    return was;
}

int64_t tern_slurm_signal_in_script(const char *script)
{
    static const char mark[] = "#SBATCH";
    int64_t seconds = -1;

    for (const char *line = script; *line;) {
        const size_t n = strcspn(line, "\n");
        const char *first = line + strspn(line, " \t\r");
        if (first < line + n && *first != '#') /* a command: sbatch reads no further */
            break;
        if (strncmp(line, mark, sizeof mark - 1) == 0) {
            char *rest = strndup(line + sizeof mark - 1, n - (sizeof mark - 1));
            if (rest)
                seconds = read_line(rest, seconds);
            free(rest);
        }
        line += n + (line[n] == '\n');
    }
    return seconds;
}

int tern_slurm_job_signal_load(uint32_t id, int64_t *ret_seconds, struct tern_err *err)
{
    char *script = NULL;
    size_t size = 0;

    *ret_seconds = -1;
    if (tern_slurm_start(err) < 0)
        return -1;
    FILE *to = open_memstream(&script, &size);
    if (!to)
        return tern_err_sys(err, "a job's script");
    const int rc = slurm_job_batch_script(to, id);
    if (fclose(to) == 0 && rc == SLURM_SUCCESS && script)
        *ret_seconds = tern_slurm_signal_in_script(script);
    free(script);
    return rc == SLURM_SUCCESS ? 0 : tern_slurm_fail(err, "read its script", id);
}
