"""Messages between two ranks, and collectives without a root. In goes this rank's tensor; out comes this rank's
result: every member of a collective has both, a sender and a receiver one each."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects.builtin import (
    I64,
    AnyTensorTypeConstr,
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    TensorType,
    TupleType,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    BaseAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.irdl.declarative_assembly_format import CustomDirective
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.checks import dim_property, elements, replaced, tensor_type, verify_shape
from distir.dialects.dist.communication import Devices, ScheduleEffect
from distir.dialects.reductions import Reduction, ReductionAttr

STREAM = "rank.stream"


class RankOp(IRDLOperation, ABC):
    """Base of all ops here: part of the schedule, so never removed or reordered."""

    traits = traits_def(ScheduleEffect())


@irdl_op_definition
class SendOp(RankOp):
    """Sends a tensor to a peer: `rank.send %x to 1 : T`."""

    name = "rank.send"
    input = operand_def(TensorType)
    peer = prop_def(IntegerAttr[I64])
    assembly_format = "$input `to` $peer attr-dict `:` type($input)"

    def __init__(self, input: SSAValue, peer: int):
        super().__init__(operands=[input], properties={"peer": dim_property(peer)})


@irdl_op_definition
class RecvOp(RankOp):
    """Receives a tensor from a peer: `%x = rank.recv from 0 : T`."""

    name = "rank.recv"
    peer = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = "`from` $peer attr-dict `:` type($output)"

    def __init__(self, peer: int, result_type: Attribute):
        super().__init__(result_types=[result_type], properties={"peer": dim_property(peer)})


@irdl_op_definition
class WaitOp(RankOp):
    """Makes a value available on another stream (an event record and wait): `%y = rank.wait %x on "comm" : T`."""

    name = "rank.wait"
    T: ClassVar = VarConstraint("T", AnyTensorTypeConstr | BaseAttr(TupleType))
    input = operand_def(T)
    stream = prop_def(StringAttr)
    output = result_def(T)
    assembly_format = "$input `on` $stream attr-dict `:` type($input)"

    def __init__(self, input: SSAValue, stream: str):
        super().__init__(operands=[input], result_types=[input.type], properties={"stream": StringAttr(stream)})


class GroupOp(RankOp, ABC):
    """A collective over `group`."""

    group = prop_def(DenseArrayBase[I64])
    custom_directives: ClassVar[tuple[type[CustomDirective], ...]] = (Devices,)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(int(r) for r in self.group.get_values())

    def verify_(self) -> None:
        if len(set(self.ranks)) != len(self.ranks):
            raise VerifyException(f"expected distinct ranks, got {list(self.ranks)}")
        self.verify_shapes()

    def verify_shapes(self) -> None:
        """Subclass hook."""


def group_array(ranks: Sequence[int]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, list(ranks))


def verify_dim(type_: TensorType[Any], dim: int) -> None:
    if not 0 <= dim < type_.get_num_dims():
        raise VerifyException(f"expected a dim in 0..{type_.get_num_dims() - 1}, got {dim}")


def verify_along(op: AllGatherOp | ReduceScatterOp | ExchangeOp, dim: int) -> None:
    """Operand and result agree but for the extent of `dim`; of tuples, each element."""
    for given, made in elements([op.input.type, op.output.type]):
        source, target = tensor_type(given), tensor_type(made)
        verify_dim(source, dim)
        if target.get_num_dims() != source.get_num_dims():
            raise VerifyException(f"expected the result of rank {source.get_num_dims()}, got {target.get_num_dims()}")
        expected = replaced(source.get_shape(), dim, target.get_shape()[dim])
        verify_shape(made, expected, source.element_type, "the result")


@irdl_op_definition
class AllReduceOp(GroupOp):
    """`%r = rank.allreduce sum %x group [0, 1] : T`; of a tuple, element by element, in one message."""

    name = "rank.allreduce"
    T: ClassVar = VarConstraint("T", AnyTensorTypeConstr | BaseAttr(TupleType))
    input = operand_def(T)
    reduction = prop_def(ReductionAttr)
    output = result_def(T)
    assembly_format = "$reduction $input `group` custom<Devices>($group) attr-dict `:` type($input)"

    def __init__(self, input: SSAValue, group: Sequence[int], reduction: Reduction):
        super().__init__(
            operands=[input],
            result_types=[input.type],
            properties={"group": group_array(group), "reduction": ReductionAttr(reduction)},
        )


@irdl_op_definition
class AllGatherOp(GroupOp):
    """`%r = rank.allgather %x dim 0 group [0, 1] : T -> U`; parts are in group order and their extents may differ. Of a tuple, element by
    element, in one message."""

    name = "rank.allgather"
    input = operand_def(TensorType | TupleType)
    dim = prop_def(IntegerAttr[I64])
    output = result_def(TensorType | TupleType)
    assembly_format = "$input `dim` $dim `group` custom<Devices>($group) attr-dict `:` type($input) `->` type($output)"

    def __init__(self, input: SSAValue, dim: int, group: Sequence[int], result_type: Attribute):
        super().__init__(
            operands=[input],
            result_types=[result_type],
            properties={"group": group_array(group), "dim": dim_property(dim)},
        )

    def verify_shapes(self) -> None:
        verify_along(self, self.dim.value.data)


@irdl_op_definition
class ReduceScatterOp(GroupOp):
    """`%r = rank.reducescatter sum %x dim 0 group [0, 1] : T -> U`; this rank keeps the part of its
    place in the group. Of a tuple, element by element, in one message."""

    name = "rank.reducescatter"
    input = operand_def(TensorType | TupleType)
    reduction = prop_def(ReductionAttr)
    dim = prop_def(IntegerAttr[I64])
    output = result_def(TensorType | TupleType)
    assembly_format = (
        "$reduction $input `dim` $dim `group` custom<Devices>($group) attr-dict `:` type($input) `->` type($output)"
    )

    def __init__(self, input: SSAValue, dim: int, group: Sequence[int], result_type: Attribute, reduction: Reduction):
        super().__init__(
            operands=[input],
            result_types=[result_type],
            properties={
                "group": group_array(group),
                "dim": dim_property(dim),
                "reduction": ReductionAttr(reduction),
            },
        )

    def verify_shapes(self) -> None:
        verify_along(self, self.dim.value.data)


@irdl_op_definition
class AllToAllOp(GroupOp):
    """`%r = rank.alltoall %x split 1 concat 0 group [0, 1] : T -> U`. Extents of the members may differ: part i is as long as
    member i's result."""

    name = "rank.alltoall"
    input = operand_def(TensorType)
    split = prop_def(IntegerAttr[I64])
    concat = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = (
        "$input `split` $split `concat` $concat `group` custom<Devices>($group) attr-dict"
        " `:` type($input) `->` type($output)"
    )

    def __init__(self, input: SSAValue, split: int, concat: int, group: Sequence[int], result_type: Attribute):
        super().__init__(
            operands=[input],
            result_types=[result_type],
            properties={"group": group_array(group), "split": dim_property(split), "concat": dim_property(concat)},
        )

    def verify_shapes(self) -> None:
        split, concat, n = self.split.value.data, self.concat.value.data, len(self.ranks)
        source = tensor_type(self.input)
        for dim in (split, concat):
            verify_dim(source, dim)
        shape, got = source.get_shape(), tensor_type(self.output).get_shape()
        if split == concat:
            if shape[split] % n:
                raise VerifyException(f"expected dim {split} divisible by {n} ranks, got {shape[split]}")
            verify_shape(self.output, shape, source.element_type, "the result")
            return
        if len(got) != len(shape) or got[split] > shape[split] or got[concat] < shape[concat]:
            raise VerifyException(f"expected a part of {list(shape)} along dim {split}, got {list(got)}")
        expected = replaced(replaced(shape, split, got[split]), concat, got[concat])
        verify_shape(self.output, expected, source.element_type, "the result")


@irdl_op_definition
class ExchangeOp(GroupOp):
    """`%r = rank.exchange %x dim 2 from 3 group [0, 1, 2] : T -> U`: members' parts follow each other along `dim`, and this rank gets
    what begins at index 3 of all of them and is as long as its result. Members' extents may differ."""

    name = "rank.exchange"
    input = operand_def(TensorType)
    dim = prop_def(IntegerAttr[I64])
    start = prop_def(IntegerAttr[I64])
    output = result_def(TensorType)
    assembly_format = (
        "$input `dim` $dim `from` $start `group` custom<Devices>($group) attr-dict `:` type($input) `->` type($output)"
    )

    def __init__(self, input: SSAValue, dim: int, start: int, group: Sequence[int], result_type: Attribute):
        super().__init__(
            operands=[input],
            result_types=[result_type],
            properties={"group": group_array(group), "dim": dim_property(dim), "start": dim_property(start)},
        )

    def verify_shapes(self) -> None:
        verify_along(self, self.dim.value.data)
        if self.start.value.data < 0:
            raise VerifyException(f"expected a start of at least 0, got {self.start.value.data}")
