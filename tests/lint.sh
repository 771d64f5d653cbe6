#!/bin/sh
# House rules that a script can check.  sh tests/lint.sh [--all] [ROOT]
#
#   --all   also clang-format and clang-tidy, where they are installed
#
# Each finding is one line "FILE:LINE: what"; status 1 if there is any.  Warnings do not count.
# tests/e2e/test_lint.sh plants one violation of each rule and looks whether it is found.
set -u
all=0
[ "${1:-}" = --all ] && all=1 && shift
cd "${1:-$(dirname "$0")/..}" || exit 2
export LC_ALL=C
report=$(mktemp) || exit 2
trap 'rm -f "$report"' EXIT

sources=$(find src tests -name '*.[ch]' | sort)
scripts=$(find tests slurm .ci -type f \( -name '*.sh' -o -name '*.sbatch' -o -name run \) | sort)
texts="$sources $scripts $(find jobs slurm -name '*.ini' -o -name '*.md') Makefile README.md"

# Levels of folders, fences of third-party headers, banned words, comment lines of headers, sizes.
rules='
BEGIN {
    n = split("base=0 tensor=1 job=1 device=2 comm=3 layer=4 optim=4 data=4 ckpt=4 model=5 " \
              "parallel=6 train=7 cli=8 main=9", word, " ")
    for (i = 1; i <= n; i++) { split(word[i], pair, "="); level[pair[1]] = pair[2] }
    fence["mpi.h"] = "^src/(comm/|main[.]c$)"
    fence["dnnl"] = "^src/device/cpu/"
    fence["cblas.h"] = "^src/device/cpu/"
    fence["hdf5"] = "^src/(ckpt|data)/"
    fence["iniparser"] = "^src/job/"
    fence["zlib.h"] = "^src/data/"
    fence["liburing"] = "^src/parallel/offload_uring[.]c$"
    fence["dlfcn.h"] = "^src/device/plugin[.]c$"
    fence["omp.h"] = "^src/device/"
    fence["cuda"] = "^src/device/cuda/"
    fence["nccl"] = "^src/comm/nccl[.]c$"
}
function bad(what) { printf "%s:%d: %s\n", FILENAME, FNR, what }
function warn(what) { printf "%s:%d: warning: %s\n", FILENAME, FNR, what }

# The line without comments, strings and character constants; keeps in_comment between lines.
function code(line,    out, c, two, quote) {
    out = ""
    while (line != "") {
        c = substr(line, 1, 1); two = substr(line, 1, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; line = substr(line, 3) } else line = substr(line, 2)
        } else if (quote != "") {
            if (c == "\\") { line = substr(line, 3); continue }
            if (c == quote) { quote = ""; out = out c }
            line = substr(line, 2)
        } else if (two == "/*") { in_comment = 1; out = out " "; line = substr(line, 3) }
        else if (two == "//") return out
        else {
            if (c == "\"" || c == "\047") quote = c
            out = out c
            line = substr(line, 2)
        }
    }
    return out
}

# A block is what stands between blank lines of a header: one comment may cover several functions.
function end_block() {
    if (block_function && block !~ /(Local|Collective)/ && !covered)
        printf "%s:%d: no Local or Collective in the comment of %s\n", file, block_function, \
            block_name
    block = ""; block_function = 0
}
function end_file() {
    if (file == "") return
    end_block()
    if (lines > 800) printf "%s: %d lines, at most 800\n", file, lines
    else if (lines > 400 && file ~ /^src/)
        printf "%s: warning: %d lines, better under 400\n", file, lines
    if (file ~ /^src.*[.]h$/ && !once && !many) printf "%s:1: no #pragma once\n", file
}
FNR == 1 {
    end_file()
    file = FILENAME; in_comment = 0; lines = 0; once = many = covered = 0; body = 0; depth = 0
    in_src = file ~ /^src\//
    header = in_src && file ~ /[.]h$/
    folder = file; sub(/^src\//, "", folder); sub(/[\/.].*/, "", folder)
    if ($0 !~ /^\/\*/) bad("does not begin with a comment on what it is")
    if (in_src && !(folder in level)) bad("folder " folder " has no level (tests/lint.sh)")
}
{ lines++; raw = $0; text = code($0) }
/#pragma once/ { once = 1 }
/No guard/ { many = 1 }
/All are (Local|Collective)/ { covered = 1 }
in_src && /^[ \t]*#[ \t]*include/ {
    name = $0; sub(/^[^"<]*["<]/, "", name); sub(/[">].*/, "", name)
    if ($0 ~ /include[ \t]*"/) {
        if (name !~ /\//) bad("include \"" name "\" by its folder")
        else {
            other = name; sub(/\/.*/, "", other)
            if (!(other in level)) bad("include of \"" name "\": no such level")
            else if (other != folder && level[other] >= level[folder])
                bad(folder " (level " level[folder] ") may not include " other " (level " \
                    level[other] ")")
        }
    }
    for (f in fence) if (index(name, f) == 1 && file !~ fence[f])
        bad("<" name "> only in " fence[f])
}
in_src && file != "src/base/err.c" {
    if (match(text, /(^|[^A-Za-z0-9_])(assert|exit|_exit|abort|perror|rand|srand)[ \t]*\(/))
        bad("banned: " substr(text, RSTART, RLENGTH))
}
# Functions: from a brace in the first column to its end.
/^\{/ { body = FNR }
/^\}/ { if (body && FNR - body - 1 > 100) bad("function of " FNR - body - 1 " lines, at most 100")
        body = 0 }
header {
    if (raw ~ /^[ \t]*$/) end_block()
    else {
        block = block " " raw
        if (depth == 0 && text ~ /^[a-z].*[a-z0-9_][ \t]*\(/ &&
            text !~ /^(static|typedef|struct [a-z_]+ \{)/) {
            if (!block_function) {
                block_function = FNR
                block_name = text; sub(/[ \t]*\(.*/, "", block_name); sub(/.*[ *]/, "", block_name)
            }
        }
    }
    depth += gsub(/\{/, "{", text) - gsub(/\}/, "}", text)
}
END { end_file() }'
# shellcheck disable=SC2086
awk "$rules" $sources >>"$report"

# Every text: columns (in characters), blanks, tabs, marks of unfinished work, paths of one machine.
here='(ho''me|wo''rk|ro''ot|Us''ers)'
marks='(TO''DO|FIX''ME|X''XX|HA''CK)'
fast='-(ffast-ma''th|Ofa''st)'
# shellcheck disable=SC2086
awk -v here="(^|[^A-Za-z0-9_.}])/$here/" -v marks="(^|[^A-Za-z_])$marks([^A-Za-z_]|\$)" \
    -v fast="$fast" '
    function bad(what) { printf "%s:%d: %s\n", FILENAME, FNR, what }
    {
        n = length($0)
        copy = $0
        n -= gsub(/[\200-\277]/, "", copy)
    }
    n > 100 && FILENAME !~ /[.]md$/ { bad(n " columns, at most 100") }
    /[ \t]$/ { bad("blank at the end of the line") }
    /\t/ && FILENAME !~ /Makefile$/ { bad("tab") }
    /\r/ { bad("carriage return") }
    $0 ~ marks { bad("mark of unfinished work") }
    $0 ~ here { bad("path of one machine") }
    $0 ~ fast { bad("banned compiler flag") }' $texts >>"$report"

for script in $scripts; do
    bash -n "$script" 2>>"$report" || echo "$script:1: shell syntax" >>"$report"
done

# Variables at file scope, by what the compiler made of them.  Allowed: the last error of a thread
# and the hook that ends the job, the flag that a signal sets, oneDNN's engine.
globals() {
    objdump -t "$1" | awk -v file="$1" '
        / [lgu].....O [.](data|bss|tdata|tbss)([.][^ \t]*)?[ \t]/ || /O [*]COM[*]/ {
            section = $0; sub(/.*O /, "", section); sub(/[ \t].*/, "", section)
            if (section ~ /^[.]data[.]rel[.]ro/) next
            name = $NF; sub(/[.][0-9]+$/, "", name)
            if (file ~ /base\/err[.]o$/ && name ~ /^(last_text|end_job_hook)$/) next
            if (file ~ /train\/stop[.]o$/ && name ~ /^stop_signal$/) next
            if (file ~ /cpu\/matmul_onednn[.]o$/ && name ~ /^engine$/) next
            printf "%s: variable at file scope: %s (%s)\n", file, name, section
        }'
}
objects=$(find build/release -name '*.o' 2>/dev/null)
if [ -n "$objects" ] && command -v objdump >/dev/null 2>&1; then
    for object in $objects; do
        source=src/${object#build/release/}
        source=${source%.o}
        for isa in base avx2 avx512; do source=${source%."$isa"}; done
        [ -e "$source.c" ] && globals "$object" >>"$report"
    done
else
    echo "lint: build/release holds no objects, so no look at variables of file scope"
fi

# clang-tidy with the flags that the Makefile uses; system headers are left alone by .clang-tidy.
tidy() {
    config=$(sh tests/probe.sh) || return
    flags=$(sed -n 's/^[A-Z0-9]*_CFLAGS := //p' "$config" | tr '\n' ' ')
    flags="$flags $(sed -n 's/^\(HAVE_[A-Z0-9]*\) := 1/-D\1/p' "$config" | tr '\n' ' ')"
    mpi=$(mpicc --showme:compile 2>/dev/null | sed 's/-I/-isystem /g')
    find src -name '*.c' | sort | xargs -P "$(nproc)" -n 1 sh -c '
        clang-tidy --quiet "$1" -- -std=c11 -D_GNU_SOURCE -Isrc -fopenmp \
            -DKERNEL_ISA=base -DKERNEL_DTYPE=f32 $0 2>/dev/null' "$flags $mpi" |
        grep -E ': (warning|error): ' | sed "s,^$PWD/,,; s/: warning: /: tidy: /" | sort -u
}

if [ $all = 1 ]; then
    if command -v clang-format >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        clang-format --dry-run $sources 2>&1 | grep 'warning:' |
            sed 's/warning: code should be/not/; s/ \[-W.*//' >>"$report"
    else
        echo "lint: clang-format is not installed, left out"
    fi
    if command -v clang-tidy >/dev/null 2>&1; then
        tidy >>"$report"
    else
        echo "lint: clang-tidy is not installed, left out"
    fi
fi

cat "$report"
if grep -v ': warning: ' "$report" | grep -q .; then
    echo "lint: $(grep -vc ': warning: ' "$report") findings"
    exit 1
fi
echo "lint: clean"
