#!/usr/bin/env bash
# The figures of docs/imbalance_or_allocator.md: imbalance_or_allocator.sh SPILLWAY
set -euo pipefail
spillway=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
generate() {
    "$spillway" trace generate "$scratch/trace.h5" --counts-only --experts 64 --top-k 6 --ranks 8 --tokens-per-rank 32768 \
        --sequence-length 4096 "$@" >&2
}
figures() { # label [scheme]
    "$spillway" replay "$scratch/trace.h5" --job "$here/v2lite_mi355x.yaml" --scheme "${2:-megatron-alltoall}" --format json >"$scratch/result.json"
    /usr/bin/python3 - "$scratch/result.json" "$1" <<'PYTHON'
import json
import sys
row = json.load(open(sys.argv[1]))["rows"][0]
allocator, traffic = row["memory"]["allocator"], row["traffic"]
most = lambda name: allocator[name]["max_bytes"] / 1e9
grown = allocator["with_expandable_segments"]["reserved"]["max_bytes"] / 1e9
print(f"{sys.argv[2]:44} rows max/mean {traffic['rows_max'] / traffic['rows_mean']:.2f}   live {most('requested'):6.1f}   "
      f"reserved {most('reserved'):6.1f}   with expandable segments {grown:6.1f} GB")
PYTHON
}
generate --layers 1 --distribution uniform
figures "balanced"
for imbalance in 1.2 1.4 1.6 1.8 2.0 2.1; do
    share=$(/usr/bin/python3 -c "print($imbalance / 8)")
    generate --layers 1 --distribution "hot-rank:share=$share,rank=0,ranks=8"
    figures "one rank x $imbalance in every layer, one step"
done
generate --layers 4 --steps 12 --distribution "lognormal:sigma=0.3"
figures "sigma 0.3, the same in 12 steps"
generate --layers 4 --steps 12 --distribution "drift:drift=0.1,popularity=lognormal,sigma=0.3"
figures "sigma 0.3, drifting by 0.1 over 12 steps"
generate --layers 4 --steps 12 --distribution "drift:drift=0.3,popularity=lognormal,sigma=0.6"
figures "sigma 0.6, drifting by 0.3 over 12 steps"
for scheme in megatron-flex deepep; do
    generate --layers 1 --distribution uniform
    figures "$scheme, balanced" "$scheme"
    generate --layers 1 --distribution "hot-rank:share=0.25,rank=0,ranks=8"
    figures "$scheme, one rank x 2.0" "$scheme"
    generate --layers 4 --steps 12 --distribution "drift:drift=0.1,popularity=lognormal,sigma=0.3"
    figures "$scheme, sigma 0.3, drifting by 0.1" "$scheme"
done
