"""Pins the sequence of attention to a mesh axis. In go a module and an axis; out come pins along the axis on
attention, on the operations that make its keys and values, and on the users of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.attention import AttentionOp, BackwardOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Gather, InputDim, Rule, StrategyAttr, UseFactor
from distir.passes.distribution.lower import STRATEGY
from distir.passes.distribution.options import rule_of
from distir.passes.distribution.pins import CUT
from distir.passes.shardcombine.cache import RuleCache
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator
from distir.passes.sharding.plans import MESH
from distir.passes.staging.zero import write_stored
from distir.passes.structure import AnyCall, functions, shape_of


def pin_sequences(module: ModuleOp, axis: str, devices: int) -> int:
    """Pins every attention whose queries can be cut along their sequence, and returns how many. Raises DistirError where so many devices do not divide a
    sequence."""
    discovery, table = Discovery(InterpreterDomains(), RuleCache.on_disk()), functions(module)

    def rule(op: Operation) -> Rule:  # factors are named as others know them, by the shapes that it was found for
        return rule_of(op) or discovery.rule(op)

    found = 0
    for op in [op for op in module.walk() if isinstance(op, AttentionOp)]:
        rows = _reading(rule(op), op, op.query)
        if rows is None:
            continue
        if any(shape_of(v)[-2] % devices for v in (op.query, op.key)):
            tokens = " and ".join(dict.fromkeys(str(shape_of(v)[-2]) for v in (op.query, op.key)))
            raise DistirError(f"{op.name} of {tokens} tokens: {devices} devices of axis {axis} do not divide them")
        found += 1
        _pin(op, axis, rows)
        for value in (_made(op.key, table), _made(op.value, table)):
            if isinstance(value, BlockArgument):
                function = value.block.parent_op()
                assert isinstance(function, FuncOp)
                write_stored(function, {value: CUT}, [axis])
            elif isinstance(value, OpResult) and is_operator(value.op):
                _pin(value.op, axis, _making(rule(value.op), value))
        for user, gradient in _users(op, table):
            _pin(user, axis, _reading(rule(user), user, gradient))
    discovery.cache.save()
    return found


def _made(value: SSAValue, table: Mapping[str, FuncOp]) -> SSAValue:
    """The value itself, or the one that a function returns as it."""
    while isinstance(value, OpResult) and isinstance(value.op, AnyCall):
        returned = table[value.op.callee.string_value()].body.block.last_op
        assert returned is not None
        value = returned.operands[value.index]
    return value


def _users(op: AttentionOp, table: Mapping[str, FuncOp]) -> Iterator[tuple[Operation, SSAValue]]:
    """What uses gradients by keys and values, also in functions that they are passed to."""
    values: list[SSAValue] = []
    if isinstance(op, BackwardOp):
        values += [op.key_gradient, op.value_gradient]
    for value in values:
        for use in value.uses:
            if isinstance(use.operation, AnyCall):
                values.append(table[use.operation.callee.string_value()].body.block.args[use.index])
            elif is_operator(use.operation):
                yield use.operation, value


def _pin(op: Operation, axis: str, factor: str | None) -> None:
    known = op.attributes.get(STRATEGY)
    choices = known.choices if isinstance(known, StrategyAttr) else {}
    if factor is not None and axis not in choices:
        op.attributes[STRATEGY] = StrategyAttr.of(MESH, {**choices, axis: UseFactor(factor)})


def _reading(rule: Rule, op: Operation, value: SSAValue) -> str | None:
    """The factor that cuts the sequence of an operand, if one does, in one piece."""
    dims = [rule.inputs[i] for i, operand in enumerate(op.operands) if operand is value]
    sequence = dims[0][len(shape_of(value)) - 2] if dims and dims[0] else InputDim()
    return sequence.factor if sequence == InputDim(sequence.factor) else None


def _making(rule: Rule, value: OpResult) -> str | None:
    """The factor that cuts the sequence of a result, if one does, in one piece."""
    whole = Gather(len(shape_of(value)) - 2)
    return next((name for name, combines in rule.combines.items() if combines[value.index] == whole), None)
