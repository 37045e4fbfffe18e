#!/usr/bin/env python3
"""What a page of a replay says of a row that drops too much: the factor beside it is that of its own scheme and batch, and of a limit that is
no wider than the page's; and the lines behind it name all that were searched.

tempting_oracle.py SPILLWAY SCRATCH ROOT"""
import html
import itertools
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "tempting_oracle")
folder, root = pathlib.Path(sys.argv[2]) / "tempting", pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
SCHEMES = ("megatron-alltoall:capacity_factor=1", "dense:capacity_factor=1")


def page(answer, limit):
    (folder / "a.json").write_text(json.dumps(answer))
    (folder / "a.html").unlink(missing_ok=True)
    oracle.must("report", folder / "a.json", "--output", folder / "a.html", "--drop-at-most", limit)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", (folder / "a.html").read_text())).split())


def tempting(text):
    """Scheme, batch and factor (None: none is said) of the row that would be chosen if drops did not count."""
    found = re.search(r"but with too many drops: (\S+) (?:(\d+) seq/GPU )?,(.*?)(?:Which is fastest|$)", text)
    if not found:
        return None
    factor = re.search(r"It stays within that from a factor of ([\d.]+) on", found[3])
    return found[1], int(found[2] or batches[0]), float(factor[1]) if factor else None


for batches in ((1, 2), (1, 2, 4), (2,)):
    words = [word for scheme in SCHEMES for word in ("--scheme", scheme)]
    answer = json.loads(oracle.must("replay", root / "traces/data/training_aux_e64_slice.h5", "--job", root / "sim/jobs/scratch-moe-e64.yaml",
                                    "--sequences-per-gpu", ",".join(map(str, batches)), "--drop-at-most", 1, *words, "--format", "json"))
    factors = answer["smallest_factors"]
    oracle.check({(f["scheme"], f["sequences_per_gpu"]) for f in factors} == set(itertools.product(SCHEMES, batches)), f"searched: {factors}")
    for number, factor in enumerate(factors):
        factor["factor"] = 3.0 + number / 8
    for smallest in range(len(answer["rows"])):  # each row as the one that takes least
        for i, row in enumerate(answer["rows"]):
            for figure in ("max_bytes", "median_bytes"):
                row["memory"][figure] = 2**30 * (1 if i == smallest else 2 + i)
        of = answer["rows"][smallest]
        own = next(f for f in factors if (f["scheme"], f["sequences_per_gpu"]) == (of["scheme"], of["sequences_per_gpu"]))
        said = tempting(page(answer, 1))
        oracle.check(said is not None and said[2] == next(f["factor"] for f in factors if (f["scheme"], f["sequences_per_gpu"]) == said[:2]),
                     f"{batches}, row {smallest}: {said} of {factors}")
        before, own["drop_at_most"] = own["drop_at_most"], 0.02  # of a wider limit
        narrow, wide = tempting(page(answer, 1)), tempting(page(answer, 2))
        if said[:2] == (of["scheme"], of["sequences_per_gpu"]):
            oracle.check(narrow == (*said[:2], None) and wide == said, f"{batches}, row {smallest}, another limit: {narrow}, {wide}")
        own["drop_at_most"] = before
oracle.finish(least=15)
