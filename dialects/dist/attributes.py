"""Attributes of placed programs: where a value lives (`#dist.on`), which part of a global array it is
(`#dist.part`), and an exact factor (`1/3`). In goes a type; out comes its placement, or the type on other devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, NoneAttr, StringAttr, TensorType, TupleType
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
    `#dist.on<0:8>` is a tensor of this type on each of the devices 0 to 7, a group whose devices do the same: they are those of
    the mesh, in its order.

    Device numbers are local to the function: 0..n-1 of its group (machine devices in the entry only)."""

    name = "dist.on"
    device_id: IntAttr = param_def(converter=lambda x: IntAttr(x) if isinstance(x, int) else x)
    stream_name: StringAttr = param_def(converter=lambda x: StringAttr(x) if isinstance(x, str) else x)
    device_count: IntAttr = param_def(converter=lambda x: IntAttr(x) if isinstance(x, int) else x)

    def __init__(self, device: int, stream: str = MAIN_STREAM, count: int = 1):
        super().__init__(IntAttr(device), StringAttr(stream), IntAttr(count))

    @property
    def device(self) -> int:
        """The device, of a group the first."""
        return self.device_id.data

    @property
    def count(self) -> int:
        """How many devices have such a tensor; 1 unless it is a group's."""
        return self.device_count.data

    @property
    def devices(self) -> range:
        return range(self.device, self.device + self.count)

    @property
    def stream(self) -> str:
        return self.stream_name.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            device = parser.parse_integer(allow_boolean=False)
            stop = parser.parse_integer(allow_boolean=False) if parser.parse_optional_punctuation(":") else device + 1
            stream = parser.parse_str_literal() if parser.parse_optional_punctuation(",") else MAIN_STREAM
        return (IntAttr(device), StringAttr(stream), IntAttr(stop - device))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_int(self.device)
            if self.count > 1:
                printer.print_string(f":{self.devices.stop}")
            if self.stream != MAIN_STREAM:
                printer.print_string(", ")
                printer.print_string_literal(self.stream)

    def verify(self) -> None:
        if self.device < 0:
            raise VerifyException(f"expected a device number of at least 0, got {self.device}")
        if self.count < 1:
            raise VerifyException(f"expected at least one device, got {self.device}:{self.devices.stop}")


Range = tuple[int, int]


@irdl_attr_definition
class PartAttr(ParametrizedAttribute):
    """Which part of a global array an entry argument or result is: `#dist.part<[0:4, 0:8] of [8, 8]>`.

    Each dim lists its half-open ranges; a dim cut in pieces has several, joined by `+` (`0:2 + 8:10`). With
    `, partial sum` the value is one addend of that part. Equal parts are replicas and must agree.

    Of a group's value it is the part of the first device, and `#dist.part<[0:4, 0:8] of [8, 8], "dp" + [4, 0]>` says that from one
    device to the next along axis "dp" the ranges of dim 0 are 4 higher."""

    name = "dist.part"
    ranges: ArrayAttr[ArrayAttr[IntAttr]]
    shape: ArrayAttr[IntAttr]
    partial: ReductionAttr | NoneAttr
    steps_along: DictionaryAttr

    def __init__(
        self,
        dims: Sequence[Sequence[Range]],
        shape: Sequence[int],
        partial: Reduction | None = None,
        steps: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ):
        super().__init__(
            ArrayAttr([ArrayAttr([IntAttr(bound) for r in ranges for bound in r]) for ranges in dims]),
            ArrayAttr([IntAttr(n) for n in shape]),
            NoneAttr() if partial is None else ReductionAttr(partial),
            DictionaryAttr({axis: ArrayAttr([IntAttr(n) for n in step]) for axis, step in steps.items()}),
        )

    @property
    def steps(self) -> dict[str, tuple[int, ...]]:
        """Of a group's value: for each axis of the mesh, per dim, how much higher the ranges of the next device along it are."""
        along = cast("dict[str, ArrayAttr[IntAttr]]", self.steps_along.data)
        return {axis: tuple(n.data for n in step) for axis, step in along.items()}

    def at(self, coordinates: Mapping[str, int]) -> PartAttr:
        """The part of the device at these coordinates of the mesh."""
        shifts = [0] * len(self.shape.data)
        for axis, step in self.steps.items():
            shifts = [n + coordinates[axis] * each for n, each in zip(shifts, step, strict=True)]
        dims = [[(a + n, b + n) for a, b in dim] for dim, n in zip(self.dims, shifts, strict=True)]
        return PartAttr(dims, self.global_shape, self.reduction)

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
            steps: dict[str, Attribute] = {}
            while parser.parse_optional_punctuation(","):
                if parser.parse_optional_keyword("partial"):
                    partial = ReductionAttr(parser.parse_str_enum(Reduction))
                    continue
                axis = parser.parse_str_literal()
                parser.parse_punctuation("+")
                step = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                steps[axis] = ArrayAttr([IntAttr(n) for n in step])
        return (ArrayAttr(ranges), ArrayAttr([IntAttr(n) for n in shape]), partial, DictionaryAttr(steps))

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
            for axis, step in self.steps.items():
                printer.print_string(f', "{axis}" + {list(step)}')

    def verify(self) -> None:
        if len(self.dims) != len(self.global_shape):
            raise VerifyException(f"expected {len(self.global_shape)} dims, got {len(self.dims)}")
        for i, (dim, size) in enumerate(zip(self.dims, self.global_shape, strict=True)):
            previous = 0
            for start, stop in dim:
                if not previous <= start <= stop <= size:
                    raise VerifyException(f"dim {i}: range {start}:{stop} does not fit after {previous} in {size}")
                previous = stop
        for axis, step in self.steps.items():
            if len(step) != len(self.dims):
                raise VerifyException(f'axis "{axis}": expected {len(self.dims)} steps, one per dim, got {len(step)}')


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
def on_device(device: int, stream: str = MAIN_STREAM, count: int = 1) -> OnAttr:
    """The interned placement, on one device or a group that begins with it."""
    return OnAttr(device, stream, count)


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
    """This type with its local device i renamed to `devices[i]`; stream names are kept. A group stays in order."""
    on = placement(type_)
    return type_ if on is None else placed(type_, on_device(devices[on.device], on.stream, on.count))
