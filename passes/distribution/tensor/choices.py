"""What was chosen of a plan, kept so that a search asks once: choices along the tensor axis and the cuts of stages do not depend
on the batch, on data parallelism or on the schedule.

Operations of the annotated module are known by their site (`dist.site`) in whatever stage or local function they are copied
to; for one cut into stages, all of a plan is known by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.sharding import Choice, Sharded, State, extent_of
from distir.interpreters.walk import values_read
from distir.passes.distribution.lower import SITE
from distir.passes.distribution.options import Option, replicate
from distir.passes.distribution.pipeline.stages import Cuts
from distir.passes.distribution.rows import choice_at, rows_of_any, state_at
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
    rows: int
    """Of a microbatch."""

    @staticmethod
    def of(plan: Plan, functions: Sequence[FuncOp], rows: int) -> PlanByPosition:
        return PlanByPosition(
            _sites(functions),
            [[plan.options.get(op) for op in _placed(f)] for f in functions],
            [[plan.arguments[a] for a in f.body.block.args] for f in functions],
            [plan.results[f.sym_name.data] for f in functions],
            plan.seconds,
            rows,
        )

    def on(self, functions: Sequence[FuncOp], rows: int) -> Plan | None:
        """The plan of functions that differ in the batch alone, at so many rows of a microbatch; None of others, and where a dim that is
        cut grows with the rows, but the plan is not one for any batch."""
        if _sites(functions) != self.sites:
            return None
        at = None if rows == self.rows else rows_of_any(self.rows, rows)
        plan = Plan({}, {}, {}, self.seconds)
        for function, options, arguments, results in zip(
            functions, self.options, self.arguments, self.results, strict=True
        ):
            block = function.body.block
            last = block.last_op
            assert last is not None
            try:
                plan.arguments.update(zip(block.args, _fitted(block.args, arguments, at), strict=True))
                plan.results[function.sym_name.data] = list(_fitted(last.operands, results, at))
                plan.options.update({op: replicate(op) for op in block.ops if is_constant(op)})
                for op, option in zip(_placed(function), options, strict=True):
                    if option is not None:
                        operands = _fitted(values_read(op), option.operands, at)
                        made = _fitted(op.results, option.results, at)
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
    rows: dict[int, int] = field(default_factory=dict[int, int])
    """By tensor ranks, at which rows of a microbatch, where some dim is cut that grows with them."""
    held: dict[int, dict[str, frozenset[int]]] = field(default_factory=dict[int, dict[str, frozenset[int]]])
    """Which arguments of functions can be held inside them (`holding`)."""
    plans: dict[Key, PlanByPosition] = field(default_factory=dict[Key, PlanByPosition])
    cuts: dict[tuple[int, int, bool], Cuts] = field(default_factory=dict[tuple[int, int, bool], Cuts])
    """Where stages begin. What balances them at one batch does not at another where some of a stage's work does not grow with
    it, or only after rounding: a program at a batch is the one that was simulated for all."""

    def sites(self, tp: int, rows: int) -> Mapping[int, Choice] | None:
        """The choices by site at so many rows of a microbatch; None if they are not known."""
        found, chosen_at = self.by_site.get(tp), self.rows.get(tp, rows)
        if found is None or chosen_at == rows:
            return found
        at = rows_of_any(chosen_at, rows)
        return None if at is None else {site: choice_at(choice, at) for site, choice in found.items()}


def _sites(functions: Sequence[FuncOp]) -> list[list[Attribute | None]]:
    return [[op.attributes.get(SITE) for op in _placed(f)] for f in functions]


def _placed(function: FuncOp) -> list[Operation]:
    """The operations of a function that are chosen for."""
    return [op for op in function.body.block.ops if not is_constant(op)]


class _DoesNotFit(Exception):
    """A dim has another extent than the pieces that it is cut into."""


def _fitted(values: Sequence[SSAValue], states: Sequence[State], rows: int | None) -> tuple[State, ...]:
    """The states of values, at so many rows if they are of a program of any batch."""
    return tuple([_at_extent(state, value, rows) for value, state in zip(values, states, strict=True)])


def _at_extent(state: State, value: SSAValue, rows: int | None) -> State:
    found = state if rows is None else state_at(state, rows)
    if isinstance(found, Sharded) and extent_of(found.pieces) != shape_of(value)[found.dim]:
        raise _DoesNotFit
    return found
