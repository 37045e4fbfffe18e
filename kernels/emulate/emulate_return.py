"""Combines whose rows are written by the ranks that have them, in the emulator: in phases, and with kernels that wait for each other."""
import numpy as np

import emulator
from emulate_exchange import FILES, SHAPES, Exchange
from emulate_launch import Kernels
from emulate_memory import Array, problem_of
from emulate_races import NOTHING, barriers
from emulate_waiting import order_problem
from emulate_world import PATIENCE, unsynchronised

PIECES, WAVE, WRITE, ADD = 7, 64, 1, 2  # pieces of 16 bytes of a lane in a part; spw_return_gpu.parts
DS_WRXCHG, WAITS = b"\xda\xd8", b"\x8c\xbf"  # upper halves of words of machine code
WIDE = (3, 4, 2, 6, 3600, 0, "random")  # the last part of a row is its second


class Returned(Exchange):
    def __init__(self, kernels, rng, ranks, tokens, *shape, **more):
        super().__init__(kernels, rng, ranks, tokens, *shape, **more)
        self.ends_alone = int(ranks > 1)
        self.rows_staged = (ranks - 1) * tokens
        parts = max(-(-self.hidden // (8 * PIECES * WAVE)), 1)
        row = 2 * self.hidden + 4 * self.top_k
        self.staged = [Array(shape=max(self.rows_staged, 1) * row, dtype=np.uint8) for _ in range(ranks)]
        self.arrived = [Array(np.full(max(self.rows_staged, 1) * parts, self.epoch(0) << 32, np.uint64)) for _ in range(ranks)]

    def back(self, r, epoch, with_side):
        sums, more = self.sums_of(r, with_side)
        rest = (self.kernels.sums(*sums, **more), self.handle[r])
        return [self.kernels.give_back(self.peers(r, epoch), *rest, parts, self.rows_staged, self.staged, self.arrived)
                for parts in ((WRITE | ADD,) if self.wait else (WRITE, ADD))]

    def check_staged(self, rank):
        """Rows by rank, in order of the tokens; nothing behind them."""
        rows = self.staged[rank].view[: self.rows_staged * 2 * self.hidden].view(np.uint16).reshape(self.rows_staged, self.hidden)
        there = [self.rows[d][self.first[rank, d] : self.first[rank + 1, d]] for d in range(self.ranks) if d != rank]
        want = np.concatenate(there)
        return [("staged rows", rows[: len(want)] == want), ("behind staged rows", rows[len(want) :] == 0xFFFF)]

    def problem(self, rank, flags=True):
        return super().problem(rank, flags) or problem_of([self.staged[rank]], [], self.check_staged(rank))


def test_returned(layout, send, reduce, back, judge, label):
    rng, kernels = np.random.default_rng(19), Kernels((layout, send, reduce, back))
    shapes = [shape for shape in (*SHAPES, WIDE) if shape[0] > 1 and not shape[5]]
    for n, (*shape, kind) in enumerate(shapes):
        w = Returned(kernels, rng, *shape, kind=kind, exact=bool(n % 2))
        w.run([w.work(r) for r in range(w.ranks)])
        for r in range(w.ranks):
            judge.count(f"{label} phases, {shape}, {kind}, rank {r}", w.problem(r))
        w.staged[0].view[0] ^= 1
        judge.expect_rejection(f"{label} phases, {shape}", w.problem(0))
    for n, (*shape, kind) in enumerate(shapes):
        before = 0xFFFFFFFC if n % 2 else 0  # epochs begin again at 0
        w = Returned(kernels, rng, *shape, kind=kind, exact=bool(n % 2), wait=PATIENCE, epoch=before)
        watch = w.run([w.work(r) for r in range(w.ranks)], seed=n)
        judge.count(f"{label}, {shape}, {kind}, order", order_problem(watch))
        for r in range(w.ranks):
            judge.count(f"{label}, {shape}, {kind}, rank {r}", w.problem(r))
        for deaf in ((2,), (4,)) if shape[0] <= 4 else ():  # the combines without their waiting
            problem = unsynchronised(lambda: Returned(kernels, rng, *shape, kind=kind, wait=PATIENCE), deaf)  # noqa: B023
            judge.expect_rejection(f"{label}, {shape}, no wait in {deaf}", problem)


def test_returned_order(layout, send, reduce, back, judge, label):
    """The watch must see it when what orders stores is taken out of the machine code: waits before a wave is told of them, barriers. Some exchanges
    tell of no stores, so that not each is missed."""
    rng, image = np.random.default_rng(20), bytes(back.code.image)

    def without(places):
        file = emulator.Program(back.code)
        for at in places:
            file.memory[at : at + 4] = NOTHING
        w = Returned(Kernels((layout, send, reduce, file)), rng, 2, 40, 2, 4, 16, wait=PATIENCE)
        return w.run([w.work(r) for r in range(w.ranks)], seed=0).problem

    words = range(16, len(image) - 4, 4)
    waits = {at for at in words if image[at + 2 : at + 4] == WAITS}
    of_exchanges = [waits & set(range(at - 256, at, 4)) for at in words if image[at + 2 : at + 4] == DS_WRXCHG]
    for name, places in (("waits before an exchange", of_exchanges),
                         ("a barrier", [{at} for at in barriers(back, "exchange_return")])):
        judge.count(f"{label}, {name}", None if places else "there is none")
        missed = sum(without(at) is not None for at in places)
        judge.expect_rejection(f"{label} without {name}", missed and f"{missed} of {len(places)} are missed")


ALL = (*FILES, "exchange_return")
RETURN_TESTS = [(ALL, test_returned), (ALL, test_returned_order)]
