"""Exports to Shardy. In goes an annotated module; out comes its text with Shardy's annotations in place of ours.
Where theirs say less, ours stay beside them."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.printer import Printer

from distir.backends.shardy.annotations import (
    RULE,
    SHARDING,
    defined_functions,
    is_static,
    ports,
    rule_attribute,
    set_ports,
    shardy_results,
    shardy_rule,
    strategy_attribute,
)
from distir.backends.shardy.importing import OURS, read_into
from distir.backends.shardy.rules import rule_from_shardy
from distir.backends.shardy.shardings import sharding_to_shardy
from distir.dialects import sdy
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, MeshOp, ShardingAttr
from distir.passes.structure import shape_of


def export_module(module: ModuleOp) -> str:
    """The module as MLIR text in the generic form, with `sdy` annotations: Shardy's tools read it when unregistered dialects
    are allowed. Raises DistirError for several meshes."""
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(with_shardy(module))
    return stream.getvalue() + "\n"


def with_shardy(module: ModuleOp) -> ModuleOp:
    """A copy of an annotated module, annotated for Shardy. `dist.rule`, `dist.strategy` and `dist.sharding` stay where
    Shardy's annotations, read back, are not the same."""
    exported = module.clone()
    meshes = [op for op in exported.body.block.ops if isinstance(op, MeshOp)]
    if len(meshes) > 1:
        raise DistirError(f"expected one dist.mesh in the module, got {len(meshes)}")
    mesh = meshes[0] if meshes else None
    for function in defined_functions(exported).values():
        for op in function.body.block.ops:
            _annotate(op, mesh)
        if mesh is not None:
            _annotate_ports(function, mesh.sym_name.data, mesh.axis_sizes)
    if mesh is not None:
        theirs = sdy.MeshOp(mesh.sym_name.data, sdy.SdyMesh(mesh.axes.data))
        theirs.attributes.update(mesh.attributes)
        exported.body.block.insert_op_before(theirs, mesh)
        exported.body.block.erase_op(mesh)
    _drop_what_is_said(exported, module)
    return exported


def _annotate(op: Operation, mesh: MeshOp | None) -> None:
    rule, strategy = rule_attribute(op), strategy_attribute(op)
    if rule is not None and (theirs := shardy_rule(op, rule)) is not None:
        op.attributes[RULE] = theirs
    if mesh is not None and strategy is not None and all(map(is_static, op.results)):
        results = shardy_results(op, strategy, mesh.axis_sizes)
        if results is None:
            raise DistirError(f"{op.name}: {strategy} does not fit the rule or the shapes")
        op.attributes[SHARDING] = results


def _annotate_ports(function: FuncOp, mesh: str, sizes: Mapping[str, int]) -> None:
    found = ports(function)
    for value, attributes in found.values():
        ours = cast(ShardingAttr | None, attributes.get(OURS["sharding"]))
        if ours is not None and is_static(value):
            states = [ours.states.get(axis, REPLICATED) for axis in sizes]
            theirs = sharding_to_shardy(mesh, [*sizes], states, len(shape_of(value)))
            attributes[SHARDING] = sdy.ShardingAttr(theirs)
    set_ports(function, {port: attributes for port, (_, attributes) in found.items()})


def _drop_what_is_said(exported: ModuleOp, original: ModuleOp) -> None:
    """Drops annotations of ours that an import finds by Shardy's alone."""
    for function in defined_functions(exported).values():
        for op in function.body.block.ops:
            rule, theirs = rule_attribute(op), cast(sdy.OpShardingRuleAttr | None, op.attributes.get(RULE))
            if rule is not None and theirs is not None and rule_from_shardy(theirs.data) == rule.data:
                del op.attributes[OURS["rule"]]
    read = original.clone()
    read_into(exported, read, ours=False, rules=False)
    for name, function in defined_functions(exported).items():
        again = defined_functions(read)[name]
        for op, other in zip(function.body.block.ops, again.body.block.ops, strict=True):
            _drop(op.attributes, OURS["strategy"], other.attributes)
        found, read_ports = ports(function), ports(again)
        for port, (_, attributes) in found.items():
            _drop(attributes, OURS["sharding"], read_ports[port][1])
        set_ports(function, {port: attributes for port, (_, attributes) in found.items()})


def _drop(attributes: dict[str, Attribute], name: str, read: Mapping[str, Attribute]) -> None:
    if name in attributes and str(attributes[name]) == str(read.get(name)):
        del attributes[name]
