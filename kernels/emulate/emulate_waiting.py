"""Kernels that wait for other ranks, in the emulator: interleaved with the kernels they wait for, alone with all flags set, and with a
rank that never comes."""
import random
import struct

import numpy as np

import emulator
import emulator_waves
from emulate_exchange import FILES, SHAPES, Exchange
from emulate_launch import COMBINE_GRADIENT, SOURCE, Kernels, pointers
from emulate_memory import Array, problem_of
from emulate_races import NOTHING, barriers
from emulate_world import PATIENCE, unsynchronised

SECOND = 10**8  # in units of the clock
SEEDS = 2


def order_problem(watch):
    """What the watch saw, or that it saw nothing."""
    seen = watch.releases and watch.acquires and (watch.races is None or watch.races.accesses)
    return watch.problem or (None if seen else "no flag was stored, none was waited for, or no memory was looked at")


def test_interleaved(layout, send, reduce, judge, label):
    rng = np.random.default_rng(12)
    for n, (*shape, kind) in enumerate(SHAPES):
        for seed in range(1 if shape[0] == 8 else SEEDS):
            kernels = Kernels((layout, send, reduce), few=seed == 1)
            exact, before = bool((n + seed) % 2), 0xFFFFFFFC if seed == 1 else 0  # epochs begin again at 0
            w = Exchange(kernels, rng, *shape, kind=kind, exact=exact, wait=PATIENCE, epoch=before)
            watch = w.run([w.work(r) for r in range(w.ranks)], seed=seed)
            name = f"{label}, {shape}, {kind}, seed {seed}"
            judge.count(f"{name}, order", order_problem(watch))
            for r in range(w.ranks):
                judge.count(f"{name}, rank {r}", w.problem(r))
        w.control[0].view[0]["done"][0] += 1
        judge.expect_rejection(f"{name}, flag", w.problem(0))
        single = [(epoch,) for epoch in range(1, 5) if shape[0] <= 4]
        for deaf in [(1, 2, 3, 4)] + single if shape[0] > 1 else []:  # the same without some of the waiting
            if not w.scales or deaf[-1] % 2:
                problem = unsynchronised(lambda: Exchange(kernels, rng, *shape, kind=kind, wait=PATIENCE), deaf)  # noqa: B023
                judge.expect_rejection(f"{name}, no wait in {deaf}", problem)


def test_alone(layout, send, reduce, judge, label):
    """One rank's kernels beside flags, counts and rows that the other ranks' kernels have left before."""
    rng, kernels = np.random.default_rng(13), Kernels((layout, send, reduce))
    for *shape, kind in SHAPES[1:2] + SHAPES[3:]:
        w = Exchange(kernels, rng, *shape, kind=kind, wait=PATIENCE)
        me, every = w.ranks - 1, range(w.ranks)
        counts = (w.expert[:, None] == np.arange(w.experts)[:, None, None]).sum((2, 3))  # [source][expert]
        control = w.control[me].view[0]
        for s in range(me):
            control["notice"][s, : w.ranks] = 1 << 32 | w.sent[s].astype(np.uint64)
            control["expert_count"][s, : w.local] = counts[s, me * w.local :]
            for flag in ("ready", "done", "counted"):
                control[flag][s] = 9
        for d in range(me):
            if not w.scales:
                w.part(d, "source")[:, 0] = np.concatenate([np.nonzero(w.wanted[s, :, d])[0] for s in every] + [[-1] * w.unused(d)])
                w.combine(d, 0, False)[0][0].function()
        before = [w.window[d].view.copy() for d in every]
        watch = w.run([w.work(me)], seed=5)
        last = 3 if w.scales else 4
        checks = w.check_layout(me) + w.check_counters(me) + w.check_flags_alone(me, (1, w.sent), last)
        checks += [] if w.scales else w.check_sums(me)
        for d in range(me):  # only its own rows are new
            own = slice(w.first[me, d], w.first[me + 1, d])
            rows = w.part(d, "rows")
            old = before[d][: rows.size].reshape(rows.shape).copy()
            old[own] = w.other[me][w.wanted[me, :, d]]
            checks.append((f"rows at {d}", rows == old))
        judge.count(f"{label}, {shape}, {kind}", problem_of([w.window[d] for d in every] + w.control, w.inputs[me], checks))
        judge.count(f"{label}, {shape}, {kind}, order", order_problem(watch))
        w.control[0].view[0]["notice"][me, 0] += 1
        judge.expect_rejection(f"{label}, {shape}, notice", problem_of([], [], w.check_flags_alone(me, (1, w.sent), last)))


def test_late(layout, send, reduce, ragged, judge, label):
    """The last of three ranks comes to nothing, or only to the beginning of an exchange."""
    rng, kernels = np.random.default_rng(14), Kernels((layout, send, reduce, ragged))
    ranks, late = 3, 2

    def notices(w, r):
        return w.forward(r, 1)

    def places(w, r):
        plan = [Array(np.zeros(n, np.int32)) for n in (w.tokens * w.top_k, w.experts, w.experts + 1)]
        out = [Array(shape=n, dtype=np.int32) for n in (w.tokens * w.top_k, w.tokens * w.top_k, w.local + 1)]
        arguments = (w.peers(r, 1), w.tokens, w.top_k, w.experts, 99, w.inputs[r][2], *plan, *out)
        w.alive += plan + out
        return [kernels.ragged("publish", *arguments), kernels.ragged("assign", *arguments)]

    def rows(w, r):
        w.handle[r].view["base"] = 0
        w.places[r].view[...] = -1
        return [w.send(r, SOURCE, 1, COMBINE_GRADIENT, w.others[r])]

    def sums(w, r):
        rows(w, r)
        return w.combine(r, 1, True)

    # what the ranks run, what of the late rank is there
    for n, (name, work, there) in enumerate((("notices", notices, ()), ("ragged notices", places, ()), ("to begin a send", rows, ()),
                                             ("to end a send", rows, ("ready",)), ("to begin a combine", sums, ()),
                                             ("to end a combine", sums, ("ready",)))):
        for in_time in (True, False):
            seconds = 1 + 2 * n
            w = Exchange(kernels, rng, ranks, 4, 2, 6, 16, wait=seconds)
            w.alive = []
            for c in w.control[:late]:
                for flag in there:
                    c.view[0][flag][late] = 1
            start, ticks = emulator_waves.clock[0], 1 if in_time else 2000
            try:
                w.run([work(w, r) for r in range(late)], seed=3, ticks=ticks, limit=60_000 if in_time else 5_000_000)
                ended = True
            except emulator_waves.Stuck:
                ended = False
            took = (emulator_waves.clock[0] - start) / SECOND
            marks = [int(c.view[0]["late"]) for c in w.control[:late]]
            want = f"still waiting and marks {[0] * late}" if in_time else f"marks {[1 + late] * late} after {seconds} s"
            good = not ended and marks == [0] * late if in_time else ended and marks == [1 + late] * late and (
                seconds <= took < seconds + 5)  # two waits, the second cut short; the clock is looked at now and then
            judge.count(f"{label}, {name}", None if good else f"ended {ended}, marks {marks}, {took} s; {want} would be right")


def test_order(layout, send, reduce, judge, label):
    """The watch must see it when a wait or a barrier is taken out of the machine code."""
    wait, write_back = struct.pack("<I", 0xBF8C0F70), struct.pack("<I", 0xE0A0C000)  # s_waitcnt vmcnt(0), buffer_wbl2 sc0 sc1
    rng = np.random.default_rng(15)

    def without(n, at):
        files = [layout, send, reduce]
        files[n] = emulator.Program(files[n].code)
        files[n].memory[at : at + 4] = NOTHING
        for few in (False, True):
            w = Exchange(Kernels(files, few), rng, 2, 70, 2, 4, 16, wait=PATIENCE)
            problem = w.run([w.work(r) for r in range(w.ranks)], seed=0).problem
            if problem is not None:
                return problem
        return None

    for n, program in enumerate((layout, send, reduce)):
        image, all_barriers = bytes(program.code.image), barriers(program, FILES[n])
        places = [at for at in range(8, len(image) - 4, 4) if image[at : at + 4] == wait and (
            write_back in (image[at - 8 : at - 4], image[at - 4 : at]) or at + 4 in all_barriers)]
        judge.count(f"{label}, {FILES[n]}", None if places else "no wait was found")
        for at in places:
            judge.expect_rejection(f"{label}, {FILES[n]} without the wait at 0x{at:x}", without(n, at))
        missed = sum(without(n, at) is not None for at in all_barriers)
        judge.expect_rejection(f"{label}, {FILES[n]} without a barrier", missed and f"{missed} of {len(all_barriers)} are missed")


def test_links(program, judge, label):
    """Messages thrown to and fro between two ranks; one that waits for nobody gives up after 5 s; a pause."""
    kernels, patience, turns, blocks = Kernels((program,)), 5 * SECOND, 3, 2
    for pieces, alone in ((3, False), (0, False), (1, True)):
        size = 16 * pieces * blocks
        given = [Array(np.random.default_rng(18 + r).integers(0, 255, size, np.uint8)) for r in range(2)]
        got, flags = [Array(shape=size, dtype=np.uint8) for _ in range(2)], [Array(np.zeros(64, np.uint32)) for _ in range(2)]
        work = [[kernels.launch("link_echo", blocks, 512, struct.pack("<q4i", size, turns, r, blocks, 0) + pointers(
            given[r], got[1 - r], flags[r], flags[1 - r]))] for r in range(1 if alone else 2)]
        start = emulator_waves.clock[0]
        watch = emulator.run(work, rng=random.Random(pieces), ticks=2000 if alone else 1)
        took = emulator_waves.clock[0] - start
        checks = [("message", got[1 - r].view == given[r].view) for r in range(len(work))]
        checks += [("blocks", flags[r].view[32] == (1 if alone else turns) * blocks) for r in range(len(work))]
        checks += [("turns", flags[r].view[0] == turns * (not alone)) for r in range(2 - alone)]
        checks.append(("patience", patience <= took < 2 * patience if alone else took < patience))
        judge.count(f"{label} {size} bytes{', alone' * alone}", problem_of(got + flags, given, checks))
        judge.count(f"{label} {size} bytes{', alone' * alone}, order", order_problem(watch))
    start = emulator_waves.clock[0]
    emulator.run([[kernels.launch("link_pause", 1, 32, struct.pack("<Q", 10**9))]], rng=random.Random(1), ticks=10**6)
    took = emulator_waves.clock[0] - start
    judge.count(f"{label} pause", None if SECOND <= took < 2 * SECOND + 10**6 * 400 else f"{took * 10} ns")


WAITING_TESTS = [("links", test_links), (FILES, test_interleaved), (FILES, test_alone), (FILES + ("exchange_ragged",), test_late),
                 (FILES, test_order)]
