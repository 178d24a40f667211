#!/bin/bash
# The commands of cluster-templates/trn1n-16-llama2-7b-cpt/TUTORIAL.md, as written: the twin that the page makes.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
long || skip_all "of the tutorials, the long list alone has this one"
tutorial trn1n-16-llama2-7b-cpt
tap_done
