#!/usr/bin/env bash
# `make quickstart`: from a bare machine to text from a small model that learned it on this machine's CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/parts.sh
source scripts/parts.sh
run=runs/quickstart
moetitan=build/release/moetitan

part() { # NAME COMMAND...
    begin_part "$1"
    "${@:2}"
    end_part ""
}

pack() { # byte by byte, one document each
    local split
    for split in train valid; do
        $moetitan data pack "$run/$([[ $split == train ]] && echo corpus || echo valid).txt" -o "$run/$split"
    done
}

mkdir -p $run
part "set-up" scripts/setup.sh build
part "build" make -s -j"$jobs" release
part "corpus" scripts/corpus.sh $run
part "pack" pack
part "train" $moetitan train configs/quickstart.yaml
part "sample" $moetitan sample $run --prompt "And the LORD said unto "
print_parts
