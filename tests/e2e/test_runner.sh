#!/bin/sh
# The runner counts what happened: programs that fail in every way that programs have.
set -u
n=0 bad=0
tree=$TEST_TMP/tree
mkdir -p "$tree/tests/unit" "$tree/tests/e2e" "$tree/build/x/tests"
cp tests/run.sh tests/mpi_env.sh "$tree/tests/"

# program NAME BODY [COMMENT]: a test program of the tree, as a script
program() {
    echo "/* ${3:-A test.} */" >"$tree/tests/unit/test_$1.c"
    printf '#!/bin/sh\n%s\n' "$2" >"$tree/build/x/tests/test_$1"
    chmod +x "$tree/build/x/tests/test_$1"
}

# expect LAST STATUS WHAT [PATTERN]: the runner's last line (a pattern), status, and a line of its
# report
expect() {
    sh "$tree/tests/run.sh" build/x >"$TEST_TMP/out" 2>&1
    status=$?
    n=$((n + 1))
    if tail -1 "$TEST_TMP/out" | grep -qx "$1" && [ $status = "$2" ] &&
        grep -q "${4:-.}" "$TEST_TMP/out"; then
        echo "ok $n - $3"
    else
        echo "not ok $n - $3: status $status"
        sed 's/^/# /' "$TEST_TMP/out"
        bad=1
    fi
    rm -f "$tree"/tests/unit/* "$tree"/build/x/tests/* "$tree"/tests/e2e/*
}

program a 'echo "ok 1 - a"; echo "ok 2 - b"; echo 1..2'
expect '2 passed, 0 failed' 0 "two tests that pass"
program a 'echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2; exit 1'
expect '1 passed, 1 failed' 1 "one that fails, with its log" '| not ok 2 - b'
program a 'echo "ok 1 - a"; echo "ok 2 - b # SKIP no GPU"; echo 1..2'
expect '1 passed, 0 failed, 1 skipped' 0 "one that is skipped"
program a 'echo "1..0 # SKIP nothing here"'
expect '0 passed, 0 failed, 1 skipped' 0 "a program that is skipped"
program a 'echo "ok 1 - a"; kill -SEGV $$'
expect '1 passed, 1 failed' 1 "a crash" 'ended before its plan line'
program a 'echo "ok 1 - a"; echo 1..1; kill -SEGV $$'
expect '1 passed, 1 failed' 1 "a crash after the plan line" 'status 139'
program a 'echo "ok 1 - a"'
expect '1 passed, 1 failed' 1 "no plan line"
program a 'echo "ok 1 - a"; echo 1..3'
expect '1 passed, 1 failed' 1 "fewer tests than planned" 'planned 3 tests, ran 1'
program a 'echo "ok 1 - a"; echo 1..1; exit 3'
expect '1 passed, 1 failed' 1 "a status that no line explains" 'status 3'
program a 'echo "not ok 1 - a"; echo 1..1'
expect '0 passed, 1 failed' 1 "a failure with status 0"
program a 'echo "ok 1 - a"; echo 1..1; sleep 20' 'TIMEOUT: 1'
expect '1 passed, 1 failed' 1 "a hang" 'timed out'
program a 'echo "ok 1 - $A"; echo 1..1; test "$A" = b' 'RUN: -n 1 A=b'
expect '1 passed, 0 failed' 0 "a setting of a run"
program a 'test "$OMPI_COMM_WORLD_RANK" = 0 && echo "ok 1 - $OMPI_COMM_WORLD_SIZE" && echo 1..1
exit 0' 'RUN: -n 3   RUN: -n 5'
expect '2 passed, 0 failed' 0 "two runs on more ranks than cores"
program a 'test "$OMPI_COMM_WORLD_RANK" = 0 && echo "ok 1 - a" && echo 1..1
exit $OMPI_COMM_WORLD_RANK' 'RUN: -n 2'
# what rank 0 said may be lost on its way, when mpirun ends the job for the other's status
expect '[01] passed, 1 failed' 1 "a rank that fails without a line"
echo 'echo "ok 1 - a"; touch "$TEST_TMP/x"; echo 1..1' >"$tree/tests/e2e/test_s.sh"
program a 'echo "ok 1 - a"; echo 1..1'
expect '2 passed, 0 failed' 0 "a script and a program"
printf '# LONG\necho "ok 1 - a"; echo 1..1' >"$tree/tests/e2e/test_s.sh"
program a 'echo "ok 1 - a"; echo 1..1'
expect '1 passed, 0 failed' 0 "a long script rests"
expect '0 passed, 1 failed' 1 "no tests at all is no success"
echo "1..$n"
exit $bad
