#!/bin/sh
# A key that does nothing beside the others says so in one line; one that acts says nothing.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
printf '%s\n' "[job]" "max_steps = 4" "output_dir = $T/out" "[model]" "type = gpt2" \
    "n_layer = 1" "n_head = 2" "n_embd = 16" "block_size = 16" "[data]" \
    "path = jobs/data/pride_and_prejudice.txt" "[plugin.f]" "type = fsdp" >"$T/job.ini"

notes() { # OVERRIDES…: the notes of a job on two ranks
    "$STRETTO" check "$T/job.ini" --ranks 2 "$@" 2>&1 | grep -E '^(note|stretto): '
}
idle() { # WHY SECTION.KEY=VALUE [OVERRIDES…]: the key is idle, and alone
    why=$1 key=${2%%=*}
    shift
    notes "$@" | grep -v rests >"$T/notes"
    [ "$(wc -l <"$T/notes")" = 1 ] && grep -qF "${key##*.} has no effect: $why" "$T/notes"
    good=$?
    [ $good = 0 ] || sed 's/^/# /' "$T/notes"
    ok $good "$key is idle: $why"
}
acts() { # OVERRIDES…
    notes "$@" | grep -v rests >"$T/notes"
    [ ! -s "$T/notes" ]
    good=$?
    [ $good = 0 ] || sed 's/^/# /' "$T/notes"
    ok $good "nothing is said of $1 where it acts"
}

idle "profile is false" job.profile_steps="2, 3"
acts job.profile_steps="2, 3" job.profile=true
idle "mixed_precision is not fp16" strategy.fp16.hysteresis=3
acts strategy.fp16.hysteresis=3 strategy.mixed_precision=fp16
idle "activation_checkpointing is false" strategy.activation_checkpointing_every=2
idle "comm_hook is not power_sgd" strategy.comm_state_option.matrix_approximation_rank=4
acts strategy.comm_state_option.matrix_approximation_rank=4 strategy.comm_hook=power_sgd
idle "node_memory is false" strategy.unshard_copies=rank strategy.node_memory=false
acts strategy.unshard_copies=rank
idle "sample_every is 0" eval.sample_tokens=9
acts eval.sample_tokens=9 eval.sample_every=1
idle "resume is not never" checkpoint.overwrite=true
acts checkpoint.overwrite=true checkpoint.resume=never
idle "keep is 0" checkpoint.keep_every=2
acts checkpoint.keep_every=2 checkpoint.keep=1
idle "only the last step is saved" checkpoint.async=true
acts checkpoint.async=true checkpoint.every_steps=1
idle "it belongs to fsdp_auto_wrap_policy = SIZE_BASED_WRAP" plugin.f.fsdp_min_num_params=9 \
    strategy.plugin=f
acts plugin.f.fsdp_min_num_params=9 plugin.f.fsdp_auto_wrap_policy=SIZE_BASED_WRAP \
    strategy.plugin=f
idle "it belongs to HYBRID_SHARD" plugin.f.dp_shard_size=2 strategy.plugin=f
acts plugin.f.dp_shard_size=2 plugin.f.fsdp_sharding_strategy=HYBRID_SHARD strategy.plugin=f
idle "it belongs to fsdp_auto_wrap_policy = TRANSFORMER_BASED_WRAP" \
    plugin.f.fsdp_transformer_layer_cls_to_wrap=Block plugin.f.fsdp_auto_wrap_policy=NO_WRAP \
    strategy.plugin=f

# Weights that are kept for backward: what is not as the key says
kept() { # NAME WORDS OVERRIDES…: on four ranks of one node; WORDS "": nothing is said
    name=$1 words=$2
    shift 2
    rm -rf "$T/out"
    mpirun -n 4 "$STRETTO" train "$T/job.ini" strategy.plugin=f "$@" >"$T/.log" 2>&1
    status=$?
    grep '^note: ' "$T/.log" | grep -v rests >"$T/notes"
    grep -qF "$words" "$T/notes" || [ -z "$words" ] && [ "$(wc -l <"$T/notes")" -le 1 ]
    good=$?
    [ -n "$words" ] || [ ! -s "$T/notes" ] || good=1
    [ $((good + status)) = 0 ] || sed 's/^/# /' "$T/.log"
    ok $((good + status)) "$name"
}
key=plugin.f.fsdp_reshard_after_forward
kept "one node has gathered weights once" "has no effect: the 4 ranks that share" $key=2
kept "a copy a rank: kept" "" $key=2 strategy.unshard_copies=rank
kept "messages: kept" "" $key=2 strategy.node_memory=false
kept "all ranks" "has no effect: it is all ranks that share the model" $key=4
kept "every rank" "fsdp_reshard_after_forward = 1 keeps weights whole until backward" $key=1
done_testing
