# Sourced: kill all ranks of a job at $KILLS random moments while it saves at every step.  Each time
# the newest complete checkpoint must be no older than before, load, and in the end give the bits of
# a run that was never killed.
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
head -c 20000 jobs/data/pride_and_prejudice.txt >"$T/book.txt"
printf '%s\n' "[job]" "output_dir = $T/run" "[model]" "type = gpt2" "n_layer = 2" "n_head = 2" \
    "n_embd = 64" "block_size = 16" "[data]" "path = $T/book.txt" "split = 1" "batch_size = 4" \
    "[optimizer]" "lr = 1e-3" "[checkpoint]" "every_steps = 1" "keep = 2" >"$T/job.ini"

newest() { # its number, 0: none
    step=0
    for d in "$T"/run/step-*; do
        [ -e "$d/manifest.json" ] || continue
        i=${d##*/step-}
        i=${i%%.*}
        i=$(echo "$i" | sed 's/^0*//')
        [ "${i:-0}" -gt $step ] && step=$i
    done
    echo $step
}

type=SHARDED_STATE_DICT
before=0
lost=0
for kill in $(seq "$KILLS"); do
    rm -f "$T/.log"
    mpirun -n 2 "$STRETTO" train "$T/job.ini" job.max_steps=1000000 \
        checkpoint.state_dict_type=$type >"$T/.log" 2>&1 &
    launcher=$!
    i=0
    while [ $i -lt 600 ] && ! grep -qs '^saved ' "$T/.log"; do
        sleep 0.05
        i=$((i + 1))
    done
    sleep "$(od -An -N2 -tu2 /dev/urandom | awk '{ printf "%.3f", $1 / 65536 * 0.5 }')"
    # shellcheck disable=SC2046
    kill -KILL $(cat /proc/$launcher/task/*/children) $launcher 2>/dev/null
    wait $launcher 2>/dev/null
    now=$(newest)
    if [ "$now" -lt "$before" ] || grep -q '^stretto: ' "$T/.log"; then
        echo "# kill $kill: step $before before, $now after"
        sed 's/^/# /' "$T/.log" | tail -5
        lost=1
    fi
    before=$now
    [ $type = FULL_STATE_DICT ] && type=SHARDED_STATE_DICT || type=FULL_STATE_DICT
done
[ "$before" -lt "$KILLS" ] && lost=1
ok $lost "$KILLS times all ranks were killed during saves: no complete checkpoint was lost"
end=$((before + 3))
keys="job.max_steps=$end checkpoint.state_dict_type=FULL_STATE_DICT"
# shellcheck disable=SC2086
mpirun -n 2 "$STRETTO" train "$T/job.ini" $keys >"$T/.log" 2>&1
ok $? "the last of them goes on"
# shellcheck disable=SC2086
mpirun -n 2 "$STRETTO" train "$T/job.ini" $keys job.output_dir="$T/whole" \
    checkpoint.every_steps=0 >"$T/.log" 2>&1
step=$(printf 'step-%08d' $end)
cmp "$T/run/$step/full.h5" "$T/whole/$step/full.h5"
ok $? "to the bits of a run that was never killed"
[ "$(find "$T/run" -maxdepth 1 -name 'step-*' | wc -l)" = 2 ] && ! ls "$T/run" | grep -q tmp
ok $? "and what the kills left is tidied away"
done_testing
