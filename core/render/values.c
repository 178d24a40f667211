/* Values that a layout does not have: from the file of variables, or left to be filled in.
 *
 *     Region              us-west-2; else the layout's                 (REGION)
 *     PublicSubnet        of the head node; else the layout's
 *     PrivateSubnet       of the nodes; else the first queue's         (SUBNET)
 *     SecurityGroup       open to itself in both directions            (SG)
 *     Bucket              of scripts and packages
 *     FileSystemId        fs-..., an FSx for Lustre
 *     FileSystemDnsName   fs-....fsx.us-west-2.amazonaws.com
 *     FileSystemMountName its mount name
 *     ExecutionRoleArn    the role of HyperPod's nodes
 *     InstanceProfileArn  the profile of Batch's nodes                 (INSTANCE_ROLE)
 *     ImageRepository     of ECR, without a tag                        (ECR_REPO)
 *     BaseImage           the image that the Dockerfile begins with
 *     TernPackage         s3://BUCKET/KEY.tar.gz, or all packages of s3://BUCKET/FOLDER/
 *
 * In brackets: the names in config.txt of AWS's sample for Batch. */
#include "core/render/parts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/version.h"

static const struct {
    const char *name, *sample;
} samples[] = {{"Region", "REGION"},
               {"PrivateSubnet", "SUBNET"},
               {"SecurityGroup", "SG"},
               {"InstanceProfileArn", "INSTANCE_ROLE"},
               {"ImageRepository", "ECR_REPO"}};

const char *tern_render_keep(struct tern_render *r, char *text)
{
    r->kept = reallocarray(r->kept, r->n_kept + 1, sizeof *r->kept);
    if (!r->kept)
        abort();
    r->kept[r->n_kept++] = text;
    return text;
}

const char *tern_render_known(const struct tern_render *r, const char *name)
{
    const char *value = tern_layout_value(r->layout, name);

    for (size_t i = 0; !value && i < sizeof samples / sizeof *samples; i++)
        if (strcmp(samples[i].name, name) == 0)
            value = tern_layout_value(r->layout, samples[i].sample);
    return value;
}

static void note_missing(struct tern_render *r, const char *name, size_t len)
{
    for (size_t i = 0; i < r->n_missing; i++)
        if (strlen(r->missing[i]) == len && memcmp(r->missing[i], name, len) == 0)
            return;
    if (r->n_missing < TERN_RENDER_MAX_NAMES)
        r->missing[r->n_missing++] = tern_strf("%.*s", (int)len, name);
}

void tern_render_note_variables(struct tern_render *r, const char *text)
{
    for (const char *s = text; (s = strstr(s, "${")); s += 2) {
        const size_t len = strspn(s + 2, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789_");
        if (len && s[2 + len] == '}')
            note_missing(r, s + 2, len);
    }
}

const char *tern_render_value(struct tern_render *r, const char *name, const char *other)
{
    const char *value = tern_render_known(r, name);

    if (!value)
        value = other;
    if (!value || !*value)
        value = tern_render_keep(r, tern_strf("${%s}", name));
    tern_render_note_variables(r, value);
    return value;
}

const char *tern_render_name(struct tern_render *r)
{
    return tern_render_keep(r, tern_layout_plain_name(r->layout));
}

const char *tern_render_package(struct tern_render *r, const char *end)
{
    const char *known = tern_render_known(r, "TernPackage");

    if (known)
        return known;
    return tern_render_keep(
        r, tern_strf("s3://%s/tern-%s%s", tern_render_value(r, "Bucket", NULL), TERN_VERSION, end));
}

const char *tern_render_count(struct tern_render *r, long n, const char *thing)
{
    return tern_render_keep(r, tern_strf("%ld %s%s", n, thing, n == 1 ? "" : "s"));
}

void tern_render_say(struct tern_render *r, const char *fmt, ...)
{
    char line[1000];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    tern_str_mask(line);
    tern_buf_printf(&r->said, "%s\n", line);
}

const struct tern_layout_storage *tern_render_lustre(const struct tern_layout *l)
{
    for (size_t i = 0; i < l->n_storage; i++)
        if (l->storage[i].type && strcmp(l->storage[i].type, "FsxLustre") == 0)
            return &l->storage[i];
    return NULL;
}

const char *tern_render_host(struct tern_render *r, const struct tern_layout_storage *lustre,
                             const char *region)
{
    const char *id = tern_render_known(r, "FileSystemId");
    char *host = NULL;

    if (!id && lustre->fsx_id && !strstr(lustre->fsx_id, "${"))
        id = lustre->fsx_id;
    if (id && !strstr(region, "${"))
        host = tern_strf("%s.fsx.%s.amazonaws.com%s", id, region,
                         tern_str_starts(region, "cn-") ? ".cn" : "");
    return tern_render_value(r, "FileSystemDnsName", host ? tern_render_keep(r, host) : NULL);
}

/* ------------------------------------------------------------------ files */

struct tern_render_file *tern_render_add(struct tern_render *r, const char *name)
{
    if (r->n_files == TERN_RENDER_MAX_FILES)
        abort();
    struct tern_render_file *f = &r->file[r->n_files++];
    *f = (struct tern_render_file){.name = tern_strdup(name)};
    return f;
}

int tern_render_add_json(struct tern_render *r, const char *name, json_t *j, struct tern_err *err)
{
    struct tern_render_file *f = tern_render_add(r, name);
    char *text = NULL;
    size_t len = 0;
    FILE *to = j ? open_memstream(&text, &len) : NULL;

    if (!to) {
        json_decref(j);
        return tern_err_set(err, TERN_FAILED, "%s: no memory for it.", name);
    }
    int rc = tern_json_print(to, j, err);
    if (fclose(to) != 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot be made", name);
    if (rc == 0) {
        tern_buf_add(&f->text, text, len);
        tern_render_note_variables(r, text);
    }
    free(text);
    json_decref(j);
    return rc;
}

struct tern_render_file *tern_render_program(struct tern_render *r, const char *name,
                                             const char *text)
{
    struct tern_render_file *f = tern_render_add(r, name);

    f->program = true;
    tern_buf_puts(&f->text, text);
    return f;
}

void tern_render_set(struct tern_render_file *f, const char *name, const char *value)
{
    tern_buf_printf(&f->sets, "%s=", name);
    tern_buf_word(&f->sets, strstr(value, "${") ? "" : value);
    tern_buf_puts(&f->sets, "\n");
}

void tern_render_set_int(struct tern_render_file *f, const char *name, long long value)
{
    tern_buf_printf(&f->sets, "%s=%lld\n", name, value);
}
