#!/usr/bin/env bash
# scripts/bare.sh   the C sources of src/ that the C library and POSIX alone compile: those that include, directly or through
#                   a header of their own, nothing of libyaml, cJSON, PCRE2, utf8proc, zstd, xxHash, SQLite or MPI
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rHE '^#include ' src --include='*.c' --include='*.h' | awk -F: '
    { file = $1; path = $2; sub(/^#include [<"]/, "", path); sub(/[>"].*/, "", path) }
    path ~ /^(yaml|pcre2|utf8proc|zstd|xxhash|sqlite3|mpi)\.h$/ || path ~ /^cjson\// { lacking[file] = 1 }
    $2 ~ /"/ { from[++n] = file; to[n] = "src/" path }
    file ~ /\.c$/ { source[file] = 1 }
    END {
        for (again = 1; again;) {
            again = 0
            for (i = 1; i <= n; i++)
                if (lacking[to[i]] && !lacking[from[i]]) again = lacking[from[i]] = 1
        }
        for (file in source)
            if (!lacking[file]) print file
    }' | sort
