"""A heap profile in the form that pprof reads: a gzipped protocol buffer, github.com/google/pprof's profile.proto.

The messages are described here, by the numbers and types of that file, for the fields that a heap profile has; the
protobuf library makes classes of the description.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from tslab.errors import LabError
from tslab.sites import CLOSING, PLAIN, STATES, HeapProfile
from tslab.symbolize import Frame, Mapping, Place, Symbolizer

SAMPLE_TYPES = (
    ("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"),
)  # fmt: skip
DROPPED = r"(tslab_.*|front_.*|malloc|calloc|realloc|aligned_alloc|posix_memalign|memalign|operator new.*)"

# Message, and its fields: name, number, type; a type with a capital letter is a message, * stands for repeated.
_MESSAGES: dict[str, Sequence[tuple[str, int, str]]] = {
    "ValueType": (("type", 1, "int64"), ("unit", 2, "int64")),
    "Label": (("key", 1, "int64"), ("str", 2, "int64"), ("num", 3, "int64"), ("num_unit", 4, "int64")),
    "Sample": (("location_id", 1, "*uint64"), ("value", 2, "*int64"), ("label", 3, "*Label")),
    "Mapping": (
        ("id", 1, "uint64"), ("memory_start", 2, "uint64"), ("memory_limit", 3, "uint64"), ("file_offset", 4, "uint64"),
        ("filename", 5, "int64"), ("build_id", 6, "int64"), ("has_functions", 7, "bool"), ("has_filenames", 8, "bool"),
        ("has_line_numbers", 9, "bool"), ("has_inline_frames", 10, "bool"),
    ),
    "Line": (("function_id", 1, "uint64"), ("line", 2, "int64")),
    "Location": (("id", 1, "uint64"), ("mapping_id", 2, "uint64"), ("address", 3, "uint64"), ("line", 4, "*Line")),
    "Function": (("id", 1, "uint64"), ("name", 2, "int64"), ("system_name", 3, "int64"), ("filename", 4, "int64")),
    "Profile": (
        ("sample_type", 1, "*ValueType"), ("sample", 2, "*Sample"), ("mapping", 3, "*Mapping"),
        ("location", 4, "*Location"), ("function", 5, "*Function"), ("string_table", 6, "*string"),
        ("drop_frames", 7, "int64"), ("time_nanos", 9, "int64"), ("period_type", 11, "ValueType"),
        ("period", 12, "int64"), ("comment", 13, "*int64"), ("default_sample_type", 14, "int64"),
    ),
}  # fmt: skip
_PACKAGE = "perftools.profiles"


@cache
def message_class() -> Any:
    """The class of a whole profile."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise LabError("needs protobuf to write a pprof file: pip install protobuf") from error
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tslab/profile.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, type_ in fields:
            plain = type_.lstrip("*")
            added = message.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if type_ != plain else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if plain in _MESSAGES else getattr(kinds, f"TYPE_{plain.upper()}"),
            )
            if plain in _MESSAGES:
                added.type_name = f".{_PACKAGE}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.Profile")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)  # before 4.22


class _Writer:
    def __init__(self, profile: HeapProfile, symbolizer: Symbolizer) -> None:
        self.out = message_class()()
        self.out.string_table.append("")
        self._strings = {"": 0}
        self._symbolizer = symbolizer
        self._locations: dict[int, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._mappings: dict[Mapping, int] = {}
        for type_, unit in SAMPLE_TYPES:
            self.out.sample_type.add(type=self.string(type_), unit=self.string(unit))
        self.out.period_type.type, self.out.period_type.unit = self.string("space"), self.string("bytes")
        self.out.period = profile.interval_bytes
        self.out.default_sample_type = self.string("inuse_space")
        self.out.drop_frames = self.string(DROPPED)
        self.out.time_nanos = time.time_ns()
        for mapping in symbolizer.mappings:
            self._map(mapping)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self.out.string_table)
            self.out.string_table.append(text)
        return self._strings[text]

    def _map(self, mapping: Mapping) -> int:
        if mapping not in self._mappings:
            self._mappings[mapping] = len(self._mappings) + 1
            self.out.mapping.add(
                id=self._mappings[mapping], memory_start=mapping.start, memory_limit=mapping.end,
                file_offset=mapping.offset, filename=self.string(mapping.path),
                build_id=self.string(self._symbolizer.build_id(mapping)),
                has_functions=True, has_filenames=True, has_line_numbers=True, has_inline_frames=True,
            )  # fmt: skip
        return self._mappings[mapping]

    def _function(self, name: str, file: str) -> int:
        key = (name, file)
        if key not in self._functions:
            self._functions[key] = len(self._functions) + 1
            text = self.string(name)
            self.out.function.add(id=self._functions[key], name=text, system_name=text, filename=self.string(file))
        return self._functions[key]

    def location(self, place: Place) -> int:
        """Address 0 stands for a stack that could not be walked."""
        if place.address not in self._locations:
            self._locations[place.address] = len(self._locations) + 1
            mapping = self._map(place.mapping) if place.mapping else 0
            added = self.out.location.add(
                id=self._locations[place.address], mapping_id=mapping, address=max(place.address - 1, 0)
            )
            for frame in place.frames:
                added.line.add(function_id=self._function(frame.function, frame.file), line=frame.line)
        return self._locations[place.address]

    def sample(self, stack: Sequence[int], values: Sequence[int], labels: Sequence[tuple[str, str]]) -> None:
        places = self._symbolizer.callers(stack) or [Place(0, None, (Frame("(no stack)", "", 0),))]
        added = self.out.sample.add(location_id=[self.location(place) for place in places], value=values)
        for key, text in labels:
            added.label.add(key=self.string(key), str=self.string(text))


def encode(profile: HeapProfile, symbolizer: Symbolizer) -> bytes:
    """The allocations of a site are one sample without labels. Its live memory is one sample for each place that holds
    some."""
    symbolizer.learn(address for site in profile.sites for address in site.stack)
    writer = _Writer(profile, symbolizer)
    stacks = {site.number: site.stack for site in profile.sites}
    for site in profile.sites:
        if site.allocated_bytes:
            writer.sample(site.stack, (site.allocated_blocks, site.allocated_bytes, 0, 0), ())
    for holder in profile.holders:
        labels = [] if holder.state == PLAIN else [("epoch", holder.label or "(no label)")]
        labels.append(("state", STATES[holder.state]))
        if holder.state == CLOSING:
            labels.append(("epoch id", str(holder.epoch)))
        writer.sample(stacks.get(holder.site, ()), (0, 0, holder.blocks, holder.bytes), labels)
    return gzip.compress(writer.out.SerializeToString(), mtime=0)
