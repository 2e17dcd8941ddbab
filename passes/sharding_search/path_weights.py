"""How often everything in a staged program is on some paths: in go paths, each with a factor; out come the factors of operations, conversions
and messages with which a plan's costs add up to what it takes along these paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from distir.passes.sharding_search.occurrences import Occurrences, occurrences_of
from distir.passes.sharding_search.pipeline_time import Path
from distir.passes.sharding_search.problem import Problem
from distir.passes.staging.order import Use
from distir.passes.structure import AnyCall


@dataclass
class Weights:
    """Of functions, by name, and in them of what runs less often; of what the entry and the loop over microbatches do beside calls; of
    conversions, by value and stage, and messages, by value, sender and receiver, for the use for which they are made."""

    functions: Counter[str] = field(default_factory=Counter[str])
    spared: Counter[Operation | SSAValue] = field(default_factory=Counter["Operation | SSAValue"])
    operations: Counter[Operation] = field(default_factory=Counter[Operation])
    conversions: dict[SSAValue, dict[int, Counter[Use]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    messages: dict[SSAValue, dict[tuple[int, int], Counter[Use]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )


def weights_of(problem: Problem, paths: Iterable[tuple[Path, int]]) -> Weights:
    """How often everything is on these paths, each so many times."""
    found, occurrences = Weights(), occurrences_of(problem)
    if occurrences is None:
        found.functions[problem.entry.sym_name.data] = 1
    for path, times in paths:
        if times and occurrences is not None:
            _add(found, problem, occurrences, path, times)
    for function in reversed(problem.functions):
        if not problem.is_scheduled(function):
            for op in function.body.block.ops:
                if isinstance(op, AnyCall):
                    found.functions[op.callee.string_value()] += found.functions[function.sym_name.data]
    return found


def every_stage(problem: Problem) -> list[tuple[Path, int]]:
    """Everything: one path for each stage, which it never leaves."""
    return [] if problem.order is None else [(Path((((), stage),)), 1) for stage in range(problem.order.ranks)]


def _add(found: Weights, problem: Problem, occurrences: Occurrences, path: Path, times: int) -> None:
    order = occurrences.order
    firsts: dict[SSAValue, int] = {zero.argument: order.runs_in(order.left[zero.index])[0] for zero in problem.zeros}
    for run in occurrences.runs:
        if not path.has(run.position, run.stage):
            continue
        op = run.operation
        starting = [zero for zero in problem.zeros if run.microbatch == firsts[zero.argument]]
        if isinstance(op, AnyCall):
            found.functions[op.callee.string_value()] += times
            for zero in starting:
                for each in (*zero.passed, zero.adding) if zero.call is op else ():
                    found.spared[each] += times
        elif all(zero.adding is not op for zero in starting):
            found.operations[op] += times
    for (value, microbatch, stage), there in occurrences.found.items():
        if there.is_received or (value in firsts and microbatch == firsts[value]):
            continue
        seen: set[Use] = set()
        for at in sorted(there.uses, key=lambda at: at.start):
            if at.use not in seen:
                seen.add(at.use)
                found.conversions[value][stage][at.use] += times * path.has(at.start, stage)
    for (value, _, sender, receiver), uses in occurrences.messages.items():
        seen = set()
        for at in uses:
            if at.use not in seen:
                seen.add(at.use)
                found.messages[value][sender, receiver][at.use] += times * path.has(at.start, sender, receiver)
