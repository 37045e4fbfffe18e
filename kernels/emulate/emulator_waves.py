"""Runs waves of AMD kernels: one work-group after another, or the work-groups of several ranks interleaved, so that a wave that waits
for another rank's flag is really served by that rank's kernel. Machine code is executed by the emulator that emulator.py loads.

Beside the values a watch follows every wave's releases and acquires for the whole machine (memory model of gfx942: LLVM, "User Guide
for AMDGPU Backend"): a flag may be stored only behind a write-back of the cache that is complete and later than all stores
of the work-group before it, and nothing may be read between a flag's load and the invalidation of the cache behind it. A flag is
what is accessed at system scope (bit sc1); an atomic that returns the old value, by which work-groups learn which is the last, must
stand where a flag's store could stand.
"""
import ctypes
import mmap

import numpy as np

import emulator_gfx950
from emulator_races import (FLAG_LOAD, FLAG_STORE, INVALIDATE, LOAD, LOCAL_LOAD, LOCAL_STORE, LOCAL_TURN, SCALAR_LOAD, SETTLE, STORE, TURN,
                            WRITE_BACK, Event, Host, joined)

ENDED, BARRIER, PAUSED = range(3)
BLOCK_MAX = 32  # instructions that run without a look at the other waves
PC, EXEC = 128, 63  # 64-bit words of a wave's scalar registers, as the emulator keeps them
POISON = 0xA5
OWN_BUFFERS = (0, 1, 3, 5)  # of the emulator's list of a wave's memory: scalar registers, vector registers, LDS, accumulation registers

clock = (ctypes.c_uint64 * 1)()  # what s_memrealtime reads: units of 10 ns


class Stuck(Exception):
    pass


class LocalMemory:
    """Room for every 32-bit LDS address, reserved but not used: the emulator reads LDS for switched-off lanes too, at whatever address
    they hold, and only then throws the value away."""

    free = []

    def __init__(self):
        no_reserve = 0x4000
        self.memory = mmap.mmap(-1, (1 << 32) + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    @classmethod
    def take(cls, size):
        memory = cls.free.pop() if cls.free else cls()
        ctypes.memset(memory.address, POISON, size)
        return memory


class Calls(dict):
    """By the emulator's list of buffers: the arguments of an instruction's function."""

    def __init__(self, buffers):
        self.buffers = [ctypes.c_uint64(address) for address in buffers]

    def __missing__(self, which):
        self[which] = [self.buffers[i] for i in which]
        return self[which]


class Wave:
    def __init__(self, emu, launch, group, first):
        self.group, self.program, self.ended = group, launch.program, False
        self.state = emu._init_wave(launch.entry, first, launch.threads, launch.threads, 1, 1, launch.address, launch.resource2, 0,
                                    "cdna", group.index, 0, 0, launch.registers, 64)
        ctypes.memset(self.state.vgpr_buf._buf.va_addr + 256, POISON, 255 * 256)  # all but register 0, the work-item's number
        ctypes.memset(self.state.accvgpr_buf._buf.va_addr, POISON, 256 * 256)
        self.words = self.state._sgpr_mv.cast("B").cast("Q")
        self.vector = np.frombuffer(self.state._vgpr_mv, np.uint32).reshape(256, 64)
        self.calls = Calls([self.state.sgpr_buf._buf.va_addr, self.state.vgpr_buf._buf.va_addr, 0, group.local.address, 0,
                            self.state.accvgpr_buf._buf.va_addr])
        emulator_gfx950.under_way.pop(self.state.sgpr_buf._buf.va_addr, None)
        # Stores under way, and not written back: since the last barrier, and before it. Earlier: those of the kernels before this one.
        self.stored = self.stored_before = self.dirty = self.dirty_before = False
        self.earlier, self.flushing, self.acquiring = True, False, 0


class Group:
    number = 0

    def __init__(self, emu, launch, index):
        self.launch, self.index, self.local = launch, index, LocalMemory.take(launch.lds_bytes)
        Group.number = Group.number % 0x7FFF + 1  # apart for all of one run; 15 bits: emulator_races.Event
        self.number = Group.number
        self.waves = [Wave(emu, launch, self, first) for first in range(0, launch.threads, 64)]
        self.arrived = []

    def release_barrier(self, watch):
        """The waves that go on, once all that have not ended have come."""
        if not self.arrived or len(self.arrived) < sum(not w.ended for w in self.waves):
            return []
        for wave in self.waves:
            wave.stored_before, wave.dirty_before = wave.stored, wave.dirty_before or wave.dirty
            wave.dirty = False
        if watch.races:
            watch.races.barrier(self.arrived)
        released, self.arrived = self.arrived, []
        return released


class Watch:
    """What the waves did about the order of memory: counts, and the first thing wrong."""

    def __init__(self, races):
        self.releases = self.acquires = 0
        self.problem, self.races = None, races

    def event(self, event, wave):
        if self.races:
            self.races.event(event, wave)
            self.problem = self.problem or self.races.problem
        kind = event.kind
        if kind == LOCAL_TURN and "XCHG" in event.name and wave.stored and wave.words[EXEC]:
            self.fail(wave, "a wave of the group is told of stores that are not complete")
        if kind >= SCALAR_LOAD:
            return
        if kind == SETTLE:
            wave.stored = wave.stored_before = False
            wave.acquiring += wave.acquiring == 1
            if wave.flushing:
                self.written_back(wave)
        elif kind == WRITE_BACK:
            wave.flushing = True
        elif kind == INVALIDATE:
            wave.acquiring = 1 if wave.acquiring == 1 else 0
        elif wave.words[EXEC] == 0:
            return
        elif kind in (FLAG_STORE, TURN):
            self.releases += kind == FLAG_STORE
            if wave.flushing or wave.dirty or any(w.dirty_before for w in wave.group.waves) or (wave.earlier and kind == FLAG_STORE):
                self.fail(wave, "a flag is stored before a write-back is complete")
        elif wave.acquiring:
            self.fail(wave, "memory is read or written before an acquire is complete")
        elif kind == FLAG_LOAD:
            self.acquires += 1
            wave.acquiring = 1
        elif kind == STORE:
            wave.stored = wave.dirty = True
            wave.flushing = False

    @staticmethod
    def written_back(wave):
        """All that has come to the cache of the work-group: the wave's own, and what others had stored, and waited for, before the
        last barrier."""
        wave.flushing = wave.dirty = wave.earlier = False
        for other in wave.group.waves:
            other.dirty_before = other.dirty_before and other.stored_before

    def fail(self, wave, what):
        self.problem = self.problem or f"{wave.group.launch.name} at 0x{wave.words[PC] - wave.program.base:x}: {what}"


def kind_of(name, instruction):
    """What the watch must know of an instruction, or 0."""
    if name == "S_WAITCNT":
        return SETTLE if int(instruction.simm16) & 0xC00F == 0 else 0
    if name.startswith("S_LOAD_"):
        return SCALAR_LOAD
    if name.startswith("DS_"):
        if "XCHG" in name or "CMPST" in name:
            return LOCAL_TURN
        return 0 if "BPERMUTE" in name or "SWIZZLE" in name else LOCAL_LOAD if "READ" in name else LOCAL_STORE
    if not name.startswith(("GLOBAL_", "FLAT_", "BUFFER_")):
        return 0
    if name.startswith("BUFFER_LOAD") and getattr(instruction, "lds", 0):
        return LOCAL_STORE
    system = bool(getattr(instruction, "sc1", 0))
    if name.startswith("BUFFER_WBL2"):
        return WRITE_BACK * system
    if name.startswith("BUFFER_INV"):
        return INVALIDATE * system
    if "ATOMIC" in name and getattr(instruction, "sc0", 0):
        return TURN
    if "LOAD" in name:
        return FLAG_LOAD if system else LOAD
    return FLAG_STORE if system and "STORE" in name else STORE


class Decoder:
    """The machine code of a program in pieces that run from end to end."""

    def __init__(self, emu):
        self.emu, self.pieces = emu, {}

    def piece(self, pc):
        """Steps (function, buffers, event), and what comes behind: BARRIER, ENDED or PAUSED."""
        steps, at, end = [], pc, PAUSED
        while end == PAUSED and len(steps) < BLOCK_MAX:
            instruction = self.emu.decode_inst(ctypes.string_at(at, 16), "cdna")
            name = self.emu._op_name(instruction)
            function, buffers = emulator_gfx950.executor(name, instruction), OWN_BUFFERS
            if function is None:
                (program, runtime), instruction = self.emu._decode_at(at, "cdna")
                function, buffers = runtime.fxn, tuple(program.arg.globals)
            kind = kind_of(name, instruction)
            steps.append((function, buffers, Event(kind, name, instruction) if kind else None))
            at += instruction.size()
            end = ENDED if name == "S_ENDPGM" else BARRIER if name == "S_BARRIER" else PAUSED
            if "BRANCH" in name or "SETPC" in name or "SWAPPC" in name or "S_CALL" in name:
                break
        self.pieces[pc] = steps, end
        return self.pieces[pc]


def advance(wave, watch, most):
    """Runs a wave until it ends, comes to a barrier, or has done `most` instructions; how it stopped, and after how many."""
    words, calls, decoder, done = wave.words, wave.calls, wave.program.decoder, 0
    while done < most:
        pc = words[PC]
        steps, end = decoder.pieces.get(pc) or decoder.piece(pc)
        for function, which, event in steps:
            if event is not None and (watch.races or event.kind < SCALAR_LOAD):
                watch.event(event, wave)
            function(*calls[which])
        done += len(steps)
        if end != PAUSED:
            return end, done
    return PAUSED, done


class Stream:
    """What one rank does, in order: launches, and steps of the host between them."""

    def __init__(self, work, number):
        self.work, self.number, self.launch, self.next, self.alive = list(work), number, None, 0, 0
        self.seen, self.done = {}, {}  # of all waves, by those that start now; by those that have ended

    def groups(self, emu, resident, races):
        """Work-groups that may start now."""
        while self.launch is None and self.work:
            item = self.work.pop(0)
            if isinstance(item, Host):
                item.function()
                if races:
                    races.host(item, self)
                    self.done = self.seen
            elif item.blocks > 0:
                self.launch, self.next = item, 0
        while self.launch is not None and self.next < self.launch.blocks and self.alive < resident:
            self.alive, self.next = self.alive + 1, self.next + 1
            yield Group(emu, self.launch, self.next - 1)

    def ended(self, group, races):
        LocalMemory.free.append(group.local)
        for wave in group.waves if races else ():
            self.done = joined(self.done, races.view(wave))
        self.alive -= 1
        if self.alive == 0 and self.next == self.launch.blocks:
            self.launch, self.seen = None, self.done


def run(emu, streams, rng=None, races=None, resident=4, ticks=1, limit=100_000_000):
    """Runs streams side by side, in the order in which `rng` (random.Random) picks waves; without one, streams and work-groups one
    after another, waves in turn up to the next barrier. races: looked for with a seed. The clock moves by `ticks` with every
    instruction. Returns the watch."""
    streams, watch, total = [Stream(s, n) for n, s in enumerate(streams)], Watch(races), 0
    ready = []  # (wave, stream)

    def start(stream):
        for group in stream.groups(emu, resident if rng else 1, races):
            for n, wave in enumerate(group.waves if races else ()):
                races.start(wave, stream, n)
            ready.extend((wave, stream) for wave in group.waves)

    with emu._MXCSRContext():
        for stream in streams:
            start(stream)
            while ready and (rng is None or stream is streams[-1]):
                at = rng.randrange(len(ready)) if rng else 0
                wave, owner = ready[at]
                stop, done = advance(wave, watch, rng.choice((1, 8, 40, 200)) if rng else 1 << 40)
                clock[0] += done * ticks
                total += done
                if total > limit:
                    raise Stuck(f"{wave.group.launch.name}: no end after {limit} instructions")
                if stop == PAUSED:
                    continue
                ready.pop(at)
                if stop == ENDED:
                    wave.ended = True
                    if all(w.ended for w in wave.group.waves):
                        owner.ended(wave.group, races)
                        start(owner)
                        continue
                else:
                    wave.group.arrived.append(wave)
                ready.extend((w, owner) for w in wave.group.release_barrier(watch))
    return watch
