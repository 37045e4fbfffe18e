#!/usr/bin/env bash
# Executes the notebooks beside this file with the package and the program of this tree: notebooks.sh PYTHON [--accept].
# ./run notebooks calls it. Jupyter's machinery comes from PyPI, the first time.
set -euo pipefail
cd "$(dirname "$0")"
top=$(cd .. && pwd) venv=../build/notebooks/venv
mkdir -p ../build/notebooks
[ -e "$venv/made" ] || { "$1" -m venv "$venv" && "$venv/bin/pip" install -q nbclient ipykernel matplotlib numpy pandas && touch "$venv/made"; }
SPILLWAY_LIBRARY=$top/build/release/sim/library/libspillway.so PYTHONPATH=$top/python PATH=$top/build/release/sim:$PATH \
    MPLCONFIGDIR=$top/build/notebooks OMP_NUM_THREADS=2 exec "$venv/bin/python" run_notebooks.py "${@:2}" ./*.ipynb
