"""Execution traces of MLCommons Chakra, which network simulators such as ASTRA-sim read: what crosses between every pair of ranks.

    spillway.replay("trace.h5", job="job.yaml", scheme="gmm", output="result.h5")
    from spillway_moe.chakra import write_chakra
    write_chakra("result.h5", "chakra")               # chakra/moe.0.et, chakra/moe.1.et ...; or python -m spillway_moe.chakra

A file a rank holds the exchanges of a forward pass: for every MoE layer its sends and receives of the dispatch, then of the combine,
each phase after the one before. A collective of the schema has one size, so unequal pairs are nodes COMM_SEND and COMM_RECV. The
bytes are those of the result's link_bytes, a mean over steps and layers of the trace; a combine sends them back, scaled by the bytes
of the scheme's combine over those of its dispatch. Computation, memory and times are not in it. Needs the packages protobuf and h5py
(pip install spillway-moe[chakra]).

The schema's names and numbers are those of mlcommons/chakra 21585d8, schema/protobuf/et_def.proto; files are as its feeder reads them.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from typing import Any, BinaryIO

SEND, RECEIVE = 5, 6  # NodeType: COMM_SEND_NODE, COMM_RECV_NODE
_VERSION = "1.0.0"
# message: fields (name, number, type of descriptor.proto, repeated, message). Those that are written here.
_FIELDS: dict[str, list[tuple[str, int, str, bool, str]]] = {
    "AttributeProto": [("name", 1, "STRING", False, ""), ("int32_val", 7, "INT32", False, ""), ("int64_val", 9, "INT64", False, ""),
                       ("bool_val", 27, "BOOL", False, ""), ("string_val", 29, "STRING", False, "")],
    "GlobalMetadata": [("version", 1, "STRING", False, ""), ("attr", 2, "MESSAGE", True, "AttributeProto")],
    "Node": [("id", 1, "UINT64", False, ""), ("name", 2, "STRING", False, ""), ("type", 3, "INT32", False, ""),
             ("data_deps", 5, "UINT64", True, ""), ("attr", 10, "MESSAGE", True, "AttributeProto")],
}


def _messages() -> dict[str, Any]:
    """The classes of the messages, made from the table above; fields `..._val` are alternatives of one `oneof`."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise ImportError("a Chakra trace needs the package protobuf; pip install protobuf would be right") from None
    file = descriptor_pb2.FileDescriptorProto(name="spillway_chakra.proto", package="ChakraProtoMsg", syntax="proto3")
    for message, fields in _FIELDS.items():
        made = file.message_type.add(name=message)
        for name, number, kind, repeated, of in fields:
            made.field.add(name=name, number=number, type=descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}"),
                           label=descriptor_pb2.FieldDescriptorProto.Label.Value("LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"),
                           type_name=f".ChakraProtoMsg.{of}" if of else None)
            if name.endswith("_val"):
                made.field[-1].oneof_index = 0
        if message == "AttributeProto":
            made.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in _FIELDS}


def _write(out: BinaryIO, message: Any) -> None:
    """A message behind its length, seven bits a byte."""
    content = message.SerializeToString()
    length = len(content)
    while length > 127:
        out.write(bytes([length & 127 | 128]))
        length >>= 7
    out.write(bytes([length]) + content)


class _Rank:
    """The nodes of one rank, written as they come."""

    def __init__(self, out: BinaryIO, messages: dict[str, Any]):
        self.out, self.messages = out, messages
        self.next, self.before, self.now = 0, [], []

    def node(self, kind: int, name: str, size: int, source: int, target: int, tag: int) -> None:
        node = self.messages["Node"](id=self.next, name=name, type=kind, data_deps=self.before)
        node.attr.add(name="is_cpu_op", bool_val=False)
        node.attr.add(name="comm_size", int64_val=size)
        for attribute, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", tag)):
            node.attr.add(name=attribute, int32_val=value)
        _write(self.out, node)
        self.now.append(self.next)
        self.next += 1

    def end_phase(self) -> None:
        """What comes next waits for what was written since the last call; a phase without traffic is none."""
        if self.now:
            self.before, self.now = self.now, []


def _read(result: str | os.PathLike, row: int) -> tuple[dict[str, Any], Any]:
    """The row of the summary, and its [ranks][members] bytes."""
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{result}: reading it needs the package h5py; pip install h5py would be right") from None
    with h5py.File(result) as file:
        if "link_bytes" not in file:
            raise ValueError(f"{result} has no link_bytes: it is no result of `spillway replay --output`, or has more than 65536 pairs")
        rows = json.loads(file["summary_json"].asstr()[()])["rows"]
        if not 0 <= row < len(rows):
            raise ValueError(f"row {row}: {result} has the rows 0 to {len(rows) - 1}")
        return rows[row], file["link_bytes"][row]


def write_chakra(result: str | os.PathLike, folder: str | os.PathLike, row: int = 0, name: str = "moe") -> list[pathlib.Path]:
    """Writes folder/NAME.RANK.et for every rank of a row of a result, and returns their paths. A file appears when it is whole."""
    of_row, links = _read(result, row)
    messages, traffic, members = _messages(), of_row["traffic"], links.shape[1]
    there = traffic["dispatch_bytes_per_gpu"]
    back = traffic["combine_bytes_per_gpu"] / there if there else 0.0
    folder, paths = pathlib.Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(links.shape[0]):
        first, own = rank // members * members, rank % members
        sends, receives = links[rank], links[first:first + members, own]
        path = folder / f"{name}.{rank}.et"
        with open(path.with_suffix(".partial"), "wb") as out:
            head = messages["GlobalMetadata"](version=_VERSION)
            head.attr.add(name="source", string_val=f"spillway, {of_row['scheme']}, exchanges of a forward pass")
            _write(out, head)
            written = _Rank(out, messages)
            for layer in range(int(of_row["layers"])):
                for phase, (what, going, coming) in enumerate((("dispatch", sends, receives), ("combine", receives * back, sends * back))):
                    tag = 2 * layer + phase
                    for member in range(members):
                        other = first + member
                        if round(going[member]) > 0:
                            written.node(SEND, f"layer {layer} {what} to {other}", round(going[member]), rank, other, tag)
                        if round(coming[member]) > 0:
                            written.node(RECEIVE, f"layer {layer} {what} from {other}", round(coming[member]), other, rank, tag)
                    written.end_phase()
        os.replace(path.with_suffix(".partial"), path)
        paths.append(path)
    return paths


def main() -> int:
    """python -m spillway_moe.chakra RESULT.h5 FOLDER [--row N]"""
    parser = argparse.ArgumentParser(prog="python -m spillway_moe.chakra", description=__doc__.splitlines()[0])
    parser.add_argument("result", metavar="RESULT.h5")
    parser.add_argument("folder")
    parser.add_argument("--row", type=int, default=0, help="position in the result's rows (default: 0)")
    asked = parser.parse_args()
    try:
        paths = write_chakra(asked.result, asked.folder, asked.row)
    except (ImportError, OSError, ValueError) as error:
        print(f"spillway_moe.chakra: {error}", file=sys.stderr)
        return 2
    print(f"wrote {len(paths)} files, {paths[0]} to {paths[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
