"""The reference executor's `dist`. In go an op and the concrete arrays of all devices (level 3); out come its
results. Rank programs (level 4) keep the local ops. The device of a value does not matter here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import TensorType, TupleType, UnrealizedConversionCastOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute

from distir.dialects.dist import (
    AccumulateOp,
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    BatchRowsOp,
    BroadcastOp,
    CallOp,
    CastOp,
    ConcatOp,
    ExchangeOp,
    GatherOp,
    InsertOp,
    MicrobatchesOp,
    MoveOp,
    PackOp,
    PutRowsOp,
    ReduceOp,
    ReduceScatterOp,
    ScaleOp,
    ScatterOp,
    SendOp,
    SliceOp,
    TakeRowsOp,
    UnpackOp,
    ZerosOp,
)
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.onnx import numpy_dtype
from distir.interpreters import collectives
from distir.interpreters.walk import Enter, EnterEach, Walk


def extents(types: Sequence[Attribute], dim: int, place: int = 0) -> list[int]:
    """The extent of one dim in each of these tensor types, in tuples of the element at a place."""
    tensors = [t.types.data[place] if isinstance(t, TupleType) else t for t in types]
    return [cast(TensorType[Any], t).get_shape()[dim] for t in tensors]


def _range(op: TakeRowsOp, microbatch: int, rows: int) -> tuple[slice, ...]:
    """The rows of a microbatch, in an array of all."""
    dim = op.dim.value.data
    return (slice(None),) * dim + (slice(microbatch * rows, (microbatch + 1) * rows),)


@register_impls
class CommunicationFunctions(InterpreterFunctions):
    """Operations over several devices."""

    arrays: Any = collectives
    """What they do to values: a module, or an object with its functions."""

    @impl(SendOp)
    def send(self, interpreter: Interpreter, op: SendOp, args: PythonValues) -> PythonValues:
        return args

    @impl(AllReduceOp)
    def allreduce(self, interpreter: Interpreter, op: AllReduceOp, args: PythonValues) -> PythonValues:
        return tuple(self.arrays.by_element(lambda _, x: self.arrays.allreduce(op.reduction.data, x), args))

    @impl(AllGatherOp)
    def allgather(self, interpreter: Interpreter, op: AllGatherOp, args: PythonValues) -> PythonValues:
        return tuple(self.arrays.by_element(lambda _, x: self.arrays.allgather(op.dim.value.data, x), args))

    @impl(ReduceScatterOp)
    def reducescatter(self, interpreter: Interpreter, op: ReduceScatterOp, args: PythonValues) -> PythonValues:
        reduction, dim, types = op.reduction.data, op.dim.value.data, op.result_types
        return tuple(
            self.arrays.by_element(
                lambda place, x: self.arrays.reducescatter(reduction, dim, x, extents(types, dim, place)), args
            )
        )

    @impl(AllToAllOp)
    def alltoall(self, interpreter: Interpreter, op: AllToAllOp, args: PythonValues) -> PythonValues:
        split = op.split.value.data
        return tuple(self.arrays.alltoall(split, op.concat.value.data, args, extents(op.result_types, split)))

    @impl(ExchangeOp)
    def exchange(self, interpreter: Interpreter, op: ExchangeOp, args: PythonValues) -> PythonValues:
        return tuple(self.arrays.exchange(op.dim.value.data, args, op.windows))

    @impl(BroadcastOp)
    def broadcast(self, interpreter: Interpreter, op: BroadcastOp, args: PythonValues) -> PythonValues:
        return args * len(op.results)

    @impl(ScatterOp)
    def scatter(self, interpreter: Interpreter, op: ScatterOp, args: PythonValues) -> PythonValues:
        dim = op.dim.value.data
        return tuple(self.arrays.scatter(dim, args[0], extents(op.result_types, dim)))

    @impl(GatherOp)
    def gather(self, interpreter: Interpreter, op: GatherOp, args: PythonValues) -> PythonValues:
        return (self.arrays.concatenate(args, axis=op.dim.value.data),)

    @impl(ReduceOp)
    def reduce(self, interpreter: Interpreter, op: ReduceOp, args: PythonValues) -> PythonValues:
        return (self.arrays.reduce(op.reduction.data, args),)


@register_impls
class LocalFunctions(InterpreterFunctions):
    """Operations on one device."""

    @impl(MoveOp)
    def move(self, interpreter: Interpreter, op: MoveOp, args: PythonValues) -> PythonValues:
        return args

    @impl(SliceOp)
    def slice(self, interpreter: Interpreter, op: SliceOp, args: PythonValues) -> PythonValues:
        # a copy, as on a device: the whole may go
        return (np.ascontiguousarray(args[0][tuple(slice(start, stop) for start, stop in op.ranges)]),)

    @impl(TakeRowsOp)
    def take_rows(self, interpreter: Interpreter, op: TakeRowsOp, args: PythonValues) -> PythonValues:
        whole, microbatch = args
        (rows,) = extents(op.result_types, op.dim.value.data)
        return (np.ascontiguousarray(whole[_range(op, microbatch, rows)]),)

    @impl(BatchRowsOp)
    def batch_rows(self, interpreter: Interpreter, op: BatchRowsOp, args: PythonValues) -> PythonValues:
        return args

    @impl(PutRowsOp)
    def put_rows(self, interpreter: Interpreter, op: PutRowsOp, args: PythonValues) -> PythonValues:
        whole, rows, microbatch = args
        result, outer = np.array(whole), (slice(None),) * op.dim.value.data
        for start, stop, at in op.moves(microbatch):
            result[(*outer, slice(at, at + stop - start))] = rows[(*outer, slice(start, stop))]
        return (result,)

    @impl(InsertOp)
    def insert(self, interpreter: Interpreter, op: InsertOp, args: PythonValues) -> PythonValues:
        whole, part = args
        dim, start = op.dim.value.data, op.start.value.data
        result = np.array(whole)
        result[(slice(None),) * dim + (slice(start, start + part.shape[dim]),)] = part
        return (result,)

    @impl(ConcatOp)
    def concat(self, interpreter: Interpreter, op: ConcatOp, args: PythonValues) -> PythonValues:
        return (np.concatenate(args, axis=op.dim.value.data),)

    @impl(AccumulateOp)
    def accumulate(self, interpreter: Interpreter, op: AccumulateOp, args: PythonValues) -> PythonValues:
        return (collectives.reduce(op.reduction.data, args),)

    @impl(LocalIndexOp)
    def local_index(self, interpreter: Interpreter, op: LocalIndexOp, args: PythonValues) -> PythonValues:
        start, stop, extent = op.range
        if op.ignored is not None:
            inside = (args[0] >= start) & (args[0] < stop)
            return (np.where(inside, args[0] - start, op.ignored.value.data).astype(args[0].dtype),)
        counted = np.where(args[0] < 0, args[0] + extent, args[0])
        return (np.clip(counted - start, 0, stop - start - 1).astype(args[0].dtype),)

    @impl(InsideOp)
    def inside(self, interpreter: Interpreter, op: InsideOp, args: PythonValues) -> PythonValues:
        start, stop, extent = op.range
        counted = np.where(args[1] < 0, args[1] + extent, args[1])
        mask = ((counted >= start) & (counted < stop)).reshape(op.mask_shape)
        return (np.where(mask, args[0], args[2] if op.otherwise is not None else np.zeros((), args[0].dtype)),)

    @impl(ZerosOp)
    def zeros(self, interpreter: Interpreter, op: ZerosOp, args: PythonValues) -> PythonValues:
        type_ = cast(TensorType[Any], op.output.type)
        return (np.zeros(type_.get_shape(), numpy_dtype(type_.element_type)),)

    @impl(ScaleOp)
    def scale(self, interpreter: Interpreter, op: ScaleOp, args: PythonValues) -> PythonValues:
        numerator, denominator = op.factor.data
        return (args[0] * numerator / denominator,)

    @impl(CastOp)
    def cast(self, interpreter: Interpreter, op: CastOp, args: PythonValues) -> PythonValues:
        return args  # every result is made of the type that the program says

    @impl(PackOp)
    def pack(self, interpreter: Interpreter, op: PackOp, args: PythonValues) -> PythonValues:
        return (args,)

    @impl(UnrealizedConversionCastOp)
    def bundle(self, interpreter: Interpreter, op: UnrealizedConversionCastOp, args: PythonValues) -> PythonValues:
        return (args,) if len(op.results) == 1 else args[0]  # what several devices have, as one (`ranks.explicit`)

    @impl(UnpackOp)
    def unpack(self, interpreter: Interpreter, op: UnpackOp, args: PythonValues) -> PythonValues:
        return tuple(args[0])


@register_impls
class CallFunctions(InterpreterFunctions):
    """Calls run the callee; which devices it is placed on does not change what it computes."""

    @impl(CallOp)
    def call(self, interpreter: Interpreter, op: CallOp, args: PythonValues) -> PythonValues:
        return (Enter(op.callee_name, args),)

    @impl(func.CallOp)
    def call_in_place(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        return (Enter(op.callee.string_value(), args),)

    @impl(MicrobatchesOp)
    def microbatches(self, interpreter: Interpreter, op: MicrobatchesOp, args: PythonValues) -> PythonValues:
        same, name = len(op.same), op.callee.string_value()
        counters = len(cast(Walk, interpreter).function(name).args) - len(args)
        return (EnterEach(name, args[:same], args[same:], op.times, counters),)
