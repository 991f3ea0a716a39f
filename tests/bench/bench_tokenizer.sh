#!/usr/bin/env bash
# bench_tokenizer.sh PROGRAM FOLDER: gets what tests/bench/bench_tokenizer.py needs into FOLDER, and runs it.
set -euo pipefail
program=$1 folder=$2
tests/oracle/tokenizers_venv.sh "$folder"
[[ -s $folder/real/llama3.json ]] || "$folder/venv/bin/python" tests/oracle/tokenizers_oracle.py real "$folder/real"
"$folder/venv/bin/python" tests/bench/bench_tokenizer.py "$program" "$folder/real"
