#!/usr/bin/env python3
"""The marks of a plan's picture are its rows: where they stand, and which do not fit; and a page of a plan and a replay names both files.
pictures_oracle.py SPILLWAY SCRATCH ROOT"""
import collections
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "pictures_oracle")
folder, root = pathlib.Path(sys.argv[2]) / "pictures", pathlib.Path(sys.argv[3])
folder.mkdir(exist_ok=True)
job, trace = root / "sim/jobs/scratch-moe-e64.yaml", root / "traces/data/training_aux_e64_slice.h5"
HIGH = 300.0  # of the picture
SCHEMES = [word for scheme in ("gmm", "ring", "dense:capacity_factor=1.25") for word in ("--scheme", scheme)]
plan, replay, page = folder / "my_plan.json", folder / "my_replay.h5", folder / "page.html"
plan.write_text(oracle.must("plan", "--job", job, "--sequences-per-gpu", "2,7,24", *SCHEMES, "--set", "batch.sequence_length=16384",
                            "--format", "json"))
oracle.must("report", plan, "--output", page)
text = page.read_text()
rows = json.loads(plan.read_text())["rows"]

budget_at = float(re.search(r'class="budget" x1="([\d.]+)%"', text)[1])
circles = [(match[1] == " no", float(match[2]), float(match[3]))
           for match in re.finditer(r'<circle class="mark d\d( no)?" cx="([\d.]+)%" cy="([\d.]+)"', text)]
budget = rows[0]["memory"]["budget_bytes"]
want = [(row["memory"]["max_bytes"] > budget, min(budget_at * row["memory"]["max_bytes"] / budget, 100.0), row["time"]["tokens_per_s_per_gpu"])
        for row in rows if row["time"]]
oracle.check(len(circles) > 7 and {no for no, *_ in circles} == {True, False}, f"{len(circles)} marks, and both kinds must be there")

# Across: a row of that memory and that verdict for every mark.
for no, across, _ in circles:
    oracle.check(any(no == other and abs(across - x) < 0.02 + 1e-3 * x for other, x, _ in want), f"no row {'does not fit' if no else 'fits'} at {across} %")
    oracle.check(no == (across > budget_at), f"the mark at {across} % with the budget at {budget_at} %: {no}")
# Up: marks lie on one line over the speeds, from 0 at the bottom.
fastest = max(speed for _, x, speed in want if x < 100.0)
highest = min(up for _, _, up in circles)
for no, across, up in circles:
    speeds = [speed for other, x, speed in want if no == other and abs(across - x) < 0.02 + 1e-3 * x]
    oracle.check(any(abs((HIGH - up) / (HIGH - highest) - speed / fastest) < 0.002 for speed in speeds), f"the mark at {across} %, {up}: none of {speeds}")

# Both files by their names, each in its own part of the page.
oracle.must("replay", trace, "--job", job, "--sequences-per-gpu", "1", *SCHEMES[:2], "--output", replay)
oracle.must("report", plan, "--replay", replay, "--output", page)
said = collections.Counter(re.findall(r"by spillway into (?:[^ ]*/)?(\w+\.\w+)", page.read_text()))
oracle.check(said == {"my_plan.json": 1, "my_replay.h5": 1}, f"the page says where its answers stand: {said}")
parts = page.read_text().split('<main class="beside">')
oracle.check(len(parts) == 2 and " my_replay.h5" in parts[1] and " my_plan.json" in parts[0], "each answer in its own part, by its name without folders")
oracle.finish(30)
