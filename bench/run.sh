#!/bin/bash
# Speed and memory on this machine, on its GPU if it has one, otherwise with all its cores. Prints
# two tables. Options are passed to both benchmarks, as in bench/run.sh --device cpu; an option
# that only one of them has is refused.
set -euo pipefail
cd "$(dirname "$0")/.."
alibi=${ALIBI:-build/release/alibi}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}

echo "$OMP_NUM_THREADS threads, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo
echo "A training step, compared with the matrix library alone on the same products"
"$alibi" bench train "$@"
echo
echo "Evaluating one window"
"$alibi" bench memory "$@"
