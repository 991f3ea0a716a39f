#!/usr/bin/env bash
# scripts/setup.sh [build|check|bench|aarch64 ...]: installs what the level needs from Debian packages, as root or with sudo.
# Asks nothing, does nothing (and takes no time) where everything is there, and needs only what a bare Debian 12 has.
set -euo pipefail

packages_of() {
    case $1 in
    build) echo gcc libc6-dev make pkg-config libyaml-dev libcjson-dev libxxhash-dev libpcre2-dev libutf8proc-dev libzstd-dev \
        libsqlite3-dev ca-certificates ;;
    check) echo "$(packages_of build)" g++ binutils util-linux zstd libopenmpi-dev openmpi-bin procps \
        slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 shellcheck chromium librsvg2-bin sqlite3 libxml2-utils ;;
    bench) echo "$(packages_of build)" libdnnl-dev ;;
    aarch64) echo "$(packages_of build)" gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static ;;
    *) echo "setup: no level \"$1\"; levels: build, check, bench, aarch64" >&2 && return 2 ;;
    esac
}

missing() { # PACKAGES...: those not installed
    local installed package
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true)
    for package in "$@"; do grep -qx "$package" <<<"$installed" || echo "$package"; done
}

[[ $# -gt 0 ]] || set -- build
wanted=()
for level in "$@"; do
    list=$(packages_of "$level")
    read -ra more <<<"$list"
    wanted+=("${more[@]}")
done
if ! command -v dpkg-query apt-get >/dev/null; then
    echo "setup: no Debian here: install by hand what these packages hold: ${wanted[*]}" >&2
    exit 0
fi
mapfile -t lacking < <(missing "${wanted[@]}" | sort -u)
[[ ${#lacking[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "setup: run as root: apt-get install ${lacking[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" </dev/null; }

echo "setup: installing ${lacking[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A stale list names versions that are gone, so a failed install is repeated once with a fresh one.
install() { apt install --no-install-recommends "${lacking[@]}" >"$log" 2>&1; }
lists_here() { compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; }
if ! lists_here || ! install; then
    apt update >"$log" 2>&1 || true # one unreachable source of several is no reason to stop
    if ! install; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get could not install: ${lacking[*]}" >&2
        exit 1
    fi
fi
