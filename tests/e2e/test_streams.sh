#!/bin/sh
# TIMEOUT: 120
# Standard input, output and error as a batch system may leave them: closed, full, or nobody's.
set -u
. tests/e2e/tap.sh
T=$TEST_TMP
printf '%s\n' "[job]" "max_steps = 200" "output_dir = $T/out" "log_every = 1" "threads = 1" \
    "[model]" "type = gpt2" "n_layer = 1" "n_head = 2" "n_embd = 16" "block_size = 16" "[data]" \
    "path = jobs/data/pride_and_prejudice.txt" "batch_size = 1" "[eval]" "batches = 1" \
    "[checkpoint]" "every_steps = 50" >"$T/job.ini"

# whole: what was written is what would have been written with all streams open
whole() { # NAME
    good=0
    [ "$(grep -c '^{"step":.*}$' "$T/out/metrics.jsonl")" = 200 ] || good=1
    [ "$(wc -l <"$T/out/metrics.jsonl")" = 200 ] || good=1
    "$STRETTO" verify "$T/out" >"$T/log" 2>&1 || good=1
    [ $good = 0 ] || head -3 "$T/out/metrics.jsonl" "$T/log" | sed 's/^/# /'
    ok $good "$1"
    rm -rf "$T/out"
}

"$STRETTO" train "$T/job.ini" >&-
ok $? "training with standard output closed"
whole "and no line of the log is in a file"
"$STRETTO" train "$T/job.ini" <&- >&- 2>&-
ok $? "training with all three closed"
whole "and nothing of them is in a file"
env -i "$STRETTO" train "$T/job.ini" job.max_steps=2 >"$T/log" 2>&1
ok $? "training without an environment"

if [ -w /dev/full ]; then
    "$STRETTO" inspect "$T/out" >/dev/full 2>"$T/err"
    status=$?
    [ $status = 4 ] && grep -q "^stretto: error: standard output could not be written" "$T/err"
    ok $? "a full disk behind standard output is status 4"
else
    n=$((n + 1))
    echo "ok $n - a full disk behind standard output # SKIP no /dev/full"
fi
done_testing
