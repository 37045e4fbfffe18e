#!/usr/bin/env python3
"""docs/reserved.svg: plot.py SPILLWAY OUT.svg. Left: the measured sequence on H200, rank 1, beside its replay. Right: `replay` of
DeepSeek-V2-Lite's expert layers on 8 GPUs, routing that drifts from step to step, with and without expandable segments."""
import csv
import io
import pathlib
import subprocess
import sys
import tempfile

import h5py

program, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
here = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 920, 340, 52, 34, 62, 64
COLOURS = {"allocated": "#777777", "reserved": "#b03030", "expandable": "#2060a0", "measured": "#000000"}


def run(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def measured():
    table = run("score", here.parent / "measured" / "megatron_h200_reserved.csv", "--format", "csv")
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["rank"] == "1"]
    gb = lambda name: [float(row[name]) / 1e9 for row in rows]
    return {"allocated": gb("allocated_peak_bytes"), "reserved": gb("reserved_bytes"),
            "measured": gb("true_reserved_bytes")}


def replayed(scratch):
    trace, job = scratch / "trace.h5", here / "v2lite_mi355x.yaml"
    run("trace", "generate", trace, "--counts-only", "--experts", 64, "--top-k", 6, "--ranks", 8, "--tokens-per-rank", 32768,
        "--sequence-length", 4096, "--layers", 4, "--steps", 24, "--distribution",
        "drift:drift=0.1,popularity=lognormal,sigma=0.3")
    lines = {}
    for name, setting in (("reserved", "expandable_segments:False"), ("expandable", "expandable_segments:True")):
        run("replay", trace, "--job", job, "--allocator", setting, "--output", scratch / "result.h5")
        with h5py.File(scratch / "result.h5") as result:
            lines[name] = [v * 2**30 / 1e9 for v in result["reserved_gib"][0]]
            lines["allocated"] = [v * 2**30 / 1e9 for v in result["allocated_gib"][0]]
    return lines


def panel(x0, title, lines, names, top):
    width, height = (WIDTH - LEFT - GAP - 16) / 2, HEIGHT - TOP - BOTTOM
    steps = len(lines["allocated"])
    px = lambda i: x0 + i * width / (steps - 1)
    py = lambda v: TOP + height * (1 - v / top)
    text = [f'<text x="{x0}" y="{TOP - 14}" font-weight="bold">{title}</text>']
    for tick in range(0, top + 1, top // 4):
        text.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{py(tick):.1f}" y2="{py(tick):.1f}" stroke="#dddddd"/>'
                    f'<text x="{x0 - 6}" y="{py(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for i in range(0, steps, 4):
        text.append(f'<text x="{px(i):.1f}" y="{TOP + height + 16}" text-anchor="middle">{i}</text>')
    text.append(f'<text x="{x0 + width / 2}" y="{TOP + height + 32}" text-anchor="middle">step</text>')
    for n, (name, label) in enumerate(names):
        points = [(px(i), py(v)) for i, v in enumerate(lines[name])]
        colour = COLOURS[name]
        if name == "measured":
            text += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="none" stroke="{colour}"/>' for x, y in points]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            text.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        legend = x0 + n * width / len(names)
        text.append(f'<text x="{legend}" y="{HEIGHT - 8}" fill="{colour}">{"o" if name == "measured" else "&#8212;"} '
                    f'{label}</text>')
    return text


with tempfile.TemporaryDirectory() as folder:
    right = replayed(pathlib.Path(folder))
svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
       *panel(LEFT, "GB, 4 H200, changing routing (rank 1)", measured(),
              [("allocated", "allocated"), ("reserved", "reserved, replayed"), ("measured", "measured")], 160),
       *panel(LEFT + (WIDTH - LEFT - GAP - 16) / 2 + GAP, "GB, DeepSeek-V2-Lite, 8 GPUs, drifting routing", right,
              [("allocated", "allocated"), ("reserved", "reserved"), ("expandable", "expandable segments")], 240), "</svg>"]
temporary = out.with_suffix(".part")
temporary.write_text("\n".join(svg) + "\n")
temporary.replace(out)
