#!/usr/bin/env bash
# bench.sh BUILD [full|quick|PATTERN]: moetitan and PyTorch in turn, with PyTorch's current wheel in BUILD/bench/venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=$1/bench/venv
[[ -x $venv/bin/pip ]] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import numpy, torch; assert torch.__version__.startswith("2.15.0")' 2>/dev/null ||
    "$venv/bin/pip" -q install torch==2.15.0 numpy==2.4.6
exec "$venv/bin/python" -B tests/bench/bench.py "$1" "${2:-full}"
