/* Credentials of S3: looked up in the order of AWS's own tools, kept, and renewed before they
 * expire.  No message holds any of them. */
#ifndef TERN_STORE_CREDENTIALS_H
#define TERN_STORE_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/store/http.h"

struct tern_store_credentials {
    char *access, *secret, *token; /* token: NULL where there is none */
    int64_t expires_s;             /* since 1970; 0: never */
};
void tern_store_credentials_free(struct tern_store_credentials *k); /* overwrites them */

/* A file of profiles (https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html):
 * the value of `key` in `section`, malloc'ed; NULL where file, section or key are not there.
 * `under`: the key stands, indented, under that key ("s3"); or NULL. */
int tern_store_profile(const char *path, const char *section, const char *under, const char *key,
                       char **ret_value, struct tern_err *err);
/* The same from the user's profile (AWS_PROFILE) in ~/.aws/config (AWS_CONFIG_FILE). */
int tern_store_config(const char *under, const char *key, char **ret_value, struct tern_err *err);

/* From the environment and the profile files: 1 and the credentials; 0 where there are none; -1. */
int tern_store_credentials_files(struct tern_store_credentials *ret_credentials,
                                 struct tern_err *err);
/* From the endpoint of a container (Amazon's ECS and EKS), or the instance's metadata (IMDSv2): as
 * above.  `h` has direct connections. */
int tern_store_credentials_container(struct tern_store_http *h, const int *stop,
                                     struct tern_store_credentials *ret_credentials,
                                     struct tern_err *err);
int tern_store_credentials_instance(struct tern_store_http *h, const int *stop,
                                    struct tern_store_credentials *ret_credentials,
                                    struct tern_err *err);

/* The newest credentials.  Threads: any. */
struct tern_store_provider;
struct tern_store_provider *tern_store_provider_new(struct tern_store_http *h, const int *stop,
                                                    struct tern_err *err);
void tern_store_provider_free(struct tern_store_provider *p); /* NULL is fine */
/* A copy for one request.  `refused`: the access key that a server called expired or unknown, so
 * that it is not given again; or NULL. */
int tern_store_provider_get(struct tern_store_provider *p, const char *refused,
                            struct tern_store_credentials *ret_credentials, struct tern_err *err);

#endif
