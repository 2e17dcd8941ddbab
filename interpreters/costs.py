"""The cost domain. In go an operation and its devices; out comes the time that it takes, in integer picoseconds.
`@impl(AllReduceOp)` gives the cost of an all-reduce on its participants; compute operations cost the cost model's
time for their work. Times are rounded once, here, so that sums are exact and their order does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, prod
from numbers import Real
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, TensorType, TupleType
from xdsl.dialects.func import CallOp as FuncCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import SymbolTable

from distir.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    BroadcastOp,
    CallOp,
    ExchangeOp,
    GatherOp,
    ReduceOp,
    ReduceScatterOp,
    ScatterOp,
    SendOp,
)
from distir.dialects.dist.calls import is_kernel
from distir.dialects.dist.windows import overlaps
from distir.dialects.errors import DistirError
from distir.dialects.plugins import implementations, of_plugin
from distir.interpreters.cost_models import CostModel
from distir.interpreters.walk import Walk
from distir.interpreters.work import Kind, Work, dtype_bytes, kernel_work, type_bytes, work_of

PICOSECONDS = 1_000_000_000_000
FREE = frozenset([Kind.VIEW, Kind.NOTHING])


@dataclass(frozen=True)
class Cost:
    """Time that an operation occupies all its streams; `kind` is the work's (`matmul`) or the message's (`send`)."""

    kind: str
    picoseconds: int


@register_impls
class CostFunctions(InterpreterFunctions):
    """Communication. Arguments are the machine devices of the participants, each once, operands' before results'; the
    value is (kind, seconds). A new communication operation needs nothing else to be simulated."""

    def __init__(self, model: CostModel):
        self.model = model

    def collective(
        self, kind: str, op: Operation, devices: Sequence[int], split: int | None = None, joined: int | None = None
    ) -> tuple[tuple[str, float]]:
        """By the size of the whole tensor, the largest that any participant holds. Operands are cut along the dim `split`, results joined along `joined`: unless
        it is the outermost, that is a copy of them more, as it is for tensors that come together (FSDP's `split_with_sizes_copy`); what makes those that go together may write
        them into the message."""
        seconds = self.model.operation_seconds(op, devices)
        if seconds is None:
            given, made = ({id(v.type): v.type for v in values}.values() for values in (op.operands, op.results))
            seconds = self.model.collective_seconds(kind, max(map(type_bytes, (*given, *made))), devices)
            for types, dim, come in ((given, split, False), (made, joined, True)):
                if len(devices) > 1 and (apart := max(_bytes_apart(each, dim, come) for each in types)):
                    seconds += self.model.layout_seconds(apart)
        return ((kind, seconds),)

    @impl(SendOp)
    def send(self, interpreter: Interpreter, op: SendOp, args: PythonValues) -> PythonValues:
        seconds = self.model.operation_seconds(op, args)
        if seconds is None:
            seconds = self.model.send_seconds(type_bytes(op.input.type), *args)
        return (("send", seconds),)

    @impl(AllReduceOp)
    def allreduce(self, interpreter: Interpreter, op: AllReduceOp, args: PythonValues) -> PythonValues:
        return self.collective("allreduce", op, args)

    @impl(AllGatherOp)
    def allgather(self, interpreter: Interpreter, op: AllGatherOp, args: PythonValues) -> PythonValues:
        return self.collective("allgather", op, args, joined=op.dim.value.data)

    @impl(ReduceScatterOp)
    def reducescatter(self, interpreter: Interpreter, op: ReduceScatterOp, args: PythonValues) -> PythonValues:
        return self.collective("reducescatter", op, args, split=op.dim.value.data)

    @impl(AllToAllOp)
    def alltoall(self, interpreter: Interpreter, op: AllToAllOp, args: PythonValues) -> PythonValues:
        return self.collective("alltoall", op, args, split=op.split.value.data, joined=op.concat.value.data)

    @impl(ExchangeOp)
    def exchange(self, interpreter: Interpreter, op: ExchangeOp, args: PythonValues) -> PythonValues:
        """All messages at once: a device sends and receives at the same time, and one message after the other either way."""
        seconds = self.model.operation_seconds(op, args)
        if seconds is None:
            out, into = [0.0] * len(args), [0.0] * len(args)
            parts, operands = op.parts, op.operands if op.axis is None else [op.operands[0]] * len(args)
            for holder, reader, start, stop in overlaps(parts, op.windows):
                if holder != reader:
                    bytes = type_bytes(operands[holder].type) // parts[holder] * (stop - start)
                    message = self.model.send_seconds(bytes, args[holder], args[reader])
                    out[holder] += message
                    into[reader] += message
            seconds = max(*out, *into)
        return (("exchange", seconds),)

    @impl(BroadcastOp)
    def broadcast(self, interpreter: Interpreter, op: BroadcastOp, args: PythonValues) -> PythonValues:
        return self.collective("broadcast", op, args)

    @impl(ScatterOp)
    def scatter(self, interpreter: Interpreter, op: ScatterOp, args: PythonValues) -> PythonValues:
        return self.collective("scatter", op, args, split=op.dim.value.data)

    @impl(GatherOp)
    def gather(self, interpreter: Interpreter, op: GatherOp, args: PythonValues) -> PythonValues:
        return self.collective("gather", op, args, joined=op.dim.value.data)

    @impl(ReduceOp)
    def reduce(self, interpreter: Interpreter, op: ReduceOp, args: PythonValues) -> PythonValues:
        return self.collective("reduce", op, args)


MATMUL_TYPE = "dist.matmul_type"
"""On a contraction: the element type in which a device multiplies, where that is not the operands' (`matmul-type`)."""
ROUNDED = "dist.rounded"
"""On a contraction: the numbers of operands that are rounded to that type for it, in a kernel that reads them and writes them twice, as they are and transposed."""
CHUNKED = "dist.chunked"
"""On what cuts or joins chunks: the kernels beside it read and write them where they lie, so that it takes no time (`overlap-communication{in-place}`)."""
SAID = frozenset({MATMUL_TYPE, ROUNDED, CHUNKED})
"""Attributes on which the cost of an operation depends."""
PARTICIPANTS = "taking_part"
"""On a collective that is written for one of its participants alone: the machine's devices that take part."""
SLOWDOWN = "slowdown"
"""The kind of the time that computation takes longer beside a message."""


@dataclass(frozen=True)
class Beside:
    """A message on a stream of its own: what it takes there, and what the main stream of each such device takes longer.

    The extra time of computation is charged as if it ran beside the whole message: `compute_slowdown` (Calculon, SC 2023, has
    0.15 where the processors drive NVLink and 0.02 over InfiniBand) times the message's time, on the main stream's clock
    where the message is issued. A constant added to a clock keeps a program's clocks max-plus linear; charging only for the
    time that really overlaps would not. A device that waits for the message anyway loses nothing: the later clock counts."""

    cost: Cost
    slowdown_picoseconds: int


@dataclass
class CostWalk(Walk):
    """The walk of the cost domain: an `@impl` finds the cost model here."""

    model: CostModel | None = None


class Costs:
    """Costs of operations on one machine; each (operation, participants) is computed once."""

    def __init__(self, model: CostModel, functions: Sequence[InterpreterFunctions] = ()):
        self.model = model
        self._domain = CostWalk(ModuleOp([]), default=self._compute, model=model)
        self._domain.register([CostFunctions(model), *implementations("costs"), *functions])
        self._memo: dict[tuple[Operation, tuple[int, ...]], Cost] = {}
        self._assumed: dict[Operation, tuple[str, ...]] = {}

    def of(self, op: Operation, participants: tuple[int, ...]) -> Cost:
        """The cost of an operation whose values live on these machine devices, which is remembered with the operation. Raises
        DistirError if it has none."""
        # What runs on one device costs the same on any that is like it.
        uniform = self.model.machine.is_uniform
        key = (op, participants if len(participants) > 1 or not uniform else ())
        if (cost := self._memo.get(key)) is None:
            cost = self._memo[key] = self.ask(op, participants)
        return cost

    def ask(self, op: Operation, participants: tuple[int, ...]) -> Cost:
        """The same, and nothing is remembered."""
        if PARTICIPANTS in op.attributes:
            participants = cast("DenseArrayBase[Any]", op.attributes[PARTICIPANTS]).get_values()
        ((kind, seconds),) = self._domain.run(op, participants)
        _check_seconds(op, self.model, seconds)
        return Cost(kind, round(seconds * PICOSECONDS))

    def assumed(self, op: Operation) -> tuple[str, ...]:
        """The operators that run in an operation on one device of which nothing says what they do: a flop for each element is assumed."""
        if op not in self._assumed:
            kernel = kernel_of(op)
            ops = (op,) if kernel is None else kernel.body.block.ops
            names = {each.name for each in ops if not isinstance(each, ReturnOp) and work_of(each).is_assumed}
            own = names and self.model.operation_seconds(op, (0,)) is not None
            self._assumed[op] = () if own else tuple(sorted(names))
        return self._assumed[op]

    def beside(self, cost: Cost) -> Beside:
        """The cost of a message that runs beside computation."""
        overlap = self.model.machine.overlap
        picoseconds = cost.picoseconds + round(cost.picoseconds * overlap.communication_slowdown)
        return Beside(Cost(cost.kind, picoseconds), round(picoseconds * overlap.compute_slowdown))

    def _compute(self, op: Operation, participants: PythonValues) -> PythonValues:
        if len(participants) > 1:
            raise DistirError(f"{op.name} runs on {len(participants)} devices: say what it costs with an @impl")
        model = self.model.on(participants[0]) if participants else self.model
        if CHUNKED in op.attributes:
            return ((str(Kind.VIEW), 0.0),)
        if (kernel := kernel_of(op)) is not None:
            return self._kernel(kernel, model, participants)
        work = work_of(op)
        if (own := model.operation_seconds(op, participants)) is not None:
            return ((str(work.kind), own),)
        return ((str(work.kind), _seconds(op, model, work, _dtype(op)) + _rounding(model, [op])),)

    def _kernel(self, kernel: FuncOp, model: CostModel, participants: PythonValues) -> PythonValues:
        """A function that is one kernel; by a model that knows single operations only, what these take."""
        ops = [op for op in kernel.body.block.ops if not isinstance(op, ReturnOp)]
        work = kernel_work(kernel)
        if not model.has_kernels:
            return ((str(work.kind), sum(self._compute(op, participants)[0][1] for op in ops)),)
        contractions = [op for op in ops if work_of(op).kind is Kind.MATMUL]
        seconds = _seconds(ops[0], model, work, _dtype((contractions or ops)[0])) + _rounding(model, contractions)
        return ((str(work.kind), seconds),)


def _seconds(op: Operation, model: CostModel, work: Work, dtype: str) -> float:
    match work.kind:
        case Kind.MATMUL:
            seconds = model.matmul_seconds(work, dtype)
        case Kind.ATTENTION | Kind.ATTENTION_GRADIENT:
            seconds = model.attention_seconds(work, dtype)
        case Kind.ELEMENTWISE:
            seconds = model.elementwise_seconds(work, dtype)
        case Kind.DATA_MOVEMENT:
            seconds = model.data_movement_seconds(work)
        case Kind.VIEW | Kind.NOTHING:
            return 0.0
    _check_seconds(op, model, seconds)
    return seconds


def _check_seconds(op: Operation, model: CostModel, seconds: object) -> None:
    """Raises DistirError if what a cost model says is no time."""
    if not isinstance(seconds, Real) or not 0 <= float(seconds) < inf:
        name, whose = type(model).__name__, of_plugin(type(model).__module__)
        raise DistirError(f"{op.name}: the cost model {name}{whose} says {seconds} seconds")


def _rounding(model: CostModel, contractions: Iterable[Operation]) -> float:
    """What it takes to round operands of contractions to the type in which these are computed."""
    seconds = 0.0
    for op in contractions:
        for i in cast("DenseArrayBase[Any]", op.attributes[ROUNDED]).get_values() if ROUNDED in op.attributes else ():
            type_ = cast("TensorType[Any]", op.operands[i].type)
            written = 2 * prod(type_.get_shape()) * dtype_bytes(_dtype(op))
            seconds += model.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, type_bytes(type_) + written))
    return seconds


def _bytes_apart(type_: Attribute, dim: int | None, come: bool) -> int:
    """Of the tensors of a type, the bytes of those of which parts along a dim do not lie together: none of several that come together do."""
    if dim is None:
        return 0
    if isinstance(type_, TupleType):
        several = type_.types.data
        return type_bytes(type_) if come and len(several) > 1 else sum(_bytes_apart(t, dim, come) for t in several)
    outer = prod(cast("TensorType[Any]", type_).get_shape()[:dim]) if isinstance(type_, TensorType) else 1
    return type_bytes(type_) if outer > 1 else 0


def kernel_of(op: Operation) -> FuncOp | None:
    """The function that a call runs as one kernel; None for any other operation."""
    if not isinstance(op, CallOp | FuncCallOp):
        return None
    function = SymbolTable.lookup_symbol(op, op.callee)
    return function if isinstance(function, FuncOp) and is_kernel(function) else None


def detached(op: Operation, operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> Operation:
    """The operation, to ask its cost, with types like these for its operands and results; nothing makes them, so that remembering
    it does not keep its module."""
    return type(op).create(
        operands=Block(arg_types=[v.type for v in operands]).args,
        result_types=[v.type for v in results],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


def _dtype(op: Operation) -> str:
    """What the kernel computes in: as it says, or the element type of the first tensor among operands and results."""
    if (own := op.attributes.get(MATMUL_TYPE)) is not None:
        return cast(StringAttr, own).data
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType):
            return _name(cast("TensorType[Any]", value.type).element_type)
    return "f32"


@cache
def _name(element_type: Attribute) -> str:
    return str(element_type)
