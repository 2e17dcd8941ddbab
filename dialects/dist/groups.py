"""Operations over a group of devices that do the same (`#dist.on<0:8>`). In goes an operation, written once for the
group; out come its properties on each device, from an attribute that lists the differing ones.

Lifecycle: `apply-sharding` writes programs over groups, the module keeps its mesh; `expand-ranks` writes one operation per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import ParametrizedAttribute, irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

BY_RANK = "dist.by_rank"
"""On an operation over a group: its properties that differ from device to device."""


@irdl_attr_definition
class ByRankAttr(ParametrizedAttribute):
    """Properties of an operation over a group that differ along some axes of its mesh, for each combination of coordinates, the last
    axis fastest: `#dist.by_rank<["tp"], [{start = 0 : i64}, {start = 4 : i64}]>`. The operation itself has those of the first device."""

    name = "dist.by_rank"
    axis_names: ArrayAttr[StringAttr]
    entries: ArrayAttr[DictionaryAttr]

    def __init__(self, axes: Sequence[str], entries: Sequence[Mapping[str, Attribute]]):
        super().__init__(ArrayAttr(map(StringAttr, axes)), ArrayAttr([DictionaryAttr(dict(e)) for e in entries]))

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.axis_names.data)

    def at(self, coordinates: Mapping[str, int], sizes: Mapping[str, int]) -> Mapping[str, Attribute]:
        """The properties of the device at these coordinates of a mesh with axes of these sizes."""
        index = 0
        for axis in self.axes:
            index = index * sizes[axis] + coordinates[axis]
        return self.entries.data[index].data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            axes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_str_literal)
            parser.parse_punctuation(",")
            entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_attribute)
        return ArrayAttr(map(StringAttr, axes)), ArrayAttr(entries)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            with printer.in_square_brackets():
                printer.print_list(self.axes, printer.print_string_literal)
            printer.print_string(", ")
            printer.print_attribute(self.entries)

    @classmethod
    def of(cls, sizes: Mapping[str, int], entries: Sequence[Mapping[str, Attribute]]) -> ByRankAttr | None:
        """That of devices in the order of a mesh with axes of these sizes, by as few axes as say it; None if all are the same."""
        table = dict(zip(product(*map(range, sizes.values())), entries, strict=True))
        kept: list[int] = []
        for i in range(len(sizes)):
            if any(entry != table[(*at[:i], 0, *at[i + 1 :])] for at, entry in table.items()):
                kept.append(i)
        if not kept:
            return None
        axes = [axis for i, axis in enumerate(sizes) if i in kept]
        return cls(axes, [entry for at, entry in table.items() if all(n == 0 or i in kept for i, n in enumerate(at))])


def by_rank(op: Operation) -> ByRankAttr | None:
    """What of an operation over a group differs from device to device."""
    found = op.attributes.get(BY_RANK)
    return found if isinstance(found, ByRankAttr) else None


def vary(op: Operation, sizes: Mapping[str, int], entries: Sequence[Mapping[str, Attribute]]) -> None:
    """Says which of these properties of an operation differ from device to device of a mesh; it has those of the first."""
    first = entries[0]
    names = [name for name in first if any(entry[name] != first[name] for entry in entries)]
    if names:
        found = ByRankAttr.of(sizes, [{name: entry[name] for name in names} for entry in entries])
        assert found is not None
        op.attributes[BY_RANK] = found


def check_by_rank(op: Operation, sizes: Mapping[str, int]) -> None:
    """Raises VerifyException unless what an operation says of its devices fits a mesh with axes of these sizes, and the operation."""
    if (each := op.attributes.get(BY_RANK)) is None:
        return
    if not isinstance(each, ByRankAttr):
        raise VerifyException(f"expected {BY_RANK} to be #dist.by_rank<...>, got {each}")
    for axis in each.axes:
        if axis not in sizes:
            raise VerifyException(f'the mesh has no axis "{axis}"')
    if len(each.entries.data) != (n := prod(sizes[axis] for axis in each.axes)):
        raise VerifyException(f"expected {n} entries of {BY_RANK}, one per device along its axes, got {len(each.entries)}")
    for entry in each.entries.data:
        if unknown := sorted(set(entry.data).difference(op.properties)):
            raise VerifyException(f"{BY_RANK} names {unknown[0]}, which {op.name} does not have")
    own = op.properties
    try:
        for entry in each.entries.data:
            op.properties = {**own, **entry.data}
            op.verify_()
    finally:
        op.properties = own
