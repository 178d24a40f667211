/* core/convert: an export is dealt to files as the published ones are. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/convert/convert.h"
#include "core/convert/shards.h"
#include "core/model/model.h"
#include "tests/unit/tap.h"

static void test_rule(void)
{
    const uint64_t bytes[] = {4, 6, 1, 20, 1, 9, 10};
    unsigned shard[7], want[] = {0, 0, 2, 1, 2, 3, 4};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    struct tern_ckpt_info tensors[7];
    char order[8] = "", files[8] = "";
    struct tern_err err = {0};

    ok(tern_convert_deal_shards(bytes, 7, 10, shard) == 5 && memcmp(shard, want, sizeof want) == 0,
       "a file of an export is filled to its limit, around a tensor above it, which has its own");
    for (int i = 0; i < 7; i++)
        tensors[i] = (struct tern_ckpt_info){.name = names[i]};
    const int rc = tern_convert_sort_shards(tensors, shard, 7, 5, &err);
    for (int i = 0; rc == 0 && i < 7; i++) {
        order[i] = *tensors[i].name;
        files[i] = (char)('0' + shard[i]);
    }
    is(order, "abdcefg", "tensors are written by files, each file's in the model's order");
    is(files, "0012234", "a tensor that is moved to its file keeps that file's number");
    ok(tern_convert_deal_shards(bytes, 7, UINT64_MAX, shard) == 1,
       "without a limit an export is one file");
    ok(tern_convert_deal_shards(bytes, 0, 10, shard) == 1, "an export of nothing is one file");
}

/* The index that was published with Meta-Llama-3-8B. */
static void test_published(const char *data)
{
    char *config = tern_fs_join(data, "configs/Meta-Llama-3-8B.config.json");
    char *index = tern_fs_join(data, "configs/index_Llama-3-8B.json");
    struct tern_model_config c;
    struct tern_err err = {0};
    struct tern_model_tensor t;
    char name[64];

    if (!tern_fs_exists(config)) {
        tap_skip("the published index is not there (shared/data)");
    } else {
        json_t *j = tern_json_load(index, 1 << 20, &err);
        ok(j && tern_model_config_load(config, &c, &err) == 0,
           "a published config and index are read: %s", err.text);
        json_t *map = json_object_get(j, "weight_map");
        size_t n = tern_model_tensors(&c), same = 0;
        uint64_t *bytes = tern_alloc(n, sizeof *bytes, "tensors", NULL);
        unsigned *shard = tern_alloc(n, sizeof *shard, "tensors", NULL);
        for (size_t i = 0; i < n; i++)
            bytes[i] = tern_model_tensor_bytes(&c, i, 2);
        unsigned files = tern_convert_deal_shards(bytes, n, 5000000000, shard);
        for (size_t i = 0; i < n; i++) {
            tern_model_tensor(&c, i, &t);
            snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", shard[i] + 1, files);
            const char *theirs = json_string_value(json_object_get(map, t.name));
            same += theirs && strcmp(theirs, name) == 0;
        }
        ok(same == n && json_object_size(map) == n,
           "Llama-3-8B: %zu of %zu tensors in the files "
           "where the published index has them",
           same, n);
        json_decref(j);
        free(bytes);
        free(shard);
    }
    free(config);
    free(index);
}

int main(void)
{
    test_rule();
    test_published("../shared/data");
    return tap_done();
}
