"""What the ring of experts does beside its exchanges, in the emulator."""
import numpy as np

import emulator
from emulate_launch import Kernels, address
from emulate_local import choices, integer, plan_of
from emulate_memory import Array, problem_of
from emulate_world import Ranks


def words_of(expert, weight, experts):
    """Slot (1 on) and weight of every expert, by token."""
    tokens, top_k = expert.shape
    slot, by = np.zeros((tokens, experts), np.float32), np.zeros((tokens, experts), np.float32)
    t, k = np.nonzero(expert >= 0)
    slot[t, expert[t, k]], by[t, expert[t, k]] = k + 1, weight[t, k]
    return np.concatenate([slot, by], axis=1)


def test_ring(program, judge, label):
    rng = np.random.default_rng(12)
    for tokens, top_k, experts, local in ((9, 3, 12, 4), (5, 8, 300, 150), (1, 1, 1, 1)):
        name = f"{label} {tokens} x {top_k} of {experts}"
        expert, weight = choices(rng, tokens, top_k, experts), rng.random((tokens, top_k)).astype(np.float32)
        inputs, words = [Array(expert), Array(weight)], Array(shape=(tokens, 2 * experts), dtype=np.float32)
        sizes = [integer(top_k), integer(experts)]
        program.launch("ring_words", tokens, 128, [*sizes, *(a.pointer() for a in (*inputs, words))])
        want = words_of(expert, weight, experts)
        judge.count(f"{name} words", problem_of([words], inputs, [("words", words.view == want)]))
        words.view[0, 0] += 1
        judge.expect_rejection(name, problem_of([words], inputs, [("words", words.view == want)]))

        first, words = experts - local, Array(want)
        own = expert >= first
        got = [Array(shape=expert.shape, dtype=np.int32), Array(shape=expert.shape, dtype=np.float32)]
        program.launch("ring_choices", tokens, 128, [*sizes, integer(first), integer(local), *(a.pointer() for a in (words, *got))])
        ids = np.where(own, expert - first, -1).astype(np.int32)
        judge.count(f"{name} choices", problem_of(got, [words], [
            ("experts", got[0].view == ids), ("weights", got[1].view == np.where(own, weight, 0))]))

        _, offset, row, _ = plan_of(ids, local)
        rows = int(offset[-1]) // 2
        kept = [Array(row.astype(np.int32)), Array(offset.astype(np.int32))]
        program.launch("ring_truncate", -(-max(row.size, local + 1) // 128), 128,
                       [integer(row.size), integer(local), integer(rows), *(a.pointer() for a in kept)])
        judge.count(f"{name} short buffer", problem_of(kept, [], [
            ("rows", kept[0].view == np.where(row < rows, row, -1)), ("offsets", kept[1].view == np.minimum(offset, rows))]))

        gradient, side = rng.standard_normal(expert.shape).astype(np.float32), Array(shape=(tokens, experts), dtype=np.float32)
        inputs = [Array(ids), Array(gradient)]
        program.launch("ring_side", tokens, 128, [*sizes, integer(first), *(a.pointer() for a in (*inputs, side))])
        judge.count(f"{name} side", problem_of([side], inputs, [
            ("numbers", side.view == words_of(np.where(own, expert, -1), gradient, experts)[:, experts:])]))

        side, picked = Array(rng.standard_normal((tokens, experts)).astype(np.float32)), Array(shape=expert.shape, dtype=np.float32)
        inputs = [Array(expert), side]
        program.launch("ring_pick", -(-expert.size // 128), 128,
                       [integer(expert.size), *sizes, *(a.pointer() for a in (*inputs, picked))])
        judge.count(f"{name} pick", problem_of([picked], inputs, [
            ("numbers", picked.view == np.where(expert < 0, 0, np.take_along_axis(side.view, np.maximum(expert, 0), 1)))]))


def test_ring_return(program, judge, label):
    """The numbers behind the rows of all ranks are added, the rows left alone."""
    rng = np.random.default_rng(13)
    ranks, tokens, hidden, experts, counter = 3, 5, 72, 70, 4
    kernels, world, rows = Kernels([program]), Ranks(ranks, wait=0), ranks * tokens
    side = rng.integers(-8, 8, (ranks, rows, experts)).astype(np.float32)
    returned = [Array(np.concatenate([np.full(rows * hidden * 2, 0xFF, np.uint8), s.reshape(-1).view(np.uint8)])) for s in side]
    behind = [address(a) + rows * hidden * 2 for a in returned]
    for r in range(ranks):
        place = Array(np.repeat(r * tokens + np.arange(tokens), ranks).astype(np.int32))
        to = Array(np.tile(np.arange(ranks), tokens).astype(np.int32))
        sums = Array(shape=(tokens, experts), dtype=np.float32)
        emulator.run([kernels.reduce(world.peers(r, 1), tokens, ranks, 0, counter, behind, [rows] * ranks, place, None, to=to,
                                     side=experts, side_sum=sums)])
        want = side[:, r * tokens : (r + 1) * tokens].sum(0)
        checks = [("sums", sums.view == want), ("bytes", world.control[r].view[0]["bytes"][counter][:ranks] == tokens * experts * 4)]
        judge.count(f"{label} rank {r}", problem_of([sums], [place, to, *returned], checks))
        sums.view[0, 0] += 1
        judge.expect_rejection(label, problem_of([sums], [], [("sums", sums.view == want)]))


RING_TESTS = [("ring", test_ring), ("exchange_reduce", test_ring_return)]
