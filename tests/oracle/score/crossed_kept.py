#!/usr/bin/env python3
"""What `score` says of tables in which any two columns meet: every cell of a row comes from some row of the shipped tables of its kind, drawn for each
column by itself. JSON, CSV and text of such tables are as they were: sums against crossed_kept.tsv. It proves nothing right; summaries_oracle and others of
this folder do.

crossed_kept.py SPILLWAY SCRATCH ROOT [--accept]"""
import csv
import json
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from kept_sums import compare, sums, word_sums
from oracle_run import Oracle

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder, data = scratch / "crossed_kept", root / "notebooks_data"
folder.mkdir(exist_ok=True)
os.environ["OMP_NUM_THREADS"] = "1"
oracle = Oracle(program, "crossed_kept")
# kind -> tables; columns that go together are drawn together; a table's own words of the command
KINDS = {
    "published": (["published/deepseek3_mi355x_2026_05", "published/deepseek3_mi355x_c4", "published/deepseek3_mi355x_remat_fsdp", "compiled/maxtext_memory",
                   "compiled/maxtext_pipeline", "compiled/maxtext_2026_11", "compiled/maxtext_fp32", "profiles/mi355x_kernel_seconds"],
                  ["model cluster expert_parallel expert_nodes fsdp pipeline virtual_stages micro_batches", "kernel_family kernel_s profile_share",
                   "temporary_gib total_gib argument_gib", "dataset tokens_per_s_per_gpu", "pool_gib memory_fraction"]),
    "runs": (["megatron/megatron_runs"], ["source model command", "hardware gpus tp pp cp vp ep mbs gbs", "precision recipe", "published_tokens_s_gpu published_status"]),
    "whole": (["megatron/whole_models_h100"], ["model_type hidden layers heads kv_heads head_dim experts top_k ffn vocabulary dense_layers dense_ffn shared_ffn parameters"]),
    "bare": (["megatron/megatron_bare_layers"], []),
    "figures": (["figures/sonicmoe_figures_digitised"], []),
}
TRIED, KEPT = 90, 24


def rows_of(names):
    out = []
    for name in names:
        lines = [line for line in (data / f"{name}.csv").read_text().splitlines(keepends=True) if not line.startswith("#")]
        out += list(csv.DictReader(lines))
    return out


def write(name, columns, rows):
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def crossed(rng, columns, together, rows):
    """Two rows of three are one of the shipped in most of their columns; all columns of the rest are drawn apart."""
    base, apart = rng.choice(rows), rng.choice((0.15, 0.3, 1.0))
    groups = [words.split() for words in together]
    groups += [[column] for column in columns if not any(column in group for group in groups)]
    row = {column: base.get(column, "") for column in columns}
    for group in groups:
        if rng.random() < apart:
            other = rng.choice(rows)
            row.update({column: other.get(column, "") or "" for column in group if column in columns})
    return {column: (cell or "") for column, cell in row.items()}


def of_kind(kind, now):
    tables, together = KINDS[kind]
    rows, rng = rows_of(tables), random.Random(kind)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    name = next(c for c in ("id", "row_id", "run", columns[0]) if c in columns)
    good, refused, skipped = [], "", ""
    for number in range(TRIED):
        row = crossed(rng, columns, together, rows)
        if name in ("id", "row_id"):
            row[name] = f"{kind}{number}"
        done = oracle.call("score", write("one", columns, [row]), "--format", "json")
        if done.returncode != 0:
            refused += done.stderr.replace(str(folder), "") + "\n"
            continue
        said = json.loads(done.stdout)
        if said["rows"] and len(good) < KEPT:
            good.append(row)
        for row in said.get("skipped_rows", []):
            skipped += str(row.get("reason", row.get("why", ""))) + "\n"
    oracle.check(len(good) >= 4, f"{kind}: {len(good)} rows")
    path = write(kind, columns, good)
    now.update((f"{kind}\tjson {group}", value) for group, value in sums(json.loads(oracle.run("score", path, "--format", "json"))).items())
    for form in (["--format", "csv"], ["--wide"]):
        text = oracle.run("score", path, *form).replace(str(folder), "")
        now.update((f"{kind}\t{form[-1].strip('-')} {part}", value) for part, value in word_sums(text).items())
    for what, text in (("refused", refused), ("skipped", skipped)):
        now.update((f"{kind}\t{what} {part}", value) for part, value in word_sums(text.replace(str(root), ""), 2).items())


def main():
    now = {}
    for kind in KINDS:
        of_kind(kind, now)
    compare(oracle, now, pathlib.Path(__file__).resolve().with_suffix(".tsv"), 80)


main()
