#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the optional tests run, from Debian's own packages: Nsight Systems (nsys), Nsight Compute
# (ncu) and Chromium. For a Debian machine, as root; may be run again. What cannot be installed costs one
# line of warning and its tests skip: the exit status is 0 all the same.
#
# The two profilers lie in non-free and need packages of contrib. Both components are asked for in a
# package list of our own, so that the machine's own sources stay as they are.
set -uo pipefail

warn() {
    echo "install_nsight: $*" >&2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

link_importer() {
    # nsys looks for its importer beside its real path; Debian keeps it elsewhere.
    local importer=/usr/lib/nsight-systems/host-linux-x64
    local target=/usr/lib/x86_64-linux-gnu/nsight-systems
    if [ -d "$importer" ] && [ -d "$target" ] && [ ! -e "$target/host-linux-x64" ]; then
        ln -s "$importer" "$target/host-linux-x64"
    fi
}

install_packages() {
    local sources=/etc/apt/sources.list.d/debian.sources
    [ -r "$sources" ] || { warn "no $sources: nothing installed"; return 1; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial"
    sed 's/^Components:.*/Components: main contrib non-free non-free-firmware/' "$sources" \
        >"$work/all.sources"
    chmod -R a+rX "$work" # apt reads as its own user
    local options=(
        -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::Etc::sourcelist=$work/all.sources"
        -o "Dir::State::Lists=$work/lists"
        -o DPkg::Lock::Timeout=300
        -o Acquire::Retries=3
    )
    apt-get "${options[@]}" -qq update || { warn "apt-get update failed"; return 1; }
    DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" -qq install -y \
        --no-install-recommends "$@" >"$work/log" 2>&1 || {
        warn "apt-get install $* failed: $(grep -m1 '^E:' "$work/log" || tail -n 1 "$work/log")"
        return 1
    }
}

main() {
    local wanted=()
    have nsys || wanted+=(nsight-systems)
    have ncu || wanted+=(nsight-compute)
    have chromium || wanted+=(chromium)
    if [ ${#wanted[@]} -gt 0 ]; then
        if [ "$(id -u)" -ne 0 ] || ! have apt-get; then
            warn "not root on a Debian machine: ${wanted[*]} not installed, their tests skip"
            return 0
        fi
        install_packages "${wanted[@]}" || warn "tests of what is missing of ${wanted[*]} skip"
    fi
    if have nsys; then
        link_importer || warn "cannot link the importer of nsys: its tests may skip"
    fi
    return 0
}

main
