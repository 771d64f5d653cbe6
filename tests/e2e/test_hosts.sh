#!/bin/sh
# LONG
# TIMEOUT: 1200
# Two hosts of two ranks, each a network namespace of its own, with a link of 1 Gbit/s between them:
# the bits of one host, the bytes that the plan says on the link, and what prefetch hides.
set -u
. tests/e2e/tap.sh
. tests/mpi_env.sh
T=$TEST_TMP
A=stretto-a-$$ B=stretto-b-$$ NET=10.79.83

down() {
    for host in $A $B; do
        ip netns pids "$host" 2>/dev/null | xargs -r kill -9 2>/dev/null
        ip netns del "$host" 2>/dev/null
    done
}
trap down EXIT
trap 'exit 130' INT TERM

# Both ends shape what they send
up() {
    ip netns add $A && ip netns add $B || return 1
    ip link add eth0 netns $A type veth peer name eth0 netns $B || return 1
    for end in "$A 1" "$B 2"; do
        host=${end% *}
        ip -n "$host" addr add $NET."${end#* }"/24 dev eth0 &&
            ip -n "$host" link set eth0 up && ip -n "$host" link set lo up &&
            tc -n "$host" qdisc add dev eth0 root tbf rate 1gbit burst 256k latency 100ms ||
            return 1
    done
}

if ! up >"$T/up.log" 2>&1; then
    echo "1..0 # SKIP no network namespaces here: $(tail -1 "$T/up.log")"
    exit 0
fi

# What mpirun starts its daemon on the other host with, in place of ssh; Open MPI tells hosts apart
# by their names
printf '%s\n' "#!/bin/sh" "shift" \
    "exec ip netns exec $B unshare --uts sh -c \"hostname $B; \$*\"" >"$T/agent"
chmod +x "$T/agent"
export OMPI_MCA_plm_rsh_agent="$T/agent" PRTE_MCA_plm_ssh_agent="$T/agent"
export OMPI_MCA_btl_tcp_if_include=$NET.0/24 OMPI_MCA_oob_tcp_if_include=$NET.0/24
export PRTE_MCA_oob_tcp_if_include=$NET.0/24 OMPI_MCA_orte_tmpdir_base="$T"

printf '%s\n' "[job]" "threads = 1" "max_steps = 2" "[model]" "type = gpt2" "n_layer = 6" \
    "n_head = 8" "n_embd = 512" "block_size = 128" "[data]" \
    "path = jobs/data/pride_and_prejudice.txt" "split = 1" "batch_size = 4" "[checkpoint]" \
    "resume = never" "overwrite = true" "[strategy]" "distributed_type = FSDP" "[plugin]" \
    "type = fsdp" >"$T/job.ini"

one_host() { # FOLDER OVERRIDES…
    out=$1
    shift
    mpirun -n 4 "$STRETTO" train "$T/job.ini" job.output_dir="$T/$out" "$@" >"$T/$out.log" 2>&1
}

two_hosts() { # FOLDER OVERRIDES…
    out=$1
    shift
    # shellcheck disable=SC2016
    ip netns exec $A unshare --uts sh -c 'hostname "$0"; exec "$@"' $A \
        mpirun -n 4 --host $NET.1:2,$NET.2:2 "$STRETTO" train "$T/job.ini" \
        job.output_dir="$T/$out" "$@" >"$T/$out.log" 2>&1 </dev/null
}

sent() { # HOST: bytes that its link has taken so far
    ip netns exec "$1" cat /sys/class/net/eth0/statistics/tx_bytes
}

seconds() { # FOLDER: of a step, the mean but the first
    sed -n 's/.*"time_s":\([^,}]*\).*/\1/p' "$T/$1/metrics.jsonl" |
        awk 'NR == 1 { a = $1 } { b = $1 } END { printf "%.2f", (b - a) / (NR - 1) }'
}

same() { # FOLDER FOLDER: weights, moments, losses
    "$STRETTO" inspect "$T/$1" --diff "$T/$2" >"$T/diff" 2>&1 &&
        grep -q "^[1-9][0-9]* tensors bitwise equal, 0 equal as numbers, 0 differ, 0 in one only" \
            "$T/diff" || return 1
    sed 's/,"time_s":[^,}]*//' "$T/$1/metrics.jsonl" >"$T/x"
    sed 's/,"time_s":[^,}]*//' "$T/$2/metrics.jsonl" >"$T/y"
    [ -s "$T/x" ] && cmp -s "$T/x" "$T/y"
}

planned() { # ROW OVERRIDES…: bytes that leave a node in a step
    row=$1
    shift
    "$STRETTO" plan "$T/job.ini" --ranks 4 --nodes 2 "$@" | awk -v row="$row" '
        BEGIN { u["B"] = 1; u["KiB"] = 1024; u["MiB"] = 1048576; u["GiB"] = 1073741824 }
        $2 == row && /^\*/ { printf "%.0f", $(NF - 1) * u[$NF] }'
}

# Of the bytes of four more steps the start and the end are no part
link_test() { # NAME ROW OVERRIDES…
    name=$1 row=$2
    shift 2
    for steps in 2 6; do
        before="$(sent $A) $(sent $B)"
        two_hosts "$name-$steps" job.max_steps=$steps "$@"
        status=$?
        after="$(sent $A) $(sent $B)"
        echo "$before $after" | awk '{ print $3 - $1, $4 - $2 }' >"$T/bytes.$steps"
    done
    [ "$status" = 0 ] || sed 's/^/# /' "$T/$name-6.log"
    want=$(planned "$row" "$@")
    # The plan has three digits; frames have 66 bytes of headers to 1,448 of data, and every other
    # one is acknowledged
    paste -d' ' "$T/bytes.2" "$T/bytes.6" | awk -v want="${want:-0}" '{
        a = ($3 - $1) / 4; b = ($4 - $2) / 4
        printf "%.1f and %.1f MB a step on the link, %.1f planned\n", a / 1e6, b / 1e6, want / 1e6
        least = a < b ? a : b; most = a < b ? b : a
        exit !(want > 0 && least > 0.99 * want && most < 1.09 * want)
    }' >"$T/figures"
    ok $? "$name: $(cat "$T/figures")"
    one_host "$name-one" job.max_steps=6 "$@"
    same "$name-6" "$name-one"
    ok $? "$name: two hosts give the bits of one"
}

link_test full FULL_SHARD
link_test grad SHARD_GRAD_OP plugin.fsdp_sharding_strategy=SHARD_GRAD_OP
link_test hybrid HYBRID_SHARD plugin.fsdp_sharding_strategy=HYBRID_SHARD plugin.dp_shard_size=2
link_test kept FULL_SHARD plugin.fsdp_reshard_after_forward=2
link_test kept-rank FULL_SHARD plugin.fsdp_reshard_after_forward=2 strategy.unshard_copies=rank
link_test kept-messages FULL_SHARD plugin.fsdp_reshard_after_forward=2 strategy.node_memory=false
link_test messages FULL_SHARD strategy.node_memory=false
link_test ddp MULTI_CPU strategy.distributed_type=MULTI_CPU
two_hosts off job.max_steps=6 plugin.fsdp_backward_prefetch=NO_PREFETCH job.profile=true
same off full-6
ok $? "without prefetch: the same bits"
two_hosts on job.max_steps=6 plugin.fsdp_forward_prefetch=true job.profile=true
same on full-6
ok $? "with prefetch both ways: the same bits"
echo "# seconds a step: $(seconds off) without prefetch, $(seconds full-6) as it comes," \
    "$(seconds on) with forward prefetch too"
done_testing
