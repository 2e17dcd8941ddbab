"""What was chosen of a plan, kept so that a search asks once: choices along the tensor axis and the cuts of stages do not depend
on the batch, on data parallelism or on the schedule.

Operations of the annotated module are known by their site (`dist.site`) in whatever stage or local function they are copied
to; for one cut into stages, all of a plan is known by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.sharding import Choice, Sharded, State
from distir.interpreters.walk import values_read
from distir.passes.distribution.lower import SITE
from distir.passes.distribution.options import Option, replicate
from distir.passes.distribution.pipeline.stages import Cuts
from distir.passes.distribution.tensor.tensor_network import Plan
from distir.passes.structure import is_constant, shape_of

Key = tuple[int, int, bool, bool]
"""Tensor ranks, stages, whether the batch is cut, and whether functions hold parameters (`holding`)."""


@dataclass(frozen=True)
class PlanByPosition:
    """A plan of functions, callees first, whatever they are called and at any batch."""

    sites: list[list[Attribute | None]]
    """Of every operation but constants, of which there may be others at another batch (sizes)."""
    options: list[list[Option | None]]
    arguments: list[list[State]]
    results: list[list[State]]
    seconds: float

    @staticmethod
    def of(plan: Plan, functions: Sequence[FuncOp]) -> PlanByPosition:
        return PlanByPosition(
            _sites(functions),
            [[plan.options.get(op) for op in _placed(f)] for f in functions],
            [[plan.arguments[a] for a in f.body.block.args] for f in functions],
            [plan.results[f.sym_name.data] for f in functions],
            plan.seconds,
        )

    def on(self, functions: Sequence[FuncOp]) -> Plan | None:
        """The plan of functions that differ in the batch alone; None of others: pieces may not grow with it as the dims do
        that are cut."""
        if _sites(functions) != self.sites:
            return None
        plan = Plan({}, {}, {}, self.seconds)
        for function, options, arguments, results in zip(
            functions, self.options, self.arguments, self.results, strict=True
        ):
            block = function.body.block
            last = block.last_op
            assert last is not None
            try:
                plan.arguments.update(zip(block.args, _fitted(block.args, arguments), strict=True))
                plan.results[function.sym_name.data] = list(_fitted(last.operands, results))
                plan.options.update({op: replicate(op) for op in block.ops if is_constant(op)})
                for op, option in zip(_placed(function), options, strict=True):
                    if option is not None:
                        operands = _fitted(values_read(op), option.operands)
                        made = _fitted(op.results, option.results)
                        plan.options[op] = replace(option, operands=operands, results=made)
            except _DoesNotFit:
                return None
        return plan


@dataclass
class TensorChoices:
    """What was chosen for one annotated module."""

    alternating: dict[int, bool] = field(default_factory=dict[int, bool])
    """By tensor ranks, whether repeated layers are cut alternately."""
    by_site: dict[int, dict[int, Choice]] = field(default_factory=dict[int, dict[int, Choice]])
    held: dict[int, dict[str, frozenset[int]]] = field(default_factory=dict[int, dict[str, frozenset[int]]])
    """Which arguments of functions can be held inside them (`holding`)."""
    plans: dict[Key, PlanByPosition] = field(default_factory=dict[Key, PlanByPosition])
    cuts: dict[tuple[int, int, bool], Cuts] = field(default_factory=dict[tuple[int, int, bool], Cuts])
    """Where stages begin. What balances them at one batch does not at another where some of a stage's work does not grow with
    it, or only after rounding: a program at a batch is the one that was simulated for all."""


def _sites(functions: Sequence[FuncOp]) -> list[list[Attribute | None]]:
    return [[op.attributes.get(SITE) for op in _placed(f)] for f in functions]


def _placed(function: FuncOp) -> list[Operation]:
    """The operations of a function that are chosen for."""
    return [op for op in function.body.block.ops if not is_constant(op)]


class _DoesNotFit(Exception):
    """A dim has another extent than the pieces that it is cut into."""


def _fitted(values: Sequence[SSAValue], states: Sequence[State]) -> tuple[State, ...]:
    """The states of values, with pieces that are the same parts of the dims that they have."""
    return tuple([_at_extent(state, value) for value, state in zip(values, states, strict=True)])


def _at_extent(state: State, value: SSAValue) -> State:
    if not isinstance(state, Sharded):
        return state
    whole, extent = sum(state.pieces), shape_of(value)[state.dim]
    if whole == extent:
        return state
    if any(piece * extent % whole for piece in state.pieces):
        raise _DoesNotFit
    return replace(state, pieces=tuple([piece * extent // whole for piece in state.pieces]))
