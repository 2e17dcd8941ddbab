"""Schemas of ATen operators. In goes `schemas.txt`; out come each operator's arguments, results and marks, without
importing torch.

A line is split into name and signature at once; the signature is read when the operator is first met, so that loading
the dialect costs milliseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_ARGUMENT = re.compile(r"(?P<type>\S+) (?P<name>\w+)(?:=(?P<default>.*))?")
_ALIAS = re.compile(r"\([a-z!*> -]+\)")

UNPLACED = frozenset({"Device", "Layout", "MemoryFormat", "Generator", "Storage", "Stream", "Dimname"})
"""Types of arguments that say where a value lives or how its memory is laid out."""
UNPLACED_NAMES = frozenset({"pin_memory", "non_blocking"})
UNDECLARED_VIEWS = frozenset({"_unsafe_view", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"})
"""Operators that give memory of their operand and do not say so, since autograd is not to know."""


@dataclass(frozen=True)
class Argument:
    """A formal argument; `type` is torch's without marks of aliasing (`Tensor`, `int[]`, `ScalarType`), `optional` and
    `items_optional` where it may be None, or hold None."""

    name: str
    type: str
    optional: bool
    items_optional: bool
    default: str | None
    keyword_only: bool
    aliased: bool

    @property
    def is_tensor(self) -> bool:
        return self.type in ("Tensor", "Tensor[]")

    @property
    def is_list(self) -> bool:
        return self.type.endswith("[]")

    @property
    def is_placement(self) -> bool:
        """Whether it is no part of the operation (see the dialect)."""
        return self.type.removesuffix("[]") in UNPLACED or self.name in UNPLACED_NAMES


class Schema:
    """One overload: `qualified_name` as in `add.Tensor`, `mm`; `is_random` if it draws random numbers, `is_loops` if it does a few flops for
    each element that it reads or writes."""

    def __init__(self, line: str):
        marks, _, rest = line.partition("aten::")
        self.is_random, self.is_loops = (mark in marks for mark in ("random ", "loops "))
        self.text = f"aten::{rest}"
        head = self.text.partition("(")[0].removeprefix("aten::")
        self.packet, _, overload = head.partition(".")
        self.overload = overload or "default"
        self.qualified_name = head

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        inside = self.text[self.text.index("(") + 1 : self._end()]
        found: list[Argument] = []
        keyword_only = False
        for part in _split(inside):
            if part == "*":
                keyword_only = True
            else:
                found.append(_argument(part, keyword_only))
        return tuple(found)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The types of the results: `Tensor` or `Tensor[]`."""
        text = self.text[self._end() + 1 :].partition("->")[2].strip()
        parts = _split(text[1:-1]) if text.startswith("(") else [text]
        return tuple(_ALIAS.sub("", part).split(" ")[0] for part in parts)

    @cached_property
    def is_view(self) -> bool:
        """Whether its results share the memory of its first operand."""
        return self.packet in UNDECLARED_VIEWS or (
            "(a" in self.text[self._end() :] and bool(self.arguments) and self.arguments[0].aliased
        )

    def _end(self) -> int:
        """Where the list of arguments ends."""
        return self.text.index(") -> ")


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket and no quotes."""
    parts, depth, quoted, start = list[str](), 0, "", 0
    for i, character in enumerate(text):
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "\"'":
            quoted = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def _argument(text: str, keyword_only: bool) -> Argument:
    plain = _ALIAS.sub("", text, count=1) if "(" in text.partition(" ")[0] else text
    match = _ARGUMENT.fullmatch(plain)
    assert match is not None, text
    type_ = re.sub(r"\[\d+\]", "[]", match["type"]).replace("SymInt", "int").replace("NoneType", "Tensor")
    optional = type_.endswith("?")
    type_ = type_.removesuffix("?")
    items_optional = type_.endswith("?[]")
    type_ = type_.replace("?[]", "[]")
    return Argument(match["name"], type_, optional, items_optional, match["default"], keyword_only, plain != text)


def _load() -> dict[str, Schema]:
    lines = Path(__file__).with_name("schemas.txt").read_text("utf-8").splitlines()[1:]
    return {schema.qualified_name: schema for schema in map(Schema, lines)}


SCHEMAS = _load()
"""The operators by qualified name."""
