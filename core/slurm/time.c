/* Time limits as Slurm writes them. */
#include "core/slurm/slurm.h"

#include "core/base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int tern_slurm_time_read(const char *s, int64_t *seconds)
{
    /* Three numbers at most behind the days: hours, minutes, seconds. */
    int64_t days = 0, v[3] = {0};
    char word[64], *at = NULL;
    size_t n = 0;

    if (strcasecmp(s, "unlimited") == 0 || strcasecmp(s, "infinite") == 0 || strcmp(s, "-1") == 0) {
        *seconds = 0;
        return 0;
    }
    const char *dash = strchr(s, '-');
    if (dash) {
        snprintf(word, sizeof word, "%.*s", (int)(dash - s), s);
        if (tern_str_int(word, 0, 1000000, &days) < 0)
            return -1;
        s = dash + 1;
    }
    if (strlen(s) >= sizeof word || strstr(s, "::"))
        return -1;
    snprintf(word, sizeof word, "%s", s);
    for (char *w = strtok_r(word, ":", &at); w; w = strtok_r(NULL, ":", &at)) {
        if (n == 3 || tern_str_int(w, 0, 1000000000, &v[n]) < 0)
            return -1;
        n++;
    }
    if (n == 0)
        return -1;
    if (dash) /* D-H, D-H:M, D-H:M:S */
        *seconds = days * 86400 + v[0] * 3600 + v[1] * 60 + v[2];
    else if (n == 3) /* H:M:S */
        *seconds = v[0] * 3600 + v[1] * 60 + v[2];
    else /* M, M:S */
        *seconds = v[0] * 60 + v[1];
    return 0;
}

char *tern_slurm_time_write(int64_t seconds)
{
    int64_t minutes = (seconds + 59) / 60; /* Slurm counts limits in minutes */
    int64_t days = minutes / 1440, hours = minutes / 60 % 24;

    if (days)
        return tern_strf("%" PRId64 "-%02" PRId64 ":%02" PRId64 ":00", days, hours, minutes % 60);
    return tern_strf("%" PRId64 ":%02" PRId64 ":00", hours, minutes % 60);
}
