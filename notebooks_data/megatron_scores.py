#!/usr/bin/env python3
"""The tables of docs/validation_time_megatron.md on published training runs, as Markdown, from what `spillway score` says of them.

megatron_scores.py SPILLWAY [TABLE.csv...] [--left-out SCORE.json] [--never SCORE.json] [--causes CAUSES.csv] [--write DOC.md]

TABLE.csv     runs that the time model has seen; default: megatron/megatron_runs.csv beside this script
--left-out    the same rows, each predicted by coefficients that were fitted without its model: `spillway score ... --format json`
--never       other rows, which nobody looked at while the model was made, in the same form
--causes      row_id,cause: a sentence for each of the ten worst
--write       puts the tables between the lines "<!-- megatron_scores: begin -->" and "<!-- megatron_scores: end -->" of a page"""
import argparse
import collections
import csv
import json
import pathlib
import re
import statistics
import subprocess

BEGIN, END = "<!-- megatron_scores: begin -->", "<!-- megatron_scores: end -->"
KINDS = ("seen", "left out", "never")


def release(row):
    """What the source calls it: a version where there is one."""
    found = re.search(r"\d+\.\d+(\.\d+)?", row["source"])
    return found.group() if found and row["source"].startswith("megatron_bridge") else row["source"]


def group(row):
    return row["hardware"], row["precision"], row["dispatcher"], release(row)


def errors(rows):
    return [row["throughput_error"] for row in rows if row["throughput_error"] is not None]


def percent(values, form="{:.1f}"):
    return form.format(100 * statistics.fmean(values)) if values else ""


def table(header, rows, right=()):
    """right: columns that are set flush right."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "|".join("---:" if i in right else "---" for i in range(len(header))) + "|"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def plain(row):
    """Without graphs and without exchanges behind other work."""
    return row["graph"] in ("", "none") and row["ep_overlap"] in ("", "False")


def summary(scores):
    """All rows, and parts that are asked after."""
    parts = [("all", lambda r: True), ("NVIDIA", lambda r: re.match("g?[bh][0-9]", r["hardware"])), ("AMD", lambda r: r["hardware"].startswith("mi")),
             ("H100, no graphs, no overlap", lambda r: r["hardware"] == "h100" and plain(r)), ("no graphs, no overlap", plain),
             ("overlap, no full graph", lambda r: r["ep_overlap"] == "True" and r["graph"] not in ("full_iteration", "local")),
             ("full-iteration graph", lambda r: r["graph"] in ("full_iteration", "local"))]
    for name, which in parts:
        cells = [name]
        for kind in KINDS:
            rows = [row for row in scores[kind] if which(row)]
            off = errors(rows)
            cells += [f"{len(off)} of {len(rows)}" if rows else "", percent([abs(e) for e in off]), percent(off, "{:+.1f}")]
            if kind == "seen":
                cells.append(percent([float(row["inside"]) for row in rows if row["inside"] is not None], "{:.0f}"))
                wide = [row["time"]["high_s"] / row["time"]["low_s"] for row in rows if row["inside"] is not None]
                cells.append(f"{statistics.median(wide):.2f}" if wide else "")
        yield cells


def by_group(scores):
    found = collections.defaultdict(lambda: {kind: [] for kind in KINDS})
    for kind in KINDS:
        for row in scores[kind]:
            found[group(row)][kind].append(row)
    for key in sorted(found):
        cells = list(key)
        for kind in KINDS:
            off = errors(found[key][kind])
            cells += [f"{len(off)} of {len(found[key][kind])}" if found[key][kind] else "", percent([abs(e) for e in off])]
        yield cells


def worst(scores, causes, count=10):
    """Of rows that were seen or never looked at; the parts of the step that take most."""
    rows = [row for kind in ("seen", "never") for row in scores[kind] if row["throughput_error"] is not None]
    for row in sorted(rows, key=lambda r: -abs(r["throughput_error"]))[:count]:
        parts = sorted(row["time"]["exposed"].items(), key=lambda p: -p[1])[:3]
        yield (row["row_id"], f"{row['model']}, {row['gpus']} {row['hardware']}, {row['precision']}, {row['dispatcher']}, {release(row)}",
               f"{row['time']['tokens_per_s_per_gpu']:.0f}", f"{row['true_tokens_per_s_per_gpu']:.0f}", f"{100 * row['throughput_error']:+.0f}",
               ", ".join(f"{name} {100 * s / row['time']['step_s']:.0f} %" for name, s in parts), causes.get(row["row_id"], ""))


def unanswered(scores):
    reasons = collections.defaultdict(list)
    for kind in ("seen", "never"):
        for row in scores[kind]:
            if row["time"] is None:
                reasons[row["why_no_time"]].append(row["row_id"])
    for reason, ids in sorted(reasons.items(), key=lambda r: (-len(r[1]), r[0])):
        yield len(ids), reason, ", ".join(ids[:6]) + (", ..." if len(ids) > 6 else "")


def page(scores, causes):
    yield "**Errors of tokens/s, in percent.** A row counts where it has a time as asked and a published speed; bias: the mean with its sign;"
    yield "inside: of the seen, the share within the interval; width: the interval's high over low, median."
    yield ""
    yield from table(["rows", "seen", "mean", "bias", "inside", "width", "left out", "mean", "bias", "never", "mean", "bias"], summary(scores), range(1, 12))
    yield ""
    yield "**By GPU, precision, dispatcher and release**: rows, mean error in percent."
    yield ""
    yield from table(["GPU", "precision", "dispatcher", "release or source", "seen", "mean", "left out", "mean", "never", "mean"], by_group(scores), range(4, 10))
    yield ""
    yield "**The ten worst.**"
    yield ""
    yield from table(["row", "what", "predicted", "published", "error %", "largest parts of the step", "cause"], worst(scores, causes), (2, 3, 4))
    yield ""
    yield "**Not answered as asked.**"
    yield ""
    yield from table(["rows", "why", "which"], unanswered(scores), (0,))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spillway")
    parser.add_argument("tables", nargs="*", default=[pathlib.Path(__file__).parent / "megatron" / "megatron_runs.csv"])
    for name in ("--left-out", "--never", "--causes", "--write"):
        parser.add_argument(name, type=pathlib.Path)
    given = parser.parse_args()
    said = subprocess.run([given.spillway, "score", *map(str, given.tables), "--format", "json"], check=True, stdout=subprocess.PIPE).stdout
    read = {"seen": said, "left out": given.left_out and given.left_out.read_bytes(), "never": given.never and given.never.read_bytes()}
    scores = {kind: json.loads(text)["rows"] if text else [] for kind, text in read.items()}
    causes = {}
    if given.causes:
        with open(given.causes, newline="") as file:
            causes = {row["row_id"]: row["cause"] for row in csv.DictReader(file)}
    text = "\n".join(page(scores, causes))
    if not given.write:
        print(text)
        return
    before, after = given.write.read_text().split(BEGIN)[0], given.write.read_text().split(END)[1]
    given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
