#!/bin/bash
# Tutorials of the templates: their form, the ways to them, and that a test of one names page and line of what fails.
# Their commands are run by tests/slurm/tutorial-*.sh.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
pages=$(cd "$ROOT/cluster-templates" && ls -d */TUTORIAL.md)
is "$(wc -w <<<"$pages")" 5 "the five published workflows have a tutorial each"
for name in $pages; do
    name=${name%/TUTORIAL.md}
    page_of "$name"
    is "$(page_form "$page")" "" "$PAGE: numbered steps with how each is done there, blocks that say where they are for, 100 columns"
    has "$ROOT/cluster-templates/$name/README.md" '(TUTORIAL.md)' "$name: its README links the tutorial"
    has "$ROOT/README.md" "]: cluster-templates/$name/TUTORIAL.md" "README.md links the tutorial of $name"
    grep -qx "tutorial $name" "$ROOT"/tests/slurm/tutorial-*.sh; ok $? "a test runs the commands of $PAGE"
    page_script "$page"
    if command -v shellcheck >/dev/null; then
        shellcheck -s bash -e SC1090,SC1091,SC2034,SC2154,SC2164 script inner >lint; ok $? "$PAGE: shellcheck finds nothing" || head -n 30 lint
    fi
done

# ---- a page with mistakes
export PAGE=bad.md
cat >bad.md <<'P'
# A page

## 1. Good

There: nothing.

```sh
cd /tmp
x=here
```

On AWS, a program that a rendering has left out:

```sh aws
aws s3 ls \
    s3://bucket
batch/create.sh
```

## 3. Bad

```sh
echo "$x"
```

```sh laptop
false
```

```python
```
P
is "$(page_form bad.md)" "bad.md:20: this is step 2
bad.md:22: step 2 does not say how it is done there
bad.md:26: no word before this block says that it is for a laptop
bad.md:26: step 2 does not say how it is done there
bad.md:30: a block of no kind: python
bad.md:30: step 2 does not say how it is done there" "mistakes of a page's form are named with their lines"
page_script bad.md; page_run
is "$?" 1 "a page fails whose block for AWS names a program that is not there"
is "$(cat tap)" "ok - bad.md, lines 8 to 9: the commands work as written
not ok - bad.md:17: 'batch/create.sh' fails as written: exit status 1" "its line is named, and blocks before it have passed"
has said 'there is no program batch/create.sh' "the reason of a failed block is printed"
sed -i 's|^batch/create.sh|aws s3 ls s3://bucket|' bad.md
page_script bad.md; page_run
is "$? $(tail -n 1 tap)" "1 not ok - bad.md:27: 'false' fails as written: exit status 1" "a command that fails is named with its line"
is "$(cat said)" here "commands of a page share one shell"
sed -i 's|^aws s3 ls s3://bucket|aws s3 "ls|' bad.md
page_script bad.md; page_run
is "$? $(tail -n 1 tap)" "1 not ok - bad.md:17: 'aws s3 \"ls' fails as written: exit status 1" "a command for AWS that no shell can read is named"
tap_done
