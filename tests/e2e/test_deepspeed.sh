#!/bin/sh
# The student and teacher of accelerate's guide, as job files: they train, and give DDP's bits.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP

losses() { # FOLDER: what a strategy may not change
    sed 's/,"time_s":[^,}]*//' "$1/metrics.jsonl"
}

# shellcheck disable=SC2086
run() { # NAME FOLDER OVERRIDES…: a small model, four steps
    name=$1 out=$2
    shift 2
    small="job.max_steps=4 model.n_layer=2 model.n_embd=32 model.block_size=16"
    mpirun -n 2 "$STRETTO" train jobs/"$name".ini $small job.output_dir="$T/$out" "$@" \
        >"$T/$out.log" 2>&1
}

for name in student teacher; do
    run $name $name
    ok $? "the $name trains on two ranks"
    run $name $name-ddp plugin.$name.zero_optimization.stage=0 \
        plugin.$name.zero_optimization.offload_optimizer.device=none
    losses "$T/$name" >"$T/a"
    losses "$T/$name-ddp" >"$T/b"
    [ -s "$T/a" ] && cmp -s "$T/a" "$T/b"
    ok $? "the $name's losses and norms are DDP's, bit for bit"
done
grep -q "student: ZERO_2" "$T/student.log" && grep -q "teacher: ZERO_3" "$T/teacher.log"
ok $? "stages 2 and 3"
[ "$(grep -c 'offload_optimizer.device = cpu has no effect on CPUs' "$T/student.log")" = 1 ]
ok $? "the optimizer on the CPU is where it is in any case, in one line"
sed -n '1s/.*"lr":\([^,]*\),.*/\1/p' "$T/student/metrics.jsonl" |
    awk '{ want = 1e-3 * log(2) / log(21); exit !($1 > 0.999999 * want && $1 < 1.000001 * want) }'
ok $? "the first of [scheduler]'s 20 warm-up steps, in DeepSpeed's log shape"
"$STRETTO" check jobs/student.ini --ranks 4 >"$T/check" 2>&1
grep -q '^gradient_clipping = 1$' "$T/check" && grep -q '^batch    32 samples' "$T/check"
ok $? "auto: clipping at 1, the batch of four ranks"

# states on disk: the same checkpoint, and a resume with and without
disk="plugin.student.zero_optimization.offload_optimizer.device=nvme
    plugin.student.zero_optimization.offload_optimizer.nvme_path=$T/nvme"
mkdir "$T/nvme"
# shellcheck disable=SC2086
run student disk $disk job.max_steps=2
# shellcheck disable=SC2086
run student disk $disk
cmp -s "$T/student/step-00000004/full.h5" "$T/disk/step-00000004/full.h5"
ok $? "moments and master weights on disk, resumed: the bits of those in memory"
[ -z "$(ls -A "$T/nvme")" ]
ok $? "no file is left behind"
grep -q "^offload  moments and master weights in $T/nvme: .* by \(io_uring\|a thread\), " \
    "$T/disk.log"
ok $? "a line says what is on disk, and how it is read and written"
# shellcheck disable=SC2086
run student thread $disk plugin.student.aio.io_method=thread plugin.student.aio.queue_depth=4
grep -q "; by a thread, through the page cache$" "$T/thread.log" &&
    grep -q "aio.queue_depth has no effect: aio.io_method is thread" "$T/thread.log" &&
    cmp -s "$T/student/step-00000004/full.h5" "$T/thread/step-00000004/full.h5"
ok $? "the way to read and write can be chosen; keys of the other say that they rest"
mkdir "$T/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=200k none "$T/full" 2>/dev/null; then
    # shellcheck disable=SC2086
    refused "a full nvme_path, on two ranks" 4 "nvme_path = $T/full" mpirun -n 2 "$STRETTO" train \
        jobs/student.ini $small $disk job.output_dir="$T/none" \
        plugin.student.zero_optimization.offload_optimizer.nvme_path="$T/full"
    umount "$T/full"
else
    echo "ok $((n + 1)) - a full nvme_path # SKIP needs a mount"
    n=$((n + 1))
fi
done_testing
