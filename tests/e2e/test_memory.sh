#!/bin/sh
# LONG
# TIMEOUT: 3000
# The plan's bytes against the kernel's count, GPT-2 124M under every strategy on 1, 2, 4, 8 ranks:
# a short sequence, since eight copies have to fit.  MEMORY_RANKS="2 4": only these.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
# A checkpoint of 1.4 GB a run is no business of a disk, if memory has room for one
OUT=$T
if [ "$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')" -gt 6000 ]; then
    OUT=$(mktemp -d /dev/shm/stretto-XXXXXX) || exit 2
    trap 'rm -rf "$OUT"' EXIT
    trap 'exit 130' INT TERM
fi
printf '%s\n' "[job]" "max_steps = 2" "output_dir = $OUT/run" "[model]" "type = gpt2" \
    "n_layer = 12" "n_head = 12" "n_embd = 768" "block_size = 64" "vocab_size = 50304" "[data]" \
    "path = jobs/data/pride_and_prejudice.txt" "split = 1" "batch_size = 1" "[checkpoint]" \
    "resume = never" "overwrite = true" "[plugin.f]" "type = fsdp" "[plugin.d]" \
    "type = deepspeed" >"$T/job.ini"

key=plugin.d.zero_optimization.offload_optimizer
disk="$key.device=nvme $key.nvme_path=$T"
z="strategy.plugin=d plugin.d.zero_optimization.stage"
f="strategy.plugin=f plugin.f.fsdp_sharding_strategy"
keep=plugin.f.fsdp_reshard_after_forward
bf16=strategy.mixed_precision=bf16

# Every row of the strategy table, and what changes what a row holds
rows() { # RANKS
    [ "$1" = 1 ] && echo strategy.distributed_type=NO
    echo strategy.distributed_type=MULTI_CPU
    for stage in 0 1 2 3; do echo "$z=$stage"; done
    for s in FULL_SHARD SHARD_GRAD_OP NO_SHARD; do echo "$f=$s"; done
    if [ "$1" -gt 1 ]; then
        half=plugin.f.dp_shard_size=$(($1 / 2))
        echo "$f=HYBRID_SHARD $half"
        echo "$f=HYBRID_SHARD_ZERO2 $half"
        for how in node_memory=false unshard_copies=rank; do
            echo "$f=FULL_SHARD strategy.$how"
            [ "$1" -gt 2 ] && echo "$f=FULL_SHARD strategy.$how $keep=2"
            echo "$z=2 strategy.$how"
        done
    fi
    echo "$bf16 strategy.distributed_type=MULTI_CPU"
    echo "$bf16 $f=FULL_SHARD"
    echo "$bf16 $f=SHARD_GRAD_OP"
    echo "$z=2 $disk"
    echo "$z=3 $disk"
}

# "1.91 GiB" as bytes
units='function bytes(n, unit) {
    return n * (unit == "GiB" ? 1073741824 : unit == "MiB" ? 1048576 : unit == "KiB" ? 1024 : 1)
}'

# Of a run's log: bytes of a rank at the peak and as planned, and of the node
measured() { # LOG
    awk "$units"'
        /^memory .* a rank/ { peak = bytes($2, $3); plan = bytes($(NF - 2), $(NF - 1)) }
        /^memory .* shared/ { used = bytes($2, $3); node = bytes($(NF - 2), $(NF - 1)) }
        END { printf "%.0f %.0f %.0f %.0f\n", peak, plan, used, node }' "$1"
}

# What stretto plan says of the same job: of a rank the model state, and of the whole node
planned() { # RANKS OVERRIDES…
    n=$1
    shift
    "$STRETTO" plan "$T/job.ini" --ranks "$n" "$@" | awk "$units"'
        function column(name) { return bytes($(2 * at[name] + 1), $(2 * at[name] + 2)) }
        /bytes of one rank/ { for (i = 5; i <= NF; i++) at[$i] = i - 4 }
        /^\*/ { printf "%.0f %.0f\n", column("master") + column("gradients") + column("moments"),
                       column("node") }'
}

full_1=0 # model state of FULL_SHARD on one rank
for ranks in ${MEMORY_RANKS:-1 2 4 8}; do
    rows "$ranks" >"$T/rows"
    while read -r keys; do
        rm -rf "$OUT/run"
        # shellcheck disable=SC2086
        mpirun -n $ranks "$STRETTO" train "$T/job.ini" $keys >"$T/.log" 2>&1 </dev/null
        status=$?
        # shellcheck disable=SC2086
        figures="$(measured "$T/.log") $(planned $ranks $keys)"
        # each group of a hybrid strategy has node memory of its own
        group=$(echo "$keys" | sed -n 's/.*dp_shard_size=\([0-9]*\).*/\1/p')
        disk_too=$(echo "$keys" | grep -c nvme)
        echo "$figures" | awk -v ranks="$ranks" -v group="${group:-$ranks}" -v disk="$disk_too" '{
            all = ranks * $1 + ranks / group * $3
            printf "%.0f MiB a rank, %.0f planned; %.0f MiB a node, %.0f planned (x %.3f)",
                   $1 / 1048576, $2 / 1048576, all / 1048576, $6 / 1048576, all / ($6 + 1)
            bad = $2 == 0 || $1 > 1.05 * $2 || $1 < 0.95 * $2
            bad = bad || all > 1.05 * $6 || all < 0.95 * $6 || $3 > 1.01 * $4 || $3 < 0.99 * $4
            exit bad || (disk && $1 > $2) }' >"$T/words"
        good=$?
        [ $status = 0 ] || sed 's/^/# /' "$T/.log"
        ok $((good + status)) "$ranks ranks, $(echo "$keys" | sed "s|$T|…|"): $(cat "$T/words")"
        [ "$keys" = "$f=FULL_SHARD" ] || continue
        # what was measured beside all that is no model state
        state=$(echo "$figures" | awk '{ printf "%.0f", $1 - ($2 - $5) }')
        [ "$ranks" = 1 ] && full_1=$state
        [ "$full_1" != 0 ] || continue
        awk -v state="$state" -v ranks="$ranks" -v one="$full_1" 'BEGIN {
            printf "%.0f MiB a rank", state / 1048576
            exit !(one > 0 && state * ranks > 0.95 * one && state * ranks < 1.05 * one) }' \
            >"$T/words"
        ok $? "$ranks ranks: FULL_SHARD's model state is 1/$ranks: $(cat "$T/words")"
    done <"$T/rows"
done

# Moments and master weights on disk: within the plan, and the bits of a run in memory
for how in memory disk; do
    more=
    [ $how = disk ] && more=$disk
    # shellcheck disable=SC2086
    mpirun -n 2 "$STRETTO" train "$T/job.ini" $z=2 $more job.output_dir="$OUT/$how" >"$T/.log" 2>&1
    sed 's/,"time_s":[^,}]*//' "$OUT/$how/metrics.jsonl" >"$T/$how.losses"
done
[ -s "$T/disk.losses" ] && cmp -s "$T/memory.losses" "$T/disk.losses"
ok $? "on disk: losses and norms of a run in memory, bit for bit"
"$STRETTO" inspect "$OUT/memory" --diff "$OUT/disk" >"$T/diff" 2>&1
grep -q '^[1-9][0-9]* tensors bitwise equal, 0 equal as numbers, 0 differ, 0 in one' "$T/diff"
ok $? "on disk: weights and moments, bit for bit"
done_testing
