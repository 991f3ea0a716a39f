#!/usr/bin/env bash
# scripts/aarch64_sysroot.sh FOLDER: unpacks the libraries' arm64 Debian packages into FOLDER for the cross build.
# They are fetched with lists of apt's own format in FOLDER, so the machine's architectures and packages stay as they are.
set -euo pipefail
folder=${1:?usage: scripts/aarch64_sysroot.sh FOLDER}
packages=(libyaml-dev libyaml-0-2 libcjson-dev libcjson1 libxxhash-dev libpcre2-dev libpcre2-8-0 libutf8proc-dev
    libutf8proc2 libzstd-dev libzstd1)

mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/debs"
folder=$(cd "$folder" && pwd)
apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$folder/apt" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User= "$@" </dev/null
}
log=$folder/apt/log
apt update >"$log" 2>&1 || true # one unreachable source of several is no reason to stop
cd "$folder/debs"
if ! apt download "${packages[@]}" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "aarch64: could not fetch the arm64 packages ${packages[*]}" >&2
    exit 1
fi
for deb in *.deb; do dpkg -x "$deb" "$folder"; done
rm -rf "$folder/apt"
