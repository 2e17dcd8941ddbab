"""Local, framework-neutral operations. In go tensors of one device and stream; out come their slices, joins,
reductions and casts there.

Lifecycle: transforms create them wherever values are cut, joined or combined (resharding, microbatching, accumulation);
projection keeps them, without placement, in the rank programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import I64, AnyFloat, DenseArrayBase, IntegerAttr, StringAttr, TensorType, TupleType, i64
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import RationalAttr, on_device, placed, placement
from distir.dialects.dist.checks import dim_property, replaced, tensor_type, verify_concatenable, verify_same_types, verify_shape
from distir.dialects.dist.communication import ScheduleEffect
from distir.dialects.reductions import Reduction, ReductionAttr


def verify_one_place(op: IRDLOperation) -> None:
    """Operands and results of a local op share one device and stream (or none is placed)."""
    values = [*op.operands, *op.results]
    ons = [placement(v.type) for v in values]
    for i, on in enumerate(ons[1:], start=1):
        if on != ons[0]:
            what = f"operand {i}" if i < len(op.operands) else f"result {i - len(op.operands)}"
            raise VerifyException(f"expected all values on {ons[0]}, got {what} on {on}")


class LocalOp(IRDLOperation):
    """Base: one device and stream, no communication."""

    traits = traits_def(Pure())

    def verify_(self) -> None:
        verify_one_place(self)
        self.verify_shapes()

    def verify_shapes(self) -> None:
        """Subclass hook: shapes, after the placement was checked."""


@irdl_op_definition
class SliceOp(LocalOp):
    """A contiguous part of a tensor: `%y = dist.slice %x [0:4, 2:6] : T0 -> T1`. Allocates its result."""

    name = "dist.slice"
    input = operand_def(TensorType)
    starts = prop_def(DenseArrayBase[I64])
    stops = prop_def(DenseArrayBase[I64])
    output = result_def(TensorType)

    def __init__(self, input: SSAValue, ranges: Sequence[tuple[int, int]]):
        type_ = tensor_type(input)
        shape = [stop - start for start, stop in ranges]
        super().__init__(
            operands=[input],
            result_types=[TensorType(type_.element_type, shape, type_.encoding)],
            properties={
                "starts": DenseArrayBase.from_list(i64, [start for start, _ in ranges]),
                "stops": DenseArrayBase.from_list(i64, [stop for _, stop in ranges]),
            },
        )

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Per dim, the half-open range that is kept."""
        bounds = zip(self.starts.get_values(), self.stops.get_values(), strict=True)
        return tuple((int(start), int(stop)) for start, stop in bounds)

    def verify_shapes(self) -> None:
        shape = tensor_type(self.input).get_shape()
        if len(self.starts) != len(self.stops):
            raise VerifyException(f"expected {len(self.starts)} stops, one per start, got {len(self.stops)}")
        if len(self.ranges) != len(shape):
            raise VerifyException(f"expected {len(shape)} ranges, got {len(self.ranges)}")
        for i, ((start, stop), extent) in enumerate(zip(self.ranges, shape, strict=True)):
            if not 0 <= start <= stop <= extent:
                raise VerifyException(f"dim {i}: range {start}:{stop} is outside 0:{extent}")
        extents = [stop - start for start, stop in self.ranges]
        verify_shape(self.output, extents, tensor_type(self.input).element_type, "the result")

    @classmethod
    def parse(cls, parser: Parser) -> SliceOp:
        operand = parser.parse_unresolved_operand()

        def parse_range() -> tuple[int, int]:
            start = parser.parse_integer()
            parser.parse_punctuation(":")
            return start, parser.parse_integer()

        ranges = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_range)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        input_type = parser.parse_type()
        parser.parse_punctuation("->")
        result_type = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, input_type)],
            result_types=[result_type],
            properties={
                "starts": DenseArrayBase.from_list(i64, [start for start, _ in ranges]),
                "stops": DenseArrayBase.from_list(i64, [stop for _, stop in ranges]),
            },
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.input)
        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(self.ranges, lambda r: printer.print_string(f"{r[0]}:{r[1]}"))
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.input.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.output.type)


@irdl_op_definition
class InsertOp(LocalOp):
    """A tensor with part of one dim replaced, in its memory: `%y = dist.insert %part into %x dim 0 at 4 : T0, T1`. Nothing uses `%x` after it."""

    name = "dist.insert"
    input = operand_def(TensorType)
    part = operand_def(TensorType)
    dim = prop_def(IntegerAttr[I64])
    start = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = "$part `into` $input `dim` $dim `at` $start attr-dict `:` type($part) `,` type($input) `->` type($output)"

    def __init__(self, part: SSAValue, input: SSAValue, dim: int, start: int):
        super().__init__(
            operands=[input, part],
            result_types=[input.type],
            properties={"dim": dim_property(dim), "start": dim_property(start)},
        )

    def verify_shapes(self) -> None:
        verify_same_types([self.input, self.output], "result")
        dim, whole, part = self.dim.value.data, tensor_type(self.input), tensor_type(self.part)
        if not 0 <= dim < whole.get_num_dims():
            raise VerifyException(f"expected a dim in 0..{whole.get_num_dims() - 1}, got {dim}")
        extent = part.get_shape()[dim] if part.get_num_dims() > dim else 0
        verify_shape(self.part, replaced(whole.get_shape(), dim, extent), whole.element_type, "the part")
        start, stop = self.start.value.data, self.start.value.data + extent
        if not 0 <= start <= stop <= whole.get_shape()[dim]:
            raise VerifyException(f"dim {dim}: range {start}:{stop} is outside 0:{whole.get_shape()[dim]}")


@irdl_op_definition
class ConcatOp(LocalOp):
    """Tensors joined along `dim`, in operand order. Allocates its result."""

    name = "dist.concat"
    inputs = var_operand_def(TensorType)
    dim = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = "$inputs `dim` $dim attr-dict `:` functional-type($inputs, $output)"

    def __init__(self, inputs: Sequence[SSAValue], dim: int):
        first = tensor_type(inputs[0])
        total = sum([tensor_type(v).get_shape()[dim] for v in inputs])
        super().__init__(
            operands=[inputs],
            result_types=[TensorType(first.element_type, replaced(first.get_shape(), dim, total), first.encoding)],
            properties={"dim": dim_property(dim)},
        )

    def verify_shapes(self) -> None:
        if not self.operands:
            raise VerifyException("expected at least one operand, got 0")
        dim, first = self.dim.value.data, tensor_type(self.operands[0])
        total = verify_concatenable(self.operands, dim, "operand")
        verify_shape(self.output, replaced(first.get_shape(), dim, total), first.element_type, "the result")


@irdl_op_definition
class AccumulateOp(LocalOp):
    """Elementwise sum, mean, max, min or product: how a partial value leaves a time axis. Of one operand it is that: where devices may reduce their addends of it
    (`sum-gradients`)."""

    name = "dist.accumulate"
    reduction = prop_def(ReductionAttr)
    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    assembly_format = "$reduction $inputs attr-dict `:` functional-type($inputs, $output)"

    def __init__(self, inputs: Sequence[SSAValue], reduction: Reduction = Reduction.SUM):
        super().__init__(
            operands=[inputs],
            result_types=[inputs[0].type],
            properties={"reduction": ReductionAttr(reduction)},
        )

    def verify_shapes(self) -> None:
        if not self.operands:
            raise VerifyException("expected at least one operand, got 0")
        verify_same_types([*self.operands, self.output], "value")


@irdl_op_definition
class ZerosOp(LocalOp):
    """A tensor of zeros: what the other shards hold when a replicated value becomes a partial sum."""

    name = "dist.zeros"
    output = result_def(TensorType)
    assembly_format = "attr-dict `:` type($output)"

    def __init__(self, result_type: Attribute):
        super().__init__(result_types=[result_type])


@irdl_op_definition
class FirstOnlyOp(LocalOp):
    """The value on the first device along an axis of its group, zeros on the others: how what they all have becomes a partial sum along
    the axis: `%y = dist.first_only %x over "tp" : T -> T`."""

    name = "dist.first_only"
    input = operand_def(TensorType)
    over = prop_def(StringAttr)
    output = result_def(TensorType)
    assembly_format = "$input `over` $over attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, axis: str):
        super().__init__(operands=[input], result_types=[input.type], properties={"over": StringAttr(axis)})

    def verify_shapes(self) -> None:
        verify_same_types([self.input, self.output], "value")
        on = placement(self.input.type)
        if on is None or on.count == 1:
            raise VerifyException(f"expected a value of a group of devices, got {self.input.type}")


@irdl_op_definition
class ScaleOp(LocalOp):
    """A tensor times an exact factor: `%y = dist.scale %x by 1/3 : T`. Turns a mean over equal shards, or a replicated
    value, into a partial sum."""

    name = "dist.scale"
    input = operand_def(TensorType)
    factor = prop_def(RationalAttr)
    output = result_def(TensorType)

    def __init__(self, input: SSAValue, numerator: int, denominator: int):
        super().__init__(
            operands=[input],
            result_types=[input.type],
            properties={"factor": RationalAttr((numerator, denominator))},
        )

    def verify_shapes(self) -> None:
        verify_same_types([self.input, self.output], "value")

    @classmethod
    def parse(cls, parser: Parser) -> ScaleOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("by")
        factor = RationalAttr(RationalAttr.parse_fraction(parser))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, type_)],
            result_types=[type_],
            properties={"factor": factor},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.input)
        printer.print_string(f" by {self.factor.data[0]}/{self.factor.data[1]}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.output.type)


@irdl_op_definition
class CastOp(LocalOp):
    """A tensor in another element type, rounded to nearest: `%y = dist.cast %x : T0 -> T1`. `gradient-type` puts them around what is added up and
    reduced in a type of its own; where `dist.addends` is set, a reduction over replicas comes after the cast, not before it."""

    name = "dist.cast"
    input = operand_def(TensorType)
    output = result_def(TensorType)
    assembly_format = "$input attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, element_type: AnyFloat):
        type_ = tensor_type(input)
        super().__init__(operands=[input], result_types=[TensorType(element_type, type_.get_shape(), type_.encoding)])

    def verify_shapes(self) -> None:
        verify_shape(self.output, tensor_type(self.input).get_shape(), tensor_type(self.output).element_type, "the result")
        for value, what in ((self.input, "operand"), (self.output, "result")):
            if not isinstance(element := tensor_type(value).element_type, AnyFloat):
                raise VerifyException(f"expected {what} of floating elements, got {element}")


def verify_elements(tuple_type: TupleType, elements: Sequence[SSAValue], what: str) -> None:
    types, expected = [v.type for v in elements], list(tuple_type.types.data)
    if expected != types:
        raise VerifyException(f"expected {what} of types {list(map(str, expected))}, got {list(map(str, types))}")
    if any(isinstance(t, TupleType) for t in types):
        raise VerifyException("expected tensors as tuple elements, got a nested tuple")


@irdl_op_definition
class PackOp(LocalOp):
    """Values as one tuple: a view, which costs nothing. All elements are on one device and stream."""

    name = "dist.pack"
    inputs = var_operand_def(TensorType)
    output = result_def(TupleType)
    assembly_format = "$inputs attr-dict `:` functional-type($inputs, $output)"

    def __init__(self, inputs: Sequence[SSAValue]):
        super().__init__(operands=[inputs], result_types=[self.packed_type([v.type for v in inputs])])

    @staticmethod
    def packed_type(types: Sequence[Attribute]) -> TupleType:
        """The type of a tuple of values of these types."""
        return TupleType(tuple(cast(TypeAttribute, type_) for type_ in types))

    def verify_shapes(self) -> None:
        verify_elements(self.output.type, self.operands, "operands")


@irdl_op_definition
class UnpackOp(LocalOp):
    """The elements of a tuple: a view, which costs nothing (the paper's UnpackTuple)."""

    name = "dist.unpack"
    input = operand_def(TupleType)
    outputs = var_result_def(TensorType)
    assembly_format = "$input attr-dict `:` functional-type($input, $outputs)"

    def __init__(self, input: SSAValue):
        super().__init__(operands=[input], result_types=[list(cast(TupleType, input.type).types.data)])

    def verify_shapes(self) -> None:
        verify_elements(cast(TupleType, self.input.type), self.results, "results")


@irdl_op_definition
class MoveOp(IRDLOperation):
    """Takes a value to another stream of its device: a view that costs nothing; the target stream waits for the source
    (an event record and wait). The only way across streams: `%y = dist.move %x : T0 -> T1`."""

    name = "dist.move"
    input = operand_def(TensorType | TupleType)
    output = result_def(TensorType | TupleType)
    traits = traits_def(ScheduleEffect())
    assembly_format = "$input attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, stream: str):
        on = placement(input.type)
        target = None if on is None else on_device(on.device, stream, on.count)
        super().__init__(operands=[input], result_types=[placed(input.type, target)])

    def verify_(self) -> None:
        source, target = placement(self.input.type), placement(self.output.type)
        if source is None or target is None:
            raise VerifyException("expected a placed operand and result")
        if source.devices != target.devices:
            raise VerifyException(f"expected the result on device {source.device}, got {target.device}: use dist.send")
        if source == target:
            raise VerifyException(f"expected another stream, got {source} on both sides")
        verify_same_types([self.input, self.output], "result")
