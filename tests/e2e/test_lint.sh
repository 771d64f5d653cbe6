#!/bin/sh
# The lint finds what it is there for: one planted violation of each rule, in a small tree.
set -u
n=0
tree=$TEST_TMP/tree

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/src/base" "$tree/src/comm" "$tree/src/job" "$tree/src/tensor" "$tree/tests" \
        "$tree/jobs" "$tree/slurm" "$tree/.ci"
    cat >"$tree/src/base/a.h" <<'END'
/* A small header. */
#pragma once

/* One more than x.  Local. */
int a_next(int x);
END
    cat >"$tree/src/base/a.c" <<'END'
/* A small source: exit(1) in a comment or a string is no matter. */
#include "base/a.h"

int a_next(int x)
{
    return x + (int)sizeof "exit(1)" - (int)sizeof "abort( )";
}
END
    echo '/* Main. */' >"$tree/src/main.c"
    echo 'int main(void) { return 0; }' >>"$tree/src/main.c"
    echo 'all:' >"$tree/Makefile"
    echo '# Read me' >"$tree/README.md"
}

ok() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$TEST_TMP/out"
        bad=1
    fi
}

# finds WHAT PATTERN: the lint fails and a line of it matches
finds() {
    status=0
    sh tests/lint.sh "$tree" >"$TEST_TMP/out" 2>&1 && status=1
    grep -qE "$2" "$TEST_TMP/out" || status=1
    ok $status "finds $1"
    fresh
}

bad=0
fresh
status=0
sh tests/lint.sh "$tree" >"$TEST_TMP/out" 2>&1 || status=1
grep -q '^lint: clean$' "$TEST_TMP/out" || status=1
ok $status "a clean tree is clean"

echo '#include "comm/c.h"' >>"$tree/src/base/a.c"
finds "an include of a higher level" 'base/a.c:8: base \(level 0\) may not include comm'

printf '/* J. */\n#include "tensor/t.h"\n' >"$tree/src/job/j.c"
finds "an include sideways" 'job/j.c:2: job .* may not include tensor'

printf '/* J. */\n#include "j.h"\n' >"$tree/src/job/j.c"
finds "an include without its folder" 'include "j.h" by its folder'

mkdir "$tree/src/misc" && echo '/* M. */' >"$tree/src/misc/m.c"
finds "a folder without a level" 'folder misc has no level'

for pair in mpi.h:job hdf5.h:comm zlib.h:comm liburing.h:base omp.h:job dnnl.h:job cblas.h:base \
    dlfcn.h:comm iniparser.h:comm iniparser/iniparser.h:tensor cuda_runtime.h:base; do
    printf '/* F. */\n#include <%s>\n' "${pair%%:*}" >"$tree/src/${pair#*:}/f.c"
    finds "<${pair%%:*}> outside its fence" "/f.c:2: <${pair%%:*}> only in"
done

for word in assert exit _exit abort perror rand srand; do
    printf '/* W. */\nvoid w(void)\n{\n    %s(1);\n}\n' $word >"$tree/src/base/w.c"
    finds "$word()" "base/w.c:4: banned: .*$word"
done

for word in 'TO''DO' 'FIX''ME' 'X''XX' 'HA''CK'; do
    echo "/* $word: later */" >>"$tree/src/base/a.c"
    finds "the mark $word" 'base/a.c:8: mark of unfinished work'
done

echo "CFLAGS += -ffast-ma""th" >>"$tree/Makefile"
finds "fast math" 'Makefile:2: banned compiler flag'
echo "see /ho""me/someone/file" >>"$tree/README.md"
finds "a path of one machine" 'README.md:2: path of one machine'

printf '/* T. */\nint t;\t\n' >"$tree/src/base/t.c"
finds "a tab" 'base/t.c:2: tab'
printf '/* T. */\nint t; \n' >"$tree/src/base/t.c"
finds "a blank at the end" 'base/t.c:2: blank at the end'
printf '# key\r\n' >"$tree/jobs/j.ini"
finds "a carriage return" 'jobs/j.ini:1: carriage return'
awk 'BEGIN { printf "/* "; for (i = 0; i < 94; i++) printf "é"; print " */"
             printf "/* "; for (i = 0; i < 94; i++) printf "é"; print "  */" }' \
    >"$tree/src/base/l.c"
finds "101 characters, but not 100 of two bytes" 'base/l.c:2: 101 columns'
grep -q 'l.c:1:' "$TEST_TMP/out"
ok $((! $?)) "100 characters of two bytes are 100 columns"

awk 'BEGIN { print "/* L. */"; for (i = 0; i < 800; i++) print "" }' >"$tree/src/base/l.c"
finds "a file of 801 lines" 'base/l.c: 801 lines'
awk 'BEGIN { print "/* L. */\nvoid l(void)\n{"
             for (i = 0; i < 101; i++) print "    ;"; print "}" }' \
    >"$tree/src/base/l.c"
finds "a function of 101 lines" 'base/l.c:105: function of 101 lines'
echo 'int x;' >"$tree/src/base/n.c"
finds "a file without a word on what it is" 'base/n.c:1: does not begin'

printf '\n/* Two more. */\nint a_after(int x);\n' >>"$tree/src/base/a.h"
finds "a function without Local or Collective" 'base/a.h:8: no Local or Collective .* a_after'
sed -i '/pragma/d' "$tree/src/base/a.h"
finds "a header without #pragma once" 'base/a.h:1: no #pragma once'

echo 'if then' >"$tree/tests/bad.sh"
finds "a broken shell script" 'bad.sh.*syntax'

if command -v objdump >/dev/null 2>&1; then
    mkdir -p "$tree/build/release/base"
    printf '/* G. */\nint g_counter = 3;\nconst char *const g_names[] = {"a"};\n' \
        >"$tree/src/base/g.c"
    ${CC:-cc} -fPIE -c -o "$tree/build/release/base/g.o" "$tree/src/base/g.c"
    sh tests/lint.sh "$tree" >"$TEST_TMP/out" 2>&1
    ! grep -q 'g_names' "$TEST_TMP/out"
    ok $? "a constant table is no variable"
    finds "a variable at file scope" 'base/g.o: variable at file scope: g_counter'
fi
echo "1..$n"
exit $bad
