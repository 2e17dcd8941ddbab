"""The loop over microbatches: a call that runs a function once for each microbatch, and the operations by which its
body takes rows of the batch and puts rows of results together. In go whole values; out come the values carried from
microbatch to microbatch.

Lifecycle: `microbatch` creates them at level 2, `ilp-shard` and `apply-sharding` keep them, `pipeline-schedule` writes the loop out, so
that none is left at level 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, IndexType, IntegerAttr, SymbolRefAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
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

from distir.dialects.dist.attributes import placement
from distir.dialects.dist.checks import dim_property, replaced, tensor_type, verify_shape
from distir.dialects.dist.communication import ScheduleEffect
from distir.dialects.traits import ViewOfFirstOperand


@irdl_op_definition
class MicrobatchesOp(IRDLOperation):
    """Runs a function once per microbatch: `%s = dist.microbatches @f(%x, %w, %zero) times 4 : (A, B, C) -> C`.

    There are as many initial values, the last operands, as results. In microbatch k the function takes the other operands, which are the
    same every time, what is carried (in the first microbatch the initial values, then what it returned), and k itself, an index; of a placed
    function, one per device. The results are what the last microbatch returned. `check-module` verifies the function's type."""

    name = "dist.microbatches"
    callee = prop_def(SymbolRefAttr)
    count = prop_def(IntegerAttr[I64])
    arguments = var_operand_def()
    outputs = var_result_def()
    traits = traits_def(ScheduleEffect())

    def __init__(self, callee: str, same: Sequence[SSAValue], initial: Sequence[SSAValue], count: int):
        super().__init__(
            operands=[[*same, *initial]],
            result_types=[[v.type for v in initial]],
            properties={"callee": SymbolRefAttr(callee), "count": IntegerAttr(count, i64)},
        )

    @property
    def times(self) -> int:
        """How many microbatches there are."""
        return self.count.value.data

    @property
    def same(self) -> Sequence[SSAValue]:
        """What every microbatch takes."""
        return self.operands[: len(self.operands) - len(self.results)]

    @property
    def initial(self) -> Sequence[SSAValue]:
        """What the first microbatch takes as carried."""
        return self.operands[len(self.operands) - len(self.results) :]

    def verify_(self) -> None:
        if self.times < 1:
            raise VerifyException(f"expected at least one microbatch, got {self.times}")
        if len(self.operands) < len(self.results):
            raise VerifyException(f"expected an initial value for each of {len(self.results)} results")
        for i, (value, result) in enumerate(zip(self.initial, self.results, strict=True)):
            if value.type != result.type:
                raise VerifyException(f"result {i}: expected its initial value's type {value.type}, got {result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> MicrobatchesOp:
        callee = parser.parse_symbol_name()
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        parser.parse_keyword("times")
        count = parser.parse_integer()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(operands, types.inputs.data, position),
            result_types=types.outputs.data,
            properties={"callee": SymbolRefAttr(callee), "count": IntegerAttr(count, i64)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.callee.string_value())
        with printer.in_parens():
            printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(f" times {self.times}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)


class RowsOp(IRDLOperation):
    """Base: the rows of one microbatch, of equally many for each, and all rows, on one device."""

    dim = prop_def(IntegerAttr[I64])
    traits = traits_def(Pure())

    def verify_rows(self, rows: SSAValue, whole: SSAValue) -> None:
        """Raises VerifyException unless `rows` may be those of one microbatch of `whole`."""
        dim, type_ = self.dim.value.data, tensor_type(whole)
        if placement(rows.type) != placement(whole.type):
            raise VerifyException(f"expected rows on {placement(whole.type)}, got {placement(rows.type)}")
        if not 0 <= dim < type_.get_num_dims():
            raise VerifyException(f"expected a dim in 0..{type_.get_num_dims() - 1}, got {dim}")
        extent = tensor_type(rows).get_shape()[dim]
        verify_shape(rows, replaced(type_.get_shape(), dim, extent), type_.element_type, "rows")
        if extent < 1 or type_.get_shape()[dim] % extent:
            raise VerifyException(f"expected rows that divide {type_.get_shape()[dim]}, got {extent}")


@irdl_op_definition
class TakeRowsOp(RowsOp):
    """The rows of one microbatch: `%r = dist.take_rows %x at %k dim 0 : T0 -> T1`. Allocates its result."""

    name = "dist.take_rows"
    input = operand_def(TensorType)
    microbatch = operand_def(IndexType)
    output = result_def(TensorType)
    assembly_format = "$input `at` $microbatch `dim` $dim attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, microbatch: SSAValue, dim: int, count: int):
        type_ = tensor_type(input)
        shape = replaced(type_.get_shape(), dim, type_.get_shape()[dim] // count)
        super().__init__(
            operands=[input, microbatch],
            result_types=[TensorType(type_.element_type, shape, type_.encoding)],
            properties={"dim": dim_property(dim)},
        )

    def verify_(self) -> None:
        self.verify_rows(self.output, self.input)


@irdl_op_definition
class PutRowsOp(RowsOp):
    """A value with the rows of one microbatch replaced, in its memory: `%y = dist.put_rows %r into %x at %k dim 0 : T0, T1 -> T1`.
    Nothing uses `%x` after it. Of views that are concatenated (`dim 0 places 2`), each has its rows in its part of the dim."""

    name = "dist.put_rows"
    input = operand_def(TensorType)
    rows = operand_def(TensorType)
    microbatch = operand_def(IndexType)
    places = opt_prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = (
        "$rows `into` $input `at` $microbatch `dim` $dim (`places` $places^)? attr-dict `:` type($rows) `,` type($input) `->` type($output)"
    )

    def __init__(self, rows: SSAValue, input: SSAValue, microbatch: SSAValue, dim: int, places: int = 1):
        properties: dict[str, Attribute] = {"dim": dim_property(dim)}
        if places > 1:
            properties["places"] = dim_property(places)
        super().__init__(operands=[input, rows, microbatch], result_types=[input.type], properties=properties)

    def moves(self, microbatch: int) -> list[tuple[int, int, int]]:
        """Per place of the rows of a microbatch, what it has of the rows, and where in the whole that begins: start, stop, start."""
        dim, places = self.dim.value.data, self.places.value.data if self.places is not None else 1
        rows, whole = (tensor_type(v).get_shape()[dim] // places for v in (self.rows, self.input))
        return [(i * rows, (i + 1) * rows, i * whole + microbatch * rows) for i in range(places)]

    def verify_(self) -> None:
        self.verify_rows(self.rows, self.input)
        if self.places is not None:
            places, extent = self.places.value.data, tensor_type(self.rows).get_shape()[self.dim.value.data]
            if places < 1 or extent % places:
                raise VerifyException(f"expected a number of places that divides {extent} rows, got {places}")
        verify_shape(self.output, tensor_type(self.input).get_shape(), tensor_type(self.input).element_type, "the result")


@irdl_op_definition
class BatchRowsOp(IRDLOperation):
    """A value that is the same in every microbatch, as one of which each has its rows: `%y = dist.batch_rows %x dim 0 : T -> T`. The result is the operand.

    Lifecycle: `pipeline-stages` adds it for a constant or a mask that has a row for each of the batch's, `microbatch` has its rows taken in the
    loop and removes it. It is not pure: a constant is stated again by whatever uses it, and this is not."""

    name = "dist.batch_rows"
    dim = prop_def(IntegerAttr[I64])
    input = operand_def(TensorType)
    output = result_def(TensorType)
    traits = traits_def(ViewOfFirstOperand())
    assembly_format = "$input `dim` $dim attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, dim: int):
        super().__init__(operands=[input], result_types=[input.type], properties={"dim": dim_property(dim)})

    def verify_(self) -> None:
        verify_shape(self.output, tensor_type(self.input).get_shape(), tensor_type(self.input).element_type, "the result")
        if not 0 <= self.dim.value.data < tensor_type(self.input).get_num_dims():
            raise VerifyException(f"expected a dim of {self.input.type}, got {self.dim.value.data}")
