#!/bin/sh
# What this machine can build with, found by compiling and linking small programs: the answer is a
# make include file, kept in build/ under a name made of the settings.  Prints that file's name.
#
# Settings (environment): CC MPICC HDF5_ROOT ONEDNN_ROOT INIPARSER_ROOT ZLIB_ROOT CBLAS_ROOT
# URING_ROOT, ONEDNN=auto|0|1 CBLAS=auto|0|1 URING=auto|0|1, FRESH=1 to ask again although an answer
# is there.
# A file in which something needed is missing (MISSING := ...) is never taken for an answer.
set -u
: "${CC:=cc}" "${MPICC:=mpicc}" "${ONEDNN:=auto}" "${CBLAS:=auto}" "${URING:=auto}" "${FRESH:=0}"
: "${HDF5_ROOT:=}" "${ONEDNN_ROOT:=}" "${INIPARSER_ROOT:=}" "${ZLIB_ROOT:=}" "${CBLAS_ROOT:=}"
: "${URING_ROOT:=}"
export OMPI_CC="$CC" MPICH_CC="$CC"

key="$CC|$MPICC|$HDF5_ROOT|$ONEDNN_ROOT|$INIPARSER_ROOT|$ZLIB_ROOT|$CBLAS_ROOT|$ONEDNN|$CBLAS"
key="$key|$URING_ROOT|$URING"
out=build/config-$(echo "$key" | cksum | cut -d' ' -f1).mk
if [ "$FRESH" = 0 ] && [ -s "$out" ] && [ ! "$0" -nt "$out" ] &&
    grep -q '^MISSING :=$' "$out"; then
    echo "$out"
    exit 0
fi

mkdir -p build
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
missing=

# try COMPILER FLAGS: does the program on standard input compile and link?
try() {
    cat >"$tmp/$$.c"
    # shellcheck disable=SC2086
    $1 $2 -o "$tmp/$$.out" "$tmp/$$.c" $3 >"$tmp/log" 2>&1
}

pkg() {
    pkg-config "$@" 2>/dev/null
}

# Third-party headers are system headers: our warnings are for our code.
system() {
    echo " $1" | sed -e 's, -I/usr/include\( \|$\), ,g' -e 's/ -I/ -isystem /g' -e 's/^ *//'
}

# root DIR LIBS: flags for a library in a folder of its own ("cflags|libs")
root() {
    for lib in lib lib64; do
        [ -d "$1/$lib" ] && echo "-isystem $1/include|-L$1/$lib -Wl,-rpath,$1/$lib $2"
    done
}

# look NAME PROGRAM COMPILER CANDIDATES: the first "cflags|libs" line that works
look() {
    found_cflags= found_libs=
    while IFS='|' read -r cflags libs; do
        cflags=$(system "$cflags")
        if [ -n "$libs" ] && echo "$2" | try "$3" "$cflags" "$libs"; then
            found_cflags=$cflags found_libs=$libs
            return 0
        fi
    done <<END
$4
END
    return 1
}

print_found() {
    echo "HAVE_$1 := $2"
    echo "$1_CFLAGS := $found_cflags"
    echo "$1_LIBS := $found_libs"
}

probe_compiler() {
    machine=$($CC -dumpmachine 2>/dev/null) || machine=
    if ! echo 'int main(void) { return 0; }' | try "$CC" "" ""; then
        missing="$missing compiler"
    elif ! printf '#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n' |
        try "$CC" -fopenmp ""; then
        missing="$missing openmp"
    fi
    isas=base
    case $machine in
    x86_64-*)
        for pair in avx2:x86-64-v3 avx512:x86-64-v4; do
            echo 'int main(void) { return 0; }' | try "$CC" "-march=${pair#*:}" "" &&
                isas="$isas ${pair%%:*}"
        done
        ;;
    esac
    echo "MACHINE := $machine"
    echo "ISAS := $isas"
}

probe_mpi() {
    have=0
    printf '#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n' |
        try "$MPICC" "" "" && have=1
    [ $have = 1 ] && command -v mpirun >/dev/null 2>&1 || missing="$missing mpi"
    echo "HAVE_MPI := $have"
}

hdf5_candidates() {
    if [ -n "$HDF5_ROOT" ]; then
        root "$HDF5_ROOT" -lhdf5
        return
    fi
    for name in hdf5-serial hdf5 hdf5-openmpi; do
        echo "$(pkg --cflags $name)|$(pkg --libs $name)"
    done
    for kind in serial openmpi; do
        echo "-I/usr/include/hdf5/$kind|-L/usr/lib/$multiarch/hdf5/$kind -lhdf5"
    done
    echo "|-lhdf5"
}

probe_hdf5() {
    multiarch=$($CC -print-multiarch 2>/dev/null)
    have=1 hdf5_cc=
    program='#include <hdf5.h>
int main(void) { return H5open() < 0 || H5F_LIBVER_V18 < 0; }'
    candidates=$(hdf5_candidates)
    if look HDF5 "$program" "$CC" "$candidates"; then
        hdf5_cc=$CC
    elif look HDF5 "$program" "$MPICC" "$candidates"; then
        hdf5_cc=$MPICC # the parallel library's header includes mpi.h
    else
        have=0
        missing="$missing hdf5"
    fi
    print_found HDF5 $have
    echo "HDF5_CC := $hdf5_cc"
}

probe_iniparser() {
    have=1
    program='#include <iniparser.h>
int main(void) { return iniparser_load("") != 0; }'
    if [ -n "$INIPARSER_ROOT" ]; then
        candidates=$(root "$INIPARSER_ROOT" -liniparser
            root "$INIPARSER_ROOT" -liniparser | sed 's,/include|,/include/iniparser|,')
    else
        candidates="$(pkg --cflags iniparser)|$(pkg --libs iniparser)
|-liniparser
-I/usr/include/iniparser|-liniparser
-I/usr/local/include/iniparser|-L/usr/local/lib -liniparser"
    fi
    look INIPARSER "$program" "$CC" "$candidates" || { have=0 && missing="$missing iniparser"; }
    print_found INIPARSER $have
}

probe_zlib() {
    have=1
    if [ -n "$ZLIB_ROOT" ]; then
        candidates=$(root "$ZLIB_ROOT" -lz)
    else
        candidates="|-lz
$(pkg --cflags zlib)|$(pkg --libs zlib)"
    fi
    look ZLIB '#include <zlib.h>
int main(void) { return gzopen("", "rb") != 0; }' "$CC" "$candidates" ||
        { have=0 && missing="$missing zlib"; }
    print_found ZLIB $have
}

# optional NAME WANTED ROOT PROGRAM CANDIDATES: 0 is not looked for; 1, or a root, must be there
optional() {
    have=0 found_cflags= found_libs=
    case $2 in
    0) ;;
    auto | 1)
        if look "$1" "$4" "$CC" "$5"; then
            have=1
        elif [ "$2" = 1 ] || [ -n "$3" ]; then
            missing="$missing $(echo "$1" | tr A-Z a-z)"
        fi
        ;;
    *)
        echo "$1=$2: allowed are auto, 0 and 1" >&2
        missing="$missing $1=$2"
        ;;
    esac
    print_found "$1" $have
}

probe_onednn() {
    if [ -n "$ONEDNN_ROOT" ]; then
        candidates=$(root "$ONEDNN_ROOT" -ldnnl)
    else
        candidates="|-ldnnl
$(pkg --cflags dnnl)|$(pkg --libs dnnl)"
    fi
    optional ONEDNN "$ONEDNN" "$ONEDNN_ROOT" '#include <dnnl.h>
int main(void) { return dnnl_version()->major < 2; }' "$candidates"
}

probe_cblas() {
    if [ -n "$CBLAS_ROOT" ]; then
        candidates=$(root "$CBLAS_ROOT" -lopenblas)
    else
        candidates="$(pkg --cflags openblas)|$(pkg --libs openblas)
|-lopenblas
-I/usr/include/openblas|-lopenblas"
    fi
    optional CBLAS "$CBLAS" "$CBLAS_ROOT" '#include <cblas.h>
int main(void) { return cblas_sasum(0, 0, 1) != 0; }' "$candidates"
}

probe_uring() {
    if [ -n "$URING_ROOT" ]; then
        candidates=$(root "$URING_ROOT" -luring)
    else
        candidates="$(pkg --cflags liburing)|$(pkg --libs liburing)
|-luring"
    fi
    optional URING "$URING" "$URING_ROOT" '#include <liburing.h>
int main(void) { struct io_uring r; return io_uring_queue_init(1, &r, 0); }' "$candidates"
}

{
    echo "# $key"
    probe_compiler
    probe_mpi
    probe_hdf5
    probe_iniparser
    probe_zlib
    probe_onednn
    probe_cblas
    probe_uring
    echo "MISSING :=$missing"
} >"$tmp/config.mk"
mv "$tmp/config.mk" "$out" && echo "$out"
