#!/usr/bin/env bash
# Fits the time stacks of sim/time_stacks/ again, together: fit_times.sh SPILLWAY.
set -euo pipefail
spillway=$(realpath "$1")
cd "$(dirname "$0")"
stacks=$PWD/../sim/time_stacks
"$spillway" calibrate time published/*.csv profiles/mi355x_kernel_seconds.csv --stack "$stacks/maxtext-rocm-2026-04.yaml" \
    --stack "$stacks/maxtext-rocm-2026-05.yaml" --output "$stacks" | tail -n 12
