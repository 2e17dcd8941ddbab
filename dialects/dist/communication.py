"""Communication: operations over several devices, each starting when all of its participants are free. In go the
participants' tensors; out come a send's or collective's results on its receivers.

Lifecycle of every op here: `apply-sharding`, `dtp-parallelize` and hand-written programs create them at level 3;
`project-to-rank` turns each into the matching `rank` op of every participant; none is left at level 4.
Operand i belongs to participant i and results keep that order (DistIR, section 2.1: synchronous on all participants).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, StringAttr, TensorType, TupleType, i64
from xdsl.ir import Attribute, Operation, SSAValue
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
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.attributes import OnAttr, placement
from distir.dialects.dist.checks import (
    device_array,
    device_on,
    dim_property,
    elements,
    replaced,
    tensor_type,
    verify_concatenable,
    verify_same_types,
    verify_shape,
)
from distir.dialects.reductions import Reduction, ReductionAttr


class ScheduleEffect(MemoryEffect):
    """Part of the schedule: cse, dce and code motion leave it alone."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.WRITE)}


@irdl_custom_directive
class Devices(CustomDirective):
    """A device list, `[0, 1]`, kept as an i64 array property."""

    devices: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        self.devices.set(state, DenseArrayBase.from_list(i64, values))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        with printer.in_square_brackets():
            values = cast(DenseArrayBase[I64], self.devices.get(op)).get_values()
            printer.print_list(values, lambda d: printer.print_int(int(d)))
        state.last_was_punctuation = False
        state.should_emit_space = True


class CommunicationOp(IRDLOperation, ABC):
    """A send or collective. Subclasses verify shapes in `verify_shapes`; participants are verified here."""

    traits = traits_def(ScheduleEffect())

    @property
    def participants(self) -> list[OnAttr]:
        """Placements of operands and results without repeats: the streams that this op occupies, in order."""
        ons = [placement(v.type) for v in (*self.operands, *self.results)]
        return list(dict.fromkeys(on for on in ons if on is not None))

    def verify_(self) -> None:
        for what, values in (("operand", self.operands), ("result", self.results)):
            seen: dict[int, int] = {}
            for i, value in enumerate(values):
                device = device_on(value, f"{what} {i}").device
                if device in seen:
                    raise VerifyException(
                        f"expected distinct participants, got {what}s {seen[device]} and {i} both on device {device}"
                    )
                seen[device] = i
        self.verify_shapes()

    def verify_shapes(self) -> None:
        """Subclass hook: shapes and listed devices, after the participants were found placed and distinct."""

    def verify_pairwise(self) -> None:
        """Result i is on the device and stream of operand i."""
        if len(self.operands) != len(self.results):
            n = len(self.operands)
            raise VerifyException(f"expected {n} results, one per participant, got {len(self.results)}")
        for i, (operand, result) in enumerate(zip(self.operands, self.results, strict=True)):
            if (want := placement(operand.type)) != (got := placement(result.type)):
                raise VerifyException(f"expected result {i} on {want}, where operand {i} is, got {got}")

    def verify_listed(self, listed: Sequence[int], values: Sequence[SSAValue]) -> None:
        """The printed device list equals the devices of these values."""
        got = [device_on(v, "value").device for v in values]
        if list(listed) != got:
            raise VerifyException(f"expected results on devices {list(listed)}, got {got}")


@irdl_op_definition
class SendOp(CommunicationOp):
    """Moves one tensor to another device: `%r = dist.send %a to 1 : T0 -> T1`. Both ends are busy until it is done. From a group to
    another, each device sends to that of its place."""

    name = "dist.send"
    input = operand_def(TensorType)
    to = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = "$input `to` $to attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, result_type: Attribute):
        super().__init__(operands=[input], result_types=[result_type], properties={"to": device_property(result_type)})

    def verify_shapes(self) -> None:
        here, there = device_on(self.input, "operand"), device_on(self.output, "result")
        source, target = here.device, there.device
        if here.count != there.count or (here.count > 1 and set(here.devices) & set(there.devices)):
            raise VerifyException(f"expected a send between groups of equal size and no common device, got {here} and {there}")
        if source == target:
            raise VerifyException(f"a send to its own device {source}: use the value itself")
        if target != self.to.value.data:
            raise VerifyException(f"expected the result on device {self.to.value.data}, got {target}")
        verify_same_types([self.input, self.output], "result")


class CollectiveOp(CommunicationOp, ABC):
    """A collective of n participants with one operand and one result each.

    `over "tp"` is one of the devices of a group that lie along an axis of the mesh, by each such line of devices: one operand and one
    result, which each device has (`#dist.on<0:8>`). `check-module` compares extents with the size of the axis."""

    inputs = var_operand_def(TensorType | TupleType)
    outputs = var_result_def(TensorType | TupleType)
    TAKES_TUPLES: ClassVar[bool] = False
    """Whether operands and results may be tuples: one message of several tensors, each of which is treated as if it were alone."""

    @property
    def axis(self) -> str | None:
        """The axis along which devices of a group communicate, if it is one of a group."""
        over = self.properties.get("over")
        return over.data if isinstance(over, StringAttr) else None

    def verify_(self) -> None:
        if not self.operands:
            raise VerifyException("expected at least one participant, got 0")
        grouped = any(device_on(v, "value").count > 1 for v in (*self.operands, *self.results))
        if grouped != (self.axis is not None):
            raise VerifyException(f"expected {'an axis: over which one' if grouped else 'no axis'} the devices communicate")
        if grouped and (len(self.operands), len(self.results)) != (1, 1):
            raise VerifyException(f"expected one operand and one result over an axis, got {len(self.operands)} operands")
        tuples = (v.type for v in (*self.operands, *self.results) if isinstance(v.type, TupleType))
        if not self.TAKES_TUPLES and (found := next(tuples, None)) is not None:
            raise VerifyException(f"expected a tensor, got {found}")
        super().verify_()

    def verify_shapes(self) -> None:
        if self.TAKES_TUPLES:
            self.verify_pairwise()
            for types in elements([v.type for v in (*self.operands, *self.results)]):
                self.verify_tensors(types[: len(self.operands)], types[len(self.operands) :])

    def verify_tensors(self, operands: Sequence[Attribute], results: Sequence[Attribute]) -> None:
        """Subclass hook of what takes tuples: the tensors, of tuples those of one place in each."""

    def check_axis(self, size: int) -> None:
        """Raises VerifyException unless extents fit an axis of this size."""
        for types in elements([self.operands[0].type, self.results[0].type]):
            operand, result = (tensor_type(each).get_shape() for each in types)
            if (expected := self.shape_over(operand, size)) != tuple(result):
                raise VerifyException(
                    f'expected the result over "{self.axis}" of shape {list(expected)}, got {list(result)}'
                )

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        """Subclass hook: the result's shape over an axis of this size."""
        raise VerifyException(f"{self.name} is not known over an axis")


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Every participant gets the reduction of all operands: `%r0, %r1 = dist.allreduce sum %p0, %p1 : ...`. Of tuples, element by
    element, in one message."""

    name = "dist.allreduce"
    TAKES_TUPLES: ClassVar[bool] = True
    reduction = prop_def(ReductionAttr)
    over = opt_prop_def(StringAttr)
    assembly_format = "$reduction $inputs (`over` $over^)? attr-dict `:` functional-type($inputs, $outputs)"

    def __init__(self, inputs: Sequence[SSAValue], reduction: Reduction = Reduction.SUM):
        super().__init__(
            operands=[inputs],
            result_types=[[v.type for v in inputs]],
            properties={"reduction": ReductionAttr(reduction)},
        )

    def verify_tensors(self, operands: Sequence[Attribute], results: Sequence[Attribute]) -> None:
        verify_same_types([*operands, *results], "value")

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return tuple(shape)


@irdl_op_definition
class AllGatherOp(CollectiveOp):
    """Every participant gets all operands, concatenated on `dim` in participant order. Extents may differ. Of tuples, element by element."""

    name = "dist.allgather"
    TAKES_TUPLES: ClassVar[bool] = True
    dim = prop_def(IntegerAttr[I64])
    over = opt_prop_def(StringAttr)
    assembly_format = "$inputs `dim` $dim (`over` $over^)? attr-dict `:` functional-type($inputs, $outputs)"

    def __init__(self, inputs: Sequence[SSAValue], dim: int, result_types: Sequence[Attribute]):
        super().__init__(operands=[inputs], result_types=[result_types], properties={"dim": dim_property(dim)})

    def verify_tensors(self, operands: Sequence[Attribute], results: Sequence[Attribute]) -> None:
        dim, first = self.dim.value.data, tensor_type(operands[0])
        total = verify_concatenable(operands, dim, "operand")
        for i, result in enumerate(results):
            if self.axis is not None:
                total = _extent(result, dim)
            verify_shape(result, replaced(first.get_shape(), dim, total), first.element_type, f"result {i}")

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return replaced(shape, self.dim.value.data, shape[self.dim.value.data] * size)


@irdl_op_definition
class ReduceScatterOp(CollectiveOp):
    """Participant i gets the i-th part, along `dim`, of the reduction of all operands. Of tuples, element by element."""

    name = "dist.reducescatter"
    TAKES_TUPLES: ClassVar[bool] = True
    reduction = prop_def(ReductionAttr)
    dim = prop_def(IntegerAttr[I64])
    over = opt_prop_def(StringAttr)
    assembly_format = (
        "$reduction $inputs `dim` $dim (`over` $over^)? attr-dict `:` functional-type($inputs, $outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        dim: int,
        result_types: Sequence[Attribute],
        reduction: Reduction = Reduction.SUM,
    ):
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            properties={"reduction": ReductionAttr(reduction), "dim": dim_property(dim)},
        )

    def verify_tensors(self, operands: Sequence[Attribute], results: Sequence[Attribute]) -> None:
        verify_same_types(operands, "operand")
        dim, first = self.dim.value.data, tensor_type(operands[0])
        total = verify_concatenable(results, dim, "result")
        for i, result in enumerate(results):
            extent = tensor_type(result).get_shape()[dim]
            verify_shape(result, replaced(first.get_shape(), dim, extent), first.element_type, f"result {i}")
        if self.axis is None and total != first.get_shape()[dim]:
            raise VerifyException(f"expected the results' dim {dim} to sum to {first.get_shape()[dim]}, got {total}")

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        return _cut(shape, self.dim.value.data, size)


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Each participant cuts its operand along `split`, sends part i to participant i, and concatenates what it receives
    along `concat` in participant order. Extents may differ: part i is as long as result i."""

    name = "dist.alltoall"
    split = prop_def(IntegerAttr[I64])
    concat = prop_def(IntegerAttr[I64])
    over = opt_prop_def(StringAttr)
    assembly_format = (
        "$inputs `split` $split `concat` $concat (`over` $over^)? attr-dict `:` functional-type($inputs, $outputs)"
    )

    def __init__(self, inputs: Sequence[SSAValue], split: int, concat: int, result_types: Sequence[Attribute]):
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            properties={"split": dim_property(split), "concat": dim_property(concat)},
        )

    def verify_shapes(self) -> None:
        self.verify_pairwise()
        split, concat, n = self.split.value.data, self.concat.value.data, len(self.operands)
        first = tensor_type(self.operands[0])
        shape = first.get_shape()
        for what, dim in (("split", split), ("concat", concat)):
            if not 0 <= dim < len(shape):
                raise VerifyException(f"expected a {what} dim in 0..{len(shape) - 1}, got {dim}")
        if self.axis is not None:
            if tensor_type(self.results[0]).get_num_dims() != len(shape):
                raise VerifyException(f"expected a result of rank {len(shape)}")
            return
        if split == concat:  # parts of a dim change their order: all are alike
            verify_same_types([*self.operands, *self.results], "value")
            if shape[split] % n:
                raise VerifyException(f"expected dim {split} divisible by {n} participants, got {shape[split]}")
            return
        whole = replaced(shape, concat, verify_concatenable(self.operands, concat, "operand"))
        for i, result in enumerate(self.results):
            got = tensor_type(result).get_shape()
            extent = got[split] if len(got) == len(whole) else 0
            verify_shape(result, replaced(whole, split, extent), first.element_type, f"result {i}")
        parts = [tensor_type(result).get_shape()[split] for result in self.results]
        if sum(parts) != shape[split]:
            raise VerifyException(f"expected the results' dim {split} to sum to {shape[split]}, got {sum(parts)}")

    def shape_over(self, shape: Sequence[int], size: int) -> tuple[int, ...]:
        split, concat = self.split.value.data, self.concat.value.data
        cut = _cut(shape, split, size)
        return replaced(cut, concat, cut[concat] * size)


def _extent(value: Attribute, dim: int) -> int:
    shape = tensor_type(value).get_shape()
    return shape[dim] if dim < len(shape) else 0


def _cut(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    """A shape of which one dim is cut evenly."""
    if shape[dim] % size:
        raise VerifyException(f"expected dim {dim} divisible by {size} devices, got {shape[dim]}")
    return replaced(shape, dim, shape[dim] // size)


class OneToManyOp(CommunicationOp, ABC):
    """One operand on the root, one result per listed device."""

    input = operand_def(TensorType)
    to = prop_def(DenseArrayBase[I64])
    outputs = var_result_def(TensorType)
    custom_directives: ClassVar[tuple[type[CustomDirective], ...]] = (Devices,)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(int(d) for d in self.to.get_values())


@irdl_op_definition
class BroadcastOp(OneToManyOp):
    """Copies the root's tensor to each listed device (the root included if listed)."""

    name = "dist.broadcast"
    assembly_format = "$input `to` custom<Devices>($to) attr-dict `:` functional-type($input, $outputs)"

    def __init__(self, input: SSAValue, result_types: Sequence[Attribute]):
        super().__init__(operands=[input], result_types=[result_types], properties={"to": device_array(result_types)})

    def verify_shapes(self) -> None:
        self.verify_listed(self.devices, self.results)
        verify_same_types([self.input, *self.results], "value")


@irdl_op_definition
class ScatterOp(OneToManyOp):
    """Cuts the root's tensor along `dim` and gives part i to the i-th listed device. Extents may differ."""

    name = "dist.scatter"
    dim = prop_def(IntegerAttr[I64])
    assembly_format = "$input `dim` $dim `to` custom<Devices>($to) attr-dict `:` functional-type($input, $outputs)"

    def __init__(self, input: SSAValue, dim: int, result_types: Sequence[Attribute]):
        super().__init__(
            operands=[input],
            result_types=[result_types],
            properties={"to": device_array(result_types), "dim": dim_property(dim)},
        )

    def verify_shapes(self) -> None:
        self.verify_listed(self.devices, self.results)
        if not self.results:
            raise VerifyException("expected at least one receiver, got 0")
        dim, part = self.dim.value.data, tensor_type(self.results[0])
        total = verify_concatenable(self.results, dim, "result")
        whole = replaced(part.get_shape(), dim, total)
        verify_shape(self.input, whole, part.element_type, "the operand, the sum of its parts,")


def device_property(type_: Attribute) -> IntegerAttr[Any]:
    on = placement(type_)
    return dim_property(-1 if on is None else on.device)


class ManyToOneOp(CommunicationOp, ABC):
    """One operand per participant, one result, on device `to`."""

    inputs = var_operand_def(TensorType)
    to = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)

    def verify_(self) -> None:
        if not self.operands:
            raise VerifyException("expected at least one participant, got 0")
        super().verify_()
        self.verify_listed([self.to.value.data], [self.output])


@irdl_op_definition
class GatherOp(ManyToOneOp):
    """Concatenates all operands along `dim`, in participant order, on device `to`."""

    name = "dist.gather"
    dim = prop_def(IntegerAttr[I64])
    assembly_format = "$inputs `dim` $dim `to` $to attr-dict `:` functional-type($inputs, $output)"

    def __init__(self, inputs: Sequence[SSAValue], dim: int, result_type: Attribute):
        super().__init__(
            operands=[inputs],
            result_types=[result_type],
            properties={"dim": dim_property(dim), "to": device_property(result_type)},
        )

    def verify_shapes(self) -> None:
        dim, first = self.dim.value.data, tensor_type(self.operands[0])
        total = verify_concatenable(self.operands, dim, "operand")
        verify_shape(self.output, replaced(first.get_shape(), dim, total), first.element_type, "the result")


@irdl_op_definition
class ReduceOp(ManyToOneOp):
    """Reduces all operands onto device `to`."""

    name = "dist.reduce"
    reduction = prop_def(ReductionAttr)
    assembly_format = "$reduction $inputs `to` $to attr-dict `:` functional-type($inputs, $output)"

    def __init__(self, inputs: Sequence[SSAValue], result_type: Attribute, reduction: Reduction = Reduction.SUM):
        super().__init__(
            operands=[inputs],
            result_types=[result_type],
            properties={
                "reduction": ReductionAttr(reduction),
                "to": device_property(result_type),
            },
        )

    def verify_shapes(self) -> None:
        verify_same_types([*self.operands, self.output], "value")
