#!/usr/bin/env python3
"""A trace cut into shards, by steps and by ranks, answers like the whole: replay, trace info, trace verify, byte for byte. What
is missing, doubled, between shards or of another model is named.

shards_oracle.py SPILLWAY SCRATCH ROOT"""
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "shards", pathlib.Path(sys.argv[3])
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"shards_oracle: {what}")


def run(*words, status=0):
    done = caller.call([program, *map(str, words)], capture_output=True, text=True)
    check(done.returncode == status, f"{' '.join(map(str, words))}: status {done.returncode}, not {status}: {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def clear(name):
    folder = scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def cut(whole, folder, steps, ranks):
    for s, (a, b) in enumerate(steps):
        for r, (c, d) in enumerate(ranks):
            run("trace", "slice", whole, folder / f"s{s}r{r}.h5", "--steps", f"{a}:{b}", "--ranks", f"{c}:{d}")


def answers(path):
    """Everything that three commands say of a trace, but for its name and its note."""
    job = root / "sim/jobs/scratch-moe-e64.yaml"
    out = run("replay", path, "--job", job, "--each-step", "--format", "csv", "--scheme", "gmm-deepep", "--scheme",
              "dense:capacity_factor=1.25", "--set", "batch.sequences_per_gpu=1", "--sequence-length", "64")
    out += run("trace", "info", path, "--expert-parallel", "8", "--wide") + run("trace", "verify", path)
    return [line for line in out.replace(str(path), "TRACE").splitlines() if not line.startswith("  note")]


whole = clear("whole") / "whole.h5"
run("trace", "generate", whole, "--experts", "64", "--top-k", "8", "--layers", "3", "--steps", "6", "--ranks", "64",
    "--tokens-per-rank", "64", "--seed", "3")
want = answers(whole)
for name, steps, ranks in (("steps", [(0, 1), (1, 4), (4, 6)], [(0, 64)]),
                           ("ranks", [(0, 6)], [(r, r + 16) for r in range(0, 64, 16)]),
                           ("both", [(0, 3), (3, 6)], [(0, 1), (1, 40), (40, 64)])):
    folder = clear(name)
    cut(whole, folder, steps, ranks)
    check(answers(folder) == want, f"shards by {name} do not answer like the whole")

# Flags of all shards count, not those of the last one.
flagged = clear("flagged") / "whole.h5"
shutil.copy(whole, flagged)
with h5py.File(flagged, "a") as h:
    at = np.arange(h["tokens/expert_id"].shape[0])
    h["tokens/flags"] = (at % 64 < 1 + at // 64 % 3).astype("u1")  # 1 to 3 tokens of every rank
    end = h["tokens/step_offset"][1]
    count = int((h["tokens/flags"][:end] != 0).sum())
cut(flagged, clear("flags"), [(0, 6)], [(0, 16), (16, 48), (48, 64)])
for path in (flagged, scratch / "flags"):
    said = run("replay", path, "--job", root / "sim/jobs/scratch-moe-e64.yaml", "--format", "json", "--scheme", "gmm",
               "--set", "batch.sequences_per_gpu=1", "--sequence-length", "64")
    check(f"replayed like the others: {count} of them at step" in said, f"{path}: not {count} flagged tokens")

# A list answers like the folder, in any order, with comments.
listed = scratch / "both.shards"
names = sorted((scratch / "both").iterdir(), reverse=True)
listed.write_text("# a run\n" + "\n\n".join(f"both/{p.name}  # {i}" for i, p in enumerate(names)) + "\r\n")
check(answers(listed) == want, "a list of shards does not answer like the whole")

# A trace of counts.
counts = clear("counts") / "whole.h5"
run("trace", "generate", counts, "--experts", "64", "--top-k", "8", "--layers", "2", "--steps", "4", "--ranks", "8",
    "--tokens-per-rank", "64", "--seed", "3", "--counts-only")
run("trace", "slice", counts, clear("counted") / "a.h5", "--steps", "0:2")
run("trace", "slice", counts, scratch / "counted/b.h5", "--steps", "2:4")
check(run("trace", "verify", counts) == run("trace", "verify", scratch / "counted"), "counts in shards differ")

# What is wrong is named.
both = scratch / "both"


def damaged(move, *words):
    folder = clear("damaged")
    for path in both.iterdir():
        shutil.copy(path, folder)
    move(folder)
    said = run("trace", "info", folder, status=3)
    check(all(word in said for word in words), f"{words} are not in: {said}")


damaged(lambda f: (f / "s1r1.h5").unlink(), "none holds ranks 1 to 39 at steps 3 to 5")
damaged(lambda f: [(f / f"s{s}r0.h5").unlink() for s in (0, 1)], "none holds ranks 0 to 0 at steps 0 to 2")
damaged(lambda f: shutil.copy(f / "s1r1.h5", f / "again.h5"), "again.h5", "s1r1.h5", "overlap")
damaged(lambda f: (f / "s0r2.h5").write_bytes((f / "s0r2.h5").read_bytes()[:9000]), "s0r2.h5")
gap = clear("gap")
cut(whole, gap, [(0, 2), (3, 6)], [(0, 64)])
check("none holds steps 2 to 2" in run("trace", "info", gap, status=3), "a gap of steps is not named")
run("trace", "slice", whole, gap / "late.h5", "--steps", "1:3")
check("overlap" in run("trace", "info", gap, status=3), "overlapping steps are not named")
listed.write_text("both/s0r0.h5\nboth/lost.h5\n")
check("both/lost.h5: No such file" in run("trace", "info", listed, status=3), "a file of the list that is missing is not named")
numbered = clear("numbered")
for n in (1, 3):
    shutil.copy(whole, numbered / f"t-0000{n}-of-00003.h5")
check("t-00002-of-00003.h5: missing" in run("trace", "info", numbered, status=3), "a missing number is not named")
check("holds no file" in run("trace", "info", clear("empty"), status=3), "an empty folder is not named")
with h5py.File(gap / "late.h5", "r+") as h:
    h["model"].attrs["name"] = "another"
check("no shards of one trace: model" in run("trace", "info", gap, status=3), "another model is not named")
print(f"shards_oracle: {checks} checks")
