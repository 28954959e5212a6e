#!/usr/bin/env bash
# What one GPU does, in at most 8 minutes: agent steps/s of both learners, alone and packed, recorded
# and eager, with the times of their pieces. Needs rigor installed beside a CUDA build of torch:
#   PYTHON=/path/to/python benchmarks/gpu.sh [--out FILE]      --smoke tries it on a CPU
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
