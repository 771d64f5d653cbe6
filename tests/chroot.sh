#!/bin/bash
# The README's two commands on a truly fresh system: bash tests/chroot.sh SUITE [COMMAND ...]
#
#   SUITE      bookworm, trixie, jammy, noble, … : whatever debootstrap and the host's mirror know
#   COMMAND    instead of "make demo" and "make test"
#
# Installs a minimal system with debootstrap from the mirror that this machine's apt uses, puts a
# clone of this repository's last commit in it, and make, without which nobody types make.
# Prints a line PASS or FAIL with the seconds for every command; of what failed the last lines, and
# the name of the file under TMPDIR in which all of its output stays.
# Needs root, debootstrap, 2 GB under TMPDIR.  MIRROR and KEYRING (environment) override what apt
# says; KEEP=1 leaves the folder there.
set -u
suite=${1:?usage: bash tests/chroot.sh SUITE [COMMAND ...]}
shift
[ $# -gt 0 ] || set -- "make demo" "make test"
repo=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "chroot.sh: needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "chroot.sh: needs debootstrap" >&2; exit 2; }

case $suite in
focal | jammy | noble | plucky) origin=Ubuntu ;;
*) origin=Debian ;;
esac
# The archive itself, not its security or update suites, as apt knows it.
# shellcheck disable=SC2016
source=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' \
    'Created-By: Packages' 2>/dev/null |
    awk -v origin=$origin '$1 == origin && $2 !~ /-/ && $3 !~ /security/ { print; exit }')
mirror=${MIRROR:-$(echo "$source" | cut -d' ' -f3)}
keyring=${KEYRING:-/usr/share/keyrings/${origin,,}-archive-keyring.gpg}
if [ -z "$mirror" ]; then
    echo "chroot.sh: apt here knows no $origin archive; say MIRROR=URL" >&2
    exit 2
fi
[ -r "$keyring" ] || { echo "chroot.sh: no $keyring; say KEYRING=FILE" >&2; exit 2; }

base=$(mktemp -d) || exit 2
root=$base/root
log=$base/log
mkdir -p "$root"

finish() {
    local mount
    awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mount; do umount "$mount" || umount -l "$mount"; done
    if grep -q " $root/" /proc/mounts; then
        echo "chroot.sh: could not unmount everything under $root, left there" >&2
    elif [ "${KEEP:-0}" = 1 ]; then
        echo "kept: $root"
    else
        rm -rf --one-file-system "$base"
    fi
}
trap finish EXIT
trap 'exit 130' INT TERM

# The log goes with the chroot, but what failed may take minutes to fail once more.
keep_log() {
    local kept
    if kept=$(mktemp "${TMPDIR:-/tmp}/chroot-$suite.XXXXXX.log") && cp "$log" "$kept"; then
        chmod 644 "$kept"
        echo "     full log: $kept"
    else
        echo "chroot.sh: could not keep the full log" >&2
    fi
}

failed=0
# timed NAME COMMAND…: one line of result
timed() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        echo "PASS $suite: $name ($((SECONDS - start)) s)"
        grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1
    else
        echo "FAIL $suite: $name ($((SECONDS - start)) s)"
        tail -40 "$log" | sed 's/^/     | /'
        keep_log
        failed=1
        return 1
    fi
}

inside() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LANG=C.UTF-8 CI="${CI:-}" DEBIAN_FRONTEND=noninteractive chroot "$root" bash -c "$1"
}

prepare() {
    # mpirun looks up the cores under /sys; what makes machines and containers mounts it as well
    mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev" &&
        mount -t sysfs -o ro sysfs "$root/sys" &&
        mount -t tmpfs -o size=1g tmpfs "$root/dev/shm" &&
        mount -t tmpfs tmpfs "$root/tmp" || return
    cp /etc/resolv.conf "$root/etc/resolv.conf" || return
    # Proxies and certificates of this machine's apt; its answers for the chroot's apt.
    apt-config dump | grep -E '^Acquire::(https?|ftp)::?(Proxy|Timeout|.*CaInfo)' \
        >"$root/etc/apt/apt.conf.d/99host"
    if [ -d /usr/local/share/ca-certificates ]; then
        mkdir -p "$root/usr/local/share" && cp -rL /usr/local/share/ca-certificates \
            "$root/usr/local/share/"
    fi
    components=main
    [ $origin = Ubuntu ] && components="main universe"
    echo "deb $mirror $suite $components" >"$root/etc/apt/sources.list"
    inside "apt-get update -q && apt-get install -y -q --no-install-recommends make" || return
    git clone -q --no-hardlinks "$repo" "$root/stretto"
}

echo "$suite from $mirror"
timed "debootstrap" debootstrap --variant=minbase --keyring="$keyring" "$suite" "$root" "$mirror" ||
    exit 1
timed "clone, make" prepare || exit 1
for command in "$@"; do
    timed "$command" inside "cd /stretto && $command"
done
exit $failed
