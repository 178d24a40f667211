#include "core/store/credentials.h"

#include "core/base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* AWS gives new ones 5 minutes before the old ones expire. */
enum { RENEW_S = 240 };

struct tern_store_provider {
    pthread_mutex_t lock;
    struct tern_store_http *http;
    const int *stop;
    struct tern_store_credentials keys;
    bool have;
};

static void wipe(char *s)
{
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

void tern_store_credentials_free(struct tern_store_credentials *k)
{
    wipe(k->access);
    wipe(k->secret);
    wipe(k->token);
    *k = (struct tern_store_credentials){0};
}

struct tern_store_provider *tern_store_provider_new(struct tern_store_http *h, const int *stop,
                                                    struct tern_err *err)
{
    struct tern_store_provider *v = tern_alloc(1, sizeof *v, "credentials", err);

    if (!v)
        return NULL;
    pthread_mutex_init(&v->lock, NULL);
    v->http = h;
    v->stop = stop;
    return v;
}

void tern_store_provider_free(struct tern_store_provider *v)
{
    if (!v)
        return;
    tern_store_credentials_free(&v->keys);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

static int look_up(struct tern_store_provider *v, struct tern_store_credentials *ret_credentials,
                   struct tern_err *err)
{
    int rc = tern_store_credentials_files(ret_credentials, err);

    if (rc == 0)
        rc = tern_store_credentials_container(v->http, v->stop, ret_credentials, err);
    if (rc == 0)
        rc = tern_store_credentials_instance(v->http, v->stop, ret_credentials, err);
    if (rc == 0)
        return tern_err_set(
            err, TERN_USAGE,
            "s3:// needs credentials, and there are none in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, in ~/.aws/credentials or config (AWS_PROFILE), at a "
            "container's or the instance's metadata. Run `aws configure`, or set "
            "TERN_S3_ANONYMOUS=1 for a public bucket.");
    return rc < 0 ? -1 : 0;
}

/* Everything else goes on with the old keys while they are good: an instance's metadata may be slow
 * for a moment. */
static int renew(struct tern_store_provider *v, bool good, struct tern_err *err)
{
    struct tern_store_credentials fresh = {0};

    if (look_up(v, &fresh, good ? NULL : err) < 0)
        return good ? 0 : -1;
    tern_store_credentials_free(&v->keys);
    v->keys = fresh;
    v->have = true;
    return 0;
}

int tern_store_provider_get(struct tern_store_provider *v, const char *refused,
                            struct tern_store_credentials *ret_credentials, struct tern_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&v->lock);
    const int64_t left =
        v->keys.expires_s ? v->keys.expires_s - tern_clock_wall_ns() / 1000000000 : INT64_MAX;
    const bool again = v->have && refused && strcmp(refused, v->keys.access) == 0;
    if (!v->have || left < RENEW_S || again)
        rc = renew(v, v->have && left > 0 && !again, err);
    if (rc == 0)
        *ret_credentials = (struct tern_store_credentials){
            .access = tern_strdup(v->keys.access),
            .secret = tern_strdup(v->keys.secret),
            .token = v->keys.token ? tern_strdup(v->keys.token) : NULL,
            .expires_s = v->keys.expires_s,
        };
    pthread_mutex_unlock(&v->lock);
    return rc;
}
