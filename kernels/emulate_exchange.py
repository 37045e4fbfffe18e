"""Dispatch and combine between ranks in the emulator: all ranks side by side in one address space, one phase of all before the next."""
import struct

import numpy as np

from emulate_local import plan_of
from emulate_memory import Array, from_bf16, interval_bf16, problem_of, to_bf16

RANKS_MAX, EXPERTS_MAX, COUNTERS = 64, 512, 8
SCALES, CHOICES, SOURCE, NOTICED = 1, 2, 4, 8

# struct spw_control and struct spw_handle of exchange_launch.h.
CONTROL = np.dtype({"names": ["notice", "bytes", "expert_count", "ready", "done", "finished", "late", "stale"],
                    "formats": [("<u8", (RANKS_MAX, RANKS_MAX)), ("<u8", (COUNTERS, RANKS_MAX)),
                                ("<i4", (RANKS_MAX, EXPERTS_MAX)), ("<u4", RANKS_MAX), ("<u4", RANKS_MAX), "<u4", "<i4", "<i4"]},
                   align=True)
HANDLE = np.dtype([("sent", "<i4", (RANKS_MAX, RANKS_MAX)), ("base", "<i4", RANKS_MAX), ("first", "<i4", RANKS_MAX + 1),
                   ("offset", "<i4", EXPERTS_MAX + 1)])


def address(array):
    return 0 if array is None else struct.unpack("<Q", array.pointer())[0]


def addresses(arrays):
    return struct.pack(f"<{RANKS_MAX}Q", *([address(a) if not isinstance(a, int) else a for a in arrays] + [0] * (RANKS_MAX - len(arrays))))


class World:
    """The ranks' memory, and what the reference says must be in it."""

    def __init__(self, rng, ranks, tokens, top_k, experts, hidden, scales=0):
        self.ranks, self.tokens, self.top_k, self.experts, self.hidden, self.scales = ranks, tokens, top_k, experts, hidden, scales
        self.local, self.worst = experts // ranks, ranks * tokens
        self.expert = np.argsort(rng.random((ranks, tokens, experts)), axis=2)[:, :, :top_k].astype(np.int32)
        self.expert[rng.random(self.expert.shape) < 0.15] = -1
        self.expert[:, -1] = -1  # a token that goes nowhere
        self.weight = rng.random(self.expert.shape).astype(np.float32)
        self.scale = rng.random((ranks, tokens, max(scales, 1))).astype(np.float32)
        self.row_bytes = hidden if scales else 2 * hidden
        self.x = rng.integers(0, 255, (ranks, tokens, self.row_bytes), np.uint8)
        where = np.where(self.expert >= 0, self.expert // self.local, -1)
        self.wanted = (where[..., None] == np.arange(ranks)).any(2)  # [source][token][destination]
        self.place = np.where(self.wanted, np.cumsum(self.wanted, axis=1) - 1, -1).astype(np.int32)
        self.sent = self.wanted.sum(1)
        self.first = np.vstack([np.zeros((1, ranks), int), np.cumsum(self.sent, axis=0)])  # [source or end][destination]
        self.words = self.scales + 2 * top_k + 1
        control = np.zeros(1, CONTROL)
        self.control = [Array(control) for _ in range(ranks)]
        self.handle = [Array(shape=1, dtype=HANDLE) for _ in range(ranks)]
        self.window = [Array(shape=self.worst * (self.row_bytes + 4 * self.words), dtype=np.uint8) for _ in range(ranks)]
        self.places = [Array(shape=(tokens, ranks), dtype=np.int32) for _ in range(ranks)]
        self.numbers = [[Array(shape=n, dtype=np.int32) for n in (ranks, experts)] for _ in range(ranks)]
        self.inputs = [[Array(a[r]) for a in (self.x, self.scale, self.expert, self.weight)] for r in range(ranks)]

    def peers(self, rank, epoch):
        return struct.pack("<iiiI", self.ranks, rank, 0, epoch) + addresses(self.control)

    def part(self, rank, name):
        """A view of one part of a rank's receive buffer."""
        at, k, s = self.worst * self.row_bytes, self.top_k, self.scales
        begin, width, kind = {"rows": (0, self.row_bytes, np.uint8), "scale": (at, s, np.float32),
                              "expert": (at + 4 * self.worst * s, k, np.int32),
                              "weight": (at + 4 * self.worst * (s + k), k, np.float32),
                              "source": (at + 4 * self.worst * (s + 2 * k), 1, np.int32)}[name]
        size = self.worst * width * np.dtype(kind).itemsize
        return self.window[rank].view[begin : begin + size].view(kind).reshape(self.worst, width)

    def run_layout(self, program):
        for r in range(self.ranks):
            argument = struct.pack("<4i", self.tokens, self.top_k, self.experts, 0)
            argument += b"".join(a.pointer() for a in (self.inputs[r][2], self.places[r], *self.numbers[r]))
            program.launch("exchange_layout", self.ranks, 1024, [argument, self.peers(r, 1)])

    def run_send(self, program, parts, epoch, counter, spread=1):
        for r in range(self.ranks):
            payload, scale, expert, weight = self.inputs[r]
            argument = struct.pack("<10i", self.tokens, self.ranks, self.row_bytes, self.scales, self.top_k, self.local, parts,
                                   counter, 2, spread)
            argument += b"".join(a.pointer() for a in (payload, scale, expert, weight, self.places[r]))
            base = address(self.handle[r]) + HANDLE.fields["base"][1]
            argument += struct.pack("<3Q", 0, base, address(self.handle[r])) + addresses(self.window)
            argument += struct.pack(f"<{RANKS_MAX}i", *([self.worst] * self.ranks + [0] * (RANKS_MAX - self.ranks)))
            program.launch("exchange_send", 2, 512, [argument, self.peers(r, epoch)])

    def expected(self, rank):
        """Source rank and token of every row that the rank receives."""
        return [(s, t) for s in range(self.ranks) for t in range(self.tokens) if self.wanted[s, t, rank]]

    def check_received(self, rank):
        pairs = self.expected(rank)
        n, s, t = len(pairs), [p[0] for p in pairs], [p[1] for p in pairs]
        own = self.expert[s, t] // self.local == rank
        own &= self.expert[s, t] >= 0
        checks = [("rows", self.part(rank, "rows")[:n] == self.x[s, t]), ("rows behind", self.part(rank, "rows")[n:] == 0xFF),
                  ("experts", self.part(rank, "expert")[:n] == np.where(own, self.expert[s, t] % self.local, -1)),
                  ("weights", self.part(rank, "weight")[:n] == np.where(own, self.weight[s, t], 0)),
                  ("sources", self.part(rank, "source")[:n, 0] == t), ("sources behind", self.part(rank, "source")[n:] == -1)]
        if self.scales:
            checks.append(("scales", self.part(rank, "scale")[:n] == self.scale[s, t]))
        return checks

    def check_handle(self, rank):
        handle, r = self.handle[rank].view[0], self.ranks
        choices = [np.count_nonzero(self.expert == rank * self.local + x) for x in range(self.local)]
        return [("sent", handle["sent"][:r, :r] == self.sent), ("base", handle["base"][:r] == self.first[rank]),
                ("first", handle["first"][: r + 1] == self.first[:, rank]),
                ("offset", handle["offset"][: self.local + 1] == np.concatenate(([0], np.cumsum(choices))))]

    def check_bytes(self, rank, counter, row):
        return [("bytes", self.control[rank].view[0]["bytes"][counter][: self.ranks] == self.sent[rank] * row)]


def test_exchange(layout, send, reduce, judge, label):
    rng = np.random.default_rng(10)
    for ranks, tokens, top_k, experts, hidden, scales in ((8, 9, 3, 16, 72, 0), (3, 5, 2, 6, 144, 2), (1, 3, 2, 2, 8, 0)):
        w = World(rng, ranks, tokens, top_k, experts, hidden, scales)
        name = f"{label} {ranks} ranks"
        w.run_layout(layout)
        for r in range(ranks):
            judge.count(f"{name} layout {r}", problem_of([w.places[r], *w.numbers[r], w.control[r]], w.inputs[r], [
                ("places", w.places[r].view == w.place[r]), ("tokens by rank", w.numbers[r][0].view == w.sent[r]),
                ("choices", w.numbers[r][1].view == np.bincount(w.expert[r][w.expert[r] >= 0], minlength=experts))]))
        parts = NOTICED | CHOICES | SOURCE | (SCALES if scales else 0)
        w.run_send(send, parts, 1, 0)
        row = w.row_bytes + 4 * w.words
        for r in range(ranks):
            judge.count(f"{name} rows {r}", problem_of([w.window[r], w.handle[r], w.control[r]], w.inputs[r],
                                                       w.check_received(r) + w.check_handle(r) + w.check_bytes(r, 0, row)))
        w.window[0].view[0] ^= 1
        judge.expect_rejection(name, problem_of([w.window[0]], [], w.check_received(0)))
        for r in range(ranks):  # other rows to the same places
            w.x[r] ^= 0x55
            w.inputs[r][0] = Array(w.x[r])
        w.run_send(send, SOURCE | (SCALES if scales else 0), 2, 2, 4)  # walked in four runs
        for r in range(ranks):
            judge.count(f"{name} again {r}", problem_of([w.window[r], w.control[r]], w.inputs[r],
                                                        w.check_received(r) + w.check_bytes(r, 2, w.row_bytes + 4 * scales + 4)))
        if not scales:
            combine(w, reduce, judge, name, rng)


def combine(w, program, judge, name, rng):
    rows = to_bf16(rng.standard_normal((w.ranks, w.worst, w.hidden)).astype(np.float32))
    side = rng.integers(-8, 8, (w.ranks, w.worst, w.top_k)).astype(np.float32)
    for with_side, width in ((False, w.hidden), (True, w.hidden), (True, 0)):  # the last: the side alone
        counter = 3 + with_side + (width == 0)
        returned = [Array(np.concatenate([rows[r].reshape(-1).view(np.uint8), side[r].reshape(-1).view(np.uint8)])) for r in range(w.ranks)]
        for r in range(w.ranks):
            y, sums = Array(shape=(w.tokens, w.hidden), dtype=np.uint16), Array(shape=(w.tokens, w.top_k), dtype=np.float32)
            argument = struct.pack("<8i", w.tokens, w.ranks, width, w.top_k if with_side else 0, counter, 2, 1 + 2 * with_side, 0)
            argument += struct.pack("<4Q", address(w.places[r]), 0, address(w.handle[r]) + HANDLE.fields["base"][1], 0)
            behind = 0 if width else w.worst * 2 * w.hidden
            argument += y.pointer() + sums.pointer() + addresses([address(a) + behind for a in returned])
            sources = [address(w.window[d]) + w.worst * (w.row_bytes + 4 * (w.scales + 2 * w.top_k)) for d in range(w.ranks)]
            argument += addresses(sources) + struct.pack(f"<{RANKS_MAX}i", *([w.worst] * w.ranks + [0] * (RANKS_MAX - w.ranks)))
            program.launch("exchange_reduce", 2, 512, [argument, w.peers(r, 3)])
            at = np.where(w.wanted[r], w.first[r] + w.place[r], 0)  # [token][destination]
            there = w.wanted[r][:, :, None]
            terms = np.where(there, from_bf16(rows)[np.arange(w.ranks), at].astype(np.float64), 0)
            low, high = interval_bf16(terms.sum(1), abs(terms).sum(1), w.ranks)
            got = from_bf16(y.view)
            sums_hold = (got >= low) & (got <= high) if width else y.view == 0xFFFF
            checks = [("sums", sums_hold), ("stale", w.control[r].view[0]["stale"] == 0)]
            if with_side:
                checks.append(("gradients of choices", sums.view == np.where(there, side[np.arange(w.ranks), at], 0).sum(1)))
            checks += w.check_bytes(r, counter, 2 * width + 4 + (4 * w.top_k if with_side else 0))
            judge.count(f"{name} combine {r}", problem_of([y, sums, w.control[r]], returned, checks))


def test_ragged(program, judge, label):
    rng = np.random.default_rng(11)
    for ranks, tokens, top_k, experts, capacity in ((4, 30, 3, 12, 1000), (4, 30, 3, 12, 61), (2, 7, 2, 6, 5)):
        local = experts // ranks
        expert = np.argsort(rng.random((ranks, tokens, experts)) * (1 + np.arange(experts)), axis=2)[:, :, :top_k].astype(np.int32)
        expert[rng.random(expert.shape) < 0.15] = -1
        plans = [plan_of(expert[r], experts) for r in range(ranks)]
        room, kept = np.full(ranks, capacity), np.zeros((ranks, experts), int)  # by source, then expert: docs/schemes.md, 2.4
        for s in range(ranks):
            for x in range(experts):
                kept[s, x] = min(plans[s][0][x], room[x // local])
                room[x // local] -= kept[s, x]
        control = [Array(np.zeros(1, CONTROL)) for _ in range(ranks)]
        peers = lambda rank: struct.pack("<iiiI", ranks, rank, 0, 1) + addresses(control)  # noqa: E731
        outputs = [[Array(shape=n, dtype=np.int32) for n in (tokens * top_k, tokens * top_k, local + 1)] for _ in range(ranks)]
        inputs = [[Array(a) for a in (expert[r], plans[r][2], plans[r][0], plans[r][1])] for r in range(ranks)]
        for kernel, blocks in (("ragged_publish", 1), ("ragged_assign", 2)):
            for r in range(ranks):
                argument = struct.pack("<6i", tokens, top_k, experts, capacity, 2, 0)
                argument += b"".join(a.pointer() for a in inputs[r] + outputs[r])
                program.launch(kernel, blocks, 512, [argument, peers(r)])
        for r in range(ranks):
            place, to = np.full(tokens * top_k, -1, np.int32), np.full(tokens * top_k, r, np.int32)
            for x in range(experts):
                first, same = x // local * local, plans[r][1][x]
                base = kept[:, first:x].sum() + kept[:r, x].sum()
                place[same : same + kept[r, x]] = base + np.arange(kept[r, x])
                to[same : same + plans[r][0][x]] = x // local
            begins = np.concatenate(([0], np.cumsum(kept[:, r * local : (r + 1) * local].sum(0))))
            judge.count(f"{label} {ranks} ranks, room {capacity}, {r}", problem_of(outputs[r] + [control[r]], inputs[r], [
                ("places", outputs[r][0].view == place), ("ranks", outputs[r][1].view == to), ("offsets", outputs[r][2].view == begins)]))
            outputs[r][0].view[0] += 1
            judge.expect_rejection(label, problem_of(outputs[r], [], [("places", outputs[r][0].view == place)]))


EXCHANGE_TESTS = [(("exchange_layout", "exchange_send", "exchange_reduce"), test_exchange), ("exchange_ragged", test_ragged)]
