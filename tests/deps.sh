#!/bin/sh
# Install what the build needs and this machine lacks.  What is missing is what does not compile and
# link (tests/probe.sh), whatever a package list says.  With nothing missing it prints nothing.
# Takes the settings of tests/probe.sh from the environment.
set -u
here=$(dirname "$0")
: "${CC:=cc}"

# One line a thing: probe's name, apt packages, dnf packages, usual module names
things() {
    cat <<'END'
make|make|make|
compiler|gcc libc6-dev|gcc glibc-devel|gcc
openmp|gcc|libgomp|gcc
mpi|openmpi-bin libopenmpi-dev|openmpi-devel|openmpi
hdf5|libhdf5-dev|hdf5-devel|hdf5 (with zlib), HDF5_ROOT=$EBROOTHDF5
iniparser|libiniparser-dev|iniparser-devel|iniparser, INIPARSER_ROOT=FOLDER
zlib|zlib1g-dev|zlib-devel|zlib, ZLIB_ROOT=$EBROOTZLIB
onednn|libdnnl-dev|onednn-devel|oneDNN (optional), ONEDNN_ROOT=FOLDER
cblas|libopenblas-dev|openblas-devel|openblas (optional), CBLAS_ROOT=FOLDER
uring|liburing-dev|liburing-devel|liburing (optional), URING_ROOT=FOLDER
END
}

column() {
    things | while IFS='|' read -r name apt dnf module; do
        for want in $1; do
            [ "$want" = "$name" ] || continue
            case $2 in
            apt) echo "$apt" ;;
            dnf) echo "$dnf" ;;
            *) [ -z "$module" ] || echo "$module" ;;
            esac
        done
    done
}

line() {
    column "$1" "$2" | tr '\n' ' '
}

# Sets required and optional to the names of what is not there.
ask() {
    config=$(FRESH=$1 sh "$here/probe.sh") || exit 1
    required=$(sed -n 's/^MISSING := *//p' "$config")
    command -v make >/dev/null 2>&1 || required="make $required"
    optional=
    [ "${ONEDNN:-auto}" = auto ] && grep -q '^HAVE_ONEDNN := 0' "$config" && optional="onednn"
    [ "${CBLAS:-auto}" = auto ] && grep -q '^HAVE_CBLAS := 0' "$config" &&
        optional="$optional cblas"
    [ "${URING:-auto}" = auto ] && grep -q '^HAVE_URING := 0' "$config" &&
        optional="$optional uring"
    return 0
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "$@" >build/apt.log 2>&1
}

# Packages of one line, after an update of the lists if apt does not know them or they are gone.
install() {
    echo "installing: $*"
    apt_install "$@" && return 0
    as_root apt-get update -q -o DPkg::Lock::Timeout=120 >build/apt-update.log 2>&1
    apt_install "$@"
}

can_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null
}

give_up() {
    {
        echo "missing: $required"
        echo "$1"
        echo "  apt:     apt-get install $(line "$required" apt)"
        echo "  dnf:     dnf install $(line "$required" dnf)"
        echo "  modules: $(column "$required" module | sed '2,$s/^/           /')"
    } >&2
    exit 1
}

ask 0
tried=build/optional-tried
if [ -z "$required" ] && { [ -z "$optional" ] || [ -e $tried ]; }; then
    exit 0
fi
mkdir -p build
if ! can_install; then
    [ -z "$required" ] && exit 0
    give_up "No apt-get, or neither root nor sudo without a password.  Install, or load as modules:"
fi

if [ -n "$required" ]; then
    # pkg-config helps to find what is installed; a machine that can compile may do without
    # shellcheck disable=SC2046
    if ! install pkg-config $(line "$required" apt); then
        tail -5 build/apt.log >&2
        give_up "apt-get could not install it (build/apt.log, build/apt-update.log).  By hand:"
    fi
fi
for name in $optional; do
    # shellcheck disable=SC2046
    install $(line "$name" apt) || echo "not available here: $name (optional), going on without it"
done
: >$tried

ask 1
[ -z "$required" ] || give_up "It is installed, but a small program does not compile with it:"
