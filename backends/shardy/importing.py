"""Imports from Shardy. In goes a text with `sdy` annotations; out comes a module with ours: rules become
`dist.rule`, shardings `dist.strategy` and `dist.sharding`.

The text (or the module to annotate) may also carry an annotation of ours. It is taken where it exports to Shardy's
annotation, since it says more. Where Shardy or the user changed theirs, theirs counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import ModuleOp, UnregisteredOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.backends.shardy.annotations import (
    RULE,
    SHARDING,
    States,
    defined_functions,
    is_open,
    ports,
    rule_attribute,
    set_ports,
    shardy_results,
    shardy_rule,
    strategy_attribute,
    strategy_of,
)
from distir.backends.shardy.rules import rule_from_shardy
from distir.backends.shardy.shardings import sharding_from_shardy, sharding_to_shardy
from distir.dialects import sdy
from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.dialects.sharding import REPLICATED, MeshOp, RuleAttr, ShardingAttr
from distir.frontends.text import parse_program
from distir.interpreters.walk import values_read
from distir.passes.structure import shape_of

OURS = {"rule": "dist.rule", "strategy": "dist.strategy", "sharding": "dist.sharding"}


def parse(text: str) -> ModuleOp:
    """The module of a text with `sdy` annotations. Raises DistirError, or a diagnostic of xDSL, for no program."""
    return parse_program(program_context(allow_unregistered=True), text, "Shardy's text")


def import_shardings(text: str, module: ModuleOp) -> None:
    """Annotates a module as a text of the same program says: the mesh, rules, strategies, and shardings of arguments and
    results. Raises DistirError for a text of another program and for what distir cannot say (`shardings`)."""
    read_into(parse(text), module)


def import_module(text: str) -> ModuleOp:
    """The annotated program that a text is."""
    source = parse(text)
    module = source.clone()
    strip(module)
    read_into(source, module)
    return module


def strip(module: ModuleOp) -> None:
    """Removes Shardy's annotations."""
    for op in list(module.body.block.ops):
        if isinstance(op, sdy.MeshOp):
            module.body.block.erase_op(op)
    for op in module.walk():
        op.attributes.pop(RULE, None)
        op.attributes.pop(SHARDING, None)
    for function in defined_functions(module).values():
        found = {port: attributes for port, (_, attributes) in ports(function).items()}
        for attributes in found.values():
            attributes.pop(SHARDING, None)
        set_ports(function, found)


def read_into(source: ModuleOp, module: ModuleOp, ours: bool = True, rules: bool = True) -> None:
    """Annotates `module` as `source`, a module of the same program, says. Without `ours` it is by Shardy's annotations
    alone; without `rules` the module keeps its rules."""
    mesh = _read_mesh(source, module)
    targets = defined_functions(module)
    for name, function in defined_functions(source).items():
        if name not in targets:
            raise DistirError(f"the text has a function @{name}, the module has none")
        reading = _Reading(mesh, function, targets[name], ours)
        if rules:
            reading.rules()
        if mesh is not None:
            reading.ports()
            reading.strategies()


def _read_mesh(source: ModuleOp, module: ModuleOp) -> MeshOp | None:
    """The text's mesh, put into the module in place of its own."""
    meshes = [op for op in source.body.block.ops if isinstance(op, sdy.MeshOp) and op.mesh.data.axes]
    if not meshes:
        return None
    if len(meshes) > 1 or meshes[0].mesh.data.device_ids:
        names = ", ".join(f"@{op.sym_name.data}" for op in meshes)
        raise DistirError(f"the text has the meshes {names}; distir reads one, with its devices in their own order")
    block = module.body.block
    for op in list(block.ops):
        if isinstance(op, MeshOp):
            block.erase_op(op)
    mesh = MeshOp(meshes[0].sym_name.data, dict(meshes[0].mesh.data.axes))
    mesh.attributes.update(meshes[0].attributes)
    if block.first_op is None:
        block.add_op(mesh)
    else:
        block.insert_op_before(mesh, block.first_op)
    return mesh


class _Reading:
    """One function of the text beside that of the module."""

    def __init__(self, mesh: MeshOp | None, source: FuncOp, target: FuncOp, ours: bool):
        self.source, self.target, self.ours = source, target, ours
        self.mesh = "" if mesh is None else mesh.sym_name.data
        self.sizes: dict[str, int] = {} if mesh is None else mesh.axis_sizes
        self.pairs = list(_matched(source, target))
        self.states: dict[SSAValue, States] = {}

    def rules(self) -> None:
        for theirs, op in self.pairs:
            wanted = cast(sdy.OpShardingRuleAttr | None, theirs.attributes.get(RULE))
            candidates = [r for o in (theirs, op) if self.ours and (r := rule_attribute(o)) is not None]
            if wanted is None:
                found = candidates[0] if candidates else None
            else:
                same = (rule for rule in candidates if shardy_rule(op, rule) == wanted)
                found = next(same, None) or RuleAttr(rule_from_shardy(wanted.data))
            _set(op, OURS["rule"], found)

    def ports(self) -> None:
        theirs, found = ports(self.source), ports(self.target)
        if theirs.keys() != found.keys():
            name = self.source.sym_name.data
            raise DistirError(f"@{name} has other numbers of arguments and results in the text than in the module")
        for port, (value, attributes) in found.items():
            text = theirs[port][1]
            own = attributes.pop(OURS["sharding"], None)
            candidates = [text.get(OURS["sharding"]), own] if self.ours else []
            sharding = self._port(text.get(SHARDING), value, candidates)
            if sharding is not None:
                attributes[OURS["sharding"]] = sharding
            if port[0] == "argument":
                self._know(value, text.get(SHARDING))
        set_ports(self.target, {port: attributes for port, (_, attributes) in found.items()})

    def _port(
        self, wanted: Attribute | None, value: SSAValue, candidates: Sequence[Attribute | None]
    ) -> Attribute | None:
        known = [cast(ShardingAttr, candidate) for candidate in candidates if candidate is not None]
        if wanted is None:
            return known[0] if known else None
        theirs, rank = cast(sdy.ShardingAttr, wanted).data, len(shape_of(value))
        for candidate in known:
            said = [candidate.states.get(axis, REPLICATED) for axis in self.sizes]
            if sharding_to_shardy(self.mesh, [*self.sizes], said, rank) == theirs:
                return candidate
        states = sharding_from_shardy(theirs, shape_of(value), self.sizes)
        return ShardingAttr.of(self.mesh, rank, dict(zip(self.sizes, states, strict=True)))

    def _know(self, value: SSAValue, wanted: Attribute | None) -> None:
        if wanted is not None and not is_open(sharding := cast(sdy.ShardingAttr, wanted).data):
            self.states[value] = sharding_from_shardy(sharding, shape_of(value), self.sizes)

    def strategies(self) -> None:
        for theirs, op in self.pairs:
            wanted = cast(sdy.ShardingPerValueAttr | None, theirs.attributes.get(SHARDING))
            candidates = [s for o in (theirs, op) if self.ours and (s := strategy_attribute(o)) is not None]
            if isinstance(op, CallOp | ReturnOp):
                continue
            if wanted is None:
                _set(op, OURS["strategy"], candidates[0] if candidates else None)
                continue
            shapes = [shape_of(result) for result in op.results]
            if len(wanted.data) != len(shapes):
                raise DistirError(f"{op.name}: {wanted} is not of {len(shapes)} results")
            results = [sharding_from_shardy(s, shape, self.sizes) for s, shape in zip(wanted.data, shapes, strict=True)]
            same = (strategy for strategy in candidates if shardy_results(op, strategy, self.sizes) == wanted)
            operands = [self.states.get(value) for value in values_read(op)]
            _set(op, OURS["strategy"], next(same, None) or strategy_of(op, self.mesh, self.sizes, results, operands))
            for result, sharding, states in zip(op.results, wanted.data, results, strict=True):
                if not is_open(sharding):
                    self.states[result] = states


def _matched(source: FuncOp, target: FuncOp) -> list[tuple[Operation, Operation]]:
    """The operations of both, pair by pair; Shardy's own (reshards, constraints) are in the text only."""
    theirs = [op for op in source.body.block.ops if not _is_shardys(op)]
    ours = list(target.body.block.ops)
    for i, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        if _name(a) != _name(b) or len(a.operands) != len(b.operands):
            raise DistirError(
                f"@{source.sym_name.data}: operation {i} of the text is {_name(a)}, of the module {_name(b)}"
            )
    if len(theirs) != len(ours):
        raise DistirError(
            f"@{source.sym_name.data} has {len(theirs)} operations in the text, {len(ours)} in the module"
        )
    return list(zip(theirs, ours, strict=True))


def _is_shardys(op: Operation) -> bool:
    return _name(op).startswith("sdy.")


def _name(op: Operation) -> str:
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def _set(op: Operation, name: str, value: Attribute | None) -> None:
    if value is None:
        op.attributes.pop(name, None)
    else:
        op.attributes[name] = value
