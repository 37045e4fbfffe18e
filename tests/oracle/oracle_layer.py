"""One MoE layer as the oracle of the schemes sees it: the choices of an expert-parallel group token by token, what a
scheme makes of them, and the life of the tensors of a rank. Letters are those of docs/schemes.md."""
import dataclasses
import functools
import typing

B = 2  # bytes of an element, bf16


def padded(rows, multiple):
    return -(-rows // multiple) * multiple if multiple > 1 else rows


class Options(dict):
    """The options of `name:key=value,...`, numbers as numbers."""

    def __init__(self, scheme):
        super().__init__()
        self.name, _, rest = scheme.partition(":")
        for part in filter(None, rest.split(",")):
            key, _, value = part.partition("=")
            try:
                self[key] = float(value)
            except ValueError:
                self[key] = value


class Choice(typing.NamedTuple):
    source: int
    token: int     # of its rank
    slot: int
    expert: int    # of the group
    weight: float  # or None


class Group:
    """tokens[s][t] = choices of a token, missing ones left out; `case` has the sizes."""

    def __init__(self, case, tokens):
        self.case, self.tokens = case, tokens
        self.R, self.E, self.K, self.H, self.F = case.expert, case.experts, case.top_k, case.hidden, case.ffn
        self.e, self.T = self.E // self.R, case.tokens
        self.N = self.T * self.K
        self.node = case.gpus_per_node

    def owner(self, expert):
        return expert // self.e

    @functools.cached_property
    def choices(self):
        """By source, token and slot."""
        return [c for rank in self.tokens for token in rank for c in token]

    @functools.cached_property
    def of_expert(self):
        """The same, expert by expert."""
        return self.parted(self.choices, self.E, lambda c: c.expert)

    @functools.cached_property
    def of_rank(self):
        """The same by the rank that owns the expert."""
        return self.by_rank(self.choices)

    def by_rank(self, choices):
        return self.parted(choices, self.R, lambda c: c.expert // self.e)

    @staticmethod
    def parted(choices, parts, part_of):
        lists = [[] for _ in range(parts)]
        for c in choices:
            lists[part_of(c)].append(c)
        return lists

    def column(self, choices):
        """n[s][x] of these choices."""
        n = [[0] * self.E for _ in range(self.R)]
        for c in choices:
            n[c.source][c.expert] += 1
        return n

    @functools.cached_property
    def n(self):
        return self.column(self.choices)

    def pairs(self, choices):
        """Rows s -> d where every choice travels by itself."""
        wire = [[0] * self.R for _ in range(self.R)]
        for c in choices:
            wire[c.source][c.expert // self.e] += 1
        return wire

    def distinct(self, choices):
        """U[s -> d]: every token once a rank."""
        wire = [[0] * self.R for _ in range(self.R)]
        for source, _, d in {(c.source, c.token, c.expert // self.e) for c in choices}:
            wire[source][d] += 1
        return wire

    @functools.cached_property
    def all_pairs(self):
        return self.pairs(self.choices)

    @functools.cached_property
    def all_distinct(self):
        return self.distinct(self.choices)


@dataclasses.dataclass
class Exchange:
    phase: str  # forward, recompute, backward
    back: bool
    row_bytes: int


@dataclasses.dataclass
class Outcome:
    """What a scheme does with a group. wire[s][d]: rows of one dispatch, the rank's own included."""
    wire: list
    rows: list                # of d, for its experts
    kept: object              # choices that are not dropped; None: all of them
    exchanges: list
    memory: object            # d -> Live
    by_node: bool = False
    communication: int = 0    # bytes of buffers beside the tensors
    travel: object = None     # choices that cross links; None: those kept

    def received(self, d):
        return sum(row[d] for row in self.wire)

    def sent(self, s):
        return sum(self.wire[s])


def all_to_all(row_bytes, count):
    """Dispatch and combine of equal rows: 6 with a recompute, which repeats both, else 4."""
    phases = ("forward", "recompute", "backward") if count == 6 else ("forward", "backward")
    return [Exchange(phase, back, row_bytes) for phase in phases for back in (False, True)]


class Live:
    """Tensors come (`make`) and go (`end`); the greatest sum is the peak, what is there at `save` is saved."""

    def __init__(self):
        self.tensors, self.peak, self.saved, self.at_peak = {}, 0, 0, []

    def make(self, **tensors):
        for name, size in tensors.items():
            assert name not in self.tensors, name
            self.tensors[name] = int(size)
        total = sum(self.tensors.values())
        if total > self.peak:
            self.peak, self.at_peak = total, sorted(filter(None, self.tensors.values()))
        return self

    def end(self, *names):
        for name in names:
            del self.tensors[name]
        return self

    def turn(self, make, *ends):
        """One operation: its results come, then its operands go."""
        return self.make(**make).end(*ends)

    def save(self):
        self.saved = sum(self.tensors.values())
        return self

    def finish(self):
        assert not self.tensors, self.tensors
        return self

