#!/bin/sh
# Run the tests of one build and count: sh tests/run.sh [-u] BUILD [PATTERN]
#
#   -u        unit tests only
#   BUILD     build/release, build/debug, …
#   PATTERN   only tests whose name contains it
#
# tests/unit/test_*.c     TAP programs; each `RUN: -n RANKS [NAME=VALUE …]` in the source is one run
#                         (no such line: one rank).  One rank runs without mpirun.
# tests/e2e/test_*.sh     TAP scripts; they get STRETTO (the executable), STRETTO_FAULTS (the one
#                         that injects faults, "" if not built), TEST_TMP (their own empty folder)
# `TIMEOUT: SECONDS` in a test's source changes the limit of 600 s, which only catches hangs.
# `# LONG` in a script: only run with STRETTO_LONG=1 (make test-long).
#
# A program that crashes, times out, stops before its plan line or ends with a status that its lines
# do not explain has failed.  The last line is "N passed, N failed[, N skipped]", the status 1 if
# any failed.
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/mpi_env.sh
# Waiting threads sleep: the tests share the cores with each other.
export OMP_WAIT_POLICY=passive
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

# count LOG STATUS: prints "passed failed skipped", and why if that is more than the lines say
count() {
    awk -v status="$2" '
        /^1\.\.0 *# *[Ss][Kk][Ii][Pp]/ { skipped = 1; plan = 0; planned = 1; next }
        /^1\.\.[0-9]+/  { plan = substr($1, 4) + 0; planned = 1 }
        /^not ok/       { failed++; n++ }
        /^ok/           { n++; if (/# *[Ss][Kk][Ii][Pp]/) skipped++; else passed++ }
        END {
            why = ""
            if (status == 124 || status == 137) why = "timed out or killed"
            else if (!planned) why = "ended before its plan line"
            else if (plan != n) why = "planned " plan " tests, ran " n + 0
            else if (status != 0 && !failed) why = "status " status
            else if (status == 0 && failed) why = "status 0 in spite of failures"
            if (why != "" && !failed) failed = 1
            print passed + 0, failed + 0, skipped + 0, why
        }' "$1"
}

# one RESULTS NUMBER NAME LIMIT COMMAND…: run, count, report
one() {
    results=$1 number=$2 name=$3 limit=$4
    shift 4
    log=$results/$number.log
    TEST_TMP=$results/$number.tmp
    export TEST_TMP
    mkdir -p "$TEST_TMP"
    start=$(date +%s%N)
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
    status=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    rm -rf "$TEST_TMP"
    count "$log" $status >"$results/$number.count"
    read -r passed failed skipped why <"$results/$number.count"
    if [ "$failed" = 0 ]; then
        text="ok    $name: $passed passed"
        [ "$skipped" = 0 ] || text="$text, $skipped skipped"
        printf '%s (%d.%01d s)\n' "$text" $((ms / 1000)) $((ms % 1000 / 100))
    else
        {
            echo "FAIL  $name: $failed failed, $passed passed${why:+ ($why)}, status $status, log:"
            sed 's/^/      | /' "$log"
        } >"$results/$number.report"
        cat "$results/$number.report"
    fi
}

if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit 0
fi

units_only=0
[ "${1:-}" = -u ] && units_only=1 && shift
build=${1:?which build folder?}
pattern=${2:-}
STRETTO=$PWD/$build/stretto
STRETTO_FAULTS=$PWD/build/faults/stretto
[ -x "$STRETTO_FAULTS" ] || STRETTO_FAULTS=
export STRETTO STRETTO_FAULTS

results=$(mktemp -d) || exit 2
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM

limit_of() {
    set -- "$(sed -n 's/^ *[/#*].*TIMEOUT: *\([0-9][0-9]*\).*/\1/p' "$1" | head -1)"
    echo "${1:-600}"
}

# One line a run: number, name, limit, ranks, settings, program
list_units() {
    for source in tests/unit/test_*.c; do
        name=$(basename "$source" .c)
        [ -e "$source" ] || continue
        case $name in *"$pattern"*) ;; *) continue ;; esac
        limit=$(limit_of "$source")
        grep -oE 'RUN: -n [0-9]+( +[A-Z][A-Z0-9_]*=[^ *]+)*' "$source" >"$results/runs" ||
            echo 'RUN: -n 1' >"$results/runs"
        while read -r _ _ ranks settings; do
            echo "$name $limit $ranks $build/tests/$name $settings"
        done <"$results/runs"
    done
}

number=100
list_units >"$results/units"
: >"$results/single"
while read -r name limit ranks program settings; do
    number=$((number + 1))
    label="$name -n $ranks${settings:+ $settings}"
    if [ "$ranks" = 1 ]; then
        printf '%s\0' "$results" $number "$label" "$limit" env -- $settings "$program" \
            >"$results/args.$number"
        echo "$results/args.$number" >>"$results/single"
    fi
done <"$results/units"
# shellcheck disable=SC2016
xargs -P "${JOBS:-2}" -I{} sh -c 'xargs -0 sh "$0" --one <"$1"' "$0" {} <"$results/single"

number=500
while read -r name limit ranks program settings; do
    number=$((number + 1))
    [ "$ranks" = 1 ] && continue
    # Leaks are looked for on one rank only: MPI keeps memory of modules that it has unloaded, whose
    # names no suppression can match any more.
    # shellcheck disable=SC2086
    one "$results" $number "$name -n $ranks${settings:+ $settings}" "$limit" \
        env -- ASAN_OPTIONS=detect_leaks=0 $settings mpirun -n "$ranks" "$program" </dev/null
done <"$results/units"

if [ $units_only = 0 ]; then
    number=900
    for script in tests/e2e/test_*.sh; do
        [ -e "$script" ] || continue
        name=$(basename "$script" .sh)
        case $name in *"$pattern"*) ;; *) continue ;; esac
        [ "${STRETTO_LONG:-0}" != 1 ] && grep -q '^# LONG' "$script" && continue
        number=$((number + 1))
        one "$results" $number "$name" "$(limit_of "$script")" sh "$script"
    done
fi

if ! ls "$results"/*.count >/dev/null 2>&1; then
    echo "no test matches '$pattern' in $build" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
if ls "$results"/*.report >/dev/null 2>&1; then
    echo "failed:"
    sed -n 's/^FAIL  /  /p' "$results"/*.report
fi
cat "$results"/*.count | awk '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : ""
        exit failed > 0
    }'
