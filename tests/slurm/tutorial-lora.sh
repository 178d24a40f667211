#!/bin/bash
# The commands of cluster-templates/llama3-8b-lora/TUTORIAL.md, as written, with stand-ins of what the page fetches.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/tutorial.sh"
tutorial llama3-8b-lora
weights() { sha256sum <"home/lora/$1/model.safetensors"; }
[ -s home/lora/merged/model.safetensors ] && [ "$(weights merged)" != "$(weights llama3-8B)" ]; ok $? "the page's merged model is another than its base"
tap_done
