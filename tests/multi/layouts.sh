#!/bin/bash
# Every parallel layout gives the one-rank curve, in double to 1e-9 and in float to 1e-4; one layout
# gives the same bits again; a checkpoint of any loads into any other.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/layouts.sh"
steps=$(long && echo 50 || echo 6)
layouts_make "$steps" || echo "Bail out! no setting"

same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1
+ 1 parallel.recompute=full
+ 2 parallel.tensor=2
2 parallel.pipeline=2 parallel.interleave=3
+ 3 parallel.zero=1
4 parallel.tensor=2 parallel.sequence=true parallel.recompute=selective
+ 4 parallel.pipeline=4 parallel.interleave=2 parallel.recompute=full
+ 6 parallel.tensor=2 parallel.pipeline=3 parallel.zero=1
+ 3 parallel.pipeline=3 parallel.interleave=3
+ 8 parallel.tensor=8 parallel.sequence=true
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.interleave=2 parallel.recompute=full
L
cp one together

# Documents that do not see each other.
same_curve train-ranks-f64 1e-9 "$steps" <<'L'
1 data.isolate=true
4 data.isolate=true parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true parallel.recompute=selective
L
[ -s one ] && ! cmp -s one together; ok $? "isolated documents have other losses"

same_curve train-ranks 1e-4 "$steps" <<'L'
1
+ 2 parallel.tensor=2 parallel.sequence=true
+ 3 parallel.pipeline=3 parallel.recompute=selective
+ 4 parallel.zero=1
8 parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.recompute=full
L
mixed="parallel.tensor=2 parallel.pipeline=2 parallel.zero=1 parallel.sequence=true parallel.recompute=full"
cp out before; tiny_digests >digests
train 8 $mixed
cmp -s before out && tiny_digests | cmp -s - digests && [ -s digests ]
ok $? "8 ranks, all at once: the same bits again"

# Stopped and gone on with in another layout, in the long form twice: the same curve.
constant_lr
program=train-ranks-f64
at=$((steps / 3)) then=$((steps * 2 / 3))
train 1; cp out one
train 8 $mixed steps=$at; cp out parts
if long; then more 3 parallel.zero=1 steps=$then >>parts; fi
more 6 parallel.tensor=2 parallel.pipeline=3 parallel.interleave=2 >>parts
d=$(difference one parts "$steps")
within "$d" 1e-9; ok $? "a run that changes its layout after $at $(long && echo "and $then ")steps: the same losses ($d)"

# What cannot be is refused before anything is computed.
train 3 parallel.tensor=3 >refused 2>&1; rc=$?
[ $rc != 0 ] && grep -q 'heads do not divide over 3' err && [ ! -s out ]; ok $? "3 tensor ranks for 8 heads are refused"
tap_done
