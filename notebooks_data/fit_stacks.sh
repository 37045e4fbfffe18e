#!/usr/bin/env bash
# Fits every stack of sim/stacks/ again: fit_stacks.sh SPILLWAY. A stack starts from one of the same back end: its shares stand
# where its own tables do not speak. Rows left out, and why: README.md.
set -euo pipefail
spillway=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
stacks=$here/../sim/stacks
cd "$here"
fitted=$(mktemp)
trap 'rm -f "$fitted"' EXIT
fit() {
    "$spillway" calibrate memory "${@:2}" --stack "$stacks/$1.yaml" --output "$fitted" | grep -v '^ *$' | tail -n 12
    cp "$fitted" "$stacks/$1.yaml"
}
fit xla-cuda-0.10.2 compiled/maxtext_memory.csv
fit xla-cuda-0.10.2-april compiled/maxtext_memory.csv --from "$stacks/xla-cuda-0.10.2.yaml"
fit xla-rocm-0.10.2-amd compiled/maxtext_memory.csv --from "$stacks/xla-cuda-0.10.2-april.yaml"
contradicted="--leave-out ds3_mi355_c4_dataloading:8 --leave-out ds3_mi355_c4_dataloading:9"
doubtful="--leave-out ds3_mi355_pp_vs_fsdp:16 --leave-out ds3_mi355_pp_vs_fsdp:17 --leave-out ds3_mi355_pp_vs_fsdp:125"
for stack in maxtext-rocm-2026-05 maxtext-rocm-2026-04; do
    # shellcheck disable=SC2086
    fit $stack published/*.csv --from "$stacks/xla-rocm-0.10.2-amd.yaml" $contradicted $doubtful
done
# JAX 0.12. Plain programs of both trees take the same, to 30 kB; the sorted rings of the other tree are left out.
both='"maxtext@e591f30c+xla-cuda-0.12.0.1-default", "maxtext@0.2.5+xla-cuda-0.12.0.1-default"'
fit_both() {
    local covers sorted=""
    covers=$(grep '^covers:' "$stacks/$1.yaml")
    for row in $(grep "$2" compiled/maxtext_2026_11.csv compiled/maxtext_fp32.csv -h | grep ragged_sort | cut -d, -f1); do
        sorted="$sorted --leave-out $row"
    done
    sed -i "s/^covers:.*/covers: [$both]/" "$stacks/$1.yaml"
    # shellcheck disable=SC2086
    fit "$1" compiled/maxtext_2026_11.csv compiled/maxtext_fp32.csv --from "$stacks/xla-cuda-0.10.2.yaml" $sorted
    sed -i "s/^covers:.*/$(printf '%s' "$covers" | sed 's/[&/]/\\&/g')/" "$stacks/$1.yaml"
}
fit_both xla-cuda-0.12.0 maxtext@0.2.5
fit_both xla-cuda-0.12.0-maxtext-0.2.5 maxtext@e591f30c
