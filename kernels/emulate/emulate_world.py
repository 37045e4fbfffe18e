"""Ranks side by side in one address space of the emulator: their flags, and the two ways to run them."""
import random
import struct

import numpy as np

import emulator
from emulate_launch import CONTROL, FLAGS, address, by_rank
from emulate_memory import Array
from emulator_races import Host, Races


PATIENCE = 10  # seconds


def host(function, *written):
    """A step of the host that writes these arrays."""
    return Host(function, *((address(array), array.size) for array in written))


class Ranks:
    """epoch: before the first exchange; wait: seconds, as in exchange_launch.h, but none in the epochs of `deaf`."""

    deaf = ()

    def __init__(self, ranks, wait, epoch=0):
        self.ranks, self.wait, self.start = ranks, wait, epoch
        control = np.zeros(1, CONTROL)
        control["notice"] = epoch << 32
        for name in FLAGS:
            control[name] = epoch
        self.control = [Array(control) for _ in range(ranks)]

    def epoch(self, n):
        return (self.start + n) & 0xFFFFFFFF

    def peers(self, rank, epoch):
        head = struct.pack("<iiiI", self.ranks, rank, 0 if epoch in self.deaf else self.wait, self.epoch(epoch))
        return head + by_rank([address(c) for c in self.control], "Q")

    def memory(self):
        """All arrays of the ranks: pairs (address, bytes)."""
        found, left = [], list(vars(self).values())
        while left:
            value = left.pop()
            if isinstance(value, Array):
                found.append((address(value), value.size))
            elif isinstance(value, (list, tuple)):
                left += value
        return found

    def run(self, work, seed=None, lds=True, **how):
        """work[rank]: parts, each a list of launches and of steps of the host. Without a seed all ranks do a part before the
        next begins; with one every rank goes its way, and which of their waves runs next is drawn. Returns the watch of the latter. lds: is
        searched for races too."""
        if seed is not None:
            steps = [[step for part in parts for step in part] for parts in work]
            return emulator.run(steps, rng=random.Random(seed), races=Races(self.memory(), lds=lds), **how)
        for part in zip(*work):
            emulator.run(part)

    def check_flags(self, rank, notice, ready, done):
        """What the others and the rank itself have left in its control; epochs, of the notices also the tokens [source][destination]."""
        c, r = self.control[rank].view[0], self.ranks
        tokens = c["notice"][:r, :r] & 0xFFFFFFFF
        return [("notices' epoch", c["notice"][:r, :r] >> 32 == self.epoch(notice[0])), ("notices' tokens", tokens == notice[1]),
                ("ready", c["ready"][:r] == self.epoch(ready)), ("done", c["done"][:r] == self.epoch(done)),
                ("flags of ranks that are not there", np.concatenate([c["ready"][r:], c["done"][r:]]) == self.epoch(0)),
                ("finished", c["finished"] == 0), ("taken", c["taken"] == 0), ("late", c["late"] == 0), ("stale", c["stale"] == 0)]

    def check_flags_alone(self, rank, notice, last):
        """What one rank has left in all controls, when no other ran. notice: epoch, tokens [source][destination]."""
        checks = []
        for d in range(self.ranks):
            c = self.control[d].view[0]
            checks += [(f"notices at {d}", c["notice"][rank, : self.ranks] == notice[0] << 32 | notice[1][rank].astype(np.uint64)),
                       (f"flags at {d}", np.array([c["ready"][rank], c["done"][rank]]) == self.epoch(last))]
            others = np.delete(np.arange(self.ranks), rank)
            if d != rank:
                checks.append((f"flags of others at {d}", np.stack([c["ready"][others], c["done"][others]]) == 0))
        return checks + [("late", self.control[rank].view[0]["late"] == 0)]

    def check_bytes(self, rank, counter, rows, row_bytes):
        """rows [rank]: moved to or from each."""
        return [(f"bytes {counter}", self.control[rank].view[0]["bytes"][counter][: self.ranks] == np.asarray(rows) * row_bytes)]


def unsynchronised(make, deaf):
    """Whether a race is found, in one order of the waves, where kernels of some epochs do not wait. make(): a fresh world."""
    w = make()
    getattr(w, "exchange", w).deaf = deaf
    return w.run([w.work(r) for r in range(w.ranks)], seed=0).races.problem
