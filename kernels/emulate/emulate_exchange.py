"""Dispatch and combine between ranks in the emulator, against the reference written once more in numpy: in phases, and with kernels
that wait for each other."""
import numpy as np

from emulate_launch import (CHOICES, COMBINE, COMBINE_GRADIENT, DISPATCH, DISPATCH_GRADIENT, HANDLE, NOTICED, SCALES, SOURCE, Kernels,
                            address)
from emulate_memory import Array, from_bf16, interval_bf16, problem_of, to_bf16
from emulate_world import Ranks, host

BASE = HANDLE.fields["base"][1]


def routing(rng, kind, ranks, tokens, top_k, experts):
    """Choices [rank][token][k]: random with unused ones, all of one rank's experts first, or none of the last rank's."""
    likes = rng.random((ranks, tokens, experts))
    local = experts // ranks
    if kind == "skewed":
        likes[..., :local] -= 0.9
    if kind == "empty rank":
        likes[..., -local:] += 9
    expert = np.argsort(likes, axis=2)[:, :, :top_k].astype(np.int32)
    if kind == "random":
        expert[rng.random(expert.shape) < 0.15] = -1
        expert[:, -1] = -1  # a token that goes nowhere
    return expert


class Exchange(Ranks):
    """The ranks' memory for one dispatch and what follows, and what must be in it. exact: buffers of just the rows that come."""

    ends_alone = 0  # exchanges at the end whose kernels do not wait for the others' ends

    def __init__(self, kernels, rng, ranks, tokens, top_k, experts, hidden, scales=0, wait=0, epoch=0, kind="random", exact=False,
                 expert=None):
        super().__init__(ranks, wait, epoch)
        self.kernels, self.tokens, self.top_k, self.experts, self.hidden, self.scales = kernels, tokens, top_k, experts, hidden, scales
        self.local, self.exact = experts // ranks, exact
        self.expert = routing(rng, kind, ranks, tokens, top_k, experts) if expert is None else expert
        self.weight = rng.random(self.expert.shape).astype(np.float32)
        self.scale = rng.random((ranks, tokens, max(scales, 1))).astype(np.float32)
        self.row_bytes = hidden if scales else 2 * hidden
        self.x, self.other = rng.integers(0, 255, (2, ranks, tokens, self.row_bytes), np.uint8)
        self.rows = to_bf16(rng.standard_normal((ranks, ranks * tokens, hidden)).astype(np.float32))
        self.side = rng.integers(-8, 8, (ranks, ranks * tokens, top_k)).astype(np.float32)
        where = np.where(self.expert >= 0, self.expert // self.local, -1)
        self.wanted = (where[..., None] == np.arange(ranks)).any(2)  # [source][token][destination]
        self.place = np.where(self.wanted, np.cumsum(self.wanted, axis=1) - 1, -1).astype(np.int32)
        self.sent = self.wanted.sum(1)
        self.first = np.vstack([np.zeros((1, ranks), int), np.cumsum(self.sent, axis=0)])  # [source or end][destination]
        self.capacity = self.first[-1].tolist() if exact else [ranks * tokens] * ranks
        self.words = scales + 2 * top_k + 1
        every = range(ranks)
        self.handle = [Array(shape=1, dtype=HANDLE) for _ in every]
        self.window = [Array(shape=c * (self.row_bytes + 4 * self.words), dtype=np.uint8) for c in self.capacity]
        self.returned = [Array(shape=c * (2 * hidden + 4 * top_k), dtype=np.uint8) for c in self.capacity]
        self.places = [Array(shape=(tokens, ranks), dtype=np.int32) for _ in every]
        self.numbers = [[Array(shape=n, dtype=np.int32) for n in (ranks, experts)] for _ in every]
        self.inputs = [[Array(a[r]) for a in (self.x, self.scale, self.expert, self.weight)] for r in every]
        self.others = [Array(self.other[r]) for r in every]
        self.y = [[Array(shape=(tokens, hidden), dtype=np.uint16) for _ in range(2)] for _ in every]
        self.sums = [Array(shape=(tokens, top_k), dtype=np.float32) for _ in every]
        self.kept = [{} for _ in every]  # what the host took out between two kernels

    def part(self, rank, name, kept=None):
        """A view of one part of a rank's receive buffer, or of what was kept of it."""
        k, s, rows = self.top_k, self.scales, self.capacity[rank]
        at = rows * self.row_bytes
        begin, width, kind = {"rows": (0, self.row_bytes, np.uint8), "scale": (at, s, np.float32),
                              "expert": (at + 4 * rows * s, k, np.int32),
                              "weight": (at + 4 * rows * (s + k), k, np.float32),
                              "source": (at + 4 * rows * (s + 2 * k), 1, np.int32)}[name]
        size = rows * width * np.dtype(kind).itemsize
        memory = self.window[rank].view if kept is None else self.kept[rank][kept]
        return memory[begin : begin + size].view(kind).reshape(rows, width)

    # What a rank does

    def layout(self, r, epoch):
        return self.kernels.layout(self.peers(r, epoch), self.ranks, self.tokens, self.top_k, self.experts, self.inputs[r][2],
                                   self.places[r], *self.numbers[r])

    def send(self, r, parts, epoch, counter, payload, spread=1, **other):
        _, scale, expert, weight = self.inputs[r]
        parts |= SCALES if self.scales else 0
        return self.kernels.send(self.peers(r, epoch), self.tokens, self.ranks, self.row_bytes, parts, counter, self.window,
                                 self.capacity, self.places[r], payload, base=address(self.handle[r]) + BASE, handle=self.handle[r],
                                 scales=self.scales, scale=scale, top_k=self.top_k, expert=expert, weight=weight, local=self.local,
                                 spread=spread, **other)

    def forward(self, r, epoch):
        """Parts: layout, rows; and what came is kept, as soon as the kernel has ended, and the buffer spoiled but for the sources."""
        rows = SOURCE | CHOICES | (0 if self.exact else NOTICED)
        parts = [self.layout(r, epoch)]
        if self.exact:
            parts.append(self.send(r, 0, epoch, 0, None, kernel="exchange_notices"))
        return parts + [self.send(r, rows, epoch + self.exact, DISPATCH, self.inputs[r][0]), self.keep(r, "first")]

    def keep(self, r, name):
        def copy():
            self.kept[r][name] = self.window[r].view.copy()
            behind = -4 * self.capacity[r] or None
            self.window[r].view[:behind] = 0xFF

        return [host(copy, self.window[r])]

    def combine(self, r, epoch, with_side):
        """Rows are there only while the kernels may read them."""
        def fill():
            rows = self.capacity[r]
            parts = (self.rows[r, :rows].reshape(-1).view(np.uint8), self.side[r, :rows].reshape(-1).view(np.uint8))
            self.returned[r].view[...] = np.concatenate(parts)

        def spoil():
            self.returned[r].view[...] = 0xFF

        returned = self.returned[r]
        return [[host(fill, returned)], *self.back(r, epoch, with_side), [host(spoil, returned)]]

    def back(self, r, epoch, with_side):
        """Parts: the sums of what the ranks have for the tokens of r."""
        sums, more = self.sums_of(r, with_side)
        return [self.kernels.reduce(self.peers(r, epoch), *sums, **more, spread=1 + with_side)]

    def sums_of(self, r, with_side):
        behind = 4 * (self.scales + 2 * self.top_k) + self.row_bytes
        sources = [address(self.window[d]) + self.capacity[d] * behind for d in range(self.ranks)]
        sums = (self.tokens, self.ranks, self.hidden, DISPATCH_GRADIENT if with_side else COMBINE, self.returned, self.capacity,
                self.places[r], self.y[r][with_side])
        return sums, {"base": address(self.handle[r]) + BASE, "side": self.top_k if with_side else 0, "side_sum": self.sums[r],
                      "sources": sources}

    def work(self, r, epoch=1):
        """A dispatch, a combine, other rows to the same places, a combine with side sums, as parts that may run in phases."""
        behind = epoch + self.exact
        again = self.send(r, SOURCE, behind + 2, COMBINE_GRADIENT, self.others[r], spread=4)
        back = [] if self.scales else self.combine(r, behind + 1, False)
        last = [] if self.scales else self.combine(r, behind + 3, True)
        return self.forward(r, epoch) + back + [again, self.keep(r, "again")] + last

    # What must have come of it

    def pair_rows(self):
        """[source][destination]: tokens."""
        return self.sent

    def check_kept(self, rank):
        pairs = [(s, t) for s in range(self.ranks) for t in range(self.tokens) if self.wanted[s, t, rank]]
        n, s, t = len(pairs), np.array([p[0] for p in pairs], int), np.array([p[1] for p in pairs], int)
        own = (self.expert[s, t] // self.local == rank) & (self.expert[s, t] >= 0)
        checks = []
        for name, payload in (("first", self.x), ("again", self.other)):
            get = lambda what: self.part(rank, what, name)  # noqa: E731, B023
            checks += [(f"{name} rows", get("rows")[:n] == payload[s, t]), (f"{name} rows behind", get("rows")[n:] == 0xFF),
                       (f"{name} sources", get("source")[:n, 0] == t), (f"{name} sources behind", get("source")[n:] == -1)]
            if self.scales:
                checks.append((f"{name} scales", get("scale")[:n] == self.scale[s, t]))
        get = lambda what: self.part(rank, what, "first")  # noqa: E731
        return checks + [("experts", get("expert")[:n] == np.where(own, self.expert[s, t] % self.local, -1)),
                         ("weights", get("weight")[:n] == np.where(own, self.weight[s, t], 0)),
                         ("experts again", self.part(rank, "expert", "again") == -1)]

    def check_layout(self, rank):
        handle, r = self.handle[rank].view[0], self.ranks
        choices = [np.count_nonzero(self.expert == rank * self.local + x) for x in range(self.local)]
        used = self.expert[rank][self.expert[rank] >= 0]
        return [("places", self.places[rank].view == self.place[rank]), ("tokens by rank", self.numbers[rank][0].view == self.sent[rank]),
                ("choices", self.numbers[rank][1].view == np.bincount(used, minlength=self.experts)),
                ("sent", handle["sent"][:r, :r] == self.sent), ("base", handle["base"][:r] == self.first[rank]),
                ("first", handle["first"][: r + 1] == self.first[:, rank]),
                ("offset", handle["offset"][: self.local + 1] == np.concatenate(([0], np.cumsum(choices))))]

    def check_sums(self, rank):
        at = np.where(self.wanted[rank], self.first[rank] + self.place[rank], 0)  # [token][destination]
        there, every = self.wanted[rank][:, :, None], np.arange(self.ranks)
        terms = np.where(there, from_bf16(self.rows)[every, at].astype(np.float64), 0)
        low, high = interval_bf16(terms.sum(1), abs(terms).sum(1), self.ranks)
        got = [from_bf16(y.view) for y in self.y[rank]]
        return [("sums", (got[0] >= low) & (got[0] <= high)), ("sums again", (got[1] >= low) & (got[1] <= high)),
                ("gradients of choices", self.sums[rank].view == np.where(there, self.side[every, at], 0).sum(1))]

    def check_counters(self, rank):
        row, back = self.row_bytes + 4 * self.scales + 4, 0 if self.scales else 2 * self.hidden + 4
        bytes_of = {DISPATCH: row + 8 * self.top_k, COMBINE_GRADIENT: row, COMBINE: back, DISPATCH_GRADIENT: back and back + 4 * self.top_k}
        return [check for counter, size in bytes_of.items() for check in self.check_bytes(rank, counter, self.sent[rank], size)]

    def problem(self, rank, flags=True):
        outputs = [self.window[rank], self.handle[rank], self.control[rank], self.places[rank], self.returned[rank], *self.numbers[rank],
                   *self.y[rank], self.sums[rank]]
        checks = self.check_kept(rank) + self.check_layout(rank) + self.check_counters(rank)
        checks += [] if self.scales else self.check_sums(rank)
        if self.wait and flags:
            last = 1 + self.exact + (2 if self.scales else 3)
            checks += self.check_flags(rank, (1, self.sent), last, last - self.ends_alone)
        return problem_of(outputs, self.inputs[rank] + [self.others[rank]], checks)


    def unused(self, rank):
        """Rows of a buffer that nobody fills."""
        return self.capacity[rank] - self.first[-1, rank]


FILES = ("exchange_layout", "exchange_send", "exchange_reduce")
# ranks, tokens, top_k, experts, hidden, scales, routing
SHAPES = ((8, 9, 3, 16, 72, 0, "random"), (3, 5, 2, 6, 144, 2, "random"), (1, 3, 2, 2, 8, 0, "random"), (4, 6, 2, 8, 40, 0, "skewed"),
          (4, 6, 2, 8, 32, 0, "empty rank"), (2, 4, 2, 4, 2056, 0, "random"), (2, 3, 13, 16, 144, 40, "random"))
MANY = (20, 2, 2, 20, 8, 0, "random")  # more pairs than lanes; in phases only


def test_phases(layout, send, reduce, judge, label):
    rng, many, few = np.random.default_rng(10), *(Kernels((layout, send, reduce), few) for few in (False, True))
    for *shape, kind in SHAPES + (MANY,):
        for exact in (False,) if shape[0] == MANY[0] else (False, True):
            w = Exchange(few if exact else many, rng, *shape, kind=kind, exact=exact)
            w.run([w.work(r) for r in range(w.ranks)])
            for r in range(w.ranks):
                judge.count(f"{label} phases, {shape}, {kind}, exact {exact}, rank {r}", w.problem(r))
        w.kept[0]["first"][0] ^= 1
        judge.expect_rejection(f"{label} phases, {shape}", w.problem(0))


def test_long_layout(layout, judge, label):
    """More tokens than a block takes in one turn, more choices than a thread loads at once, more experts than threads of a wave."""
    rng, kernels = np.random.default_rng(11), Kernels((layout,))
    w = Exchange(kernels, rng, 2, 4300, 9, 140, 8)
    w.run([[w.layout(r, 1)] for r in range(w.ranks)])
    for r in range(w.ranks):
        checks = w.check_layout(r)[:3] + [("notices", w.control[r].view[0]["notice"][:2, :2] == (1 << 32) + w.sent.astype(np.uint64))]
        judge.count(f"{label}, rank {r}", problem_of([w.places[r], *w.numbers[r], w.control[r]], w.inputs[r], checks))
    w.places[0].view[4200, 0] += 1
    judge.expect_rejection(label, problem_of([], [], w.check_layout(0)[:1]))


EXCHANGE_TESTS = [(("exchange_layout",), test_long_layout), (FILES, test_phases)]
