#!/usr/bin/env python3
"""What spillway_moe.capture loses is told, and what is wrong is refused: a rank that is forgotten, steps that begin again, hooks that see
nothing, use after close, threads, forks, programs that end.     capture_misuse.py SPILLWAY SCRATCH SOURCE"""
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import warnings

SPILLWAY, SCRATCH, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SCRATCH = SCRATCH / "capture_misuse"
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from spillway_moe.capture import Capture, CaptureWarning, place, shard, write_shard

oracle = Oracle(SPILLWAY, "capture_misuse")
check = oracle.check
rng = np.random.default_rng(6)
shutil.rmtree(SCRATCH, ignore_errors=True)
for rank, ranks in place.LAUNCHERS:
    os.environ.pop(rank, None), os.environ.pop(ranks, None)
COMMON = dict(experts=8, top_k=2, layers=[0, 1])


def choose(tokens=5):
    return np.argsort(rng.random((tokens, 2, 8)), -1)[..., :2].astype("i4")


def capture_of(name, **options):
    return Capture(SCRATCH / name, **{**COMMON, **options})


def files(name):
    return sorted(path.name for path in (SCRATCH / name).iterdir())


def names(*steps, rank=0):
    return [f"rank{rank:05}_step{step:09}.h5" for step in steps]


def one_step(capture, step):
    with capture.step(step):
        capture.add_sequences([choose()])


def raises(kind, words, act, *arguments):
    try:
        act(*arguments)
    except kind as error:
        check(words in str(error), f"wanted '{words}', got '{error}'")
    else:
        check(False, f"nothing was raised; wanted '{words}'")


def warned(words, act):
    """The call goes through and warns."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = act()
    texts = [str(w.message) for w in seen if issubclass(w.category, CaptureWarning)]
    check(any(words in text for text in texts) if words else not texts, f"wanted the warning '{words}', got {texts}")
    return out


# rank= forgotten on several ranks: at the same time, one after the other, and mended where the launcher says it
first = capture_of("forgotten")
raises(RuntimeError, "another Capture writes as rank 0 here now; is rank= forgotten?", capture_of, "forgotten")
one_step(first, 0)
first.close()
raises(FileExistsError, "holds 1 files of rank 0 already, the first rank00000_step000000000.h5", capture_of, "forgotten")
check(files("forgotten") == names(0), f"{files('forgotten')}: a lock was left")
for variables in place.LAUNCHERS:
    for rank in range(3):
        os.environ.update(zip(variables, (str(rank), "3")))
        with capture_of(variables[0]) as capture:
            one_step(capture, 4)
    with capture_of("said", rank=1, ranks=2, overwrite=True) as capture:
        check((capture.rank, capture.ranks) == (1, 2), "what is said goes before what the launcher says")
    for variable in variables:
        del os.environ[variable]
    check(files(variables[0]) == sum((names(4, rank=r) for r in range(3)), []), f"{variables}: {files(variables[0])}")
    oracle.must("trace", "verify", SCRATCH / variables[0])

# a folder that is there: refused, or gone on with
with capture_of("forgotten", overwrite=True) as capture:
    (SCRATCH / "forgotten" / "rank00000_step000000009.h5.77.part").write_bytes(b"of a run that was killed")
    one_step(capture, 0), one_step(capture, 1)
capture_of("forgotten", overwrite=True).close()
check(files("forgotten") == names(0, 1), f"{files('forgotten')}")
ids = choose()
write_shard(SCRATCH / "one.h5", [(0, 0, ids)], **COMMON)
raises(FileExistsError, "overwrite=True replaces it", lambda: write_shard(SCRATCH / "one.h5", [(1, 0, ids)], **COMMON))
write_shard(SCRATCH / "one.h5", [(2, 0, ids)], overwrite=True, **COMMON)
with h5py.File(SCRATCH / "one.h5") as h:
    check(list(h["steps/id"][:]) == [2], "overwrite=True")
for experts in (2, 254, 255, 256, 257, 300, 65535):  # the last expert is an expert in a file whose ids are as narrow as they can be, and no mark
    ids = np.array([[[experts - 1, 0]], [[experts - 2, -1]], [[-1, experts - 1]], [[-1, -1]]])
    write_shard(SCRATCH / "last.h5", [(0, 0, ids)], overwrite=True, experts=experts, top_k=2, layers=[0])
    with h5py.File(SCRATCH / "last.h5") as h:
        kept = h["tokens/expert_id"]
        back = np.where(kept[:] == kept.attrs["missing_value"], -1, kept[:].astype(np.int64))
        check((back == ids).all() and h["counts/routed"][:].sum() == 4, f"of {experts} experts {back.tolist()}")
    oracle.must("trace", "verify", SCRATCH / "last.h5")
ids = choose()
late = shard.Shard(SCRATCH / "late.h5", **COMMON)
late.append(0, 0, ids)
(SCRATCH / "late.h5").write_bytes(b"somebody else's")
raises(FileExistsError, "late.h5", late.close)
check((SCRATCH / "late.h5").read_bytes() == b"somebody else's", "a file that came meanwhile was replaced")
link, os.link = os.link, lambda *_: (_ for _ in ()).throw(OSError(1, "Operation not permitted"))  # a file system without links
write_shard(SCRATCH / "unlinked.h5", [(0, 0, ids)], **COMMON)
late = shard.Shard(SCRATCH / "late2.h5", **COMMON)
late.append(0, 0, ids)
(SCRATCH / "late2.h5").write_bytes(b"somebody else's")
raises(FileExistsError, "late2.h5", late.close)
os.link = link
oracle.must("trace", "verify", SCRATCH / "unlinked.h5")

# steps
with capture_of("steps", every=2) as capture:
    one_step(capture, 2), one_step(capture, np.int64(3)), one_step(capture, 2**40)
    for step, words in ((2**40, "comes after step 1099511627776: steps must rise over the whole run"), (0, "also over epochs"), (2.7, "step 2.7: a whole number"),
                        (-1, "step -1: 0 to"), ("5", "step '5'"), (None, "step None")):
        raises(ValueError, words, one_step, capture, step)
check(files("steps") == sorted(names(2, 2**40)), f"{files('steps')}")


def none_wanted():
    with capture_of("none", every=10) as capture:
        for step in range(1, 9):
            one_step(capture, step)


warned("nothing is captured: of the steps up to 8 none is a multiple of every=10", none_wanted)

# no hook, or one that sees nothing later on
def one_empty(capture, step):
    with capture.step(step):
        pass


with capture_of("unseen", overwrite=True) as capture:
    raises(RuntimeError, "no forward pass was seen in step 0: nothing was hooked", one_empty, capture, 0)
    one_step(capture, 1)
    one_empty(capture, 2)
    warned("step 2 is not captured: no forward pass was seen in it; training goes on", lambda: one_step(capture, 3))
    check(capture.lost == {2: "no forward pass was seen in it"}, f"{capture.lost}")
    warned("1 of 4 steps are not captured, the first 2", capture.close)
check(files("unseen") == names(1, 3), f"{files('unseen')}")

# after close
for act in (lambda: one_step(capture, 4), lambda: capture.add_sequences([choose()])):
    raises(RuntimeError, "the capture is closed", act)
capture.close()
with capture_of("outside") as capture:
    raises(RuntimeError, "add_sequences() outside of a step", capture.add_sequences, [choose()])
    one_step(capture, 0)
    with capture.step(1):
        raises(ValueError, "a list of arrays [tokens, ", capture.add_sequences, choose())
        capture.add_sequences([choose()])


def closed_inside():
    with capture_of("closed") as capture:
        one_step(capture, 0)
        with capture.step(1):
            capture.add_sequences([choose()])
            capture.close()
    return capture


check(list(warned("1 of 2 steps are not captured, the first 1: the capture was closed inside of it", closed_inside).lost) == [1], "closed inside of a step")
check(files("closed") == names(0), f"{files('closed')}")

# forward passes of four threads, which overlap; a thread that is still inside of one; a pass that fails and is made again
meet = threading.Barrier(4)
kept = {}
with capture_of("threads") as capture:
    def forward(thread):
        for turn in range(20):
            kept[thread, turn] = own = choose(10)
            meet.wait()
            capture.begin()
            for layer in (0, 1):
                meet.wait()
                capture.record(layer, lambda own=own, layer=layer: (own[:, layer], None), 1)
            meet.wait()
            capture.end()

    with capture.step(0):
        threads = [threading.Thread(target=forward, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    with capture.step(1):
        capture.add_sequences([choose()])
        inside = threading.Thread(target=capture.begin)
        inside.start()
        inside.join()
    with capture.step(2):
        capture.begin()
        capture.record(0, lambda: (choose()[:, 0], None), 1)
        capture.add_sequences([ids])
    with capture.step(3):
        capture.begin(shared=True)
        raises(RuntimeError, "begins inside of another", lambda: capture.begin(shared=True))
        one = threading.Thread(target=lambda: [capture.record(layer, lambda layer=layer: (ids[:, layer], None), 1) for layer in (0, 1)])
        one.start()
        one.join()
        check(capture.chosen(0) is not None and capture.chosen(), "a shared pass")
        capture.end()
        capture.begin(shared=True)
        capture.end(failed=True)
    warned("first 1: it ended while 1 other threads were inside", capture.close)
with h5py.File(SCRATCH / "threads" / names(0)[0]) as h:
    found = sorted(part.tobytes() for part in h["tokens/expert_id"][:].reshape(80, 10, 2, 2))
    check(found == sorted(part.astype("u1").tobytes() for part in kept.values()), "choices of four threads were lost or mixed")
for step in (2, 3):
    with h5py.File(SCRATCH / "threads" / names(step)[0]) as h:
        check((h["tokens/expert_id"][:] == ids).all(), f"step {step} has not its one pass")

# what fails as it is written costs the step, not the training; strict raises
bad = choose()
bad[3, 1, 0] = 99


def bad_step(strict):
    with capture_of(f"bad{strict}", strict=strict) as capture:
        for step in range(4):
            with capture.step(step):
                capture.add_sequences([bad if step == 1 else choose()])
                capture.add_sequences([choose()])
    return capture


check(list(warned("1 of 4 steps are not captured, the first 1: ids from ", lambda: bad_step(False)).lost) == [1], "a bad step")
check(files("badFalse") == names(0, 2, 3), f"{files('badFalse')}")
raises(RuntimeError, "the trace could not be written: ids from ", bad_step, True)

# programs that end without close(), by an exception, in a forked child
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from spillway_moe.capture import Capture
capture = Capture(sys.argv[2], experts=8, top_k=2, layers=[0, 1])
def step(n):
    with capture.step(n):
        capture.add_sequences([np.argsort(np.random.random((20000, 2, 8)), -1)[..., :2]])
        if n == 3 and sys.argv[3] == "exception": raise KeyError("of the program")
for n in range(6): step(n)
if sys.argv[3] == "exit": sys.exit(5)
if sys.argv[3] == "fork":
    if os.fork() == 0:
        try: step(99)
        except RuntimeError as error:
            print(error)
            sys.exit(0)
        os._exit(9)
    os._exit(9) if os.wait()[1] else capture.close()
"""
for mode, status, steps, says in (("end", 0, 6, ""), ("exit", 5, 6, ""), ("exception", 1, 3, "of the program"), ("fork", 0, 6, "of which this one is a fork")):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(SOURCE / "python"), str(SCRATCH / mode), mode], capture_output=True, text=True, timeout=200)
    check(done.returncode == status and says in done.stdout + done.stderr, f"{mode}: {done.returncode} {done.stdout} {done.stderr}")
    check(files(mode) == names(*range(steps)), f"{mode}: {files(mode)}")
    oracle.must("trace", "verify", SCRATCH / mode)
shutil.rmtree(SCRATCH)
oracle.finish(50)
