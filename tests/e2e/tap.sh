# Sourced by end-to-end tests: TAP lines, and what a user may expect of a command that fails.
# STRETTO is the executable, TEST_TMP an empty folder of the test's own.
n=0
bad=0

ok() { # STATUS NAME: one TAP line
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        bad=$((bad + 1))
        echo "not ok $n - $2"
    fi
}

done_testing() {
    echo "1..$n"
    [ "$bad" = 0 ]
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# refused NAME STATUS WORDS COMMAND…: the command ends with STATUS and says exactly one line of
# ours, with these words in it; the time limit only catches a hang
refused() {
    name=$1 want=$2 words=$3
    shift 3
    start=$(now_ms)
    timeout 60 "$@" >"$TEST_TMP/.stdout" 2>"$TEST_TMP/.stderr" </dev/null
    status=$?
    took=$(($(now_ms) - start))
    lines=$(cat "$TEST_TMP/.stdout" "$TEST_TMP/.stderr" | grep -c '^stretto: ')
    good=0
    [ "$status" = "$want" ] || good=1
    [ "$lines" = 1 ] || good=1
    grep '^stretto: ' "$TEST_TMP/.stderr" | grep -qF -- "$words" || good=1
    if [ $good != 0 ]; then
        echo "# status $status, wanted $want; $lines lines, wanted 1 with \"$words\"; $took ms"
        sed 's/^/# /' "$TEST_TMP/.stdout" "$TEST_TMP/.stderr" | head -12
    fi
    ok $good "$name"
}
