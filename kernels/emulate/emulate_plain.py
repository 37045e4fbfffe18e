"""The exchanges without deduplication in the emulator: ragged rows, slots of a capacity, all-gather and reduce-scatter; in phases, and
with kernels that wait for each other. Rules: docs/schemes.md, 1.1, 1.2, 2.4 and 2.6."""
import numpy as np

from emulate_exchange import routing
from emulate_launch import COMBINE, DISPATCH, SCALES, Kernels, address
from emulate_memory import Array, from_bf16, interval_bf16, problem_of, to_bf16
from emulate_waiting import order_problem
from emulate_world import PATIENCE, Ranks, host, unsynchronised


def ragged_slots(expert, experts, room):
    """[rank][token][k][2]: rank and row of each choice's copy, or -1; by expert, source, position, what comes first by source, expert,
    position where a buffer is too short."""
    ranks, local = len(expert), experts // len(expert)
    slots = np.full(expert.shape + (2,), -1)
    for d in range(ranks):
        own, left = range(d * local, (d + 1) * local), room
        kept = {}
        for s in range(ranks):
            for x in own:
                places = np.argwhere(expert[s] == x)[:left]
                kept[x, s], left = places, left - len(places)
        row = 0
        for x in own:
            for s in range(ranks):
                for t, k in kept[x, s]:
                    slots[s, t, k], row = (d, row), row + 1
    return slots


def capacity_slots(expert, experts, length, capacity):
    """The same for slots [expert of the rank][source][sequence][position]."""
    ranks, tokens, _ = expert.shape
    local, sequences = experts // ranks, tokens // length
    slots, seen = np.full(expert.shape + (2,), -1), {}
    for s, t, k in np.argwhere(expert >= 0):
        x, sequence = expert[s, t, k], t // length
        position = seen.get((s, sequence, x), 0)
        seen[s, sequence, x] = position + 1
        if position < capacity:
            slots[s, t, k] = x // local, ((x % local * ranks + s) * sequences + sequence) * capacity + position
    return slots


class Plain(Ranks):
    """room: rows of a buffer (ragged) or of an expert and sequence (slots). gather: every token to every rank with `words` numbers."""

    def __init__(self, kernels, rng, form, ranks, sequences, length, top_k, experts, hidden, room, words=0, kind="random", wait=0,
                 epoch=0, expert=None, side=0):
        super().__init__(ranks, wait, epoch)
        self.kernels, self.form, self.top_k, self.experts, self.hidden = kernels, form, top_k, experts, hidden
        self.tokens, self.local_experts, self.words, self.side, self.room = sequences * length, experts // ranks, words, side, room
        self.sequences, self.length = sequences, length
        every, tokens, choices = range(ranks), self.tokens, self.tokens * top_k
        self.expert = routing(rng, kind, ranks, tokens, top_k, experts) if expert is None else expert
        self.items, self.copies = {"ragged": (choices, 1), "slots": (experts * sequences * room, 1), "gather": (tokens, ranks)}[form]
        self.rows = {"ragged": room, "slots": experts * sequences * room, "gather": ranks * tokens}[form]
        self.x = to_bf16(rng.standard_normal((ranks, tokens, hidden)).astype(np.float32))
        self.weight = rng.random((ranks, tokens, top_k)).astype(np.float32)
        self.logits = rng.random((ranks, tokens, max(words, 1))).astype(np.float32)
        self.back = to_bf16(rng.standard_normal((ranks, self.rows, hidden)).astype(np.float32))
        if form == "ragged":
            self.slots = ragged_slots(self.expert, experts, room)
        elif form == "slots":
            self.slots = capacity_slots(self.expert, experts, length, room)
        self.received = [Array(shape=self.rows * (2 * hidden + 4 * words), dtype=np.uint8) for _ in every]
        self.returned = [Array(shape=(self.rows, hidden + 2 * side), dtype=np.uint16) for _ in every]  # rows, then `side` numbers of each
        self.local = [Array(shape=(self.items, hidden), dtype=np.uint16) for _ in every]
        self.y = [Array(shape=(tokens, hidden), dtype=np.uint16) for _ in every]
        self.inputs = [[Array(a[r]) for a in (self.x, self.expert, self.weight, self.logits)] for r in every]
        if form == "ragged":
            chunks = -(-choices // 1024)
            sizes = (experts * chunks, experts, experts + 1, choices, choices)
            self.plan = [[Array(shape=n, dtype=np.int32) for n in sizes] for _ in every]
            self.place, self.to = ([Array(shape=self.items, dtype=np.int32) for _ in every] for _ in range(2))
            self.offset = [Array(shape=self.local_experts + 1, dtype=np.int32) for _ in every]
        else:
            self.place, self.to = zip(*map(self.fixed_places, every))
            self.slot_rows = [[Array(shape=n, dtype=np.int32) for n in (choices, self.items)] for _ in every]
        self.kept = [None] * ranks

    def fixed_places(self, r):
        """Places that no routing changes."""
        i, f = np.meshgrid(np.arange(self.items), np.arange(self.copies), indexing="ij")
        if self.form == "gather":
            return Array((r * self.tokens + i).astype(np.int32)), Array(f.astype(np.int32))
        position, sequence, x = i % self.room, i // self.room % self.sequences, i // (self.room * self.sequences)
        place = ((x % self.local_experts * self.ranks + r) * self.sequences + sequence) * self.room + position
        return Array(place.astype(np.int32)), Array((x // self.local_experts).astype(np.int32))

    def choice_rows(self, r):
        return self.plan[r][3] if self.form == "ragged" else self.slot_rows[r][0]

    # What a rank does

    def prepare(self, r, epoch):
        """Parts: tokens to `local`, and where each of its rows goes."""
        k, choices, expert = self.kernels, self.tokens * self.top_k, self.inputs[r][1]
        spread = k.fan_out(self.tokens, self.hidden, self.top_k, self.choice_rows(r), self.inputs[r][0], self.local[r]) if (
            self.form != "gather") else []
        if self.form == "ragged":
            plan = self.plan[r]
            arguments = (self.peers(r, epoch), self.tokens, self.top_k, self.experts, self.rows, expert, plan[3], plan[1], plan[2],
                         self.place[r], self.to[r], self.offset[r])
            return [k.plan(choices, self.experts, expert, *plan) + k.ragged("publish", *arguments),
                    k.ragged("assign", *arguments) + spread]
        if self.form == "slots":
            row, assignment = self.slot_rows[r]
            clear = k.fan_out_clear(self.items, self.hidden, assignment, self.local[r])
            return [k.capacity(self.sequences, self.length * self.top_k, self.experts, self.room, expert, row, assignment) + spread + clear]
        return []

    def send_rows(self, r, epoch, rows, counter, words=None, into=None):
        parts = SCALES if words is not None else 0
        return self.kernels.send(self.peers(r, epoch), self.items, self.copies, 2 * self.hidden, parts, counter, into or self.received,
                                 [self.rows] * self.ranks, self.place[r], rows, to=self.to[r], scales=self.words, scale=words,
                                 local=self.local_experts, spread=self.ranks if self.copies == 1 else 1)

    def return_rows(self, r, epoch, y, counter):
        return self.kernels.reduce(self.peers(r, epoch), self.items, self.copies, self.hidden, counter, self.returned,
                                   [self.rows] * self.ranks, self.place[r], y, to=self.to[r],
                                   spread=self.ranks if self.copies == 1 else 1)

    def return_side(self, r, epoch, sums, counter):
        behind = [address(a) + self.rows * self.hidden * 2 for a in self.returned]
        return self.kernels.reduce(self.peers(r, epoch), self.items, self.copies, 0, counter, behind, [self.rows] * self.ranks,
                                   self.place[r], None, to=self.to[r], side=self.side, side_sum=sums)

    def combine(self, r, weight, y):
        return self.kernels.combine(self.tokens, self.hidden, self.top_k, self.choice_rows(r), weight, self.local[r], y)

    def work(self, r):
        """There and back, as parts that may run in phases; a buffer holds what it should only while it may be read."""
        def keep():
            self.kept[r] = self.received[r].view.copy()
            self.received[r].view[...] = 0xFF

        def fill():
            self.returned[r].view[...] = self.back[r]

        def spoil():
            self.returned[r].view[...] = 0xFFFF

        gather = self.form == "gather"
        words = self.inputs[r][3] if self.words else None
        send = self.send_rows(r, 2, self.inputs[r][0] if gather else self.local[r], DISPATCH, words)
        back = self.return_rows(r, 3, self.y[r] if gather else self.local[r], COMBINE)
        combine = [] if gather else [self.combine(r, self.inputs[r][2], self.y[r])]
        return self.prepare(r, 1) + [send, [host(keep, self.received[r])], [host(fill, self.returned[r])], back,
                                           [host(spoil, self.returned[r])]] + combine

    # What must have come of it

    def pair_rows(self):
        """[source][destination]: copies."""
        if self.form != "ragged":
            return np.full((self.ranks, self.ranks), self.tokens if self.form == "gather" else self.rows // self.ranks)
        return np.array([[np.count_nonzero(self.slots[s, ..., 0] == d) for d in range(self.ranks)] for s in range(self.ranks)])

    def check_received(self, d):
        size = self.rows * 2 * self.hidden
        rows = self.kept[d][:size].view(np.uint16).reshape(self.rows, self.hidden)
        if self.form == "gather":
            words = self.kept[d][size:].view(np.float32).reshape(self.rows, self.words)
            return [("rows", rows == self.x.reshape(rows.shape)), ("words", words == self.logits[..., : self.words].reshape(words.shape))]
        want = np.full(rows.shape, 0xFFFF if self.form == "ragged" else 0, np.uint16)
        s, t, k = np.nonzero(self.slots[..., 0] == d)
        want[self.slots[s, t, k, 1]] = self.x[s, t]
        return [("rows", rows == want)]

    def check_sums(self, r):
        back = from_bf16(self.back).astype(np.float64)
        if self.form == "gather":
            terms = back.reshape(self.ranks, self.ranks, self.tokens, self.hidden)[:, r].transpose(1, 0, 2)
        else:
            there = self.slots[r, ..., :1] >= 0
            terms = np.where(there, self.weight[r][..., None] * back[self.slots[r, ..., 0], self.slots[r, ..., 1]], 0)
        low, high = interval_bf16(terms.sum(1), abs(terms).sum(1), terms.shape[1])
        got = from_bf16(self.y[r].view)
        return [("sums", (got >= low) & (got <= high))]

    def check_offsets(self, r):
        first = r * self.local_experts
        rows = [np.count_nonzero((self.expert == first + x) & (self.slots[..., 0] >= 0)) for x in range(self.local_experts)]
        return [("offsets", self.offset[r].view == np.concatenate(([0], np.cumsum(rows))))]

    def problem(self, r):
        pairs = self.pair_rows()
        checks = self.check_received(r) + self.check_sums(r) + (self.check_offsets(r) if self.form == "ragged" else [])
        checks += self.check_bytes(r, DISPATCH, pairs[r], 2 * self.hidden + 4 * self.words)
        checks += self.check_bytes(r, COMBINE, pairs[r], 2 * self.hidden)
        if self.wait:
            notice = self.epoch(1 if self.form == "ragged" else 0), np.zeros((self.ranks, self.ranks))
            checks += self.check_flags(r, (notice[0] - self.start, notice[1]), 3, 3)
        return problem_of([self.received[r], self.returned[r], self.local[r], self.y[r], self.control[r]], self.inputs[r], checks)


FILES = ("exchange_ragged", "exchange_send", "exchange_reduce", "routing_plan", "capacity", "fan_out", "combine")
# form, ranks, sequences, length, top_k, experts, hidden, room, words, routing
SHAPES = (("ragged", 4, 1, 30, 3, 12, 40, 1000, 0, "random"), ("ragged", 4, 2, 15, 3, 12, 40, 61, 0, "skewed"),
          ("ragged", 2, 1, 7, 2, 6, 16, 5, 0, "random"), ("ragged", 8, 1, 6, 2, 16, 8, 12, 0, "empty rank"),
          ("slots", 4, 2, 10, 2, 8, 40, 3, 0, "random"), ("slots", 2, 3, 5, 2, 4, 16, 2, 0, "skewed"),
          ("slots", 3, 1, 8, 2, 6, 8, 4, 0, "empty rank"), ("gather", 3, 1, 7, 2, 6, 136, 0, 6, "random"),
          ("gather", 8, 1, 3, 2, 8, 8, 0, 8, "random"))


def test_plain(*programs_judge_label):
    *programs, judge, label = programs_judge_label
    rng, kernels = np.random.default_rng(16), Kernels(programs)
    for n, (form, ranks, sequences, length, top_k, experts, hidden, room, words, kind) in enumerate(SHAPES):
        sizes = (form, ranks, sequences, length, top_k, experts, hidden, room)
        for seed in (None, n):
            w = Plain(kernels, rng, *sizes, words, kind, wait=0 if seed is None else PATIENCE, epoch=0xFFFFFFFE * (n % 2))
            watch = w.run([w.work(r) for r in range(ranks)], seed=seed)
            name = f"{label} {sizes}, {kind}, {'phases' if seed is None else 'waiting'}"
            for r in range(ranks):
                judge.count(f"{name}, rank {r}", w.problem(r))
            if watch is not None:
                judge.count(f"{name}, order", order_problem(watch))
            w.y[0].view[0, 0] ^= 0x8000
            judge.expect_rejection(name, w.problem(0))
            w.y[0].view[0, 0] ^= 0x8000
            w.control[0].view[0]["bytes"][DISPATCH, 0] += 2
            judge.expect_rejection(name + ", bytes", w.problem(0))
        for deaf in ((1, 2, 3), (1,), (2,), (3,)) if ranks <= 4 else ((1, 2, 3),):
            if deaf != (1,) or form == "ragged":
                problem = unsynchronised(lambda: Plain(kernels, rng, *sizes, words, kind, wait=PATIENCE), deaf)  # noqa: B023
                judge.expect_rejection(f"{label} {sizes}, no wait in {deaf}", problem)


PLAIN_TESTS = [(FILES, test_plain)]
