#!/bin/sh
# LONG
# TIMEOUT: 1500
# The plan's bytes against the kernel's count, GPT-2 124M under every kind of strategy.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
printf '%s\n' "[job]" "max_steps = 2" "output_dir = $T/run" "[model]" "type = gpt2" \
    "n_layer = 12" "n_head = 12" "n_embd = 768" "block_size = 64" "vocab_size = 50304" "[data]" \
    "path = jobs/data/pride_and_prejudice.txt" "split = 1" "batch_size = 1" "[checkpoint]" \
    "resume = never" "overwrite = true" "[plugin.f]" "type = fsdp" "[plugin.d]" \
    "type = deepspeed" >"$T/job.ini"

key=plugin.d.zero_optimization.offload_optimizer
disk="$key.device=nvme $key.nvme_path=$T"

bytes() { # "1.91 GiB" as bytes
    echo "$1" | awk '{ u["B"] = 1; u["KiB"] = 1024; u["MiB"] = 1048576; u["GiB"] = 1073741824
                       printf "%.0f", $1 * u[$2] }'
}

for ranks in 1 2 4; do
    for keys in "plugin=d plugin.d.zero_optimization.stage=0" \
        "plugin=d plugin.d.zero_optimization.stage=1" \
        "plugin=d plugin.d.zero_optimization.stage=2" \
        "plugin=f plugin.f.fsdp_sharding_strategy=SHARD_GRAD_OP" \
        "plugin=f plugin.f.fsdp_sharding_strategy=FULL_SHARD" \
        "plugin=d plugin.d.zero_optimization.stage=2 $disk" \
        "mixed_precision=bf16 plugin=f plugin.f.fsdp_sharding_strategy=FULL_SHARD"; do
        overrides=$(echo "$keys" | sed 's/\([^ ]*=\)/strategy.\1/g
            s/strategy\.plugin\.\([fd]\)/plugin.\1/g')
        rm -rf "$T/run"
        # shellcheck disable=SC2086
        mpirun -n $ranks "$STRETTO" train "$T/job.ini" $overrides >"$T/.log" 2>&1
        line=$(grep '^memory .* a rank' "$T/.log")
        peak=$(bytes "$(echo "$line" | sed 's/memory *\(.*\) a rank.*/\1/')")
        plan=$(bytes "$(echo "$line" | sed 's/.*peak, \(.*\) planned/\1/')")
        awk -v a="${peak:-0}" -v b="${plan:-0}" \
            'BEGIN { exit !(b > 0 && a < 1.05 * b && a > 0.9 * b) }'
        ok $? "$ranks ranks, $keys: $line"
    done
done
done_testing
