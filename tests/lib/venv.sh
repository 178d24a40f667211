# Sourced by tests of peers that come from PyPI.
#
# venv NAME 'MODULE, MODULE' PACKAGE...: $VENV is a virtual environment that can import the modules,
# outside the tree and kept for the next run; made, and the packages put in, where it is not there.
# PYTHON is what makes it; VENV_WITH its options.  Fails where it cannot be had.
venv() {
    VENV=${TMPDIR:-/tmp}/tern-peers-$1-$(id -u)
    local modules=$2
    shift 2
    "$VENV/bin/python" -c "import $modules" 2>/dev/null && return
    "${PYTHON:-python3}" -m venv ${VENV_WITH-} "$VENV" >/dev/null 2>&1 &&
        "$VENV/bin/pip" install -q --disable-pip-version-check "$@" >/dev/null 2>&1
    "$VENV/bin/python" -c "import $modules" 2>/dev/null
}

# The libraries that tokenizers are compared with (tests/peers/tokenizers.txt), in the versions named
# there.
venv_tokenizers() {
    local list=${BASH_SOURCE[0]%/*}/../peers/tokenizers.txt
    venv "tokenizers-$(sed '/^#/d' "$list" | cksum | cut -d' ' -f1)" \
        'gigatoken, google.protobuf, regex, sentencepiece, tiktoken, tokenizers, transformers' -r "$list"
}
