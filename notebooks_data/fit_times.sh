#!/usr/bin/env bash
# Fits the time stacks again, those of sim/time_stacks/ together: fit_times.sh SPILLWAY.
set -euo pipefail
spillway=$(realpath "$1")
cd "$(dirname "$0")"
stacks=$PWD/../sim/time_stacks
"$spillway" calibrate time published/*.csv profiles/mi355x_kernel_seconds.csv --stack "$stacks/maxtext-rocm-2026-04.yaml" \
    --stack "$stacks/maxtext-rocm-2026-05.yaml" --output "$stacks" |
    sed -n '/families of kernels fitted/,$p' # errors, what was left out, coverage
measured=$PWD/../sim/megatron_stacks
"$spillway" calibrate time measured/megatron_h200_runs.csv measured/megatron_h200_phases.csv \
    --stack "$measured/megatron-h200-2026-11.yaml" --output "$measured" | tail -n 5
