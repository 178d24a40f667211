#!/bin/bash
# The commands of cluster-templates/trn1-4-llama2-7b-zero1/TUTORIAL.md, as written: the twin that the page makes.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
long || skip_all "of the tutorials, the long list alone has this one"
tutorial trn1-4-llama2-7b-zero1
tap_done
