#!/usr/bin/env bash
# What one GPU does, in at most 8 minutes: agent steps/s of one run and of 2, 4 and 6 packed ones,
# eager and recorded. Needs rigor installed beside a CUDA build of torch:
#   PYTHON=/path/to/python benchmarks/gpu.sh [--out FILE]      --smoke tries it on a CPU
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
