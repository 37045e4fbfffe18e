#!/usr/bin/env python3
"""spillway_moe.capture without a framework: files that `trace verify` and `trace info` accept one by one and as a folder, a queue that
stays bounded, failures that reach the caller, no file half written.     capture_oracle.py SPILLWAY SCRATCH SOURCE"""
import pathlib
import shutil
import sys
import threading
import time

SPILLWAY, SCRATCH, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SCRATCH = SCRATCH / "capture_oracle"
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from processes import HANG_S
from spillway_moe.capture import Capture, recorder, write_shard

oracle = Oracle(SPILLWAY, "capture_oracle")
check = oracle.check
rng = np.random.default_rng(5)
shutil.rmtree(SCRATCH, ignore_errors=True)


def choose(tokens, layers, experts, top_k):
    return np.argsort(rng.random((tokens, layers, experts)), -1)[..., :top_k].astype("i4")


def raises(kind, words, act):
    try:
        act()
    except kind as error:
        check(words in str(error), f"wanted '{words}', got '{error}'")
    else:
        check(False, f"nothing was raised; wanted '{words}'")


# every rank and step a file; the folder is one trace; experts above 255 need 16 bits
for experts, kind in ((16, "u1"), (300, "u2")):
    folder, kept = SCRATCH / f"e{experts}", {}
    for rank in range(3):
        with Capture(folder, experts=experts, top_k=4, layers=[2, 5], rank=rank, ranks=3, every=2, weights=False, sequence_length=4) as capture:
            for step in range(6):
                with capture.step(step):
                    for micro in range(2):
                        kept[step, micro, rank] = [choose(4 * n, 2, experts, 4) for n in (1 + rank, 2)]
                        capture.add_sequences(kept[step, micro, rank])
    files = sorted(p.name for p in folder.iterdir())
    check(files == sorted(f"rank{r:05}_step{s:09}.h5" for r in range(3) for s in (0, 2, 4)), f"files {files}")
    for path in [folder, *folder.iterdir()]:
        oracle.must("trace", "verify", path)
    info = oracle.must("trace", "info", folder, "--wide")
    check("6 steps" in info and "3 source ranks" in info and f"top-4 of {experts}" in info, info[:200])
    for rank, step in ((r, s) for r in range(3) for s in (0, 2, 4)):
        with h5py.File(folder / f"rank{rank:05}_step{step:09}.h5") as h:
            want = np.concatenate([np.concatenate(kept[step, m, rank]) for m in range(2)])
            check(h["tokens/expert_id"].dtype == kind and (h["tokens/expert_id"][:] == want).all(), "ids")
            check(list(h["steps/microbatch"][:]) == [0, 1] and list(h["steps/id"][:]) == [step, step] and list(h["rank"][:]) == [rank], "places")
            first = step // 2 * 2 * (3 + rank)  # those of all steps before
            check((h["tokens/position"][:] == np.arange(len(want)) % 4).all() and (h["tokens/sequence"][:] == first + np.arange(len(want)) // 4).all(),
                  f"sequences of step {step} go on")
    (folder / "rank00001_step000000002.h5").unlink()
    done = oracle.call("trace", "info", folder)
    check(done.returncode == 3 and "none holds ranks 1 to 1 at steps 2 to 2" in done.stderr, f"a missing shard: {done.stderr}")

# no choice, weights
ids, weights = choose(6, 1, 8, 2), rng.random((6, 1, 2)).astype("f2")
ids[3] = -1
write_shard(SCRATCH / "one.h5", [(7, 0, ids, weights)], layers=[0], experts=8, top_k=2, weights=True, model={"name": "tiny", "hidden_size": 4})
with h5py.File(SCRATCH / "one.h5") as h:
    check((h["tokens/expert_id"][3] == 255).all() and (h["tokens/weight"][:] == weights).all() and h["counts/routed"][:].sum() == 10, "a token without a choice")
    check(h["model"].attrs["name"] == "tiny", "the model")

def bad_weight(value):
    out = rng.random((6, 1, 2))
    out[3], out[2, 0, 1] = np.nan, value  # token 3 has no choice: its weights mean nothing
    return out


# what cannot be is refused, and nothing is left
for words, options, steps in (
    ("top-9 of 8", dict(top_k=9), []), ("each index once", dict(layers=[1, 1]), []), ("order 'no'", dict(order="no"), []), ("phase 'no'", dict(phase="no"), []),
    ("without a step", {}, []), ("[tokens, 1, 2] would be right", {}, [(0, 0, ids[:, :, :1])]), ("-1 and 0 to 7", {}, [(0, 0, ids + 8)]),
    ("comes after", {}, [(1, 0, ids), (1, 0, ids)]), ("whole sequences of 5", dict(sequence_length=5), [(0, 0, ids)]),
    ("weights of shape ()", dict(weights=True), [(0, 0, ids)]), ("ids of type float64", {}, [(0, 0, ids + 0.7)]),
    ("an expert twice", {}, [(0, 0, ids[:, :, :1].repeat(2, 2))]), ("an expert twice", {}, [(0, 0, ids * 0)]), ("the weight nan of token 2", dict(weights=True), [(0, 0, ids, bad_weight(np.nan))]),
    ("the weight 70000.0 of token 2", dict(weights=True), [(0, 0, ids, bad_weight(7e4))]), ("the weight -inf of", dict(weights=True), [(0, 0, ids, bad_weight(-np.inf))]),
    ("the weight -0.5 of token 2", dict(weights=True), [(0, 0, ids, bad_weight(-0.5))]),
    ("of token 2 rise; order='unspecified'", dict(weights=True, order="descending_weight"), [(0, 0, ids, np.where(np.arange(6)[:, None, None] == 2, [0.1, 0.2], [0.2, 0.1]))]),
    ("step 2.7: a whole number", {}, [(2.7, 0, ids)]), ("step -1: 0 to", {}, [(-1, 0, ids)]), ("rank 70000: 0 to 65535", dict(rank=70000), []),
):
    raises(ValueError, words, lambda: write_shard(SCRATCH / "bad.h5", steps, **{**dict(layers=[0], experts=8, top_k=2), **options}))
check([p.name for p in SCRATCH.iterdir() if "bad" in p.name] == [], "something was left")

# a step that fails is not written; what failed on the writing thread is raised; layers that disagree are refused
def capture_of(name, **options):
    return Capture(SCRATCH / name, **{**dict(experts=8, top_k=2, layers=[0, 1]), **options})


def failing_step():
    with capture_of("failing") as capture:
        with capture.step(0):
            capture.add_sequences([choose(3, 2, 8, 2)])
        with capture.step(1):
            capture.add_sequences([choose(3, 2, 8, 2)])
            raise KeyError("out of the loop")


raises(KeyError, "out of the loop", failing_step)
check([p.name for p in (SCRATCH / "failing").iterdir()] == ["rank00000_step000000000.h5"], "a step that failed was written")


def unlike_layers():
    with capture_of("unlike", strict=True) as capture, capture.step(0):
        capture.begin()
        capture.record(0, lambda: (choose(3, 1, 8, 2)[:, 0], None), 1)
        capture.record(1, lambda: (choose(4, 1, 8, 2)[:, 0], None), 1)
        capture.end()


raises(RuntimeError, "the trace could not be written: layers that route different numbers of tokens: {0: 3, 1: 4}", unlike_layers)
check(list((SCRATCH / "unlike").iterdir()) == [], "half a step was written")
with capture_of("calls") as capture, capture.step(0):
    capture.record(0, None, 1)  # outside of a pass: ignored
    capture.begin()
    raises(ValueError, "layer 9 is not among", lambda: capture.record(9, None, 1))
    capture.record(0, None, 1)
    raises(RuntimeError, "chose twice", lambda: capture.record(0, None, 1))
    raises(RuntimeError, "no choices of layers [1]", capture.end)
    raises(RuntimeError, "begins inside of step 0", lambda: capture.step(1).__enter__())
    capture.add_sequences([choose(3, 2, 8, 2)])
for bad, words in ((dict(rank=2, ranks=2), "rank, of 2 ranks, 2: 0 to 1"), (dict(every=0), "every 0"), (dict(queue_bytes=0), "queue_bytes 0"),
                   (dict(rank=70000, ranks=80000), "ranks 80000: 1 to 65536"), (dict(rank=0.5, ranks=2), "0.5: a whole number"),
                   (dict(ranks=4), "ranks=4 without rank="), (dict(layers=[0, 1.5]), "layer 1.5: a whole number"), (dict(top_k=9), "top-9 of 8")):
    raises(ValueError, words, lambda: capture_of("bad", **bad))
check(not (SCRATCH / "bad").exists(), "a capture that was refused made its folder")

# the queue: a writer that stands still holds back whoever fills it, at the bytes that were said
gate, most = threading.Event(), 0
whole = choose(100, 2, 8, 2)


class Slow(recorder.Shard):
    def append(self, *content):
        gate.wait()
        super().append(*content)


recorder.Shard, plain = Slow, recorder.Shard
capture = capture_of("slow", queue_bytes=3 * whole.nbytes)
done_passes = []


def train():
    with capture.step(0):
        for _ in range(10):
            capture.add_sequences([whole])
            done_passes.append(capture._waiting)


thread = threading.Thread(target=train)
thread.start()
deadline = time.monotonic() + HANG_S
while len(done_passes) < 3 and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.2)
check(len(done_passes) == 3 and thread.is_alive() and max(done_passes) <= 3 * whole.nbytes, f"{len(done_passes)} passes went into a queue of 3")
gate.set()
thread.join()
capture.close()
recorder.Shard = plain
with h5py.File(SCRATCH / "slow/rank00000_step000000000.h5") as h:
    check(len(h["steps/id"]) == 10 and h["steps/num_tokens"][:].sum() == 1000, "passes were lost")
shutil.rmtree(SCRATCH)
oracle.finish(45)
