/* core/base/yaml: YAML 1.1, as other programs write it. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text read as YAML 1.1, written on one line with its remarks; or its error. */
static const char *read_1_1(const char *text)
{
    static char shown[400];
    char path[] = "/tmp/tern-yaml-XXXXXX";
    struct tern_err e = {0};
    struct tern_buf line = {0};
    size_t n;

    close(mkstemp(path));
    tern_fs_replace(path, text, strlen(text), 0600, NULL);
    struct tern_yaml *y = tern_yaml_load_1_1(path, &e);
    if (y) {
        tern_yaml_write(&line, tern_yaml_root(y));
        const struct tern_yaml_remark *r = tern_yaml_remarks(y, &n);
        for (size_t i = 0; i < n; i++)
            tern_buf_printf(&line, "; %d %s", r[i].line, r[i].text);
    }
    snprintf(shown, sizeof shown, "%s", y ? line.data : e.text + strlen(path));
    tern_buf_free(&line);
    tern_yaml_free(y);
    unlink(path);
    return shown;
}

int main(void)
{
    is(read_1_1("a: &x [1, {b: 2}]\nc: *x\n"), "{a: [1, {b: 2}], c: [1, {b: 2}]}",
       "an alias is a copy of its value");
    is(read_1_1("a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\n"),
       "{a: {b: 1, c: 2}, d: {b: 3, c: 2}}; 2 <<",
       "a merge key brings the keys that a map has not");
    is(read_1_1("a: &x {b: 1}\nc: &y {b: 2, d: 3}\ne:\n  <<: [*x, *y]\n"),
       "{a: {b: 1}, c: {b: 2, d: 3}, e: {b: 1, d: 3}}; 4 <<",
       "of several merged maps, the first counts");
    is(read_1_1("a: 1\nb: &x 2\na: &y 3\nc: [*x, *y]\n"),
       "{a: 1, b: 2, c: [2, 3]}; 3 'a' is given twice (first on line 1)",
       "of a key given twice the first counts, and that is a remark");
    is(read_1_1("a: !Sub b\nc: !!str 1\nd: !!map {e: 1}\n"), "{a: b, c: '1', d: {e: 1}}; 1 !Sub",
       "other programs' tags are remarks, and YAML's own are taken");
    is(read_1_1("a: *x\n"), ":1: alias *x: no value before it has the anchor &x",
       "an alias of nothing is refused");
    is(read_1_1("a: &x [*x]\n"), ":1: alias *x: no value before it has the anchor &x",
       "a value inside itself is refused");
    has(read_1_1("a: &x 1\nb: &x 2\n"), ":2: anchor &x is given twice (first on line 1)",
        "an anchor given twice is refused");
    has(read_1_1("a: &x 1\nb: {<<: *x}\n"), ":2: << merges a map", "a merged number is refused");
    return tap_done();
}
