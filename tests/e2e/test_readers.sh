#!/bin/sh
# inspect, verify, convert and eval beside a run that saves at every step and keeps one checkpoint.
set -u
. tests/e2e/tap.sh
T=$TEST_TMP
export OMP_NUM_THREADS=1
head -c 20000 jobs/data/pride_and_prejudice.txt >"$T/book.txt"
printf '%s\n' "[job]" "max_steps = 1000000" "output_dir = $T/run" "[model]" "type = gpt2" \
    "n_layer = 1" "n_head = 2" "n_embd = 32" "block_size = 16" "[data]" "path = $T/book.txt" \
    "batch_size = 1" "[eval]" "batches = 1" "[checkpoint]" "every_steps = 1" "keep = 1" \
    "state_dict_type = SHARDED_STATE_DICT" >"$T/job.ini"
"$STRETTO" train "$T/job.ini" >"$T/train.log" 2>&1 &
trainer=$!
trap 'kill -KILL $trainer 2>/dev/null' EXIT
i=0
while [ $i -lt 600 ] && ! [ -e "$T/run/latest" ]; do
    sleep 0.05
    i=$((i + 1))
done
for command in "inspect $T/run" "inspect $T/run/latest" "verify $T/run" "verify $T/run/latest" \
    "eval $T/run/latest" "convert $T/run/latest $T/out --to full --overwrite"; do
    failed=0
    i=0
    while [ $i -lt 8 ] && [ $failed = 0 ]; do
        # shellcheck disable=SC2086
        "$STRETTO" $command >"$T/.log" 2>&1 || failed=1
        grep -q "^bad" "$T/.log" && failed=1
        i=$((i + 1))
    done
    [ $failed = 0 ] || sed 's/^/# /' "$T/.log" | head
    ok $failed "${command%% *}: 8 times beside a run with keep = 1"
done
kill -0 $trainer 2>/dev/null && ! grep -q '^stretto: ' "$T/train.log"
ok $? "and the run goes on"
done_testing
