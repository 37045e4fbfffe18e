#!/usr/bin/env python3
"""What `calibrate memory` finds and prints, made again: shares on their grid, intervals, errors, and each model by a fit without it. What a program
needs under given shares is asked of `score`, with stacks that are written here; which rows count, every sum and every quantile are of this file.
Tables: the shipped ones, and made ones whose figures are moved, given as totals, or left to verdicts.

memory_fit_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import json
import math
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from fit_files import quantile, read_stack, write_stack

spillway, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "memory_fit_oracle"
scratch.mkdir(exist_ok=True)
compiled, GIB = root / "notebooks_data/compiled", 2.0**30
oracle = Oracle(spillway, "memory_fit_oracle")
KEYS = ["recovered_dense", "recovered_gathered", "recovered_grouped", "recovered_ring"]
WORDS = ["models", "programs", "remats", "turns", "parts"]
COVERED, LEAST, SPREAD, GRID = 0.975, 0.04, 0.3, 200


# --- Stacks as files ---

def stack_of(name):
    """Of a stack that comes with the program by its name, or of a file."""
    return read_stack(name if "/" in str(name) else root / "sim/stacks" / f"{name}.yaml")


def share_of(stack, key):
    return float(stack[key]["value"])


def with_shares(stack, shares, errors=None, **more):
    """Such shares, and an interval of their uncertainty alone."""
    out = json.loads(json.dumps(stack))
    for k, key in enumerate(KEYS):
        out[key] = {"value": f"{shares[k]:.12g}", "uncertainty": f"{errors[k] if errors else 0:.12g}", "evidence": "assumed", "source": '"here"'}
    for key in ("half_width", "half_width_unseen"):
        out[key] = {"value": more.pop(key, 0.0), "evidence": "assumed", "source": '"here"'}
    return {key: value for key, value in (out | more).items() if value != '""'}


def scored(tables, stack):
    done = oracle.must("score", *tables, "--stack", write_stack(scratch / "asked.yaml", stack), "--format", "json")
    return {(row["table"], row["line"]): row for row in json.loads(done)["rows"]}


# --- Rows ---

def kind_of(scheme, layout):
    name, _, words = scheme.partition(":")
    options = dict(word.split("=") for word in words.split(",") if word)
    if name == "dense":
        return {"peeled": "dense_peeled", "gathered": "dense_gathered", "exchange": "dense"}[options.get("layout", layout)]
    if name == "ring":
        return "ring_sorted" if options.get("ragged_sort") == "true" else "ring"
    return {"gmm": "gmm", "ragged": "ragged_dot", "gmm-deepep": "gmm_deepep"}[name]


def share_index(kind):
    return {"dense": 0, "dense_peeled": 0, "dense_gathered": 1, "gmm": 2, "ragged_dot": 2}.get(kind, 3)


class Row:
    """A row of a table and what it needs: with no share recovered, and with all."""

    def __init__(self, cells, none, whole, stack):
        self.cells, self.id, self.model = cells, none["id"], none["model"]
        self.kind = kind_of(cells["scheme"], "exchange")
        self.share, self.sequences = share_index(self.kind), int(cells["sequences_per_gpu"])
        self.pipeline, self.parts = int(cells["pipeline"] or 1), int(cells.get("micro_batches") or 1)
        if self.parts > 1:
            self.sequences *= self.pipeline if self.pipeline > 1 else self.parts
        self.arguments, self.pool = none["argument_gib"] * GIB, none["budget_gib"] * GIB
        self.wanted = none["wanted_gib"] * GIB
        self.limit = max(0.0, share_of(stack, "limit_share") * (self.pool - self.arguments))
        self.again, self.most = none["recovered_gib"] * GIB, whole["recovered_gib"] * GIB
        self.touches = self.wanted > self.limit and self.most > 0
        temporary, total = cells["temporary_gib"], cells["total_gib"]
        self.by = "temporary" if temporary else "total" if total else None
        self.status = cells["status"]
        self.true_gib = float(temporary or total or 0)
        self.true = float(temporary) * GIB if temporary else float(total) * GIB - self.arguments if total else None

    def temporary(self, share):
        return self.wanted - (self.again if self.again else min(share * (self.wanted - self.limit), self.most))

    def cost(self, share):
        needs = self.temporary(share)
        if self.by:
            off = math.log(needs / self.true)
        else:
            over = math.log(needs / (self.pool - self.arguments))
            off = 2 * max(0.0, (over if self.status == "fits" else -over) + 0.01)
        return 2 * 0.05**2 * (math.sqrt(1 + (off / 0.05)**2) - 1)


# --- The fit ---

def fit(rows, start):
    """Shares, how far off they may be, and how many rows speak of each."""
    shares, errors, spoke = list(start), [], []
    for k in range(4):
        of = [row for row in rows if row.touches and row.share == k]
        if of:
            costs = [(0.05 * (i / GRID - start[k]) / SPREAD)**2 + sum(row.cost(i / GRID) for row in of) for i in range(GRID + 1)]
            shares[k] = costs.index(min(costs)) / GRID
        own = [abs(min(1.0, max(0.0, (row.wanted - row.true) / (row.wanted - row.limit))) - shares[k]) for row in of if row.by]
        errors.append(max(own) if len(own) >= 5 else max(shares[k], 1 - shares[k]))
        spoke.append(len(of))
    return shares, errors, spoke


def words_of(rows):
    def unique(words):
        return '"' + " ".join(dict.fromkeys(words)) + '"'
    parts = [word for row in rows for word in (["pipeline"] if row.pipeline > 1 else ["micro_batches"] if row.parts > 1 else []) +
             (["fp32"] if row.cells["precision"] in ("framework", "bf16 weights=fp32") else [])]
    return {"models": unique(row.model for row in rows), "programs": unique(row.kind for row in rows), "remats": unique(row.cells["remat"] for row in rows),
            "turns": unique("2" if row.model.startswith("gpt-oss") else "1" for row in rows), "parts": unique(parts),
            "sequences_min": min(row.sequences for row in rows), "sequences_max": max(row.sequences for row in rows)}


def beyond(rows, said):
    return [max(0.0, math.log(said[row.at]["low_gib"] * GIB / row.true), math.log(row.true / (said[row.at]["high_gib"] * GIB))) for row in rows if row.by]


def near(a, b, what, tolerance=1e-6):
    oracle.check(math.isclose(float(a), b, rel_tol=tolerance, abs_tol=1e-9), f"{what}: {a} is not {b}")


def rounded(text, value, what, digits):
    """A printed number is a value's, however its last digit was rounded."""
    oracle.check(abs(float(text) - value) <= 0.5001 * 10.0**-digits, f"{what}: printed {text}, not {value}")


class Case:
    def __init__(self, what, tables, name, start="counted", left_out=()):
        self.what, self.tables, self.left_out = what, tables, set(left_out)
        self.stack, self.start, self.start_name = stack_of(name), stack_of(start), start
        self.arguments = [*tables, "--stack", name, "--from", start, *(word for id in left_out for word in ("--leave-out", id))]
        shown = {key: value for key, value in self.stack.items() if key not in KEYS + ["half_width", "half_width_unseen"]}
        self.base = shown | {"limit_share": self.start["limit_share"]}
        self.unseen = share_of(self.start, "half_width_unseen")
        self.before = [share_of(self.start, key) for key in KEYS]
        self.read_rows()
        self.solve()

    def read_rows(self):
        none, whole = (scored(self.tables, with_shares(self.base, [x] * 4)) for x in (0.0, 1.0))
        covers = {self.stack["name"], *re.findall(r'"([^"]+)"', self.stack["covers"])}
        self.other = self.skipped = self.named = self.silent = 0
        self.rows = []
        for table in self.tables:
            for line, cells in lines_of(table):
                at = (table.name, line)
                if cells["stack"] not in covers:
                    self.other += 1
                elif at not in none:
                    self.skipped += 1
                elif cells["id"] in self.left_out:
                    self.named += 1
                else:
                    row = Row(cells, none[at], whole[at], self.base)
                    row.at = at
                    row.kind = kind_of(cells["scheme"], "exchange")
                    self.rows += [row] if row.by or row.status != "compiled" else []
        self.figures = [row for row in self.rows if row.by]

    def width(self, rows, shares, errors, words, before):
        """Of the interval; as it was where few figures say it."""
        figures = [row for row in rows if row.by]
        if len(figures) < 10:
            return before, False
        outside = beyond(figures, scored(self.tables, with_shares(self.base, shares, errors, **words)))
        return max(LEAST, quantile(outside, COVERED)), True

    def solve(self):
        self.shares, self.errors, self.spoke = fit(self.rows, self.before)
        kept = [self.errors[k] if self.spoke[k] else float(self.start[KEYS[k]].get("uncertainty", 0)) for k in range(4)]
        self.doubts, self.words = kept, words_of(self.rows)
        self.half_width, self.said_width = self.width(self.rows, self.shares, kept, self.words, share_of(self.start, "half_width"))
        fitted = with_shares(self.base, self.shares, kept, half_width=self.half_width, half_width_unseen=self.unseen, **self.words)
        self.said = scored(self.tables, fitted)
        self.off = [abs(self.said[row.at]["temporary_gib"] * GIB / row.true - 1) for row in self.figures]
        self.models = {}
        for model in dict.fromkeys(row.model for row in self.rows):
            self.models[model] = self.unseen_model(model)

    def unseen_model(self, model):
        """rows, figures, inside, median error, median width, by a fit without it."""
        of = [row for row in self.rows if row.model == model]
        rest, figures = [row for row in self.rows if row.model != model], [row for row in of if row.by]
        if not rest or not figures:
            return len(of), None
        shares, errors, _ = fit(rest, self.before)
        words = words_of(rest)
        half, _ = self.width(rest, shares, errors, words, share_of(self.start, "half_width"))
        said = scored(self.tables, with_shares(self.base, shares, errors, half_width=half, half_width_unseen=self.unseen, **words))
        inside = [said[row.at]["low_gib"] * GIB <= row.true <= said[row.at]["high_gib"] * GIB for row in figures]
        off = [abs(said[row.at]["temporary_gib"] * GIB / row.true - 1) for row in figures]
        wide = [(said[row.at]["high_gib"] - said[row.at]["low_gib"]) / said[row.at]["temporary_gib"] for row in figures]
        return len(of), (len(figures), sum(inside), quantile(off, 0.5), quantile(wide, 0.5))

    # --- What the program says ---

    def hold(self):
        out = scratch / "fitted.yaml"
        text = oracle.must("calibrate", "memory", *self.arguments, "--output", out, "--wide")
        self.hold_stack(stack_of(out))
        for form in ("json", "csv"):
            said = oracle.must("calibrate", "memory", *self.arguments, "--format", form)
            self.hold_coefficients(json.loads(said) if form == "json" else list(csv.DictReader(said.splitlines())))
        self.hold_text(text)

    def expected(self, k):
        """value, uncertainty, evidence, source of a share."""
        if self.spoke[k]:
            return self.shares[k], self.errors[k], "fitted", f"spillway calibrate memory, {self.spoke[k]} rows of the tables"
        old = self.start[KEYS[k]]
        fitted = old["evidence"] == "fitted"
        return (self.before[k], float(old.get("uncertainty", 0)), "assumed" if fitted else old["evidence"],
                f"as fitted for {self.start['name']}; its own tables do not say" if fitted else old["source"].strip('"'))

    def expected_width(self):
        if self.said_width:
            return self.half_width, 0.0, "fitted", f"holds {100 * COVERED:.0f} % of {len(self.figures)} rows of the tables"
        old = self.start["half_width"]
        fitted = old["evidence"] == "fitted"
        return (self.half_width, float(old.get("uncertainty", 0)), "assumed" if fitted else old["evidence"],
                f"as fitted for {self.start['name']}; its own tables do not say" if fitted else old["source"].strip('"'))

    def hold_coefficients(self, said):
        oracle.check([row["coefficient"] for row in said] == KEYS + ["half_width"], f"{self.what}: coefficients {said}")
        wants = [(self.before[k], self.expected(k)) for k in range(4)] + [(share_of(self.start, "half_width"), self.expected_width())]
        for row, (before, (value, doubt, evidence, source)) in zip(said, wants):
            what = f"{self.what}: {row['coefficient']}"
            for key, want in (("before", before), ("value", value), ("uncertainty", doubt)):
                near(row[key], want, f"{what}: {key}")
            oracle.check((row["evidence"], row["source"]) == (evidence, source), f"{what}: {row}, not {evidence}, {source}")

    def hold_stack(self, said):
        for k, key in enumerate([*KEYS, "half_width"]):
            value, doubt, evidence, source = self.expected(k) if k < 4 else self.expected_width()
            what = f"{self.what}: written {key}"
            rounded(said[key]["value"], value, what, 6)
            rounded(said[key].get("uncertainty", 0), doubt, f"{what}: uncertainty", 6)
            oracle.check((said[key]["evidence"], said[key]["source"]) == (evidence, f'"{source}"'), f"{what}: {said[key]}")
        near(share_of(said, "half_width_unseen"), self.unseen, f"{self.what}: half_width_unseen")
        near(share_of(said, "limit_share"), share_of(self.start, "limit_share"), f"{self.what}: limit_share")
        for key, want in self.words.items():
            oracle.check(str(said.get(key, '""')) == str(want), f"{self.what}: written {key} {said.get(key)}, not {want}")
        tables = " ".join(table.name for table in self.tables)
        oracle.check((said["name"], said["tables"]) == (self.stack["name"], f'"{tables}"'), f"{self.what}: {said['name']}, {said['tables']}")

    def hold_text(self, text):
        lines = text.splitlines()
        first = re.findall(r"^(recovered_\w+|half_width) +(\S+) +(\S+) +(\S+) +(\w+) ", text, re.M)
        oracle.check(len(first) == 5, f"{self.what}: {len(first)} coefficients in the text")
        for k, cells in enumerate(first):
            value, doubt, evidence, _ = self.expected(k) if k < 4 else self.expected_width()
            before = self.before[k] if k < 4 else share_of(self.start, "half_width")
            for cell, want in zip(cells[1:4], (before, value, doubt)):
                rounded(cell, want, f"{self.what}: text of {cells[0]}", 3)
            oracle.check(cells[4] == evidence, f"{self.what}: text of {cells[0]}: {cells[4]}")
        residuals = re.findall(r"^(\S+) +(temporary|total) +(\S+) +(\S+) +(\S+)$", text, re.M)
        oracle.check(len(residuals) == len(self.figures), f"{self.what}: {len(residuals)} residuals of {len(self.figures)} figures")
        for (name, by, true, fitted, off), row in zip(residuals, self.figures):
            said = self.said[row.at]["temporary_gib"] + (row.arguments / GIB if row.by == "total" else 0)
            oracle.check((name, by) == (row.id, row.by), f"{self.what}: residual of {name} by {by}, not {row.id} by {row.by}")
            for cell, want in ((true, row.true_gib), (fitted, said), (off, 100 * (said / row.true_gib - 1))):
                rounded(cell, want, f"{self.what}: residual of {name}", 1)
        verdicts = len(self.rows) - len(self.figures)
        head = f"{len(self.figures)} figures and {verdicts} verdicts fitted; {self.other} rows of other stacks, {self.skipped} that cannot be " \
               f"predicted, {self.named} left out by name"
        oracle.check(head in lines, f"{self.what}: no line '{head}'")
        found = re.search(r"^\|error\| of the figures: median (\S+) %, rms (\S+) %, max (\S+) %$", text, re.M)
        for cell, want in zip(found.groups(), (quantile(self.off, 0.5), math.sqrt(sum(e * e for e in self.off) / len(self.off)), max(self.off))):
            rounded(cell, 100 * want, f"{self.what}: errors of the figures", 1)
        self.hold_models(text)

    def hold_models(self, text):
        found = re.findall(r"^(\S+): (\d+) rows(?:; by a fit without them: median \|error\| (\S+) %, (\d+) of (\d+) inside the interval, whose median "
                           r"width is (\S+) %)?$", text, re.M)
        oracle.check([(name, int(rows)) for name, rows, *_ in found] == [(name, rows) for name, (rows, _) in self.models.items()],
                     f"{self.what}: models {found}")
        for name, _, off, inside, figures, wide in found:
            want = self.models[name][1]
            oracle.check((want is None) == (off == ""), f"{self.what}: {name}: {off} where {want}")
            if want is None:
                continue
            oracle.check((int(figures), int(inside)) == want[:2], f"{self.what}: {name}: {inside} of {figures} inside, not {want[1]} of {want[0]}")
            rounded(off, 100 * want[2], f"{self.what}: error of {name}", 1)
            rounded(wide, 100 * want[3], f"{self.what}: width of {name}", 1)


# --- Tables ---

def lines_of(table):
    """Numbers and cells of a table's lines."""
    with table.open(newline="") as file:
        reader = csv.DictReader(line for line in file if not line.startswith("#"))
        comments = sum(line.startswith("#") for line in table.read_text().splitlines())
        return [(reader.line_num + comments, row) for row in reader]


def made(name, source, rng, keep=1.0, moved=0.02, wild=(), totals=0.0, verdicts=0.0, where=lambda row: True):
    """Rows of a table: each kept with a chance, its figure moved by about so much (of models in `wild` by ten times that), some as totals, some as
    verdicts alone, some of these with nothing to fit."""
    rows = [dict(row) for _, row in lines_of(compiled / source) if where(row) and rng.random() < keep]
    for row in rows:
        if not row["temporary_gib"]:
            continue
        temporary = float(row["temporary_gib"]) * math.exp(rng.gauss(0, moved * (10 if row["model"] in wild else 1)))
        arguments, draw = float(row["argument_gib"] or 0), rng.random()
        row.update(temporary_gib=f"{temporary:.4f}", total_gib="")
        if draw < totals:
            row.update(temporary_gib="", total_gib=f"{temporary + arguments:.4f}")
        elif draw < totals + verdicts:
            row.update(temporary_gib="", total_gib="", status="fits" if rng.random() < 0.5 else rng.choice(["oom", "compiled"]))
    path = scratch / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def hold_start():
    """What is not fitted comes from the stack that the fit begins with, where the tables do not say."""
    start, out = stack_of("xla-cuda-0.12.0"), scratch / "from_file.yaml"
    figures = {"limit_share": 0.9, "half_width_unseen": 0.0625, "half_width": 0.0875}
    for key, value in figures.items():
        start[key]["value"] = value
    rows = [row for _, row in lines_of(compiled / "maxtext_memory.csv") if row["stack"].endswith("e591f30c+xla-cuda-0.10.2-default")][::25]
    table = scratch / "seven.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    oracle.must("calibrate", "memory", table, "--stack", "xla-cuda-0.10.2", "--from",
                write_stack(scratch / "start.yaml", start), "--output", out)
    said = stack_of(out)
    oracle.check(said["name"] == "xla-cuda-0.10.2", f"the name is of --stack: {said['name']}")
    for key, value in figures.items():
        near(said[key]["value"], value, f"{key} of the start")
    oracle.check(said["half_width"]["evidence"] == "assumed" and said["limit_share"]["evidence"] == "published", f"evidence: {said}")


def main():
    rng = random.Random(5)
    memory, november = "maxtext_memory.csv", "maxtext_2026_11.csv"
    cuda = "maxtext@e591f30c+xla-cuda-0.10.2-default"
    ids = [row["id"] for _, row in lines_of(compiled / memory) if row["stack"] == cuda]
    cases = [
        Case("shipped", [compiled / memory], "xla-cuda-0.10.2"),
        Case("left out", [compiled / memory, compiled / "maxtext_pipeline.csv"], "xla-cuda-0.10.2", left_out=rng.sample(ids, 12)),
        Case("wild", [made("wild.csv", memory, rng, moved=0.02, wild=("mixtral-8x7b", "deepseek-v2"))], "xla-cuda-0.10.2", "xla-rocm-0.10.2-amd"),
        Case("verdicts", [made("verdicts.csv", memory, rng, moved=0.05, totals=0.4, verdicts=0.4)], "xla-cuda-0.10.2", "xla-cuda-0.10.2-april"),
        Case("another", [made("april.csv", memory, rng, keep=0.8, moved=0.08, totals=0.5, verdicts=0.2)], "xla-cuda-0.10.2-april"),
        Case("few", [made("few.csv", november, rng, keep=0.5, totals=0.3, verdicts=0.6)], "xla-cuda-0.12.0", "xla-cuda-0.10.2"),
        Case("november", [made("november.csv", november, rng, moved=0.1, totals=0.3), compiled / "maxtext_fp32.csv"], "xla-cuda-0.12.0"),
    ]
    two = made("two.csv", "maxtext_pipeline.csv", rng, where=lambda row: row["pipeline"] == "2")
    some = made("some.csv", memory, rng, keep=0.4, verdicts=0.85, where=lambda row: row["stack"] == cuda and row["model"] != "gpt-oss-20b")
    one = made("one.csv", memory, rng, moved=0.1, totals=0.2, where=lambda row: row["model"] == "deepseek-v3")
    sizes = made("sizes.csv", november, rng, where=lambda row: row["stack"].startswith("maxtext@e591f30c"))
    text = sizes.read_text().replace(",full,bf16,", ",full,bf16 gradients=fp32,")
    sizes.write_text(text)
    (scratch / "weights.csv").write_text(text.replace(" gradients=fp32", " weights=fp32", 3))
    cases += [Case("one model", [one], "xla-cuda-0.10.2"), Case("mostly verdicts", [two, some], "xla-cuda-0.10.2"),
              Case("gradients", [sizes], "xla-cuda-0.12.0"), Case("weights", [scratch / "weights.csv"], "xla-cuda-0.12.0")]
    for case in cases:
        case.hold()
    hold_start()
    models = [want for case in cases for _, want in case.models.values() if want]
    oracle.check(any(inside < figures for figures, inside, *_ in models) and any(inside == figures for figures, inside, *_ in models),
                 "models with all figures inside, and with some outside")
    oracle.check({bool(n) for case in cases for n in case.spoke} == {True, False}, "shares of which rows speak, and of which none does")
    oracle.check({case.said_width for case in cases} == {True, False}, "enough figures for an interval, and too few")
    oracle.finish(1500)


main()
