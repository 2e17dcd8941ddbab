"""Interns attributes and arrays. In goes an attribute or small array; out comes one object for all equal ones, so
that lookups compare no contents. The mixed domain remembers the results of operations by it. Regions are told apart by what they say."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FloatData
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, Region, SSAValue

from distir.interpreters.model_names import NAMES

LARGEST_COMPARED = 1024
"""Arrays of more elements are told apart as objects."""


class Shared:
    """One object for all equal attributes and all equal small arrays, so that they are compared as objects."""

    def __init__(self) -> None:
        self._of_object: dict[int, Any] = {}
        self._of_content: dict[Hashable, Any] = {}
        self._kept: list[Any] = []

    def value(self, value: Any) -> Any:
        """The object that stands for this value."""
        found = self._of_object.get(id(value), self)
        if found is not self:
            return found
        self._kept.append(value)  # an object that is gone would lend its id to another
        shared = value
        if isinstance(value, Attribute):
            shared = self._of_content.setdefault(self._content(value), value)
        elif isinstance(value, np.ndarray) and value.size <= LARGEST_COMPARED and value.dtype.kind != "O":
            array = cast("np.ndarray[Any, Any]", value)
            shared = self._of_content.setdefault((array.dtype.str, array.shape, array.tobytes()), array)
        self._of_object[id(value)] = shared
        return shared

    def number(self, value: Any) -> int:
        """Equal for values that share an object."""
        return id(self.value(value))

    def _content(self, value: Attribute) -> Hashable:
        """Equal for equal attributes, of which the two zeros are different ones."""
        match value:
            case ParametrizedAttribute():
                return type(value), *map(self.number, value.parameters)
            case ArrayAttr():
                return type(value), *map(self.number, value.data)
            case FloatData():
                return type(value), value.data.hex()
            case _:
                return type(value), value


def texts_of_regions(op: Operation) -> tuple[str, ...]:
    """What the regions of an operation say: equal where they do the same, whatever values are called. Values are numbered as they are met, those from
    outside too."""
    numbers: dict[SSAValue, int] = {}

    def values(several: Iterable[SSAValue]) -> str:
        return ", ".join([f"%{numbers.setdefault(value, len(numbers))}: {value.type}" for value in several])

    def said(each: Operation) -> str:
        notes = sorted((n, a) for n, a in each.attributes.items() if n not in NAMES and not n.startswith("dist."))
        stated = ", ".join([f"{n} = {a}" for n, a in (*sorted(each.properties.items()), *notes)])
        inner = "".join(map(region, each.regions))
        return f"{each.name}({values(each.operands)}) {{{stated}}} {inner}-> {values(each.results)}"

    def region(one: Region) -> str:
        return f"({' '.join([f'[{values(block.args)}] ' + '; '.join(map(said, block.ops)) for block in one.blocks])}) "

    return tuple(map(region, op.regions))
