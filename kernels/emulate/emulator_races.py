"""Finds races between the waves of all ranks in an interleaved run, whether or not they did harm in its order: two accesses to a word,
one of them a write, of which neither happens before the other. Happens before: the order of a wave; a barrier of a work-group; a
launch and the next of its rank; an exchange in LDS and the next of its word; and a flag's release and its acquire (Lamport 1978;
vector clocks, kept per word as in Flanagan and Freund's FastTrack, 2009). Whether releases and acquires are what they must be is emulator_waves.Watch's part.
"""
import numpy as np

STORE, LOAD, WRITE_BACK, SETTLE, INVALIDATE, FLAG_STORE, FLAG_LOAD, TURN, SCALAR_LOAD, LOCAL_LOAD, LOCAL_STORE, LOCAL_TURN = range(1, 13)
OFF, M0 = 0x7F, 124  # no scalar address; the register of addresses in LDS


class Event:
    """What an instruction does to the order of memory, and which addresses it touches."""

    def __init__(self, kind, name, instruction):
        self.kind, self.name = kind, name
        self.atomic = "ATOMIC" in name or name.startswith("DS_ADD") or kind == LOCAL_TURN
        last = "B64" if "B64_TR" in name else name.rsplit("_", 1)[-1]
        self.bytes = {"DWORDX2": 8, "DWORDX3": 12, "DWORDX4": 16, "DWORDX8": 32, "DWORDX16": 64, "X2": 8, "SHORT": 2, "USHORT": 2,
                      "BYTE": 1, "UBYTE": 1, "B64": 8, "B96": 12, "B128": 16, "B16": 2, "U16": 2, "B8": 1, "U8": 1}.get(last, 4)
        self.local, self.field = name.startswith("DS_"), {}
        if name.startswith("DS_") and ("READ2" in name or "WRITE2" in name):
            self.pair = self.bytes * (64 if "ST64" in name else 1)  # what its two offsets count in
        else:
            self.pair = 0
        for field in ("offset0", "offset1", "addr", "saddr", "offset", "vaddr", "srsrc", "soffset", "offen", "sbase"):
            place = getattr(type(instruction), field, None)
            if place is not None:
                self.field[field] = instruction._raw >> place.lo & place.mask

    def addresses(self, wave):
        """Of the lanes that are switched on."""
        f, scalar = self.field, wave.state._sgpr_mv
        if self.kind == SCALAR_LOAD:
            at = f["sbase"] * 2
            return np.array([(scalar[at] | scalar[at + 1] << 32) + f["offset"]], np.int64)
        on = np.unpackbits(np.array([wave.words[63]], np.uint64).view(np.uint8), bitorder="little").astype(bool)
        if self.kind == LOCAL_STORE and self.name.startswith("BUFFER"):  # lane after lane to LDS
            return np.nonzero(on)[0] * self.bytes + (scalar[M0] & 0x3FFFF) + (wave.group.number << 48)
        if self.name.startswith("BUFFER"):
            at = f["srsrc"] * 4
            base = (scalar[at] | scalar[at + 1] << 32) & 0xFFFFFFFFFFFF
            offset = (wave.vector[f["vaddr"]].astype(np.int64) if f["offen"] else np.zeros(64, np.int64)) + f["offset"]
            more = scalar[f["soffset"]] if f["soffset"] < 128 else f["soffset"] - 128
            return (base + more + offset)[on & (offset < scalar[at + 2])]
        low = wave.vector[f["addr"]].astype(np.int64)
        if self.local:
            low = low[on] + (wave.group.number << 48)
            if self.pair:
                return np.concatenate([low + f["offset0"] * self.pair, low + f["offset1"] * self.pair])
            return low + (f["offset1"] << 8 | f["offset0"])
        if f.get("saddr", OFF) == OFF:
            low |= wave.vector[f["addr"] + 1].astype(np.int64) << 32
        else:
            low += scalar[f["saddr"]] | scalar[f["saddr"] + 1] << 32
        return (low + ((f["offset"] ^ 0x1000) - 0x1000))[on]


def joined(a, b):
    """The later of two views of all waves' clocks."""
    if a is b or not b or not a:
        return a or b
    result = dict(a)
    for wave, clock in b.items():
        if clock > result.get(wave, 0):
            result[wave] = clock
    return result


class Host:
    """A function of a rank's host between two launches, and the memory that it writes: pairs (address, bytes)."""

    def __init__(self, function, *touched):
        self.function, self.touched, self.name, self.atomic = function, touched, "host", False


class Races:
    def __init__(self, arrays=None, unit=4, lds=True):
        """arrays: the memory that is looked at, pairs (address, bytes), or all. lds: LDS is looked at too. unit: bytes that count as one
        place; a power of 2 up to 4, and no access may be smaller."""
        self.lds, self.everywhere, self.unit, arrays = lds, arrays is None, unit, sorted(arrays or ())
        self.begin = np.array([a for a, _ in arrays], np.int64)
        self.end = np.array([a + n for a, n in arrays], np.int64)
        self.words, self.flags, self.clocks = {}, {}, {}
        self.accesses, self.problem = 0, None

    def start(self, wave, stream, number):
        wave.id = (stream.number, wave.group.index, number)
        wave.clock = self.clocks[wave.id] = self.clocks.get(wave.id, 0) + 1
        wave.seen, wave.acquired = stream.seen, {}

    def view(self, wave):
        """What one who comes after the wave has seen; what the wave does next is not in it."""
        view = {**wave.seen, wave.id: wave.clock}
        wave.clock = self.clocks[wave.id] = wave.clock + 1
        return view

    def barrier(self, waves):
        everything = {}
        for wave in waves:
            everything = joined(everything, self.view(wave))
        for wave in waves:
            wave.seen = everything

    def event(self, event, wave):
        if event.kind in (WRITE_BACK, SETTLE, INVALIDATE) or (event.local and not self.lds):
            return
        addresses = event.addresses(wave)
        if event.kind in (FLAG_LOAD, TURN, LOCAL_TURN):
            views = {id(view): view for view in map(self.flags.get, addresses.tolist()) if view is not None}
            for view in views.values():
                if view is not wave.acquired.get(id(view)):
                    wave.seen, wave.acquired[id(view)] = joined(wave.seen, view), view
        if event.kind in (FLAG_STORE, TURN, LOCAL_TURN):
            view = self.view(wave)
            for at in addresses.tolist():
                self.flags[at] = joined(self.flags.get(at, {}), view)
        if event.kind not in (FLAG_LOAD, FLAG_STORE):
            self.access(event, wave, addresses)

    def access(self, event, wave, addresses):
        if not self.everywhere and not event.local:
            inside = np.searchsorted(self.begin, addresses, side="right") - 1
            addresses = addresses[(inside >= 0) & (addresses < self.end[inside])]
        if addresses.size:
            words = np.unique((addresses[:, None] + np.arange(0, event.bytes, self.unit)) // self.unit).tolist()
            self.touch(event, wave, words, event.kind in (STORE, TURN, LOCAL_STORE, LOCAL_TURN))

    def host(self, host, stream):
        """stream stands for a wave of its own."""
        stream.id, stream.clock = (stream.number, -1, 0), self.clocks.get((stream.number, -1, 0), 0) + 1
        for address, size in host.touched:
            self.touch(host, stream, range(address // self.unit, (address + size) // self.unit), True)
        stream.seen = self.view(stream)

    def touch(self, event, wave, words, write):
        self.accesses += len(words)
        me, seen = wave.id, wave.seen
        for word in words:
            entry = self.words.get(word)
            if entry is None:
                entry = self.words[word] = [None, 0, False, {}]
            writer, clock, atomic, readers = entry
            if writer is not None and writer != me and clock > seen.get(writer, 0) and not (atomic and event.atomic):
                self.fail(event, wave, word, writer, "written")
            if not write:
                readers[me] = wave.clock
                continue
            for reader, clock in readers.items():
                if reader != me and clock > seen.get(reader, 0):
                    self.fail(event, wave, word, reader, "read")
            self.words[word] = [me, wave.clock, event.atomic, {}]

    def fail(self, event, wave, word, other, how):
        where = f"{wave.group.launch.name} at 0x{wave.words[128] - wave.program.base:x}, " if wave.id[1] >= 0 else ""
        one, two = (f"rank {w[0]}, block {w[1]}, wave {w[2]}" for w in (wave.id, other))
        self.problem = self.problem or f"{where}{event.name}: {one} meets a word that {two} has {how} at the same time"
