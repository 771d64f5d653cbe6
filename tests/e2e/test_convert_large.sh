#!/bin/sh
# TIMEOUT: 3000
# LONG: a model of 4 GB through every format in 1 GB of address space, and the rates beside cp's.
set -u
. tests/e2e/tap.sh
T=$TEST_TMP
python=/usr/bin/python3
if ! [ -x $python ] || [ "$(df --output=avail -k "$T" | tail -1)" -lt 30000000 ]; then
    echo "1..0 # SKIP needs python3 and 30 GB of disk"
    exit 0
fi

# COMMAND…: seconds and peak MB to stdout, its own output to .log; the disk has it at the end
measure() {
    $python - "$@" <<'P' 2>"$T/.log"
import os, resource, subprocess, sys, time
os.sync()
t = time.time()
status = subprocess.call(sys.argv[1:], stdout=sys.stderr)
os.sync()
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print("%.2f %.0f" % (time.time() - t, peak))
sys.exit(status)
P
    status=$?
    [ $status = 0 ] || sed 's/^/# /' "$T/.log" >&2
    return $status
}
limited() {
    (ulimit -v 1048576 && measure "$@")
}

# random bits as a Llama of 22 layers (llama2.c's legacy file)
$python - "$T/big.bin" <<'P'
import os, struct, sys
C, F, L, H, KV, V, T = 2048, 5632, 22, 32, 4, 32000, 64
kv = C // H * KV
n = V * C + L * (2 * C + 2 * C * C + 2 * kv * C + 3 * F * C) + C + 2 * T * (C // H // 2)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<7i", C, F, L, H, KV, V, T))
    left = 4 * n
    while left:
        left -= f.write(os.urandom(min(left, 1 << 26)))
P
limited "$STRETTO" convert "$T/big.bin" "$T/sharded" --to sharded --ranks 4 >"$T/a"
ok $? "a .bin of 4 GB becomes four shards"
rm "$T/big.bin"
echo "# seconds, peak MB: $(cat "$T/a")"
bytes=$(du -sb "$T/sharded/step-00000000" | cut -f1)
measure cp -r "$T/sharded" "$T/copy" >"$T/cp"
rm -rf "$T/copy"
for to in full safetensors local; do
    measure cp -r "$T/sharded" "$T/copy" >"$T/cp"
    rm -rf "$T/copy" # so that both find the same memory free
    limited "$STRETTO" convert "$T/sharded" "$T/$to" --to $to >"$T/a"
    ok $? "sharded to $to within 1 GB of address space"
    awk -v n="$bytes" -v to=$to 'NR == 1 { cp = $1; next } { printf "# %s: %.0f MB/s, cp %.0f " \
        "MB/s: ratio %.2f; peak %d MB\n", to, n / $1 / 1e6, n / cp / 1e6, cp / $1, $2
        exit $2 > 256 }' "$T/cp" "$T/a"
    ok $? "in 256 MB"
    "$STRETTO" inspect --diff "$T/sharded" "$T/$to" >"$T/.log" 2>&1 &&
        grep -q "200 tensors bitwise equal, 0 equal as numbers, 0 differ, 0 in one" "$T/.log"
    ok $? "to the same bits"
    rm -rf "${T:?}/$to"
done
done_testing
