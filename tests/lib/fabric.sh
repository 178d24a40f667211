# Sourced after tap.sh by tests of collectives between processes of this machine.
#
#   $R  fabric-ranks, the ranks; each that ends with an error says "after SECONDS s: code ...: ..."
R=$TOOLS/fabric-ranks
export TERN_DEADLINE=20
unset TERN_RUN_SOCKET TERN_FABRIC_DUMP

# The longest that a rank took to its error.
slowest() { awk '$1 == "after" {if ($2 + 0 > m + 0 || m == "") m = $2} END {print m}' err; }
# Whether N ranks named RANK, a pattern, as the one that failed; their words are in ./err.
named() { [ "$(grep -cE "code 75: $2" err)" = "$1" ]; }
words() { ok $? "$1" || { echo "# status $rc"; sed 's/^/# /' err | head -40; }; }
