#!/bin/bash
# The commands of cluster-templates/llama2-70b-nxd/TUTORIAL.md, as written, with stand-ins of what the page fetches.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
long || skip_all "of the tutorials, the long list alone has this one"
tutorial llama2-70b-nxd
run "$TOOLS/ckpt-tool" same home/llama2-70b/Llama-2-70b-hf home/llama2-70b/out-hf; status 0 "weights that the stand-in did not train come back from 64 ranks as they were"
tap_done
