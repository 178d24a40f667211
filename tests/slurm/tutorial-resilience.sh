#!/bin/bash
# The commands of cluster-templates/resilience/TUTORIAL.md, as written: a virtual node loses its power while the twin
# trains, which the page makes.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
long || skip_all "of the tutorials, the long list alone has this one"
tutorial resilience
tap_done
