"""Tries the installed package: try_wheel.py TRACE.h5 JOB.yaml PICTURE.png"""
import os
import sys

import numpy

import spillway_moe as spillway

trace, job, picture = sys.argv[1:4]
result = spillway.replay(trace, job=job, scheme=["gmm", "ring"], output=picture + ".h5")
assert (result.rows["memory.peak_bytes"] > 1e8).all(), result.rows
spillway.figures.memory(result).figure.savefig(picture)
plan = spillway.plan(job, scheme="gmm", tokens="1T", price=2)
for draw in (spillway.figures.speed, spillway.figures.cost, spillway.figures.routing, spillway.figures.timeline):
    draw(plan).figure.savefig(picture)
    assert os.path.getsize(picture) > 5_000, draw
assert "tokens/s" in plan._repr_html_() and spillway.report(plan, output=picture + ".html").stat().st_size > 20_000
with spillway.Trace(trace) as routing:
    spillway.figures.popularity(routing).figure.savefig(picture)
with spillway.open_result(picture + ".h5") as dataset:
    assert dataset["rows_received"].sizes["rank"] == 64
report = spillway.check.swiglu(lambda gate, up: gate / (1 + numpy.exp(-gate)) * up, dtype="float", arrays="numpy")
assert report and len(report.rows) == 31, report
assert os.path.getsize(picture) > 10_000
libraries = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
ours = [path for path in libraries if "libhdf5" in path or "libgsl" in path]
assert ours and all("spillway_moe.libs" in path or "h5py" in path for path in ours), ours
print(result.rows[["scheme", "memory.peak_bytes"]].to_string())
