#!/bin/sh
# Rates of checkpoints beside the tools that write the same bytes, in turns on one disk.
#
#   sh tests/bench/checkpoint.sh BUILD FOLDER convert   sharded to full and to safetensors, and cp
#   sh tests/bench/checkpoint.sh BUILD FOLDER save      full and sharded saves, and dd
#   sh tests/bench/checkpoint.sh BUILD FOLDER async     what a save behind ten steps costs them
#
# FOLDER is made and removed; ROUNDS (3) and LAYERS (12) are the environment's.  Prints every round
# and the medians.  Writes last until the disk has them (sync).
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/mpi_env.sh
stretto=$(cd "$1" && pwd)/stretto T=$2/bench what=$3
rounds=${ROUNDS:-3}
layers=${LAYERS:-12}
mkdir -p "$T" || exit 2
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
export OMP_WAIT_POLICY=passive

printf '%s\n' "[job]" "max_steps = 1" "output_dir = $T/run" "threads = 1" "[model]" "type = gpt2" \
    "n_layer = $layers" "n_head = 12" "n_embd = 768" "block_size = 64" "vocab_size = 50304" \
    "[data]" "path = jobs/data/pride_and_prejudice.txt" "split = 1" "batch_size = 1" \
    "[optimizer]" "lr = 1e-4" "[checkpoint]" "resume = never" "overwrite = true" >"$T/job.ini"

now() { date +%s.%N; }
# NAME COMMAND…: its seconds, until the disk has what it wrote, behind NAME in the table
timed() {
    name=$1
    shift
    sync
    start=$(now)
    "$@" >"$T/log" 2>&1 || { cat "$T/log" >&2; exit 1; }
    sync
    echo "$name $(now) $start" | awk '{ printf "%s %.3f\n", $1, $2 - $3 }' >>"$T/times"
}
median() { # NAME
    awk -v name="$1" '$1 == name { print $2 }' "$T/times" | sort -n |
        awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
report() { # BYTES BASE NAMES…: rates, and each one over that of BASE
    bytes=$1 base=$2
    shift 2
    sed 's/^/  /' "$T/times"
    for name in "$base" "$@"; do
        echo "$name $bytes $(median "$name") $(median "$base")" |
            awk '{ printf "%-12s %7.0f MB/s, %.2f of the first\n", $1, $2 / $3 / 1e6, $4 / $3 }'
    done
}

bench_convert() {
    mpirun -n 2 "$stretto" train "$T/job.ini" strategy.distributed_type=FSDP >"$T/log" 2>&1 ||
        { cat "$T/log" >&2; exit 1; }
    "$stretto" convert "$T/run" "$T/src" --to sharded --ranks 4 --weights_only >"$T/log"
    rm -rf "$T/run"
    for _ in $(seq "$rounds"); do
        timed cp cp -r "$T/src" "$T/out"
        rm -rf "$T/out"
        for to in full safetensors; do
            timed $to "$stretto" convert "$T/src" "$T/out" --to $to
            rm -rf "$T/out"
        done
    done
    report "$(du -sb "$T/src" | cut -f1)" cp full safetensors
}

# The program says how long a save took, until the disk had it.
bench_save() {
    bytes=0
    for _ in $(seq "$rounds"); do
        for type in FULL SHARDED; do
            sync
            mpirun -n 2 "$stretto" train "$T/job.ini" strategy.distributed_type=FSDP \
                checkpoint.state_dict_type=${type}_STATE_DICT >"$T/log" 2>&1 ||
                { cat "$T/log" >&2; exit 1; }
            sed -n "s/^saved .*(\(.*\) s)$/$type \1/p" "$T/log" >>"$T/times"
            bytes=$(du -sb "$T/run/step-00000001" | cut -f1)
            rm -rf "$T/run"
        done
        timed dd dd if=/dev/zero of="$T/dd" bs=1M count=$((bytes / 1048576)) conv=fsync
        rm "$T/dd"
    done
    report "$bytes" dd FULL SHARDED
}

# Of one run with a save every thirtieth step: the fifteen steps that a save goes on behind, and the
# fifteen that follow, when the disk is at rest.  Neighbours, so that a busy machine slows both.  A
# line a pair: what the save cost as a share of ten steps, and the seconds of ten.
step_pairs() {
    sed 's/.*"step":\([0-9]*\),.*"time_s":\([0-9.]*\).*/\1 \2/' "$T/run/metrics.jsonl" |
        awk '$1 % 30 == 15 { mid = $2 }
             $1 % 30 == 0 { if (mid && last) { rest = ($2 - mid) / 1.5
                                               print (mid - last) / rest - 1.5, rest }
                            last = $2 }'
}

# A save that is not over after fifteen steps would be counted as rest.
bench_async() {
    unset OMP_WAIT_POLICY # one process has the cores for itself
    cc -O2 -shared -fPIC -o "$T/slow_write.so" tests/bench/slow_write.c || exit 1
    for _ in $(seq "$rounds"); do
        rm -rf "$T/run"
        LD_PRELOAD=$T/slow_write.so SLOW_WRITE=${RATE:-100000000} \
            "$stretto" train "$T/job.ini" job.threads=auto job.max_steps=602 model.n_layer=2 \
            model.n_embd=256 model.n_head=4 model.vocab_size=4096 \
            data.batch_size="${BATCH:-8}" \
            checkpoint.every_steps=30 checkpoint.keep=1 >"$T/log" 2>&1 ||
            { cat "$T/log" >&2; exit 1; }
        step_pairs >>"$T/times"
        grep '^saved' "$T/log" | sed 's/.*(\(.*\) s)/\1/' >>"$T/saves"
    done
    grep '^save ' "$T/log"
    sort -n "$T/saves" | awk '{ x[NR] = $1 } END { printf "a save takes %.2f s, at most %.2f s\n",
        x[int((NR + 1) / 2)], x[NR] }'
    sort -n "$T/times" | awk '{ x[NR] = $1; rest += $2 }
        END { printf "ten steps take %.2f s, a save behind them costs %+.1f %% " \
                  "(median of %d pairs; quartiles %+.1f, %+.1f)\n", rest / NR,
                  100 * x[int((NR + 1) / 2)], NR, 100 * x[int((NR + 3) / 4)],
                  100 * x[int((3 * NR + 1) / 4)] }'
}

: >"$T/times"
case $what in
convert | save | async) "bench_$what" ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
