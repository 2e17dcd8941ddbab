"""The placement domain. In goes a module; out comes the device and stream of each value. `@impl(AllReduceOp)` gives
the places of an op's results and checks its operands'; every other op is a compute op, which stays where its
operands are.

A call is understood once per (callee, placements of its arguments in the callee's own numbering), then relocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    BroadcastOp,
    CallOp,
    ExchangeOp,
    GatherOp,
    MoveOp,
    OnAttr,
    ReduceOp,
    ReduceScatterOp,
    ScatterOp,
    SendOp,
)
from distir.dialects.dist.attributes import on_device, placement
from distir.dialects.dist.calls import function_devices, is_placed
from distir.dialects.plugins import implementations
from distir.interpreters.module_check import fail
from distir.interpreters.walk import Walk, values_read

Place = OnAttr | None
Places = tuple[Place, ...]


def place(
    module: ModuleOp, entry: str = "main", extra: Sequence[InterpreterFunctions] = ()
) -> Mapping[SSAValue, Place]:
    """Where each value of the entry's body lives; None is on no device (a sequential program) or on all of them.

    The entry's arguments are where their types say. `extra` gives or overrides implementations of ops. Raises
    VerifyException, on the op, where operands are not where it needs them."""
    walk = Placement(module, default=place_compute).register([CommunicationPlacement(), CallPlacement()])
    walk.register([*implementations("placement"), *extra])
    function = walk.function(entry)
    arguments = tuple(placement(argument.type) for argument in function.body.block.args)
    places: dict[SSAValue, Place] = dict(zip(function.body.block.args, arguments, strict=True))
    for op in function.body.block.ops:
        if not isinstance(op, func.ReturnOp):
            places.update(zip(op.results, walk.run(op, tuple(places[v] for v in values_read(op))), strict=True))
    return places


def place_compute(op: Operation, operands: PythonValues) -> Places:
    """One device and stream for all placed operands: the results are there. Without operands the type decides."""
    on: Place = None
    for i, other in enumerate(operands):
        if on is not None and other is not None and on != other:
            fail(op, f"expected all operands on {on}, got operand {i} on {other}")
        on = on if other is None else other
    return tuple(on if on is not None else placement(t) for t in op.result_types)


def place_distinct(op: Operation, operands: PythonValues) -> Places:
    """The operands, one per participant, are on distinct devices."""
    seen: dict[int, int] = {}
    for i, on in enumerate(operands):
        if on is None:
            fail(op, f"expected operand {i} on a device, got it not placed")
        if on.device in seen:
            fail(op, f"expected distinct participants, got operands {seen[on.device]} and {i} both on {on.device}")
        seen[on.device] = i
    return operands


@register_impls
class CommunicationPlacement(InterpreterFunctions):
    """Where communication puts its results."""

    @impl(AllReduceOp)
    def allreduce(self, interpreter: Interpreter, op: AllReduceOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)

    @impl(AllGatherOp)
    def allgather(self, interpreter: Interpreter, op: AllGatherOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)

    @impl(ReduceScatterOp)
    def reducescatter(self, interpreter: Interpreter, op: ReduceScatterOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)

    @impl(AllToAllOp)
    def alltoall(self, interpreter: Interpreter, op: AllToAllOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)

    @impl(ExchangeOp)
    def exchange(self, interpreter: Interpreter, op: ExchangeOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)

    @impl(SendOp)
    def send(self, interpreter: Interpreter, op: SendOp, args: PythonValues) -> PythonValues:
        (source,) = place_distinct(op, args)
        if source is not None and source.device == op.to.value.data:
            fail(op, f"a send to its own device {source.device}: use the value itself")
        return self._arrivals(op, [op.to.value.data])

    @impl(BroadcastOp)
    def broadcast(self, interpreter: Interpreter, op: BroadcastOp, args: PythonValues) -> PythonValues:
        place_distinct(op, args)
        return self._arrivals(op, op.devices)

    @impl(ScatterOp)
    def scatter(self, interpreter: Interpreter, op: ScatterOp, args: PythonValues) -> PythonValues:
        place_distinct(op, args)
        return self._arrivals(op, op.devices)

    @impl(GatherOp)
    def gather(self, interpreter: Interpreter, op: GatherOp, args: PythonValues) -> PythonValues:
        place_distinct(op, args)
        return self._arrivals(op, [op.to.value.data])

    @impl(ReduceOp)
    def reduce(self, interpreter: Interpreter, op: ReduceOp, args: PythonValues) -> PythonValues:
        place_distinct(op, args)
        return self._arrivals(op, [op.to.value.data])

    @impl(MoveOp)
    def move(self, interpreter: Interpreter, op: MoveOp, args: PythonValues) -> PythonValues:
        on, target = args[0], placement(op.output.type)
        if on is None or target is None or on.device != target.device:
            fail(op, f"expected another stream of {on}, got {target}")
        return (target,)

    def _arrivals(self, op: Operation, devices: Sequence[int]) -> Places:
        """The listed devices; the stream of each is the receiver's choice, so its type says it."""
        types = [placement(t) for t in op.result_types]
        return tuple(
            on_device(device, on.stream if on is not None else "") for device, on in zip(devices, types, strict=True)
        )


@dataclass
class Placement(Walk):
    """The walk, and what it remembers of each callee."""

    memo: dict[tuple[str, PythonValues], PythonValues] = field(
        default_factory=dict[tuple[str, PythonValues], PythonValues]
    )
    shapes: dict[str, tuple[bool, int]] = field(default_factory=dict[str, tuple[bool, int]])

    def results_of(self, callee: str, arguments: PythonValues) -> PythonValues:
        """Placements of the callee's results, in its own numbering."""
        if (callee, arguments) not in self.memo:
            self.memo[callee, arguments] = self.call(callee, arguments)
        return self.memo[callee, arguments]

    def shape_of(self, callee: str) -> tuple[bool, int]:
        """Whether the callee names devices, and how many it has."""
        if callee not in self.shapes:
            function = self.function(callee)
            self.shapes[callee] = (is_placed(function), function_devices(function))
        return self.shapes[callee]


@register_impls
class CallPlacement(InterpreterFunctions):
    """Calls: into the callee's numbering, and back."""

    @impl(CallOp)
    def call(self, interpreter: Interpreter, op: CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Placement)
        placed, count = interpreter.shape_of(op.callee_name)
        if len(op.devices) != count:
            fail(op, f"expected {count} devices, got {len(op.devices)}")
        if not placed:
            for i, on in enumerate(args):
                if on is not None and on != on_device(op.devices[0]):
                    fail(op, f"expected operand {i} on device {op.devices[0]}, got {on}")
            return tuple(on_device(op.devices[0]) if placement(t) else None for t in op.result_types)
        local = {device: i for i, device in enumerate(op.devices)}
        for i, on in enumerate(args):
            if on is not None and on.device not in local:
                fail(op, f"expected operand {i} on one of {list(op.devices)}, got {on}")
        inner = tuple(None if on is None else on_device(local[on.device], on.stream) for on in args)
        self._check_parameters(interpreter, op, op.callee_name, inner)
        results = interpreter.results_of(op.callee_name, inner)
        return tuple(None if on is None else on_device(op.devices[on.device], on.stream) for on in results)

    @impl(func.CallOp)
    def call_in_place(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, Placement)
        self._check_parameters(interpreter, op, op.callee.string_value(), args)
        return interpreter.results_of(op.callee.string_value(), args)

    def _check_parameters(self, interpreter: Placement, op: Operation, callee: str, args: PythonValues) -> None:
        for i, (on, type_) in enumerate(zip(args, interpreter.function(callee).function_type.inputs.data, strict=True)):
            if on != placement(type_):
                fail(op, f"@{callee}: expected operand {i} on its device {placement(type_)}, got {on}")
