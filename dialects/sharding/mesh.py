"""The mesh of an annotated module: named axes and their sizes, as an operation (`dist.mesh`) and an attribute
(`#dist.axes`)."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint
from xdsl.ir import Data
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, prop_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException


@irdl_attr_definition
class AxesAttr(Data[tuple[tuple[str, int], ...]]):
    """Named axes and their sizes, the last one fastest: `#dist.axes<["dp" = 2, "tp" = 4]>`."""

    name = "dist.axes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, int], ...]:
        def parse_axis() -> tuple[str, int]:
            axis = parser.parse_str_literal()
            parser.parse_punctuation("=")
            return axis, parser.parse_integer()

        with parser.in_angle_brackets():
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_axis))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("[" + ", ".join(f'"{axis}" = {size}' for axis, size in self.data) + "]")

    def verify(self) -> None:
        for axis, size in self.data:
            if size < 1:
                raise VerifyException(f'expected axis "{axis}" of size at least 1, got {size}')
        if len({axis for axis, _ in self.data}) != len(self.data):
            raise VerifyException(f"expected distinct axes, got {[axis for axis, _ in self.data]}")


@irdl_op_definition
class MeshOp(IRDLOperation):
    """The mesh of an annotated module: `dist.mesh @mesh = <["dp" = 2, "tp" = 4]>`.

    Lifecycle: a search or the user adds it, `apply-sharding` removes it and sets `dist.devices`."""

    name = "dist.mesh"
    sym_name = prop_def(SymbolNameConstraint())
    axes = prop_def(AxesAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(self, name: str, axes: Mapping[str, int]):
        super().__init__(properties={"sym_name": StringAttr(name), "axes": AxesAttr(tuple(axes.items()))})

    @property
    def axis_sizes(self) -> dict[str, int]:
        return dict(self.axes.data)

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        name = parser.parse_symbol_name()
        parser.parse_punctuation("=")
        axes = AxesAttr(AxesAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "axes": axes}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" = ")
        self.axes.print_parameter(printer)
        printer.print_op_attributes(self.attributes)
