#!/usr/bin/env python3
"""How many objects each header of ours rebuilds: count_rebuilds.py BUILD prints the headers with the most, from what the compiler wrote down
at the last build. --most N ends with 1 where a header outside of base/ rebuilds more than N, those of EVERYWHERE left out."""
import collections
import pathlib
import subprocess
import sys

# A job, what it holds, and the shape and scheme under which all rooms see it; what every test in C is written with. No other header joins them.
EVERYWHERE = {
    "sim/job/job.h", "sim/job/job_words.h", "sim/job/recipe/finetune.h", "sim/job/recipe/fp8_recipe.h", "sim/job/recipe/offload_modules.h",
    "sim/job/stage_layout.h", "sim/machine/cluster.h", "sim/model/matrix.h", "sim/model/model.h", "sim/read/evidence.h",
    "sim/schemes/scheme.h", "tests/unit/check.h"}
build = pathlib.Path(sys.argv[1]).resolve()
most = int(sys.argv[sys.argv.index("--most") + 1]) if "--most" in sys.argv else None
root = next(pathlib.Path(line.split("=", 1)[1]) for line in (build / "CMakeCache.txt").read_text().splitlines()
            if line.startswith("CMAKE_HOME_DIRECTORY:"))
users, objects = collections.Counter(), 0
for line in subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout.splitlines():
    if line and not line.startswith((" ", "ninja:")):
        objects += 1
    elif line.strip().endswith(".h"):
        path = (build / line.strip()).resolve()
        if path.is_relative_to(root) and not path.is_relative_to(build):
            users[str(path.relative_to(root))] += 1
over = [name for name, count in users.items() if most is not None and count > most and not name.startswith("base/") and name not in EVERYWHERE]
print(f"{objects} objects")
for name, count in users.most_common(40):
    print(f"{count:5} {name}{'  more than ' + str(most) if name in over else ''}")
sys.exit(bool(over) or not objects)
