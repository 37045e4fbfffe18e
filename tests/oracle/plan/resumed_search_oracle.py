"""A search with --checkpoint that is killed again and again, or ended by ^C, goes on where it was and ends with the bytes of one that ran
through; a file of another command, of a changed input or that is no checkpoint is refused and stays as it is.

usage: resumed_search_oracle.py SPILLWAY [--seed S] [--kills N]"""
import argparse
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import processes  # noqa: E402,F401  (signals that a shell ignores)
from oracle_run import Oracle  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--kills", type=int, default=6)
options = parser.parse_args()
oracle = Oracle(options.program, "resumed_search_oracle")
check = oracle.check
seed = options.seed or random.randrange(1, 1 << 30)
draw = random.Random(seed)
print(f"seed {seed}")
SEARCH = ["plan", "--search", "--model", "glm-4.5-air", "--cluster", "h200:8x8", "--scheme", "megatron-flex", "--optimizer", "distributed",
          "--routing-tokens", "16k", "--over", "remat=full,moe_act", "--over", "micro-batches=4,8", "--over", "pipeline=1,2,4", "--details"]


def run(*words, after=None, by=signal.SIGKILL):
    """Standard output and exit status of a search; `after` seconds its group gets the signal."""
    running = subprocess.Popen([options.program, *SEARCH, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env={**os.environ, "SPILLWAY_PROGRESS_S": "0"})
    if after is not None:
        time.sleep(after)
        try:
            os.killpg(running.pid, by)
        except ProcessLookupError:
            pass  # done already
    out, err = running.communicate()
    return out, err, running.returncode


def replays(path):
    """Size of what is kept."""
    return path.stat().st_size if path.exists() else 0


HEAD, BLOCK = 24, 24  # of the file, and of a block: units, bytes, sum


def sum_of(data, before):
    """base/checkpoint.h, spw_checkpoint_hash."""
    mask = (1 << 64) - 1
    result = before ^ (len(data) * 0x9e3779b97f4a7c15 & mask)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at:at + 8], "little")
        result = (result ^ word) * 0xff51afd7ed558ccd & mask
        result ^= result >> 32
    return result


def forged(kept, gpus):
    """(what is changed, the file with its sums) of the first point in it: its place, split and batch, and a verdict beside its memory."""
    at = HEAD
    while at + BLOCK <= len(kept):
        units, length, total = struct.unpack_from("<3Q", kept, at)
        data = kept[at + BLOCK:at + BLOCK + length]
        if len(data) < length:
            return
        check(sum_of(data, units) == total, f"the sum of a block of {length} bytes is {total}")
        word = struct.unpack(f"<{length // 8}Q", data[:length // 8 * 8])
        for i in range(1, len(word) - 14):
            if word[i] != gpus or word[i + 9] != gpus or word[i + 1] not in (1, 2, 4):
                continue
            for name, place, value in (("order", i - 1, word[i - 1] + 1), ("pipeline", i + 1, word[i + 1] + 1), ("fsdp", i + 10, word[i + 10] + 1),
                                       ("sequences", i + 11, word[i + 11] + 1), ("verdict", i + 13, word[i + 13] % (1 << 32) + (2 << 32))):
                other = data[:place * 8] + struct.pack("<Q", value) + data[place * 8 + 8:]
                if other != data:
                    yield name, kept[:at] + struct.pack("<3Q", units, length, sum_of(other, units)) + other + kept[at + BLOCK + length:]
            return
        at += BLOCK + length


begun = time.monotonic()
whole, _, code = run()
took = time.monotonic() - begun
check(code == 0 and "points looked at" in whole, f"a whole search ends with {code}")
with tempfile.TemporaryDirectory() as folder:
    at = pathlib.Path(folder) / "search.ck"
    sizes, kills = [], 0
    # Others may have made the first run slower than the next ones: until kills have come in time and something is kept.
    for kill in range(10 * options.kills):
        if kill >= options.kills and kills > 0 and replays(at) > 100:
            break
        by = signal.SIGINT if kill % 3 == 2 else signal.SIGKILL
        out, err, code = run("--checkpoint", at, after=draw.uniform(0.1, 0.7) * took, by=by)
        if code == 0:
            check(out == whole, "a search that no kill reached differs")
            took *= 0.7
            continue
        kills += 1
        sizes.append(replays(at))
    check(kills > 0, "no kill came in time")
    check(max(sizes, default=0) > 100, f"nothing was kept: {sizes}")
    kept = at.read_bytes() if at.exists() else b""
    for words, why in ((["--gpus-at-most", 64], "another command"), (["--seed", 2], "another command")):
        if kept:
            _, err, code = run(*words, "--checkpoint", at)
            check(code == 2 and why in err and at.read_bytes() == kept, f"{words} with this checkpoint: {code}, {err}")
    cut = draw.randrange(len(kept)) if kept else 0
    for name, data in (("whole", kept), ("cut", kept[:cut]), ("changed", kept[:-40] + bytes([kept[-40] ^ 1]) + kept[-39:] if len(kept) > 100 else kept)):
        at.write_bytes(data)
        begun = time.monotonic()
        out, err, code = run("--checkpoint", at)
        check(code == 0 and out == whole, f"{name} of {len(kept)} bytes: goes on to another answer, {code}: {err}")
        check(not at.exists(), f"{name}: the checkpoint of a whole search stays")
    forgeries = list(forged(kept, 64))
    check(len(forgeries) == 5 or not kept, f"{len(forgeries)} forgeries of {len(kept)} bytes")
    for name, data in forgeries:
        at.write_bytes(data)
        _, err, code = run("--checkpoint", at)
        check(code == 3 and "does not replay" in err, f"another {name} of a point, with its sums: {code}, {err}")
    at.write_text("no checkpoint of a search, but a text that somebody needs")
    _, err, code = run("--checkpoint", at)
    check(code in (2, 3) and "no checkpoint" in err and at.read_text().startswith("no checkpoint of a search"), f"a text as checkpoint: {code}, {err}")
    _, err, code = oracle.call("plan", "--model", "glm-4.5-air", "--cluster", "h200:8x8", "--checkpoint", at), "", 2
oracle.finish()
