"""Reads an AMD code object (an ELF file as the linker leaves it): its kernels, their resources, their machine code's place.

Formats: LLVM, "User Guide for AMDGPU Backend", code object V5 metadata and kernel descriptor; ELF-64.
"""
import struct

SEGMENT_LOAD, SEGMENT_NOTE, SECTION_DYNAMIC_SYMBOLS, NOTE_METADATA = 1, 4, 11, 32


def unpack(data, at):
    """The value at `at` in MessagePack, of the kinds that metadata uses, and the place behind it. Format: msgpack/spec.md."""
    head = data[at]
    at += 1
    if head < 0x80 or head >= 0xE0:
        return head - (256 if head >= 0xE0 else 0), at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if 0xCC <= head <= 0xD3:  # integers of 1, 2, 4, 8 bytes
        size = 1 << (head & 3)
        return int.from_bytes(data[at : at + size], "big", signed=head >= 0xD0), at + size
    if 0xA0 <= head < 0xC0 or 0xD9 <= head <= 0xDB:  # text
        size, at = (head & 31, at) if head < 0xC0 else _length(data, at, head - 0xD9)
        return data[at : at + size].decode(), at + size
    if head < 0x90 or head in (0xDE, 0xDF):  # a map
        size, at = (head & 15, at) if head < 0x90 else _length(data, at, head - 0xDD)
        result = {}
        for _ in range(size):
            key, at = unpack(data, at)
            result[key], at = unpack(data, at)
        return result, at
    if head < 0xA0 or head in (0xDC, 0xDD):  # an array
        size, at = (head & 15, at) if head < 0xA0 else _length(data, at, head - 0xDB)
        result = []
        for _ in range(size):
            value, at = unpack(data, at)
            result.append(value)
        return result, at
    raise ValueError(f"metadata: MessagePack type 0x{head:02x}")


def _length(data, at, power):
    return int.from_bytes(data[at : at + (1 << power)], "big"), at + (1 << power)


class CodeObject:
    """`image` is the loaded memory at address 0; `kernels` the metadata by name; `symbols` the addresses by name."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:4] != b"\x7fELF":
            raise ValueError(f"{path}: not an ELF file")
        segments_at, sections_at = struct.unpack_from("<QQ", self.data, 32)
        _, segment_count, _, section_count, _ = struct.unpack_from("<HHHHH", self.data, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", self.data, segments_at + i * 56) for i in range(segment_count)]
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, sections_at + i * 64) for i in range(section_count)]
        loads = [s for s in segments if s[0] == SEGMENT_LOAD]
        self.image = bytearray(max(s[3] + s[6] for s in loads))
        for _, _, offset, address, _, size, _, _ in loads:
            self.image[address : address + size] = self.data[offset : offset + size]
        metadata = self._metadata([s for s in segments if s[0] == SEGMENT_NOTE])
        self.target = metadata["amdhsa.target"].rsplit("-", 1)[-1]
        self.kernels = {kernel[".name"]: kernel for kernel in metadata["amdhsa.kernels"]}
        self.symbols = dict(self._dynamic_symbols())

    def _metadata(self, notes):
        for _, _, offset, _, _, size, _, _ in notes:
            at = offset
            while at < offset + size:
                name_bytes, content_bytes, kind = struct.unpack_from("<III", self.data, at)
                content = at + 12 + -(-name_bytes // 4) * 4
                if kind == NOTE_METADATA:
                    return unpack(self.data[content : content + content_bytes], 0)[0]
                at = content + -(-content_bytes // 4) * 4
        raise ValueError("no AMDGPU metadata")

    def _dynamic_symbols(self):
        for section in self.sections:
            if section[1] != SECTION_DYNAMIC_SYMBOLS:
                continue
            names = self.sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
                start = names + name
                yield self.data[start : self.data.index(b"\0", start)].decode(), (value, size)

    def descriptor(self, name):
        """The kernel descriptor's fields that a launcher needs."""
        at = self.symbols[name + ".kd"][0]
        lds, scratch = struct.unpack_from("<II", self.image, at)
        (entry,) = struct.unpack_from("<q", self.image, at + 16)
        resource3, resource1, resource2 = struct.unpack_from("<III", self.image, at + 44)
        properties, preload = struct.unpack_from("<HH", self.image, at + 56)
        return {"lds_bytes": lds, "scratch_bytes": scratch, "entry": at + entry, "resource1": resource1,
                "resource2": resource2, "resource3": resource3, "properties": properties, "preload": preload}
