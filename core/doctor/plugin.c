#include "core/doctor/plugin.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <elf.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* plugstack.conf is some lines long, the plugin some 100 KiB; Slurm itself nests includes less. */
enum { MAX_CONF = 1 << 20, MAX_LIBRARY = 16 << 20, MAX_DEPTH = 8 };

static void read_conf(const char *path, struct tern_doctor_plugin *to, int depth);

static void include(const char *from, const char *pattern, struct tern_doctor_plugin *to, int depth)
{
    char *dir = tern_fs_dirname(from), *whole = tern_fs_join(dir, pattern);
    glob_t g;

    if (glob(whole, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc && !to->file[0]; i++)
            read_conf(g.gl_pathv[i], to, depth + 1);
        globfree(&g);
    }
    free(whole);
    free(dir);
}

static void read_line(const char *path, char *line, struct tern_doctor_plugin *to, int depth)
{
    static const char blanks[] = " \t\r";
    char *rest = NULL;

    line[strcspn(line, "#")] = '\0';
    char *word = strtok_r(line, blanks, &rest), *file = strtok_r(NULL, blanks, &rest);
    if (!word || !file)
        return;
    if (strcasecmp(word, "include") == 0) {
        include(path, file, to, depth);
        return;
    }
    if (!strstr(tern_fs_basename(file), "tern_spank"))
        return;
    to->required = strcasecmp(word, "required") == 0;
    snprintf(to->file, sizeof to->file, "%s", file);
    snprintf(to->where, sizeof to->where, "%s", path);
    while ((word = strtok_r(NULL, blanks, &rest))) {
        if (tern_str_starts(word, "tern="))
            snprintf(to->tern, sizeof to->tern, "%s", word + 5);
        to->health_prolog |= strcmp(word, "health=prolog") == 0;
    }
}

static void read_conf(const char *path, struct tern_doctor_plugin *to, int depth)
{
    char *text, *rest = NULL;
    size_t len;

    if (depth > MAX_DEPTH || tern_fs_read(path, MAX_CONF, &text, &len, NULL) < 0)
        return;
    for (char *line = strtok_r(text, "\n", &rest); line && !to->file[0];
         line = strtok_r(NULL, "\n", &rest))
        read_line(path, line, to, depth);
    free(text);
}

void tern_doctor_plugin_find(const char *plugstack, struct tern_doctor_plugin *to)
{
    *to = (struct tern_doctor_plugin){.required = false};
    read_conf(plugstack, to, 0);
}

/* ------------------------------------------------------------------ elf(5) */

/* n bytes at `at`, or NULL when the file ends before. */
static const void *part(const char *data, size_t len, uint64_t at, uint64_t n)
{
    return at <= len && n <= len - at ? data + at : NULL;
}

/* The same for a struct of the format, which stands on a multiple of 8. */
static const void *table(const char *data, size_t len, uint64_t at, uint64_t n)
{
    return at % 8 == 0 ? part(data, len, at, n) : NULL;
}

/* The file's bytes for address `at`, by the program headers. */
static const void *loaded(const char *data, size_t len, const Elf64_Ehdr *e, uint64_t at, size_t n)
{
    for (unsigned i = 0; i < e->e_phnum; i++) {
        const Elf64_Phdr *p = table(data, len, e->e_phoff + i * sizeof *p, sizeof *p);
        if (p && p->p_type == PT_LOAD && at >= p->p_vaddr && at - p->p_vaddr < p->p_filesz)
            return part(data, len, p->p_offset + (at - p->p_vaddr), n);
    }
    return NULL;
}

static const Elf64_Shdr *section(const char *data, size_t len, const Elf64_Ehdr *e, unsigned i)
{
    return i < e->e_shnum
               ? table(data, len, e->e_shoff + i * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr))
               : NULL;
}

/* The word that the dynamic symbol `name` stands for. */
static const void *symbol(const char *data, size_t len, const Elf64_Ehdr *e, const char *name)
{
    for (unsigned i = 0; i < e->e_shnum; i++) {
        const Elf64_Shdr *s = section(data, len, e, i);
        const Elf64_Shdr *t =
            s && s->sh_type == SHT_DYNSYM ? section(data, len, e, s->sh_link) : NULL;
        for (uint64_t k = 0; t && k < s->sh_size / sizeof(Elf64_Sym) && k < 65536; k++) {
            const Elf64_Sym *y = table(data, len, s->sh_offset + k * sizeof *y, sizeof *y);
            const char *n = y ? part(data, len, t->sh_offset + y->st_name, strlen(name) + 1) : NULL;
            if (n && memcmp(n, name, strlen(name) + 1) == 0)
                return loaded(data, len, e, y->st_value, sizeof(uint32_t));
        }
    }
    return NULL;
}

void tern_doctor_plugin_release(const char *file, char to[16])
{
    char *data;
    size_t len;
    uint32_t v;

    to[0] = '\0';
    if (tern_fs_read(file, MAX_LIBRARY, &data, &len, NULL) < 0)
        return;
    const Elf64_Ehdr *e = part(data, len, 0, sizeof *e);
    if (e && memcmp(e->e_ident, ELFMAG, SELFMAG) == 0 && e->e_ident[EI_CLASS] == ELFCLASS64) {
        const void *at = symbol(data, len, e, "plugin_version");
        if (at) {
            memcpy(&v, at, sizeof v);
            snprintf(to, 16, "%u.%02u.%u", v >> 16 & 255, v >> 8 & 255, v & 255);
        }
    }
    free(data);
}
