"""One rank's program as lists of instructions over numbered slots: built once, run as often as asked.

A value's slot is emptied at its last use, and a call hands its arguments over, so that memory is freed as early as the
program allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue

from distir.backends.torch.collectives import Communicator
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.heartbeat import Heartbeat
from distir.backends.torch.operators import Compute, compile_operator
from distir.dialects.dist import AccumulateOp, ConcatOp, InsertOp, PackOp, ScaleOp, SliceOp, UnpackOp, ZerosOp
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.rank import RankOp
from distir.dialects.reductions import Reduction
from distir.interpreters.walk import values_read

_COMBINE: dict[Reduction, Callable[..., torch.Tensor]] = {
    Reduction.SUM: torch.add,
    Reduction.MEAN: torch.add,
    Reduction.MAX: torch.maximum,
    Reduction.MIN: torch.minimum,
    Reduction.PROD: torch.mul,
}


class Instruction(NamedTuple):
    """One operation: what it computes, the slots it reads and writes, and the slots that are empty after it. The heartbeat knows it by
    its site."""

    name: str
    site: int
    compute: Compute
    operands: tuple[int, ...]
    results: tuple[int, ...]
    last_uses: tuple[int, ...]
    unused: tuple[int, ...]


class Function:
    """A compiled function. Calling it consumes the list of arguments."""

    def __init__(
        self,
        name: str,
        instructions: list[Instruction],
        slots: int,
        results: tuple[int, ...],
        beat: memoryview | list[int],
    ) -> None:
        self.name, self.instructions, self.slots, self.results, self.beat = name, instructions, slots, results, beat

    def __call__(self, arguments: list[Any]) -> list[Any]:
        values: list[Any] = [*arguments, *[None] * (self.slots - len(arguments))]
        arguments.clear()
        beat = self.beat
        for instruction in self.instructions:
            beat[0] = instruction.site
            operands = [values[i] for i in instruction.operands]
            for i in instruction.last_uses:
                values[i] = None
            try:
                produced = instruction.compute(operands)
            except Exception as error:
                raise _located(error, instruction.name, self.name) from error
            for i, value in zip(instruction.results, produced, strict=False):
                values[i] = value
            for i in instruction.unused:
                values[i] = None
            del operands, produced
        return [values[i] for i in self.results]


class LocatedError(DistirError):
    """An error of one operation, with its place."""


def _located(error: Exception, operation: str, function: str) -> LocatedError:
    if isinstance(error, LocatedError):
        return error
    return LocatedError(f"{operation} in @{function}: {error or type(error).__name__}")


class Program:
    """All functions of a module, compiled as they are first called."""

    def __init__(
        self,
        module: ModuleOp,
        types: ElementTypes,
        device: torch.device,
        communicator: Communicator | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.types, self.device, self.communicator, self.heartbeat = types, device, communicator, heartbeat
        self._sources = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
        self._compiled: dict[str, Function] = {}

    def function(self, name: str) -> Function:
        """The compiled function; DistirError if the module has none of this name."""
        if name not in self._compiled:
            if name not in self._sources:
                raise DistirError(f"no function @{name} in the module")
            self._compiled[name] = self._compile_function(name, self._sources[name])
        return self._compiled[name]

    def _compile_function(self, name: str, source: func.FuncOp) -> Function:
        slots: dict[SSAValue, int] = {}
        for argument in source.args:
            slots[argument] = len(slots)
        operations = list(source.body.block.ops)
        for op in operations:
            for result in op.results:
                slots[result] = len(slots)
        read = [values_read(op) for op in operations]
        last = {value: i for i, values in enumerate(read) for value in values}
        instructions = [
            Instruction(
                op.name,
                0 if self.heartbeat is None else self.heartbeat.site(f"{op.name} in @{name}"),
                self._compile(op),
                tuple(slots[v] for v in read[i]),
                tuple(slots[v] for v in op.results),
                tuple(slots[v] for v in dict.fromkeys(read[i]) if last[v] == i),
                tuple(slots[v] for v in op.results if v not in last),
            )
            for i, op in enumerate(operations)
            if not isinstance(op, func.ReturnOp)
        ]
        beat = [0] if self.heartbeat is None else self.heartbeat.cell
        return Function(name, instructions, len(slots), tuple(slots[v] for v in operations[-1].operands), beat)

    def _compile(self, op: Operation) -> Compute:
        match op:
            case func.CallOp():
                return self.function(op.callee.string_value())
            case RankOp():
                if self.communicator is None:
                    raise DistirError(f"{op.name} needs the other ranks: run the program of all devices")
                return self.communicator.compile(op)
            case SliceOp():
                kept = tuple(slice(start, stop) for start, stop in op.ranges)
                return lambda operands: (operands[0][kept].clone(),)
            case InsertOp():
                dim, start = op.dim.value.data, op.start.value.data
                return lambda operands: (
                    operands[0].slice_scatter(operands[1], dim, start, start + operands[1].shape[dim]),
                )
            case ConcatOp():
                dim = op.dim.value.data
                return lambda operands: (torch.cat(operands, dim),)
            case AccumulateOp():
                return _accumulate(op.reduction.data)
            case LocalIndexOp():
                return _local_index(op)
            case InsideOp():
                start, stop, extent = op.range
                shape = op.mask_shape

                def inside(operands: Sequence[Any]) -> tuple[Any, ...]:
                    counted = _counted(operands[1], extent).reshape(shape)
                    outside = (counted < start) | (counted >= stop)
                    if len(operands) > 2:
                        return (torch.where(outside, operands[2], operands[0]),)
                    return (operands[0].masked_fill(outside, 0),)

                return inside
            case ZerosOp():
                return self._zeros(cast(TensorType[Any], op.output.type))
            case ScaleOp():
                numerator, denominator = op.factor.data
                return lambda operands: ((operands[0] * numerator / denominator).to(operands[0].dtype),)
            case PackOp():
                return lambda operands: (tuple(operands),)
            case UnpackOp():
                return lambda operands: operands[0]
            case _:
                return compile_operator(op, self.types, self.device)

    def _zeros(self, type_: TensorType[Any]) -> Compute:
        shape, dtype = type_.get_shape(), self.types.of(type_.element_type)
        return lambda operands: (torch.zeros(shape, dtype=dtype, device=self.device),)


def _local_index(op: LocalIndexOp) -> Compute:
    start, stop, extent = op.range
    if op.ignored is None:
        return lambda operands: ((_counted(operands[0], extent) - start).clamp(0, stop - start - 1),)
    ignored = op.ignored.value.data

    def local_index(operands: list[Any]) -> Sequence[Any]:
        outside = (operands[0] < start) | (operands[0] >= stop)
        return ((operands[0] - start).masked_fill(outside, ignored),)

    return local_index


def _counted(indices: Any, extent: int) -> Any:
    """Indices with those from the end counted from the start."""
    return torch.where(indices < 0, indices + extent, indices)


def _accumulate(reduction: Reduction) -> Compute:
    def accumulate(operands: list[Any]) -> Sequence[Any]:
        total = reduce(_COMBINE[reduction], operands)
        return ((total / len(operands)).to(total.dtype) if reduction == Reduction.MEAN else total,)

    return accumulate
