#!/bin/sh
# TIMEOUT: 300
# Weights in and out: transformers' safetensors, nanoGPT's, Meta's, llama2.c's and llm.c's files.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
export OMP_NUM_THREADS=1
python=/usr/bin/python3

quiet() { # COMMAND…: output in .log, shown if it fails
    timeout 100 "$@" >"$T/.log" 2>&1
    status=$?
    [ $status = 0 ] || [ $status = 77 ] || sed 's/^/# /' "$T/.log" | head -12
    return $status
}
said() { grep -qF -- "$1" "$T/.log"; }
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# a model of our own, there and back
printf '%s\n' "[job]" "max_steps = 2" "output_dir = $T/run" "[model]" "n_layer = 2" "n_head = 2" \
    "n_embd = 32" "block_size = 32" "[data]" "path = jobs/data/pride_and_prejudice.txt" \
    "batch_size = 4" "[eval]" "batches = 2" >"$T/job.ini"
quiet "$STRETTO" train "$T/job.ini"
quiet "$STRETTO" convert "$T/run" "$T/hf" && [ -s "$T/hf/config.json" ] && said "28 tensors"
ok $? "a run's folder becomes model.safetensors and config.json"
quiet "$STRETTO" inspect --diff "$T/run" "$T/hf" && said "28 tensors bitwise equal, 0 equal"
ok $? "with the same weights, bit for bit, under transformers' names"
quiet "$STRETTO" convert "$T/run/latest" "$T/shards" --max_shard_size 40KB &&
    [ -s "$T/shards/model.safetensors.index.json" ] && [ ! -e "$T/shards/model.safetensors" ] &&
    quiet "$STRETTO" inspect --diff "$T/shards" "$T/run/step-00000002" &&
    said "28 tensors bitwise equal, 0 equal"
ok $? "several files with an index where one would be too large"
refused "nothing is overwritten" 3 "is there already" "$STRETTO" convert "$T/run" "$T/hf"
quiet "$STRETTO" convert "$T/run" "$T/hf" --overwrite
ok $? "unless it is asked for"
refused "files of ranks go with checkpoints of such" 2 "--ranks 4 goes with --to sharded" \
    "$STRETTO" convert "$T/run" "$T/none" --ranks 4
refused "files of a size go with safetensors" 2 "--max_shard_size 40KB goes with --to safe" \
    "$STRETTO" convert "$T/run" "$T/none" --to full --max_shard_size 40KB
refused "adapters apart go with safetensors" 2 "--lora apart goes with --to safetensors" \
    "$STRETTO" convert "$T/run" "$T/none" --to full --lora apart
quiet "$STRETTO" convert "$T/hf/model.safetensors" "$T/one.safetensors" &&
    cmp -s "$T/hf/model.safetensors" "$T/one.safetensors"
ok $? "a copy of a copy is the same file"

# inspect
quiet "$STRETTO" inspect "$T/hf" && said "transformer.wte.weight" && said "norm" && said "34688"
ok $? "inspect of a folder of transformers'"
if [ -x $python ]; then
    "$STRETTO" inspect --json "$T/run" >"$T/a.json" && "$STRETTO" inspect --json --diff \
        "$T/run" "$T/hf" >"$T/b.json" && quiet $python - "$T/a.json" "$T/b.json" <<'P'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["step"] == 2 and a["world"] == 1 and a["parameters"] == 34688 and "[model]" in a["job"]
w = {(t["group"], t["name"]): t for t in a["tensors"]}["model", "h.0.ln_1.weight"]
assert w["shape"] == [32] and w["nan"] == 0 and w["min"] <= w["mean"] <= w["max"] and w["norm"] > 5
assert b["bitwise"] and b["max_abs"] == 0 and all(t["bitwise"] for t in b["tensors"])
P
    ok $? "and as JSON, with a difference of nothing"
else
    skip "and as JSON" "no python3"
fi
quiet "$STRETTO" convert "$T/run" "$T/half.safetensors" --dtype bfloat16 &&
    quiet "$STRETTO" inspect --diff "$T/run" "$T/half.safetensors" && said "max rel 0.00" &&
    said "0 tensors bitwise equal"
ok $? "bfloat16: a relative difference below a hundredth"

# init_from: the first weights of another run
printf '%s\n' "[optimizer]" "lr = 0" >>"$T/job.ini"
sed "s,^output_dir.*,output_dir = $T/no," "$T/job.ini" >"$T/other.ini"
start() { # OUT OVERRIDES…: the loss of one step at rate 0 goes to stdout
    out=$T/$1
    shift
    timeout 100 "$STRETTO" train "$T/job.ini" job.output_dir="$out" job.max_steps=1 "$@" \
        >"$T/.log" 2>&1 || sed 's/^/# /' "$T/.log" | head >&2
    sed 's/.*"loss":\([0-9.]*\).*/\1/' "$out/metrics.jsonl" | head -1
}
start a model.init_from="$T/run" >"$T/loss_a" &&
    start b model.init_from="$T/hf" >"$T/loss_b" &&
    [ -s "$T/loss_a" ] && cmp -s "$T/loss_a" "$T/loss_b" &&
    quiet "$STRETTO" inspect --diff "$T/a" "$T/hf" && said "28 tensors bitwise equal" &&
    quiet "$STRETTO" inspect --diff "$T/b" "$T/hf" && said "28 tensors bitwise equal"
ok $? "init_from: a run, or its export, begins with the same bits"
mpirun -n 2 "$STRETTO" train "$T/job.ini" job.output_dir="$T/c" job.max_steps=1 \
    model.init_from="$T/hf" strategy.distributed_type=FSDP >"$T/.log" 2>&1 &&
    quiet "$STRETTO" inspect --diff "$T/c" "$T/hf" && said "28 tensors bitwise equal"
ok $? "under FSDP, each rank what it holds"
refused "another model is refused" 3 "wte.weight is (256, 32), the model's is (256, 64)" \
    "$STRETTO" check "$T/other.ini" model.n_embd=64 model.init_from="$T/hf"
refused "with fewer layers too" 3 "init_unexpected may allow it" \
    "$STRETTO" check "$T/other.ini" model.n_layer=1 model.init_from="$T/hf"
refused "and with more" 3 "h.2.attn.c_attn.bias is missing" \
    "$STRETTO" check "$T/other.ini" model.n_layer=3 model.init_from="$T/hf" \
    'model.init_missing=*weight,h.2.ln*'
quiet "$STRETTO" check "$T/other.ini" model.n_layer=3 model.init_from="$T/hf" \
    'model.init_missing=h.2.*' && said "random: h.2.ln_1.weight"
ok $? "unless patterns allow it, and then it is said"
refused "a vocabulary that grows is refused" 3 "init_grow_vocab" \
    "$STRETTO" check "$T/other.ini" model.vocab_size=300 model.init_from="$T/hf"
quiet "$STRETTO" train "$T/job.ini" job.output_dir="$T/grown" model.vocab_size=300 \
    model.init_from="$T/hf" model.init_grow_vocab=true job.max_steps=1 &&
    said "wte.weight: 256 rows of 300"
ok $? "unless it is asked for"
refused "init_missing alone is refused" 2 "means nothing without init_from" \
    "$STRETTO" check "$T/other.ini" model.init_missing=a
refused "a file of no format" 3 "no format that is read" \
    "$STRETTO" check "$T/other.ini" model.init_from="$T/job.ini"

# a perceptron has no config.json, but goes there and back
"$STRETTO" train jobs/linear.ini job.output_dir="$T/lin" job.num_epochs=1 >"$T/.log" 2>&1
quiet "$STRETTO" convert "$T/lin" "$T/lin_hf" && said "transformers knows no such model" &&
    quiet "$STRETTO" train jobs/linear.ini job.output_dir="$T/lin2" job.num_epochs=1 \
        optimizer.lr=0 model.init_from="$T/lin_hf" &&
    quiet "$STRETTO" inspect --diff "$T/lin2" "$T/lin_hf" && said "2 tensors bitwise equal"
ok $? "Linear(10, 2) through safetensors"

# checkpoints of other types, for other ranks
sed "s,^max_steps.*,max_steps = 3," "$T/job.ini" >"$T/more.ini"
quiet "$STRETTO" convert "$T/run" "$T/sharded" --to sharded --ranks 3 &&
    [ -e "$T/sharded/step-00000002/shard-00002-of-00003.h5" ] &&
    quiet "$STRETTO" convert "$T/sharded" "$T/local" --to local --ranks 4 &&
    quiet "$STRETTO" convert "$T/local/latest" "$T/full" --to full &&
    cmp -s "$T/run/step-00000002/full.h5" "$T/full/step-00000002/full.h5"
ok $? "full to sharded to local to full: the same bytes"
quiet "$STRETTO" train "$T/more.ini" job.output_dir="$T/sharded" &&
    quiet "$STRETTO" train "$T/more.ini" job.output_dir="$T/full" &&
    quiet "$STRETTO" inspect --diff "$T/sharded" "$T/full" && said "84 tensors bitwise equal, 0 eq"
ok $? "and training goes on from either to the same bits"
quiet "$STRETTO" convert "$T/hf" "$T/weights" --to full &&
    quiet "$STRETTO" inspect --diff "$T/weights" "$T/run" --stats=false
"$STRETTO" eval "$T/weights" | sed 's/.*: //' >"$T/loss_a"
"$STRETTO" eval "$T/run" | sed 's/.*: //' >"$T/loss_b"
[ -s "$T/loss_a" ] && cmp -s "$T/loss_a" "$T/loss_b"
ok $? "transformers' folder to a checkpoint: the same loss"
refused "which nothing can go on from" 3 "holds weights only" \
    "$STRETTO" train "$T/more.ini" job.output_dir="$T/weights"
refused "a step that is there stays" 3 "is there already" \
    "$STRETTO" convert "$T/run" "$T/local" --to full

quiet "$STRETTO" convert "$T/run" "$T/half" --to full --dtype bfloat16 --weights_only &&
    quiet "$STRETTO" generate "$T/half" --prompt "It is" --tokens 4 && said "It is" &&
    quiet "$STRETTO" eval "$T/half" && said "step 2: loss" &&
    quiet "$STRETTO" check "$T/other.ini" model.init_from="$T/half"
ok $? "weights in bfloat16 are evaluated, written with, begun with"

# ranks share the work: the same files
same=0
for to in full sharded safetensors; do
    keys="--to $to"
    [ $to = sharded ] && keys="$keys --ranks 4"
    [ $to = safetensors ] && keys="$keys --max_shard_size 40KB"
    # shellcheck disable=SC2086
    quiet "$STRETTO" convert "$T/run" "$T/alone_$to" $keys &&
        quiet mpirun -n 3 "$STRETTO" convert "$T/run/latest" "$T/shared_$to" $keys &&
        [ "$(grep -c "28 tensors\|84 tensors" "$T/.log")" = 1 ] &&
        quiet diff -r "$T/alone_$to" "$T/shared_$to" || same=1
done
ok $same "three ranks write the files of one, byte for byte"
refused "and refuse in one line" 3 "is there already" \
    mpirun -n 3 "$STRETTO" convert "$T/run" "$T/shared_full" --to full

# a local checkpoint for other ranks is cut as a run on them holds it
fsdp() { # RANKS OUT
    quiet mpirun -n "$1" "$STRETTO" train "$T/fsdp.ini" job.output_dir="$2"
}
sed "s,^max_steps.*,max_steps = 3," "$T/job.ini" >"$T/fsdp.ini"
printf '%s\n' "[strategy]" "distributed_type = FSDP" "[plugin]" "type = fsdp" >>"$T/fsdp.ini"
sed -i "s,^lr = 0,lr = 0.01," "$T/fsdp.ini"
mpirun -n 2 "$STRETTO" train "$T/fsdp.ini" job.output_dir="$T/two" job.max_steps=2 >"$T/.log" 2>&1
quiet "$STRETTO" convert "$T/two" "$T/three" --to local --ranks 3 && cp -r "$T/three" "$T/local3" &&
    [ -e "$T/three/step-00000002/shard-00002-of-00003.h5" ] && fsdp 3 "$T/three" &&
    fsdp 3 "$T/two" && quiet "$STRETTO" inspect --diff "$T/three" "$T/two" &&
    said "84 tensors bitwise equal, 0 eq"
ok $? "local for 3 ranks from 2: training goes on from it, to the bits of the original"
refused "but on 3 ranks only" 3 "a LOCAL_STATE_DICT of 3 ranks" mpirun -n 2 "$STRETTO" train \
    "$T/fsdp.ini" job.output_dir="$T/local3" job.max_steps=3
quiet "$STRETTO" train "$T/job.ini" job.output_dir="$T/single" strategy.distributed_type=NO
refused "a job that does not run on so many ranks" 2 "is cut as its job would be" \
    "$STRETTO" convert "$T/single" "$T/none" --to local --ranks 2

# LoRA: merged, and apart
cp "$T/job.ini" "$T/lora.ini"
printf '%s\n' "[group.adapters]" "match = *.lora_*" "lr_scale = 2" >>"$T/lora.ini"
quiet "$STRETTO" train "$T/lora.ini" job.output_dir="$T/lora" model.lora_rank=2 \
    model.init_from="$T/run" optimizer.lr=0.1 model.lora_alpha=6
quiet "$STRETTO" convert "$T/lora" "$T/merged" && said "28 tensors" && said "are left out" &&
    quiet "$STRETTO" convert "$T/merged" "$T/merged_full" --to full
"$STRETTO" eval "$T/merged_full" | sed 's/.*loss \([0-9.]*\).*/\1/' >"$T/loss_a"
"$STRETTO" eval "$T/lora" | sed 's/.*loss \([0-9.]*\).*/\1/' >"$T/loss_b"
"$STRETTO" eval "$T/run" | sed 's/.*loss \([0-9.]*\).*/\1/' >"$T/loss_c"
paste "$T/loss_a" "$T/loss_b" "$T/loss_c" | awk '{ d = $1 - $2; e = $2 - $3
    bad = d * d > 1e-10 || e * e < 1e-6 } END { exit NR != 1 || bad }'
ok $? "merged adapters give the loss that they gave apart"
quiet "$STRETTO" convert "$T/lora" "$T/peft" --lora apart && said "4 tensors" &&
    grep -q '"target_modules": \["c_attn"\]' "$T/peft/adapter_config.json" &&
    quiet "$STRETTO" inspect "$T/peft/adapter_model.safetensors" &&
    said "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"
ok $? "or stand apart under peft's names"

# a file of HDF5 without its manifest
cp "$T/run/step-00000002/full.h5" "$T/lone.h5"
quiet "$STRETTO" inspect --diff "$T/lone.h5" "$T/run" && said "28 tensors bitwise equal, 0 equal" &&
    quiet "$STRETTO" check "$T/other.ini" model.init_from="$T/lone.h5" && said HDF5
ok $? "full.h5 alone is read by name and place"
quiet "$STRETTO" convert "$T/run" "$T/many" --to sharded --ranks 40 --weights_only
cp "$T/many/step-00000002/shard-00000-of-00040.h5" "$T/shard.h5"
refused "a shard alone is not" 3 "is a part of a tensor" "$STRETTO" inspect "$T/shard.h5"
if [ -n "${STRETTO_FAULTS:-}" ]; then
    refused "a file that kills libhdf5 is an error message" 3 "libhdf5 did not survive it" \
        env STRETTO_FAULT=0:hdf5.open:kill "$STRETTO_FAULTS" inspect "$T/lone.h5"
else
    skip "a file that kills libhdf5 is an error message" "no fault injection"
fi
if [ -x $python ]; then
    quiet $python tests/e2e/convert_peer.py h5 "$T/lone.h5" model/wte.weight \
        model/h.0.attn.c_attn.weight optim/exp_avg/ln_f.bias &&
        said "model/h.0.attn.c_attn.weight (32, 96) float32 in_out"
    if [ $status = 77 ]; then
        skip "h5py reads it" "no python3-h5py"
    else
        ok $status "h5py reads it"
    fi
else
    skip "h5py reads it" "no python3"
fi

# at the end of a run
rm -rf "$T/c"
mpirun -n 2 "$STRETTO" train "$T/job.ini" job.output_dir="$T/c" \
    checkpoint.final_export=safetensors >"$T/.log" 2>&1 &&
    said "$T/c/safetensors: safetensors, 28 tensors" &&
    quiet "$STRETTO" inspect --diff "$T/c" "$T/c/safetensors" && said "28 tensors bitwise equal"
ok $? "final_export"

# verify
quiet "$STRETTO" verify "$T/sharded" "$T/local" "$T/hf" &&
    said "ok: $T/local/step-00000002: 4 files"
ok $? "verify of what is right"
shard=$T/local/step-00000002/shard-00001-of-00004.h5
size=$(wc -c <"$shard")
printf '\377\377\377' | dd of="$shard" bs=1 seek=$((size - 9)) conv=notrunc 2>/dev/null
cp "$T/run/step-00000002/full.h5" "$T/local/step-00000002/"
rm "$T/local/step-00000002/shard-00003-of-00004.h5"
truncate -s -1 "$T/local/step-00000002/shard-00002-of-00004.h5"
refused "verify of what is not" 3 "4 faults found" "$STRETTO" verify "$T/local"
grep -q "shard-00001-of-00004.h5, bytes .*their checksum is wrong" "$T/.stdout" &&
    grep -q "shard-00003-of-00004.h5 is missing" "$T/.stdout" &&
    grep -q "full.h5 is no file of this checkpoint" "$T/.stdout" &&
    grep -q "shard-00002-of-00004.h5 has" "$T/.stdout"
ok $? "names every file, and the range"
refused "a damaged checkpoint is not converted" 3 "shard-0000" \
    "$STRETTO" convert "$T/local" "$T/none"
[ ! -e "$T/none" ]
ok $? "and leaves nothing"

# other programs' files, made from weights whose logits and loss are known
head -c 129 jobs/data/pride_and_prejudice.txt >"$T/text"
printf '%s\n' "[job]" "max_steps = 1" "[model]" "n_layer = 2" "n_head = 4" "n_embd = 32" \
    "block_size = 32" "[data]" "path = $T/text" "batch_size = 4" "split = 1" "[optimizer]" \
    "lr = 0" >"$T/known.ini"
llama="model.type=llama model.n_kv_head=2 model.n_inner=88 model.tie_word_embeddings=true"
first_loss() { # FILE OVERRIDES…: the loss that training begins with, within 1e-5 of $want
    file=$1
    shift
    rm -rf "$T/first"
    timeout 100 "$STRETTO" train "$T/known.ini" job.output_dir="$T/first" \
        model.init_from="$T/$file" "$@" >"$T/.log" 2>&1 || sed 's/^/# /' "$T/.log" | head
    sed 's/.*"loss":\([0-9.]*\).*/\1/' "$T/first/metrics.jsonl" |
        awk -v want="$want" '{ d = $1 - want; print "# loss " $1; bad = d * d > 1e-10 }
            END { exit NR != 1 || bad }'
}
if [ -x $python ]; then
    quiet $python tests/e2e/convert_peer.py make tests/data "$T"
    ok $? "files of nanoGPT, llm.c, Meta and llama2.c"
    want=$($python tests/e2e/convert_peer.py loss tests/data gpt2)
    for file in nano.safetensors.index.json llmc.bin; do
        first_loss $file
        ok $? "init_from $file: the loss that is known"
        quiet "$STRETTO" convert "$T/$file" "$T/$file.hf" model.n_head=4
        ok $? "convert $file"
    done
    want=$($python tests/e2e/convert_peer.py loss tests/data llama)
    for file in meta.safetensors legacy.bin v1.bin; do
        # shellcheck disable=SC2086
        first_loss $file $llama
        ok $? "init_from $file: the loss that is known"
        # shellcheck disable=SC2086
        first_loss $file $llama model.rope_interleaved=true
        ok $? "and with rotary pairs of neighbours"
        quiet "$STRETTO" convert "$T/$file" "$T/$file.hf" model.num_attention_heads=4 \
            model.num_key_value_heads=2
        ok $? "convert $file"
    done
    quiet "$STRETTO" convert "$T/first" "$T/turned.hf" &&
        quiet "$STRETTO" inspect --diff "$T/turned.hf" "$T/v1.bin.hf" &&
        said "20 tensors bitwise equal"
    ok $? "what was trained with neighbours is turned for transformers"
    # shellcheck disable=SC2086
    first_loss turned.hf $llama
    ok $? "and read again"
    # shellcheck disable=SC2086
    refused "halves are not taken for neighbours" 2 "say false to begin with it" \
        "$STRETTO" check "$T/known.ini" model.init_from="$T/v1.bin.hf" $llama \
        model.rope_interleaved=true
    refused "a llama is no gpt2" 2 "it holds a llama" \
        "$STRETTO" check "$T/known.ini" model.init_from="$T/v1.bin"
    quiet "$STRETTO" convert "$T/untied.bin" "$T/untied.hf" &&
        quiet "$STRETTO" convert "$T/llmc_bf16.bin" "$T/llmc_bf16.hf"
    ok $? "an output matrix of its own, and bf16"
    quiet $python tests/e2e/convert_peer.py logits tests/data "$T/nano.safetensors.index.json.hf" \
        "$T/llmc.bin.hf" "$T/llmc_bf16.hf" "$T/meta.safetensors.hf" "$T/legacy.bin.hf" \
        "$T/v1.bin.hf" "$T/untied.hf"
    if [ $status = 77 ]; then
        skip "torch finds the known logits in all of them" "no python3-torch"
    else
        ok $status "torch finds the known logits in all of them"
    fi
    quiet "$STRETTO" convert "$T/llmc.bin" "$T/llmc_full" --to full model.n_head=4 &&
        quiet "$STRETTO" eval "$T/llmc_full" data.path="$T/text" data.batch_size=1 data.split=0.5 &&
        said "step 0: loss"
    ok $? "a checkpoint made of another program's file is evaluated on data that is named"
    refused "heads that nobody tells" 2 "say model.n_head=N" \
        "$STRETTO" convert "$T/nano.safetensors.index.json" "$T/none"
    [ ! -e "$T/none" ]
    ok $? "and nothing is written"
else
    skip "other programs' files" "no python3"
fi
done_testing
