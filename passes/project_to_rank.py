"""`project-to-rank{rank=r}`: from the program of all devices (level 3) to what device r does (level 4), in the same
order, so that the rank programs together cannot deadlock.

One lowering per communication op is in `LOWERINGS`; all other ops are kept, without placement. Functions are
projected once per group of machine ranks that they run on, and are named after it: `@stage.on_4_5`. What this rank has
no part in is left out, and so are functions that it never reaches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from distir.dialects import dist, rank
from distir.dialects.dist.attributes import MAIN_STREAM, placed, placement
from distir.dialects.dist.calls import function_devices, is_placed
from distir.dialects.dist.communication import CommunicationOp
from distir.dialects.errors import DistirError
from distir.dialects.plugins import Registry
from distir.interpreters.entry import (
    DEVICES,
    NAME,
    RANK,
    Port,
    arguments_of,
    attributes_of,
    entry_function,
    machine_devices,
    rank_of,
    results_of,
)
from distir.interpreters.ranks import explicit


@dataclass(frozen=True)
class ProjectToRankPass(ModulePass):
    """Requires a checked module of level 1 or 3; ensures level 4: no placement and no `dist` communication or call is
    left. Keeps module attributes, and `dist.name`, `dist.role` and `dist.part` on the entry; adds `rank.rank`."""

    name = "project-to-rank"

    rank: int
    """The device whose program is written."""
    entry: str = "main"
    """The function that the program begins with."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        projected = project(op, self.rank, self.entry)
        op.attributes = projected.attributes
        op.body.detach_block(0)
        op.body.add_block(projected.body.detach_block(0))


def project(module: ModuleOp, rank: int, entry: str = "main") -> ModuleOp:
    """The program of one rank, as a new module with the same weights. Raises DistirError for a rank that the program
    does not have, and for a module that already is one rank's."""
    source, module = module, explicit(module)
    function = entry_function(module, entry)
    if (already := rank_of(module)) is not None:
        raise DistirError(f"the module already is the program of rank {already}: project the level 3 program")
    devices = machine_devices(module, function)
    if not 0 <= rank < devices:
        raise DistirError(f"rank {rank} is outside the program's devices 0..{devices - 1}")
    projection = ModuleProjection(module, rank)
    projection.project_entry(function, tuple(range(devices)))
    projected = ModuleOp([], dict(module.attributes))
    projected.attributes |= {DEVICES: IntegerAttr(devices, i64), RANK: IntegerAttr(rank, i64)}
    projected.body.block.add_ops(projection.in_source_order())
    _carry_weights(source, projected)
    return projected


@dataclass
class FunctionView:
    """A function as one of its devices sees it, while its projection is built."""

    place: int
    """This device, in the function's numbering."""
    group: tuple[int, ...]
    """The machine rank of each of the function's devices."""
    block: Block = field(default_factory=Block)
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    everywhere: list[Operation] = field(default_factory=list[Operation])
    """Ops without placement (constants): every rank has them, used or not."""

    held: dict[int, bool] = field(default_factory=dict[int, bool])
    """What `holds` said, by identity of the type: hashing a type costs more than asking again."""

    def holds(self, type_: Attribute) -> bool:
        """Whether this device has a value of this type: it lives here, or (not placed) everywhere."""
        if (known := self.held.get(id(type_))) is not None:
            return known
        on = placement(type_)
        self.held[id(type_)] = held = on is None or on.device == self.place
        return held

    def mine(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [v for v in values if self.holds(v.type)]

    def index(self, values: Sequence[SSAValue]) -> int:
        """Which of the participants' values is this device's."""
        return next(i for i, v in enumerate(values) if self.holds(v.type))

    def ranks(self, values: Sequence[SSAValue]) -> list[int]:
        """Machine ranks of the devices that hold these values."""
        return [self.group[on.device] for v in values if (on := placement(v.type)) is not None]

    def operand(self, values: Sequence[SSAValue]) -> SSAValue | None:
        """This device's, if it has one of them."""
        return next((self.values[v] for v in self.mine(values)), None)

    def result_type(self, values: Sequence[SSAValue]) -> Attribute | None:
        return next((placed(v.type, None) for v in self.mine(values)), None)

    def emit(self, source: Operation, projected: Operation) -> None:
        """Adds what `source` becomes; its results stand for this device's results of `source`."""
        used = [on for v in self.mine([*source.operands, *source.results]) if (on := placement(v.type)) is not None]
        stream = used[0].stream if used else MAIN_STREAM
        if not used and source.results:
            self.everywhere.append(projected)
        projected.attributes |= source.attributes
        if stream != MAIN_STREAM and not isinstance(projected, rank.WaitOp | func.CallOp | func.ReturnOp):
            projected.attributes[rank.STREAM] = StringAttr(stream)
        self.block.add_op(projected)
        for old, new in zip(self.mine(source.results), projected.results, strict=True):
            new.name_hint = old.name_hint
            self.values[old] = self._on_stream(new, old, stream) if isinstance(source, CommunicationOp) else new

    def _on_stream(self, value: SSAValue, source: SSAValue, stream: str) -> SSAValue:
        """A root that receives on another stream than it sends from waits for the result there."""
        on = placement(source.type)
        if on is None or on.stream == stream:
            return value
        wait = rank.WaitOp(value, on.stream)
        self.block.add_op(wait)
        return wait.output


# --- lowerings: what this rank does in each communication op that it takes part in ------------------------------------


LOWERINGS: Registry[Callable[[Any, FunctionView], Operation]] = Registry("lowering to ranks")
"""By the name of a communication operation: the `rank` operation of this device. `view.values` are this device's values, `view.mine` those
of some values that it has, `view.ranks` the machine ranks of others; operations before it are added to `view.block`."""


def lower(op: Operation, view: FunctionView) -> Operation:
    """The `rank` operation of this device for a communication operation."""
    if (lowering := LOWERINGS.get(op.name)) is None:
        raise DistirError(f"{op.name} has no per-rank form: register one for it (register_lowering)")
    return lowering(op, view)


Lowering = TypeVar("Lowering", bound=Callable[[Any, FunctionView], Operation])


def _lowers(operation: type[Operation]) -> Callable[[Lowering], Lowering]:
    """Enters a function in the table."""

    def enter(function: Lowering) -> Lowering:
        LOWERINGS[operation.name] = function
        return function

    return enter


@_lowers(dist.SendOp)
def _send(op: dist.SendOp, view: FunctionView) -> Operation:
    if view.holds(op.input.type):
        return rank.SendOp(view.values[op.input], view.ranks([op.output])[0])
    return rank.RecvOp(view.ranks([op.input])[0], placed(op.output.type, None))


@_lowers(dist.AllReduceOp)
def _all_reduce(op: dist.AllReduceOp, view: FunctionView) -> Operation:
    value = view.values[op.operands[view.index(op.operands)]]
    return rank.AllReduceOp(value, view.ranks(op.operands), op.reduction.data)


@_lowers(dist.AllGatherOp)
def _all_gather(op: dist.AllGatherOp, view: FunctionView) -> Operation:
    i = view.index(op.operands)
    return rank.AllGatherOp(
        view.values[op.operands[i]], op.dim.value.data, view.ranks(op.operands), placed(op.results[i].type, None)
    )


@_lowers(dist.ReduceScatterOp)
def _reduce_scatter(op: dist.ReduceScatterOp, view: FunctionView) -> Operation:
    i = view.index(op.operands)
    result = placed(op.results[i].type, None)
    value, group = view.values[op.operands[i]], view.ranks(op.operands)
    return rank.ReduceScatterOp(value, op.dim.value.data, group, result, op.reduction.data)


@_lowers(dist.AllToAllOp)
def _all_to_all(op: dist.AllToAllOp, view: FunctionView) -> Operation:
    i = view.index(op.operands)
    result = placed(op.results[i].type, None)
    value, group = view.values[op.operands[i]], view.ranks(op.operands)
    return rank.AllToAllOp(value, op.split.value.data, op.concat.value.data, group, result)


@_lowers(dist.ExchangeOp)
def _exchange(op: dist.ExchangeOp, view: FunctionView) -> Operation:
    i = view.index(op.operands)
    value, result = view.values[op.operands[i]], placed(op.results[i].type, None)
    return rank.ExchangeOp(value, op.dim.value.data, op.windows[i][0], view.ranks(op.operands), result)


def _with_root(root: int, others: Sequence[int]) -> list[int]:
    """The group of a rooted op: the root first if it is not among the others."""
    return [*([] if root in others else [root]), *others]


@_lowers(dist.BroadcastOp)
def _broadcast(op: dist.BroadcastOp, view: FunctionView) -> Operation:
    (root,), receivers = view.ranks([op.input]), view.ranks(op.results)
    group = _with_root(root, receivers)
    return rank.BroadcastOp(view.operand([op.input]), root, group, view.result_type(op.results))


@_lowers(dist.ScatterOp)
def _scatter(op: dist.ScatterOp, view: FunctionView) -> Operation:
    (root,), receivers = view.ranks([op.input]), view.ranks(op.results)
    group, dim = _with_root(root, receivers), op.dim.value.data
    return rank.ScatterOp(view.operand([op.input]), dim, root, receivers, group, view.result_type(op.results))


@_lowers(dist.GatherOp)
def _gather(op: dist.GatherOp, view: FunctionView) -> Operation:
    contributors, (root,) = view.ranks(op.operands), view.ranks([op.output])
    group, dim = _with_root(root, contributors), op.dim.value.data
    return rank.GatherOp(view.operand(op.operands), dim, root, contributors, group, view.result_type([op.output]))


@_lowers(dist.ReduceOp)
def _reduce(op: dist.ReduceOp, view: FunctionView) -> Operation:
    contributors, (root,) = view.ranks(op.operands), view.ranks([op.output])
    group, value = _with_root(root, contributors), view.operand(op.operands)
    return rank.ReduceOp(value, op.reduction.data, root, contributors, group, view.result_type([op.output]))


# --- functions --------------------------------------------------------------------------------------------------------


@dataclass
class ModuleProjection:
    """The functions that one rank runs; each is built when a call first reaches it."""

    module: ModuleOp
    rank: int
    names: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict[tuple[str, tuple[int, ...]], str])
    """The symbol of each projection, by callee and the machine ranks that it runs on."""
    built: dict[str, list[func.FuncOp]] = field(default_factory=dict[str, list[func.FuncOp]])
    """Projections of each function of the source."""

    def __post_init__(self) -> None:
        self.functions = {f.sym_name.data: f for f in self.module.ops if isinstance(f, func.FuncOp)}
        self.placed: dict[str, bool] = {}
        self.devices: dict[str, int] = {}

    def in_source_order(self) -> list[Operation]:
        """The projected functions, in the order of their sources, and the other ops of the module."""
        ops: list[Operation] = []
        for op in self.module.ops:
            ops += self.built.get(op.sym_name.data, []) if isinstance(op, func.FuncOp) else [op.clone()]
        return ops

    def project_entry(self, function: func.FuncOp, group: tuple[int, ...]) -> None:
        """The entry keeps its name; arguments and results that have no `dist.name` get the one that they go by."""
        projected = self._project(function, FunctionView(self.rank, group), function.sym_name.data)
        view = FunctionView(self.rank, group)
        projected.arg_attrs = _named(arguments_of(function), function.arg_attrs, view)
        projected.res_attrs = _named(results_of(function), function.res_attrs, view)

    def symbol(self, callee: str, group: tuple[int, ...]) -> str:
        """The projection of a function on these machine ranks, built on first use."""
        if (callee, group) not in self.names:
            name = f"{callee}.on_{'_'.join(map(str, group))}" if self._is_placed(callee) else callee
            while name in self.names.values() or (name != callee and name in self.functions):
                name += "_"
            self.names[callee, group] = name
            self._project(self.functions[callee], FunctionView(group.index(self.rank), group), name)
        return self.names[callee, group]

    def _is_placed(self, callee: str) -> bool:
        if callee not in self.placed:
            self.placed[callee] = is_placed(self.functions[callee])
        return self.placed[callee]

    def _devices_of(self, callee: str) -> int:
        if callee not in self.devices:
            self.devices[callee] = function_devices(self.functions[callee])
        return self.devices[callee]

    def _project(self, function: func.FuncOp, view: FunctionView, name: str) -> func.FuncOp:
        for argument in view.mine(function.body.block.args):
            new = view.block.insert_arg(placed(argument.type, None), len(view.block.args))
            new.name_hint = argument.name_hint
            view.values[argument] = new
        for op in function.body.block.ops:
            self._project_op(op, view)
        if self._is_placed(function.sym_name.data):
            _drop_unused(view.everywhere)
        outputs = [placed(t, None) for t in function.function_type.outputs.data if view.holds(t)]
        projected = func.FuncOp(
            name, ([a.type for a in view.block.args], outputs), Region(view.block), function.sym_visibility
        )
        projected.attributes |= function.attributes
        self.built.setdefault(function.sym_name.data, []).append(projected)
        return projected

    def _project_op(self, op: Operation, view: FunctionView) -> None:
        match op:
            case dist.CallOp():
                self._project_call(op, op.callee_name, op.devices, view)
            case func.CallOp():
                callee = op.callee.string_value()
                self._project_call(op, callee, range(self._devices_of(callee)), view)
            case func.ReturnOp():
                view.emit(op, func.ReturnOp(*(view.values[v] for v in view.mine(op.operands))))
            case CommunicationOp():
                if any(view.holds(v.type) for v in (*op.operands, *op.results)):
                    view.emit(op, lower(op, view))
            case dist.MoveOp():
                if (target := placement(op.output.type)) is not None and target.device == view.place:
                    view.emit(op, rank.WaitOp(view.values[op.input], target.stream))
            case _:
                if all(view.holds(v.type) for v in (*op.operands, *op.results)):
                    view.emit(op, _without_placement(op, view))

    def _project_call(self, op: Operation, callee: str, devices: Sequence[int], view: FunctionView) -> None:
        """A call of the callee's projection for this device; none if the callee does not run here. A callee without
        placement that `func.call` names runs wherever the caller does."""
        if isinstance(op, func.CallOp) and not self._is_placed(callee):
            devices = [view.place]
        if view.place not in devices:
            return
        symbol = self.symbol(callee, tuple(view.group[d] for d in devices))
        operands = [view.values[v] for v in view.mine(op.operands)]
        view.emit(op, func.CallOp(symbol, operands, [placed(v.type, None) for v in view.mine(op.results)]))


def _without_placement(op: Operation, view: FunctionView) -> Operation:
    """A local or operator op over this rank's values."""
    regions: list[Region] = []
    for region in op.regions:
        regions.append(Region())
        region.clone_into(regions[-1], None, view.values)
        inner_values = [
            *(a for b in regions[-1].blocks for a in b.args),
            *(r for o in regions[-1].walk() for r in o.results),
        ]
        for value in inner_values:
            if placement(value.type) is not None:
                Rewriter.replace_value_with_new_type(value, placed(value.type, None))
    return op.create(
        operands=[view.values[v] for v in op.operands],
        result_types=[placed(t, None) for t in op.result_types],
        properties=op.properties.copy(),
        regions=regions,
    )


def _drop_unused(constants: Sequence[Operation]) -> None:
    """What is not placed was kept for every rank; this one may have no use for it."""
    for op in reversed(constants):
        if all(result.first_use is None for result in op.results) and is_side_effect_free(op):
            op.detach()
            op.erase()


def _named(
    ports: Sequence[Port], attributes: ArrayAttr[DictionaryAttr] | None, view: FunctionView
) -> ArrayAttr[DictionaryAttr] | None:
    """The attributes of this rank's arguments or results; none if it has no arguments or results."""
    named = [
        DictionaryAttr({NAME: StringAttr(port.name), **given})
        for port, given in zip(ports, attributes_of(attributes, len(ports)), strict=True)
        if view.holds(port.type)
    ]
    return ArrayAttr(named) if named else None


def _carry_weights(source: ModuleOp, target: ModuleOp) -> None:
    """Values attached in memory go with the program. There are none if nothing has attached or loaded any."""
    weights: Any = sys.modules.get("distir.interpreters.weights")
    if weights is not None:
        with suppress(DistirError):  # a file that is missing is missed when the values are asked for
            weights.attach(target, weights.weights_of(source))
