"""Attributes of placed programs: where a value lives (`#dist.on`), which part of a global array it is (`#dist.part`),
and how values combine (`sum`, `max`, ...). Also the few questions about placed types that every room asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, IntAttr, NoneAttr, StringAttr, TensorType, TupleType
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from distir.dialects.reductions import Reduction, ReductionAttr

MAIN_STREAM = ""


@irdl_attr_definition
class OnAttr(ParametrizedAttribute):
    """Placement of a tensor, as its encoding: `#dist.on<3>`, or `#dist.on<3, "comm">` for a second stream of device 3.

    Device numbers are local to the function: 0..n-1 of its group (machine devices in the entry only)."""

    name = "dist.on"
    device_id: IntAttr = param_def(converter=lambda x: IntAttr(x) if isinstance(x, int) else x)
    stream_name: StringAttr = param_def(converter=lambda x: StringAttr(x) if isinstance(x, str) else x)

    def __init__(self, device: int, stream: str = MAIN_STREAM):
        super().__init__(IntAttr(device), StringAttr(stream))

    @property
    def device(self) -> int:
        return self.device_id.data

    @property
    def stream(self) -> str:
        return self.stream_name.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            device = parser.parse_integer(allow_boolean=False)
            stream = parser.parse_str_literal() if parser.parse_optional_punctuation(",") else MAIN_STREAM
        return (IntAttr(device), StringAttr(stream))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_int(self.device)
            if self.stream != MAIN_STREAM:
                printer.print_string(", ")
                printer.print_string_literal(self.stream)

    def verify(self) -> None:
        if self.device < 0:
            raise VerifyException(f"expected a device number of at least 0, got {self.device}")


Range = tuple[int, int]


@irdl_attr_definition
class PartAttr(ParametrizedAttribute):
    """Which part of a global array an entry argument or result is: `#dist.part<[0:4, 0:8] of [8, 8]>`.

    Each dim lists its half-open ranges; a dim cut in pieces has several, joined by `+` (`0:2 + 8:10`). With
    `, partial sum` the value is one addend of that part. Equal parts are replicas and must agree."""

    name = "dist.part"
    ranges: ArrayAttr[ArrayAttr[IntAttr]]
    shape: ArrayAttr[IntAttr]
    partial: ReductionAttr | NoneAttr

    def __init__(self, dims: Sequence[Sequence[Range]], shape: Sequence[int], partial: Reduction | None = None):
        super().__init__(
            ArrayAttr([ArrayAttr([IntAttr(bound) for r in ranges for bound in r]) for ranges in dims]),
            ArrayAttr([IntAttr(n) for n in shape]),
            NoneAttr() if partial is None else ReductionAttr(partial),
        )

    @property
    def dims(self) -> tuple[tuple[Range, ...], ...]:
        """Per dim, the half-open ranges that this part covers, in order."""
        flat = [[bound.data for bound in dim.data] for dim in self.ranges.data]
        return tuple(tuple(zip(bounds[::2], bounds[1::2], strict=True)) for bounds in flat)

    @property
    def global_shape(self) -> tuple[int, ...]:
        return tuple(n.data for n in self.shape.data)

    @property
    def local_shape(self) -> tuple[int, ...]:
        return tuple(sum(stop - start for start, stop in dim) for dim in self.dims)

    @property
    def reduction(self) -> Reduction | None:
        return self.partial.data if isinstance(self.partial, ReductionAttr) else None

    @classmethod
    def whole(cls, shape: Sequence[int]) -> PartAttr:
        return cls([[(0, n)] for n in shape], shape)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def parse_range() -> list[IntAttr]:
            start = parser.parse_integer()
            parser.parse_punctuation(":")
            return [IntAttr(start), IntAttr(parser.parse_integer())]

        def parse_dim() -> ArrayAttr[IntAttr]:
            bounds = parse_range()
            while parser.parse_optional_punctuation("+"):
                bounds += parse_range()
            return ArrayAttr(bounds)

        with parser.in_angle_brackets():
            ranges = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_dim)
            parser.parse_keyword("of")
            shape = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            partial: Attribute = NoneAttr()
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("partial")
                partial = ReductionAttr(parser.parse_str_enum(Reduction))
        return (ArrayAttr(ranges), ArrayAttr([IntAttr(n) for n in shape]), partial)

    def print_parameters(self, printer: Printer) -> None:
        def print_dim(dim: tuple[Range, ...]) -> None:
            printer.print_string(" + ".join(f"{start}:{stop}" for start, stop in dim))

        with printer.in_angle_brackets():
            with printer.in_square_brackets():
                printer.print_list(self.dims, print_dim)
            printer.print_string(" of ")
            with printer.in_square_brackets():
                printer.print_list(self.global_shape, printer.print_int)
            if self.reduction is not None:
                printer.print_string(f", partial {self.reduction}")

    def verify(self) -> None:
        if len(self.dims) != len(self.global_shape):
            raise VerifyException(f"expected {len(self.global_shape)} dims, got {len(self.dims)}")
        for i, (dim, size) in enumerate(zip(self.dims, self.global_shape, strict=True)):
            previous = 0
            for start, stop in dim:
                if not previous <= start <= stop <= size:
                    raise VerifyException(f"dim {i}: range {start}:{stop} does not fit after {previous} in {size}")
                previous = stop


@irdl_attr_definition
class RationalAttr(Data[tuple[int, int]]):
    """An exact factor, `1/3`: what a local scale multiplies by."""

    name = "dist.rational"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, int]:
        with parser.in_angle_brackets():
            return cls.parse_fraction(parser)

    @staticmethod
    def parse_fraction(parser: AttrParser) -> tuple[int, int]:
        numerator = parser.parse_integer()
        parser.parse_punctuation("/")
        return (numerator, parser.parse_integer())

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.data[0]}/{self.data[1]}")

    def verify(self) -> None:
        if self.data[1] <= 0:
            raise VerifyException(f"expected a positive denominator, got {self.data[1]}")


def placement(type_: Attribute) -> OnAttr | None:
    """Where a value of this type lives; None if it is not placed. A tuple lives where its elements live."""
    if isinstance(type_, TensorType):
        encoding = cast(TensorType[Attribute], type_).encoding
        return encoding if isinstance(encoding, OnAttr) else None
    if isinstance(type_, TupleType):
        return next((on for t in type_.types.data if (on := placement(t)) is not None), None)
    return None


def placements(types: Iterable[Attribute]) -> list[OnAttr]:
    """The placements of all placed types among these, in order."""
    return [on for t in types if (on := placement(t)) is not None]


@cache
def on_device(device: int, stream: str = MAIN_STREAM) -> OnAttr:
    """The interned placement."""
    return OnAttr(device, stream)


@cache
def placed(type_: Attribute, on: OnAttr | None) -> Attribute:
    """This type on that device and stream; with None, the plain type of one rank or of a sequential program."""
    if isinstance(type_, TensorType):
        tensor = cast("TensorType[Any]", type_)
        return TensorType(tensor.element_type, tensor.shape, NoneAttr() if on is None else on)
    if isinstance(type_, TupleType):
        return TupleType(tuple(cast(TypeAttribute, placed(t, on)) for t in type_.types.data))
    return type_


def relocated(type_: Attribute, devices: Sequence[int]) -> Attribute:
    """This type with its local device i renamed to `devices[i]`; stream names are kept."""
    on = placement(type_)
    return type_ if on is None else placed(type_, on_device(devices[on.device], on.stream))
