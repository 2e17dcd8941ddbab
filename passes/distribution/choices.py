"""What was chosen along the tensor axis, kept so that a search asks once: choices do not depend on the batch, on data
parallelism or on the schedule.

Operations of the annotated module are known by their site (`dist.site`) in whatever stage or local function they are copied
to; for one cut into stages, all of a plan is known by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.sharding import Choice, Sharded, State
from distir.passes.distribution.lower import SITE
from distir.passes.distribution.options import Option
from distir.passes.distribution.tensor_network import Plan
from distir.passes.structure import shape_of

Key = tuple[int, int, bool]
"""Tensor ranks, stages, and whether the batch is cut."""


@dataclass(frozen=True)
class PlanByPosition:
    """A plan of functions, callees first, whatever they are called and at any batch."""

    sites: list[list[Attribute | None]]
    """Of every operation."""
    options: list[list[Option | None]]
    arguments: list[list[State]]
    results: list[list[State]]
    seconds: float

    @staticmethod
    def of(plan: Plan, functions: Sequence[FuncOp]) -> PlanByPosition:
        return PlanByPosition(
            _sites(functions),
            [[plan.options.get(op) for op in f.body.block.ops] for f in functions],
            [[plan.arguments[a] for a in f.body.block.args] for f in functions],
            [plan.results[f.sym_name.data] for f in functions],
            plan.seconds,
        )

    def on(self, functions: Sequence[FuncOp]) -> Plan | None:
        """The plan of functions that differ in the batch alone; None of others (stages may be cut elsewhere at another batch),
        and if it cuts them in pieces of other extents."""
        if _sites(functions) != self.sites:
            return None
        plan = Plan({}, {}, {}, self.seconds)
        for function, options, arguments, results in zip(
            functions, self.options, self.arguments, self.results, strict=True
        ):
            block = function.body.block
            plan.arguments.update(zip(block.args, arguments, strict=True))
            plan.results[function.sym_name.data] = results
            for op, option in zip(block.ops, options, strict=True):
                if option is not None:
                    if not _fits(op, option):
                        return None
                    plan.options[op] = option
        return plan if all(_divides(v, state) for v, state in plan.arguments.items()) else None


@dataclass
class TensorChoices:
    """What was chosen for one annotated module."""

    alternating: dict[int, bool] = field(default_factory=dict[int, bool])
    """By tensor ranks, whether repeated layers are cut alternately."""
    by_site: dict[int, dict[int, Choice]] = field(default_factory=dict[int, dict[int, Choice]])
    plans: dict[Key, PlanByPosition] = field(default_factory=dict[Key, PlanByPosition])


def _sites(functions: Sequence[FuncOp]) -> list[list[Attribute | None]]:
    return [[op.attributes.get(SITE) for op in f.body.block.ops] for f in functions]


def _fits(op: Operation, option: Option) -> bool:
    pairs = (*zip(op.operands, option.operands, strict=True), *zip(op.results, option.results, strict=True))
    return all(_divides(value, state) for value, state in pairs)


def _divides(value: SSAValue, state: State) -> bool:
    return not isinstance(state, Sharded) or sum(state.pieces) == shape_of(value)[state.dim]
