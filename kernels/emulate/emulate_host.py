"""Runs a program of HIP, host code and all, on a machine without an AMD GPU: its launches are executed by the emulator.

    python3 emulate_host.py [--target gfx942] [--devices 2] [--gib 16] [--runtime FOLDER] -- PROGRAM [ARGUMENT]...

The program is linked with libamdhip64 as for a machine with GPUs; FOLDER holds the stand-in of that name (hip_emulator.h), which speaks to this process.
Device memory is an arena that all processes of the program and this one map at one address. Kernels run one after the other, in the order in which they
were launched. The exit status is the program's. Without TINYGRAD everything but kernels works: a launch fails, and is reported.
"""
import argparse
import bisect
import collections
import ctypes
import faulthandler
import mmap
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulator
from code_object import CodeObject

ARENA_AT, PAGE = 0x600000000000, 4096
REQUEST, ANSWER = struct.Struct("<IIQQ3I3IIIQ"), struct.Struct("<i32I4xQ")
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_FUNCTION, LAUNCH_FAILURE, NOT_SUPPORTED = 0, 1, 2, 98, 719, 801
MOST_ARGUMENTS = 30


class Arena:
    """Device memory: allocations a page apart, found by address."""

    def __init__(self, bytes_):
        self.bytes, self.file = bytes_, os.memfd_create("spillway-device")
        os.ftruncate(self.file, bytes_)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        fixed, no_reserve = 0x100000, 0x4000  # MAP_FIXED_NOREPLACE, MAP_NORESERVE
        at = libc.mmap(ARENA_AT, bytes_, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | fixed | no_reserve, self.file, 0)
        if at != ARENA_AT:
            raise OSError(ctypes.get_errno(), "device memory cannot be mapped where the program expects it")
        self.starts, self.sizes, self.free = [], {}, [(ARENA_AT, bytes_)]

    def allocate(self, size):
        whole = -(-size // PAGE) * PAGE + PAGE  # nothing lies directly behind an allocation
        for i, (at, room) in enumerate(self.free):
            if room >= whole:
                self.free[i : i + 1] = [(at + whole, room - whole)] if room > whole else []
                bisect.insort(self.starts, at)
                self.sizes[at] = size
                return at
        return 0

    def release(self, at):
        if at not in self.sizes:
            return False
        self.starts.remove(at)
        whole = -(-self.sizes.pop(at) // PAGE) * PAGE + PAGE
        bisect.insort(self.free, (at, whole))
        merged = []
        for start, room in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((start, room))
        self.free = merged
        return True

    def within(self, at, size):
        """Where the allocation begins that holds all of [at, at + size), or 0."""
        i = bisect.bisect_right(self.starts, at) - 1
        return self.starts[i] if i >= 0 and at + size <= self.starts[i] + self.sizes[self.starts[i]] else 0


class Machine:
    def __init__(self, target, arena):
        self.target, self.arena, self.modules, self.kernels = target, arena, [], []
        self.launches, self.seconds, self.absent = collections.Counter(), 0.0, emulator.available()

    def answer(self, request, content):
        """(error, value, words)"""
        kind, module, address, size, *geometry = request
        return (self.module, self.kernel, self.launch, self.allocate, self.release, self.within)[kind](module, address, size, geometry, content)

    def module(self, _module, _address, _size, _geometry, content):
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(content)
            file.flush()
            code = CodeObject(file.name)
        if code.target.split(":")[0] != self.target:
            raise ValueError(f"a code object for {code.target} on {self.target}")
        self.modules.append((code, None if self.absent else emulator.Program(code)))
        return SUCCESS, len(self.modules) - 1, ()

    def kernel(self, module, _address, _size, _geometry, content):
        code, program = self.modules[module]
        name = content.decode()
        if name not in code.kernels:
            return INVALID_FUNCTION, 0, ()
        about = code.kernels[name]
        sizes = [slot[".size"] for slot in about[".args"] if not slot[".value_kind"].startswith("hidden_")]
        if len(sizes) > MOST_ARGUMENTS:
            return NOT_SUPPORTED, 0, ()
        self.kernels.append((name, program, sizes))
        return SUCCESS, len(self.kernels) - 1, (about[".max_flat_workgroup_size"], len(sizes), *sizes)

    def launch(self, kernel, _address, _size, geometry, content):
        name, program, sizes = self.kernels[kernel]
        blocks, threads, shared = geometry[0], geometry[3], geometry[6]
        if program is None:
            print(f"emulate: {name} was launched, but {self.absent}", file=sys.stderr, flush=True)
            return LAUNCH_FAILURE, 0, ()
        if geometry[1:3] != [1, 1] or geometry[4:6] != [1, 1] or shared:
            print(f"emulate: {name} was launched in more than one dimension, or with dynamic LDS", file=sys.stderr, flush=True)
            return NOT_SUPPORTED, 0, ()
        values, at = [], 0
        for size in sizes:
            values.append(content[at : at + size])
            at += size
        start = time.monotonic()
        program.launch(name, blocks, threads, values)
        self.seconds += time.monotonic() - start
        self.launches[name] += 1
        return SUCCESS, 0, ()

    def allocate(self, _module, size, _size, _geometry, _content):
        at = self.arena.allocate(size)
        return SUCCESS if at else OUT_OF_MEMORY, at, ()

    def release(self, _module, at, _size, _geometry, _content):
        return SUCCESS if self.arena.release(at) else INVALID_VALUE, 0, ()

    def within(self, _module, at, size, _geometry, _content):
        begins = self.arena.within(at, size)
        return SUCCESS if begins else INVALID_VALUE, begins, ()


def receive(line, count):
    content = bytearray()
    while len(content) < count:
        some = line.recv(count - len(content))
        if not some:
            return None
        content += some
    return bytes(content)


def serve(machine, line):
    """One request; False at the end of the line."""
    head = receive(line, REQUEST.size)
    if head is None:
        return False
    *request, count = REQUEST.unpack(head)
    content = receive(line, count)
    try:
        error, value, words = machine.answer(request, content)
    except Exception:  # whatever the emulator cannot do is a launch that failed
        traceback.print_exc()
        error, value, words = LAUNCH_FAILURE, 0, ()
    line.sendall(ANSWER.pack(error, *words, *[0] * (32 - len(words)), value))
    return True


def run(machine, listener, process):
    """Serves all processes of a program until it ends; its exit status."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while process.poll() is None:
            for key, _ in selector.select(timeout=0.2):
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                elif not serve(machine, key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return process.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="gfx942")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--gib", type=int, default=16, help="memory of all devices together; what is not touched costs nothing")
    parser.add_argument("--runtime", help="the folder of the stand-in for libamdhip64")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    faulthandler.enable()
    arena = Arena(arguments.gib << 30)
    machine = Machine(arguments.target, arena)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(folder, "emulator")
        listener.bind(path)
        listener.listen()
        environment = dict(os.environ, SPW_EMULATOR=f"{path} /proc/{os.getpid()}/fd/{arena.file} {ARENA_AT:x} {arena.bytes:x} "
                                                    f"{arguments.target} {arguments.devices}")
        if arguments.runtime:
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [arguments.runtime, os.environ.get("LD_LIBRARY_PATH")]))
        start = time.monotonic()
        with subprocess.Popen(arguments.command, env=environment) as process:
            status = run(machine, listener, process)
    print(f"{arguments.target}: {sum(machine.launches.values())} launches of {len(machine.launches)} kernels executed in {machine.seconds:.0f} of "
          f"{time.monotonic() - start:.0f} s; exit status {status}", flush=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
