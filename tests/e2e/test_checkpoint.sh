#!/bin/sh
# Types of checkpoints, what resumes where, which are kept, what is refused, and saves that fail
# behind the training.  mpirun takes two seconds to end where ranks end with an error, so what is
# refused whatever the ranks is refused to one.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
head -c 20000 jobs/data/pride_and_prejudice.txt >"$T/book.txt"
job() { # FILE KEY-LINES of [checkpoint]…
    file=$1
    shift
    printf '%s\n' "[job]" "max_steps = 12" "output_dir = $T/run" "[model]" "type = gpt2" \
        "n_layer = 1" "n_head = 2" "n_embd = 32" "block_size = 16" "[data]" \
        "path = $T/book.txt" "batch_size = 4" "[eval]" "every_steps = 3" "[optimizer]" \
        "lr = 1e-3" "[strategy]" "distributed_type = FSDP" "[plugin]" "type = fsdp" \
        "[checkpoint]" "every_steps = 4" "$@" >"$T/$file"
}
train() { # RANKS KEYS…
    run="mpirun -n $1"
    [ "$1" = 1 ] && run=
    shift
    # shellcheck disable=SC2086
    timeout 120 $run "$STRETTO" train "$T/job.ini" "$@" >"$T/.log" 2>&1
    status=$?
}
said() {
    grep -q -- "$1" "$T/.log"
}
sum_of() { # of all files of a folder
    find "$1" -type f | sort | xargs cat | cksum
}

job job.ini
train 2
[ $status = 0 ] && said "save     in the background: 2 snapshots" &&
    [ -e "$T/run/step-00000008/shard-00001-of-00002.h5" ]
ok $? "FSDP writes a file a rank, behind the training, and says so"
cp -r "$T/run" "$T/kept"
train 2 checkpoint.async=false checkpoint.final_state_dict_type=FULL_STATE_DICT \
    job.output_dir="$T/other"
said "save     while training waits" && [ -e "$T/other/step-00000008/shard-00001-of-00002.h5" ] &&
    [ -e "$T/other/step-00000012/full.h5" ]
ok $? "async = false waits; final_state_dict_type is that of the last alone"
same=0
for f in shard-00000-of-00002.h5 shard-00001-of-00002.h5; do
    cmp -s "$T/run/step-00000008/$f" "$T/other/step-00000008/$f" || same=1
done
ok $same "what is written behind the training is what was there when it was asked for"

# a damaged set of shards: status 3, and nothing is overwritten
step=$T/run/step-00000012
before=$(sum_of "$T/run")
mv "$step/shard-00001-of-00002.h5" "$T/aside"
refused "a missing shard" 3 "shard-00001-of-00002.h5 is missing" \
    mpirun -n 2 "$STRETTO" train "$T/job.ini" job.max_steps=14
cp "$T/run/step-00000008/shard-00001-of-00002.h5" "$step"
refused "a shard of another step" 3 "shard-00001-of-00002.h5" \
    "$STRETTO" train "$T/job.ini" job.max_steps=14
cp "$T/aside" "$step/shard-00001-of-00002.h5"
cp "$T/aside" "$step/shard-00002-of-00003.h5"
refused "a shard too many" 3 "shard-00002-of-00003.h5 is not of this checkpoint" \
    "$STRETTO" train "$T/job.ini" job.max_steps=14
rm "$step/shard-00002-of-00003.h5"
printf x | dd of="$step/shard-00000-of-00002.h5" bs=1 seek=70000 conv=notrunc 2>/dev/null
refused "a damaged shard" 3 "checksum is wrong" "$STRETTO" train "$T/job.ini" job.max_steps=14
cp "$T/kept/step-00000012/shard-00000-of-00002.h5" "$step"
[ "$(sum_of "$T/run")" = "$before" ]
ok $? "and nothing of the run has been overwritten"
mv "$step/manifest.json" "$T/manifest"
refused "a step without its manifest" 3 "its save was not finished" "$STRETTO" inspect "$step"
mv "$T/manifest" "$step/manifest.json"

# other ranks, other strategy, and the local type that stays where it is
train 3 job.max_steps=14 strategy.distributed_type=MULTI_CPU
[ $status = 0 ] && said "resume" && [ -e "$T/run/step-00000014/full.h5" ]
ok $? "sharded by two ranks, resumed by three as DDP, which writes one file"
train 2 checkpoint.state_dict_type=LOCAL_STATE_DICT job.output_dir="$T/local"
[ $status = 0 ] && [ -e "$T/local/step-00000012/shard-00000-of-00002.h5" ]
ok $? "LOCAL_STATE_DICT"
before=$(sum_of "$T/local")
for run in "" "mpirun -n 3"; do
    # shellcheck disable=SC2086
    refused "a local one on other ranks: ${run:-alone}" 3 \
        "a LOCAL_STATE_DICT of 2 ranks under FULL_SHARD" \
        $run "$STRETTO" train "$T/job.ini" job.output_dir="$T/local" job.max_steps=14
done
refused "or in other units" 3 "LOCAL_STATE_DICT" mpirun -n 2 "$STRETTO" train "$T/job.ini" \
    job.output_dir="$T/local" job.max_steps=14 plugin.fsdp_auto_wrap_policy=NO_WRAP
[ "$(sum_of "$T/local")" = "$before" ]
ok $? "leaves it as it was"
train 2 job.output_dir="$T/local" job.max_steps=14 checkpoint.final_state_dict_type=FULL_STATE_DICT
train 2 job.output_dir="$T/other" job.max_steps=14 checkpoint.final_state_dict_type=FULL_STATE_DICT
cmp "$T/local/step-00000014/full.h5" "$T/other/step-00000014/full.h5"
ok $? "where it was written it goes on, to the bits of the other types"

# a file a node: here all ranks are on one
train 3 checkpoint.shard_files=node job.output_dir="$T/node" job.max_steps=4
[ $status = 0 ] && [ -e "$T/node/latest/shard-00000-of-00001.h5" ] &&
    "$STRETTO" verify "$T/node" >"$T/.log" 2>&1
ok $? "shard_files = node: one file for three ranks"

# one thing said twice
job twice.ini "state_dict_type = FULL_STATE_DICT"
sed -i 's/^type = fsdp/type = fsdp\nfsdp_state_dict_type = LOCAL_STATE_DICT/' "$T/twice.ini"
refused "two types for one checkpoint name both lines" 2 "twice.ini:2" \
    "$STRETTO" train "$T/twice.ini"
job typo.ini "state_dict_type = SHARD_STATE_DICT"
refused "a type that is none lists those there are" 2 "SHARDED_STATE_DICT" "$STRETTO" check \
    "$T/typo.ini"

# which stay: the newest, every sixth, the best
job job.ini "keep = 1" "keep_every = 6" "save_best = true"
sed -i 's/^every_steps = 4/every_steps = 2/' "$T/job.ini"
rm -rf "$T/run"
train 1
best=$(readlink "$T/run/best")
[ $status = 0 ] && [ -d "$T/run/step-00000006" ] && [ -d "$T/run/step-00000012" ] &&
    [ ! -d "$T/run/step-00000010" ] && [ -d "$T/run/$best" ] &&
    [ "$(find "$T/run" -name 'step-*' | wc -l)" = 2 ]
ok $? "keep, keep_every"
train 1 job.max_steps=15 optimizer.lr=1
[ $status = 0 ] && [ "$(readlink "$T/run/best")" = "$best" ] && [ -d "$T/run/$best" ]
ok $? "a run that gets worse keeps its best, over a resume"

# a folder that may not be written, a disk that fills up
job job.ini
sed -i 's/^every_steps = 4/every_steps = 1/' "$T/job.ini"
mkdir "$T/disk"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1700k none "$T/disk" 2>/dev/null; then
    rm -rf "$T/run"
    keys="job.output_dir=$T/disk/run checkpoint.state_dict_type=SHARDED_STATE_DICT"
    # shellcheck disable=SC2086
    train 2 $keys checkpoint.on_save_error=continue
    complete=$("$STRETTO" inspect "$T/disk/run" 2>/dev/null | sed -n 's/^step  *//p')
    [ $status = 0 ] && said "warning: not saved, going on" && said "^step 12/12" &&
        [ "${complete:-0}" -ge 1 ] && ! ls "$T/disk/run" | grep -q tmp
    ok $? "a full disk, on_save_error = continue: warnings, and older checkpoints are whole"
    rm -r "$T/disk/run"
    # shellcheck disable=SC2086
    train 1 $keys
    [ $status = 4 ] && [ "$(grep -c '^stretto: error: ' "$T/.log")" = 1 ] &&
        "$STRETTO" inspect "$T/disk/run" >"$T/a" 2>&1
    ok $? "stop: one line, status 4, the older checkpoints are whole"
    mount -o remount,ro "$T/disk" 2>/dev/null
    # shellcheck disable=SC2086
    refused "a folder that may only be read" 3 "$T/disk" "$STRETTO" train "$T/job.ini" $keys
    umount "$T/disk"
else
    n=$((n + 1)); echo "ok $n - disks # SKIP needs a mount"
fi

# a rank that fails behind the training
if [ -n "${STRETTO_FAULTS:-}" ]; then
    rm -rf "$T/run"
    export STRETTO_FAULT=1:ckpt.write:fail
    timeout 120 mpirun -x STRETTO_FAULT -n 3 "$STRETTO_FAULTS" train "$T/job.ini" >"$T/.log" 2>&1
    [ $? = 4 ] && [ "$(grep -c '^stretto: error: .*fault injected on rank 1' "$T/.log")" = 1 ]
    ok $? "rank 1 fails behind the training: an error on all ranks at a later step"
    timeout 120 mpirun -x STRETTO_FAULT -n 3 "$STRETTO_FAULTS" train "$T/job.ini" \
        checkpoint.on_save_error=continue >"$T/.log" 2>&1
    [ $? = 0 ] && [ "$(grep -c 'warning: not saved, going on' "$T/.log")" -ge 3 ]
    ok $? "or warnings, and the run ends"
    unset STRETTO_FAULT
else
    n=$((n + 1)); echo "ok $n - faults # SKIP no build with faults"
fi
done_testing
