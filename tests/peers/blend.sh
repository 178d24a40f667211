#!/bin/bash
# tern ckpt blend beside mergekit 0.1.5, on models of two layers with grouped queries: within 1e-6 in F32; of dare the
# arithmetic when mergekit is given tern's choice of elements, and the share of those that stay.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
if ! venv trainers 'torch, transformers' torch transformers accelerate lightning rich tensorboardX ||
    ! venv trainers 'mergekit.merge' --no-deps mergekit==0.1.5 immutables ||
    ! venv trainers 'peft' --no-deps peft; then
    skip_all "no mergekit: it is not there and cannot be installed"
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=1
cp "$ROOT/tests/peers/blend.py" . # away from token.py beside it
py() { "$VENV/bin/python" "$WORK/blend.py" "$@" 2>log; }
py make || { cat log; exit 1; }
echo "# mergekit $("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("mergekit"), "torch", m.version("torch"))')"
asks() {
    cat <<'E'
linear|one two base -w 0.7,0.45,-0.1
sum|one two -w 0.7,0.3 --normalize no
slerp|one two -m slerp -t 0.35
apart|one far -m slerp -t 0.35
ties|one two three -m ties --base base -w 1,0.6,0.8 --density 0.3,0.55,1
ties-sum|one two -m ties --base base -w 0.5 --density 0.2 --normalize no --lambda 0.7 --int8-mask
dare_linear|one two -m dare_linear --base base -w 0.6,0.5 --density 0.4,0.7 --seed 11
dare_ties|one two three -m dare_ties --base base -w 0.6,0.5,1 --density 0.4,0.7,0.9 --normalize yes --lambda 1.2 --seed 11
dare_plain|one two -m dare_linear --base base -w 0.6,0.5 --density 0.4,0.7 --rescale no --normalize yes --seed 11
E
}
for heads in two tied; do
    [ $heads = two ] || cd tied || exit 1
    while IFS='|' read -r name args; do
        # shellcheck disable=SC2086
        tern ckpt blend $args -o $name.tern 2>err || cat err
        py compare $name >got || { cat got log; }
        sed 's/^/# /' got
        grep -q '^difference .* equal$' got; ok $? "$name, heads $heads: the blend is mergekit's within 1e-6"
        case $name in dare*)
            grep -q '^kept .*within$' got && ! grep -q '^kept .*beyond$' got; ok $? "$name, heads $heads: the share that stays is within 3 sigma" ;;
        esac
    done < <(asks)
done
tap_done
