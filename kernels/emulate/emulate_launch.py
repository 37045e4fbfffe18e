"""The launchers of kernels/*_launch.h for the emulator: same grids, same arguments; each returns launches that are still to be run.

Arrays are given as Array, as an address, or None.
"""
import struct

import numpy as np

from emulate_memory import Array
from emulator_races import Host

RANKS_MAX, EXPERTS_MAX, COUNTERS, PLAN_CHUNK = 64, 512, 8, 1024
SCALES, CHOICES, SOURCE, NOTICED = 1, 2, 4, 8
DISPATCH, COMBINE, COMBINE_GRADIENT, DISPATCH_GRADIENT, ROUTER_GRADIENT = range(5)  # numbers of counters
BLOCKS = 2  # of kernels that would take every multiprocessor

# struct spw_control and struct spw_handle of exchange_launch.h.
FLAGS = ("ready", "done", "counted", "placed")  # epochs of ranks
CONTROL = np.dtype([("notice", "<u8", (RANKS_MAX, RANKS_MAX)), ("bytes", "<u8", (COUNTERS, RANKS_MAX)),
                    ("expert_count", "<i4", (RANKS_MAX, EXPERTS_MAX)), *((name, "<u4", RANKS_MAX) for name in FLAGS),
                    ("finished", "<u4"), ("taken", "<u4", 2), ("late", "<i4"), ("stale", "<i4")], align=True)
HANDLE = np.dtype([("sent", "<i4", (RANKS_MAX, RANKS_MAX)), ("base", "<i4", RANKS_MAX), ("first", "<i4", RANKS_MAX + 1),
                   ("offset", "<i4", EXPERTS_MAX + 1)])


def address(array):
    if isinstance(array, Array):
        return struct.unpack("<Q", array.pointer())[0]
    return array or 0


def pointers(*arrays):
    return struct.pack(f"<{len(arrays)}Q", *map(address, arrays))


def integers(*values):
    return [struct.pack("<i", value) for value in values]


def by_rank(values, kind):
    values = list(values)
    return struct.pack(f"<{RANKS_MAX}{kind}", *values, *[0] * (RANKS_MAX - len(values)))


class Kernels:
    def __init__(self, programs, few=False):
        """few: rows between ranks are moved by the kernels for few blocks."""
        self.program = {name: program for program in programs for name in program.code.kernels}
        self.of_few = "_few" if few else ""

    def launch(self, name, blocks, threads, *arguments):
        return self.program[name].prepare(name, blocks, threads, arguments)

    # exchange_launch.h

    def layout(self, peers, ranks, tokens, top_k, experts, *arrays):
        """arrays: expert, place, rank_tokens, expert_tokens."""
        argument = struct.pack("<4i", tokens, top_k, experts, 0) + pointers(*arrays)
        return [self.launch("exchange_layout", ranks, 1024, argument, peers)]

    def send(self, peers, items, copies, row_bytes, parts, counter, windows, capacity, place, payload, to=None, base=None, handle=None,
             scales=0, scale=None, top_k=0, expert=None, weight=None, local=0, spread=1, kernel="exchange_send"):
        blocks = 1 if kernel == "exchange_notices" else BLOCKS
        argument = struct.pack("<10i", items, copies, row_bytes, scales, top_k, local, parts, counter, BLOCKS, spread)
        argument += pointers(payload, scale, expert, weight, place, to, base, handle)
        argument += by_rank(map(address, windows), "Q") + by_rank(capacity, "i")
        return [self.launch(kernel + self.of_few * (kernel == "exchange_send"), blocks, 512, argument, peers)]

    @staticmethod
    def sums(items, copies, width, counter, windows, capacity, place, y, to=None, base=None, side=0, side_sum=None, sources=(), spread=1):
        """struct spw_reduce_gpu."""
        argument = struct.pack("<8i", items, copies, width, side, counter, BLOCKS, spread, 0)
        argument += pointers(place, to, base, None, y, side_sum)
        return argument + by_rank(map(address, windows), "Q") + by_rank(map(address, sources), "Q") + by_rank(capacity, "i")

    def reduce(self, peers, *sums, **more):
        return [self.launch("exchange_reduce" + self.of_few, BLOCKS, 512, self.sums(*sums, **more), peers)]

    def give_back(self, peers, sums, handle, parts, staged_rows, staged, arrived):
        """sums: struct spw_reduce_gpu. parts: 1 write, 2 add."""
        argument = sums + pointers(handle) + struct.pack("<2i", parts, staged_rows)
        argument += by_rank(map(address, staged), "Q") + by_rank(map(address, arrived), "Q")
        return [self.launch("exchange_return", BLOCKS, 512, argument, peers)]

    def ragged(self, kernel, peers, tokens, top_k, experts, capacity, *arrays):
        """kernel: publish or assign. arrays: expert, row, count, offset, place, to, received."""
        argument = struct.pack("<6i", tokens, top_k, experts, capacity, BLOCKS, 0) + pointers(*arrays)
        return [self.launch("ragged_" + kernel, 1 if kernel == "publish" else BLOCKS, 512, argument, peers)]

    # local_launch.h

    def router(self, tokens, experts, top_k, logits, score, expert, weight):
        argument = struct.pack("<8ifi", tokens, experts, top_k, 0, 1, 1, 1, 1, 1.0, 0) + pointers(logits, None, score, expert, weight)
        name = "router_64" if experts <= 64 else "router_256" if experts <= 256 else "router_512"
        return [self.launch(name, -(-tokens // 4), 256, argument)]

    def plan(self, assignments, experts, *arrays):
        """arrays: expert, chunk_count, count, offset, row, assignment."""
        chunks = -(-assignments // PLAN_CHUNK)
        argument = struct.pack("<4i", assignments, experts, chunks, 0) + pointers(*arrays)
        grids = (("plan_count", chunks), ("plan_scan", experts), ("plan_place", max(chunks, 1)))
        return [self.launch(kernel, blocks, 256, argument) for kernel, blocks in grids if blocks]

    def capacity(self, groups, assignments_per_group, experts, capacity, *arrays):
        """arrays: expert, row, assignment."""
        argument = struct.pack("<4i", groups, assignments_per_group, experts, capacity) + pointers(*arrays)
        return [self.launch("capacity_place", groups, 1024, argument)]

    def fan_out(self, tokens, width, top_k, row, x, out):
        return [self.launch("fan_out", tokens, 128, *integers(width, top_k), *map(pointers, (row, x, out)))]

    def fan_out_clear(self, rows, width, assignment, out):
        return [self.launch("fan_out_clear", rows, 128, *integers(width), *map(pointers, (assignment, out)))]

    def combine(self, tokens, width, top_k, *arrays):
        """arrays: row, weight, rows, y."""
        return [self.launch("combine", tokens, 128, *integers(width, top_k), *map(pointers, arrays))]

    def combine_gradient(self, tokens, width, top_k, *arrays):
        """arrays: row, weight, dy, rows, d_rows, d_weight."""
        return [self.launch("combine_gradient", -(-tokens * top_k // 4), 256, *integers(tokens * top_k, width, top_k),
                            *map(pointers, arrays))]

    def swiglu(self, rows, ffn, gate_up, act):
        argument = struct.pack("<3iffi", rows, ffn, 2 * ffn, 0, 0, 0) + pointers(gate_up, address(gate_up) + 2 * ffn)
        return [self.launch("swiglu", -(-rows * ffn // 2048), 256, argument, pointers(act))]

    def swiglu_gradient(self, rows, ffn, gate_up, d_act, d_gate_up):
        argument = struct.pack("<3iffi", rows, ffn, 2 * ffn, 0, 0, 0) + pointers(gate_up, address(gate_up) + 2 * ffn)
        return [self.launch("swiglu_gradient", -(-rows * ffn // 2048), 256, argument,
                            *map(pointers, (d_act, d_gate_up, address(d_gate_up) + 2 * ffn)))]

    # ring_launch.h

    def ring_words(self, tokens, top_k, experts, *arrays):
        """arrays: expert, weight, words."""
        return [self.launch("ring_words", tokens, 128, *integers(top_k, experts), *map(pointers, arrays))]

    def ring_choices(self, tokens, top_k, experts, first, local, *arrays):
        """arrays: words, expert, weight."""
        return [self.launch("ring_choices", tokens, 128, *integers(top_k, experts, first, local), *map(pointers, arrays))]

    def ring_truncate(self, choices, local, rows, *arrays):
        """arrays: row, offset."""
        return [self.launch("ring_truncate", -(-max(choices, local + 1) // 128), 128, *integers(choices, local, rows),
                            *map(pointers, arrays))]

    def ring_side(self, tokens, top_k, experts, first, *arrays):
        """arrays: expert, d_weight, side."""
        return [self.launch("ring_side", tokens, 128, *integers(top_k, experts, first), *map(pointers, arrays))]

    def ring_pick(self, tokens, top_k, experts, *arrays):
        """arrays: expert, side, d_weight."""
        return [self.launch("ring_pick", -(-tokens * top_k // 128), 128, *integers(tokens * top_k, top_k, experts),
                            *map(pointers, arrays))]

    # grouped_gemm_gpu.h, with weights [experts][in][out]

    def gemm(self, operation, experts, rows, inner, outer, left, right, offset, result):
        if rows == 0:
            return [] if operation != "weight_gradient" else [Host(lambda: result.view.fill(0), (address(result), result.size))]
        gradient = operation == "input_gradient"
        kernel = {"forward": "rows_outer", "input_gradient": "rows_inner", "weight_gradient": "weights"}[operation]
        shape = (outer, inner) if gradient else (inner, outer)
        argument = struct.pack("<6i", experts, rows, *shape, gradient, BLOCKS) + pointers(left, right, offset, result)
        argument += struct.pack("<3i4xq", shape[0], shape[not gradient], shape[1], shape[0] * shape[1])
        return [self.launch("gemm_mfma_" + kernel, BLOCKS, 256, argument)]
