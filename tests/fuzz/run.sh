#!/bin/sh
# Fuzz our own readers: sh tests/fuzz/run.sh BUILD STRETTO SECONDS.  BUILD holds fuzz_NAME programs
# (make fuzz); each starts from files that are right, and from what earlier runs found worth keeping
# in BUILD/corpus.  Status 1, and the input's file, if one crashes, leaks or reads too far.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 stretto=$2 seconds=$3 failed=0
python=/usr/bin/python3
seeds=$(mktemp -d) || exit 2
trap 'rm -rf "$seeds"' EXIT
mkdir -p "$seeds/made" "$seeds/safetensors" "$seeds/llama2c" "$seeds/llmc" "$seeds/manifest"
cp tests/data/*.safetensors "$seeds/safetensors/"
[ -x $python ] && $python tests/e2e/convert_peer.py make tests/data "$seeds/made" &&
    cp "$seeds"/made/*.safetensors "$seeds/safetensors/" &&
    cp "$seeds"/made/legacy.bin "$seeds"/made/v1.bin "$seeds/llama2c/" &&
    cp "$seeds"/made/llmc*.bin "$seeds/llmc/"
for type in full sharded local; do
    "$stretto" convert "$seeds/made/legacy.bin" "$seeds/$type" --to $type >/dev/null &&
        head -n -1 "$seeds/$type/latest/manifest.json" >"$seeds/manifest/$type"
done
for program in "$build"/fuzz_*; do
    case $program in *.d | *.o) continue ;; esac
    name=$(basename "$program" | sed 's/fuzz_//')
    mkdir -p "$build/corpus/$name"
    echo "fuzz: $name, $seconds s"
    if "$program" -max_total_time="$seconds" -max_len=200000 -rss_limit_mb=4096 -timeout=60 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="$build/found-$name-" \
        "$build/corpus/$name" "$seeds/$name" >"$seeds/log" 2>&1; then
        grep -E 'number_of_executed_units|new_units_added' "$seeds/log"
    else
        tail -40 "$seeds/log"
        failed=1
    fi
done
exit $failed
