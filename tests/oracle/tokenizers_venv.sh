#!/usr/bin/env bash
# tokenizers_venv.sh FOLDER: the Python packages of tokenizers_oracle.py, in FOLDER/venv.
set -euo pipefail
[[ -x $1/venv/bin/pip ]] || python3 -m venv "$1/venv"
"$1/venv/bin/pip" -q install tokenizers==0.23.3 tiktoken==0.14.0 numpy==2.4.6
