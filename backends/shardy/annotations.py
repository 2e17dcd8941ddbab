"""Translates the annotations of one operation. In go our rule and strategy, or Shardy's rule and shardings; out come
the other's.

Shardy annotates the results of an operation; a strategy says how the operation runs. So a strategy is read back as
the option of the rule that gives these results. Of several options, the one with operands closest to their present
states is taken (the contraction cut along its inner dim, where both operands are cut there)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.backends.shardy.rules import rule_to_shardy
from distir.backends.shardy.shardings import sharding_to_shardy
from distir.dialects.errors import DistirError
from distir.dialects.sdy import OpShardingRuleAttr, Sharding, ShardingPerValueAttr
from distir.dialects.sharding import Choice, Replicate, RuleAttr, State, StrategyAttr
from distir.passes.distribution.options import Option, chosen_option, options
from distir.passes.structure import argument_attributes, functions, result_attributes, shape_of

SHARDING, RULE = "sdy.sharding", "sdy.sharding_rule"
States = tuple[State, ...]


def is_static(value: SSAValue) -> bool:
    """Whether Shardy can map the dims of a value."""
    return isinstance(value.type, TensorType) and DYNAMIC_INDEX not in shape_of(value)


def shardy_rule(op: Operation, rule: RuleAttr) -> OpShardingRuleAttr | None:
    """Shardy's rule of an operation; None for one with regions, and where an operand or result is no tensor of static
    shape."""
    if op.regions or not (op.operands or op.results) or not all(map(is_static, (*op.operands, *op.results))):
        return None
    found = rule_to_shardy(rule.data, [shape_of(v) for v in op.operands], [shape_of(v) for v in op.results])
    return OpShardingRuleAttr(found)


def shardy_results(op: Operation, strategy: StrategyAttr, sizes: Mapping[str, int]) -> ShardingPerValueAttr | None:
    """Shardy's shardings of the results of an operation with a rule; None for a strategy that does not fit it."""
    chosen = [chosen_option(op, strategy.choices.get(axis, Replicate()), size) for axis, size in sizes.items()]
    fitting = [option for option in chosen if option is not None]
    if len(fitting) < len(chosen) or not op.results:
        return None
    return ShardingPerValueAttr(
        tuple(
            sharding_to_shardy(strategy.data[0], [*sizes], [o.results[i] for o in fitting], len(shape_of(result)))
            for i, result in enumerate(op.results)
        )
    )


def strategy_of(
    op: Operation, mesh: str, sizes: Mapping[str, int], results: Sequence[States], operands: Sequence[States | None]
) -> StrategyAttr:
    """What an operation with a rule does to give its results in these states. An operation that no option lets give them
    is not cut along that axis."""
    choices: dict[str, Choice] = {}
    for a, (axis, size) in enumerate(sizes.items()):
        wanted = tuple(states[a] for states in results)
        fitting = [option for option in options(op, size) if option.results == wanted]
        known = [states[a] if states is not None else None for states in operands]
        best = min(fitting, key=lambda option: _distance(option, known), default=None)
        choices[axis] = best.choice if best is not None else Replicate()
    return StrategyAttr.of(mesh, choices)


def _distance(option: Option, known: Sequence[State | None]) -> int:
    """How many operands are known to be in another state than the option needs."""
    return sum(here is not None and here != needed for here, needed in zip(known, option.operands, strict=True))


def is_open(sharding: Sharding) -> bool:
    """Whether Shardy may cut the value further, so that its states are not all said."""
    return any(dim.is_open for dim in sharding.dims)


def strategy_attribute(op: Operation, name: str = "dist.strategy") -> StrategyAttr | None:
    return cast(StrategyAttr | None, op.attributes.get(name))


def rule_attribute(op: Operation) -> RuleAttr | None:
    return cast(RuleAttr | None, op.attributes.get("dist.rule"))


def defined_functions(module: ModuleOp) -> dict[str, FuncOp]:
    """The functions that have a body, by name."""
    return {name: function for name, function in functions(module).items() if function.body.blocks}


Port = tuple[str, int]
"""An argument or a result of a function: `("argument", 0)`."""
Attributes = dict[str, Attribute]


def ports(function: FuncOp) -> dict[Port, tuple[SSAValue, Attributes]]:
    """Every argument and result with its value and a copy of its attributes; DistirError where their numbers differ."""
    last = function.body.block.last_op
    found: dict[Port, tuple[SSAValue, Attributes]] = {}
    values = (function.body.block.args, last.operands if last is not None else ())
    kinds = (("argument", argument_attributes(function)), ("result", result_attributes(function)))
    for own, (kind, attributes) in zip(values, kinds, strict=True):
        if len(own) != len(attributes):
            raise DistirError(f"@{function.sym_name.data} has {len(own)} {kind}s and attributes of {len(attributes)}")
        found |= {(kind, i): (value, dict(known)) for i, (value, known) in enumerate(zip(own, attributes, strict=True))}
    return found


def set_ports(function: FuncOp, attributes: Mapping[Port, Attributes]) -> None:
    """Gives arguments and results these attributes; none are stated where none were and none are."""
    for kind, name in (("argument", "arg_attrs"), ("result", "res_attrs")):
        own = [DictionaryAttr(a) for (k, _), a in attributes.items() if k == kind]
        if any(a.data for a in own) or getattr(function, name) is not None:
            setattr(function, name, ArrayAttr(own))
