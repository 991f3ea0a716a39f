#!/usr/bin/env bash
# Checks that includes follow src/LAYERS: a file sees its own folder and folders of lower lines, nothing else.
# Vendor headers stay in their folders: CUDA's and NCCL's in cuda/, mpi.h in src/comm/. MT_HAVE_* is read with #if
# (features.h defines each as 0 or 1) and only in registries, files called registry.c.
set -euo pipefail
cd "$(dirname "$0")/.."

{
    grep -v '^#' src/LAYERS | nl -ba | sed 's/^/LAYER /'
    grep -rnE '^[[:space:]]*#[[:space:]]*(include|if|ifdef|ifndef|elif)\b' src cuda --include='*.[ch]' --include='*.def' \
        --include='*.cu' --include='*.cuh' --include='*.cc' || true
} | awk '
    $1 == "LAYER" { for (i = 3; i <= NF; i++) height[$i] = $2; next }
    function complain(what) { print place ": " what; bad++ }
    {
        split($0, at, ":")
        file = at[1]
        place = at[1] ":" at[2]
        text = substr($0, length(place) + 2)
        parts = split(file, path, "/")
        folder = path[1] == "cuda" ? "cuda" : parts > 2 ? path[2] : "main"
        seen[folder]++
        files++
    }
    text ~ /MT_HAVE_/ && (file !~ /\/registry\.c$/ || text ~ /ifn?def|defined/) {
        complain("MT_HAVE_* belongs in a registry.c, as #if")
    }
    text ~ /<(cuda|cublas|cudnn|nccl|nvtx)[A-Za-z0-9_]*\.h>/ && folder != "cuda" { complain("CUDA headers belong in cuda/") }
    text ~ /<mpi\.h>/ && folder != "comm" { complain("mpi.h belongs in src/comm/") }
    text ~ /include[[:space:]]*"/ {
        split(text, quoted, "\"")
        if (split(quoted[2], to, "/") < 2) {
            if (folder != "cuda") complain("\"" quoted[2] "\": includes are relative to src/, as \"device/op.h\"")
            next
        }
        if (folder == "main") next
        if (!(to[1] in height)) {
            if (to[1] != folder) complain("\"" quoted[2] "\": no line of src/LAYERS has " to[1])
        } else if (folder == "cuda") {
            if (to[1] !~ /^(device|comm|base)$/) complain("cuda/ sees device, comm and base only, not " to[1])
        } else if (!(folder in height)) {
            complain("no line of src/LAYERS has " folder)
        } else if (to[1] != folder && height[to[1]] <= height[folder]) {
            complain(folder " may not include " to[1] ": it is not on a lower line of src/LAYERS")
        }
    }
    END {
        if (!files) { print "layers: found no include to check"; exit 1 }
        if (bad) exit 1
        print "layers: includes of src/ and cuda/ point down"
    }'
