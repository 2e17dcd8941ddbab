"""`apply-sharding`: annotated -> distributed. Every op runs on its shards, every resharding is an explicit collective.

Where it stands: after a search (or the user) gave each op a `dist.strategy`. Ops without one replicate along every axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from distir.dialects.sharding import REPLICATED, MeshOp, Partial, Replicate, ShardingAttr, State, StrategyAttr, Windowed

if TYPE_CHECKING:
    from distir.passes.distribution.options import Option


@dataclass(frozen=True)
class ApplyShardingPass(ModulePass):
    """Lowers an annotated module over its mesh.

    Requires: one `dist.mesh`; rules and strategies on ops; optionally `dist.sharding` on arguments of functions (without
    it an argument is what its first consumer needs) and on all results of a function (without it they leave as they are).
    Ensures: level 3 on `dist.devices` devices; the mesh, rules, strategies and shardings are gone. With `grouped`, a program whose
    devices all do the same is written over the group of them, and the mesh stays (`expand-ranks`). Raises an error on an op whose strategy does not fit its rule or shapes."""

    name = "apply-sharding"
    entry: str = "main"
    """The function that the program begins with."""
    grouped: bool = False
    """Whether what devices of the mesh do alike is written once."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.entry import arguments_of, entry_function, results_of
        from distir.passes.distribution.group_shards import DevicesDiffer, GroupShards
        from distir.passes.distribution.lower import Lowering, canonical_options, entry_ports
        from distir.passes.distribution.mesh import Mesh
        from distir.passes.distribution.shards import Shards
        from distir.passes.structure import AnyCall, argument_attributes, calls_first, result_attributes, shape_of

        mesh_op = the_mesh(op)
        mesh = Mesh(tuple(mesh_op.axis_sizes.items()), uneven=True)
        entry = entry_function(op, self.entry)
        ordered = calls_first(op, self.entry)
        operations = [o for f in ordered for o in f.body.block.ops if not isinstance(o, AnyCall)]
        chosen = {o: canonical_options(chosen_options(o, mesh_op, uneven=True), mesh) for o in operations}
        arguments = argument_states(ordered, mesh_op, chosen)
        last = entry.body.block.last_op
        sources = [shape_of(v) for v in entry.body.block.args]
        returned = [shape_of(v) for v in last.operands] if last is not None else []
        taken, made = arguments_of(entry), results_of(entry)
        names, outputs = argument_attributes(entry), result_attributes(entry)
        leaving = _returned(ordered, mesh_op) | _carried(op, ordered, arguments)

        def lower(kind: type[Shards]) -> None:
            lowering = Lowering(mesh, chosen, arguments, leaving, entry=self.entry, shards=kind)
            try:
                for function in ordered:
                    lowering.lower(function)
                states, shards = (lowering.argument_states[self.entry], lowering.results[self.entry]), kind(mesh)
                given = (
                    entry_ports(shards, taken, sources, states[0], names),
                    entry_ports(shards, made, returned, states[1], outputs),
                )
            except DevicesDiffer:
                lowering.restore()
                raise
            for function in ordered:
                _forget_shardings(function, len(shards.devices))
            entry.arg_attrs, entry.res_attrs = (ArrayAttr([DictionaryAttr(d) for d in ports]) for ports in given)

        is_explicit = not self.grouped or mesh.devices == 1
        if not is_explicit:
            try:
                lower(GroupShards)
            except DevicesDiffer:
                is_explicit = True
        if is_explicit:
            lower(Shards)
            op.body.block.erase_op(mesh_op)
        op.attributes["dist.devices"] = IntegerAttr(mesh.devices, i64)
        op.attributes["dist.axes"] = mesh_op.axes


def _forget_shardings(function: FuncOp, devices: int) -> None:
    """Leaves of the attributes of a lowered function's arguments and results those that are not shardings, on each device."""
    from distir.passes.distribution.lower import SHARDING

    def left(attributes: ArrayAttr[DictionaryAttr] | None) -> ArrayAttr[DictionaryAttr] | None:
        kept = [DictionaryAttr({k: v for k, v in a.data.items() if k != SHARDING}) for a in attributes or ()]
        return ArrayAttr([a for a in kept for _ in range(devices)]) if any(a.data for a in kept) else None

    function.arg_attrs, function.res_attrs = left(function.arg_attrs), left(function.res_attrs)


def the_mesh(module: ModuleOp) -> MeshOp:
    """The mesh of an annotated module; raises a VerifyException unless there is one."""
    meshes = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    if len(meshes) != 1:
        raise VerifyException(f"apply-sharding needs one dist.mesh in the module, got {len(meshes)}")
    return meshes[0]


def chosen_options(op: Operation, mesh: MeshOp, uneven: bool = False) -> list[Option]:
    """What an operation does along each axis, in even shards unless `uneven`; raises a diagnostic for a strategy that does
    not fit."""
    from distir.passes.distribution.lower import STRATEGY
    from distir.passes.distribution.options import chosen_option

    attribute = op.attributes.get(STRATEGY)
    choices = cast(StrategyAttr, attribute).choices if attribute is not None else {}
    for axis in choices:
        if axis not in mesh.axis_sizes:
            op.emit_error(
                f'strategy for axis "{axis}", which the mesh does not have', VerifyException(f'no axis "{axis}"')
            )
    found: list[Option] = []
    for axis, size in mesh.axis_sizes.items():
        choice = choices.get(axis, Replicate())
        option = chosen_option(op, choice, size, uneven)
        if option is None:
            message = f'{attribute} on axis "{axis}" of size {size} does not fit the rule or the shapes'
            op.emit_error(message, VerifyException(message))
        found.append(option)
    return found


def argument_states(
    ordered: list[FuncOp], mesh: MeshOp, chosen: Mapping[Operation, list[Option]]
) -> dict[BlockArgument, tuple[State, ...]]:
    """States of all arguments, callees first: as the user says, else what the first consumer needs; the entry's are never
    addends."""
    from distir.passes.distribution.lower import SHARDING
    from distir.passes.structure import AnyCall, argument_attributes, functions, shape_of

    found: dict[BlockArgument, tuple[State, ...]] = {}
    for function in ordered:
        for argument, attributes in zip(function.body.block.args, argument_attributes(function), strict=True):
            if (sharding := attributes.get(SHARDING)) is not None:
                where = f"argument {argument.index}"
                found[argument] = stated(cast(ShardingAttr, sharding), shape_of(argument), where, mesh.axis_sizes)
                continue
            found[argument] = (REPLICATED,) * len(mesh.axis_sizes)
            first = next((u for o in function.body.block.ops for u in argument.uses if u.operation is o), None)
            if first is None:
                continue
            if isinstance(first.operation, AnyCall):
                module = cast(ModuleOp, function.parent_op())
                callee = functions(module)[first.operation.callee.string_value()]
                found[argument] = found[callee.body.block.args[first.index]]
            elif first.operation in chosen:
                needed = (option.operands[first.index] for option in chosen[first.operation])
                found[argument] = tuple(state.base if isinstance(state, Windowed) else state for state in needed)
            if function is ordered[-1]:  # replicas could not tell their addends apart
                found[argument] = tuple(REPLICATED if isinstance(s, Partial) else s for s in found[argument])
    return found


def _returned(ordered: list[FuncOp], mesh: MeshOp) -> dict[str, list[tuple[State, ...]]]:
    """States of the results of those functions that say so for all of them."""
    from distir.passes.distribution.lower import SHARDING
    from distir.passes.structure import result_attributes, shape_of

    found: dict[str, list[tuple[State, ...]]] = {}
    for function in ordered:
        attributes, last = result_attributes(function), function.body.block.last_op
        if last is None or not attributes or any(SHARDING not in a for a in attributes):
            continue
        found[function.sym_name.data] = [
            stated(cast(ShardingAttr, a[SHARDING]), shape_of(value), f"result {i}", mesh.axis_sizes)
            for i, (a, value) in enumerate(zip(attributes, last.operands, strict=True))
        ]
    return found


def _carried(
    module: ModuleOp, ordered: list[FuncOp], arguments: Mapping[BlockArgument, tuple[State, ...]]
) -> dict[str, list[tuple[State, ...]]]:
    """States of the results of functions that run once per microbatch: those in which the next microbatch takes them."""
    from distir.dialects.dist import MicrobatchesOp
    from distir.passes.structure import functions

    loops = [op for function in ordered for op in function.body.block.ops if isinstance(op, MicrobatchesOp)]
    table = functions(module)
    taken = {op.callee.string_value(): slice(len(op.same), len(op.operands)) for op in loops}
    return {name: [arguments[a] for a in table[name].body.block.args[which]] for name, which in taken.items()}


def stated(sharding: ShardingAttr, shape: tuple[int, ...], what: str, axes: Mapping[str, int]) -> tuple[State, ...]:
    """An argument's or result's states as the user says; raises DistirError where they do not fit the mesh or the shape."""
    from distir.dialects.errors import DistirError
    from distir.dialects.sharding import Sharded
    from distir.passes.distribution.mesh import Mesh

    found = dict(sharding.states)
    for axis, state in sharding.states.items():
        where = f"{sharding} on {what} of shape {list(shape)}"
        if axis not in axes:
            raise DistirError(f'{where}: the mesh has no axis "{axis}"')
        if isinstance(state, Sharded):
            if state.dim >= len(shape):
                raise DistirError(f"{where}: there is no dim {state.dim}")
            pieces = state.pieces or (shape[state.dim],)
            if sum(pieces) != shape[state.dim]:
                raise DistirError(f"{where}: dim {state.dim} has not the extent of its pieces, {sum(pieces)}")
            blocks = state.blocks or pieces
            if len(blocks) != len(pieces) or any(n < 1 or piece % n for piece, n in zip(pieces, blocks, strict=False)):
                raise DistirError(f"{where}: pieces {list(pieces)} are not of {list(blocks)} equal blocks")
            if any(count < axes[axis] for count in blocks):
                raise DistirError(f'{where}: dim {state.dim} is too small for axis "{axis}" of size {axes[axis]}')
            found[axis] = Sharded(state.dim, pieces, state.blocks)
    return Mesh(tuple(axes.items()), uneven=True).canonical(tuple(found.get(axis, REPLICATED) for axis in axes))
