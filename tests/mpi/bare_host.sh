#!/usr/bin/env bash
# A job on a host without /etc/hosts, without names of any kind and without a folder for temporary files: bare_host.sh BUILD SOURCE
# Open MPI itself needs such a folder: its is in shared memory, as a user would say by TMPDIR.
set -euo pipefail
build=$1 source=$2
if [[ ${3-} != inside ]]; then
    unshare --mount --net true 2>/dev/null || { echo "SKIPPED: this place allows no mounts of its own"; exit 77; }
    exec unshare --mount --net --propagation private bash "$0" "$build" "$source" inside
fi

fail() { printf 'bare_host: %s\n' "$*" >&2; exit 1; }
# What is below /tmp stays visible: a build may be there.
none=$(mktemp -p /dev/shm) scratch=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$none" "$scratch"' EXIT
for file in /etc/hosts /etc/resolv.conf /etc/nsswitch.conf; do
    if [[ -e $file ]]; then mount --bind "$none" "$file"; fi
done
for folder in /tmp /var/tmp; do
    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
! touch /tmp/ucx-mp-bare 2>/dev/null || fail "/tmp can be written to"
! getent hosts localhost >/dev/null || fail "names are still found"
if command -v ip >/dev/null; then ip link set lo up || true; fi

export UCX_TLS=mp_rc UCX_LOG_LEVEL=warn UCT_MP_LIBRARY=$build/lib/libuct_mp.so HOME=/nonexistent XDG_CACHE_HOME=/nonexistent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run() { timeout 90 "$build/bin/softhca" run --fabric two-rail "$@" 2>&1; }
text=$(LD_PRELOAD=$UCT_MP_LIBRARY run --node 0 -- ucx_info -d) || fail "ucx_info: $text"
[[ $text == *"Transport: mp_rc"* ]] || fail "UCX sees no mp_rc: $text"
text=$(run -- "$build/bin/mp_info") || fail "mp_info: $text"
text=$(TMPDIR=$scratch run -- "$source/config/openmpi/mpirun-mp" --oversubscribe --bind-to none -n 2 "$build/bin/mpi_storm" 10000 1) ||
    fail "the job: $text"
[[ $text == *"2 ranks ok"* ]] || fail "the job: $text"
# Open MPI says what it lacks, not we.
text=$(run -- "$source/config/openmpi/mpirun-mp" -n 2 "$build/bin/mpi_storm" 10000 1) && fail "Open MPI does without: $text"
[[ $text != *"softhca:"* ]] || fail "softhca complains: $text"
printf '%s\n' "$text" | head -3
