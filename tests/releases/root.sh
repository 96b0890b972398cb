# Root file systems of releases of Debian. Sourced by run, packages and newcomer, which say by skip WHY that one cannot be had.
# shellcheck shell=bash
roots=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/ucx-mp/roots

roots_can_be_made() {
    ((EUID == 0)) || skip "a root file system needs root"
    unshare --mount --pid --fork true 2>/dev/null || skip "this place allows no mounts of its own (unshare --mount)"
    mkdir -p "$roots"
}

# make_root SUITE FOLDER: the release's smallest system with apt, from the archive that this machine uses itself.
make_root() {
    local suite=$1 folder=$2 archive
    command -v mmdebstrap >/dev/null || "$source_root/cmake/install-deps" --root --no-apps >"$folder.log" 2>&1 ||
        skip "cmake/install-deps --root failed ($folder.log)"
    # shellcheck disable=SC2016 # apt's own variables
    archive=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian|//p' | grep -v security | head -1)
    [[ -n $archive ]] || skip "no Debian archive in apt's configuration"
    rm -rf "$folder.new"
    mmdebstrap --variant=apt --include=ca-certificates "$suite" "$folder.new" "$archive" >"$folder.log" 2>&1 || {
        tail -5 "$folder.log" >&2
        rm -rf "$folder.new"
        skip "mmdebstrap failed ($folder.log)"
    }
    rm -rf "$folder" && mv "$folder.new" "$folder"
}

# mount_system ROOT: in a mount name space of its own, which ends with its last process.
mount_system() {
    local root=$1 file
    mount --bind "$root" "$root" # a place to mount from, for name spaces and roots within it
    for file in /etc/hosts /etc/resolv.conf; do if [[ -e $file ]]; then cp -L "$file" "$root$file"; fi; done
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
}

# clean_root SUITE: a copy of the smallest system to work in, `root`; it goes with the script.
clean_root() {
    local clean=$roots/clean-$1
    mkdir -p "$roots/archives-$1/"{,lists/}partial
    [[ -e $clean/etc/os-release ]] || make_root "$1" "$clean"
    root=$(mktemp -d "$roots/${0##*/}.XXXXXX")
    trap 'rm -rf --one-file-system "$root"' EXIT
    cp -a --reflink=auto "$clean/." "$root"
    mkdir -p "$root/archives" "$root/job"
}

# in_clean_root SUITE COMMAND...: there, with processes of its own, and what apt has fetched in /archives. The folder `suites`,
# if that is set, is in /root/shared/suites, read-only.
in_clean_root() {
    local suite=$1
    shift
    if [[ -n ${suites-} ]]; then mkdir -p "$root/root/shared/suites"; fi
    unshare --mount --pid --fork --kill-child --propagation private bash -c "$(declare -f mount_system)"'
        set -euo pipefail
        root=$1
        mount_system "$root"
        mount --bind "$2" "$root/archives"
        if [[ -n $3 ]]; then
            mount --bind "$3" "$root/root/shared/suites"
            mount -o remount,bind,ro "$root/root/shared/suites"
        fi
        shift 3
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
        ' in_clean_root "$root" "$roots/archives-$suite" "${suites-}" "$@"
}
