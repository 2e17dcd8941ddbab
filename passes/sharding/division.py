"""Dividing counts first. In goes a problem; out come the same choices with other costs: beside its time, each costs
a device's share of the program's work and of its stored values. The cheapest plan then divides both, and is about
the fastest plan that does.

Work counts as it does at large sizes, where time is flops: a model made small for a test takes the latency of kernels and messages instead, and its
fastest plan divides nothing."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from xdsl.ir import Attribute, BlockArgument, Operation

from distir.dialects.sharding import REPLICATED
from distir.passes.distribution.mesh import AxisStates
from distir.passes.sharding.problem import Division, JointOption, Problem
from distir.passes.structure import argument_attributes, text

WEIGHT = 20.0
"""What all work, or all stored values, of one device costs, in times of the program on one device. A contraction of a thousandth of the flops is then worth
a message of a hundredth of the time; much less, and it would not be cut where that takes several, as attention over few tokens does."""


def divide(problem: Problem) -> Problem:
    """The problem in which dividing counts first."""
    work = {op: [option.price.flops for option in options] for op, options in problem.options.items()}
    if not any(map(any, work.values())):
        work = {op: [_made(problem, op, option) for option in options] for op, options in problem.options.items()}
    runs = {op: problem.runs(op, f) for f in problem.functions for op in f.body.block.ops if op in work}
    total = sum(count * max(work[op]) for op, count in runs.items())
    time = sum(count * max(o.picoseconds for o in problem.options[op]) for op, count in runs.items())
    per_unit = WEIGHT * time / total if total else 0.0
    options = {
        op: [replace(o, work_picoseconds=round(per_unit * units)) for o, units in zip(found, work[op], strict=True)]
        for op, found in problem.options.items()
    }
    entry = problem.entry
    roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
    stored = [a for a, r in zip(entry.body.block.args, roles, strict=True) if r in ("parameter", "state", "buffer")]
    bytes_ = sum(_bytes(problem, a.type, problem.prices.whole) for a in stored)
    division = Division(WEIGHT * time / bytes_ if bytes_ else 0.0, frozenset(stored))
    found = copy(problem)
    found.options, found.division = options, division
    return found


def stored_picoseconds(problem: Problem, argument: BlockArgument, states: AxisStates) -> int:
    """What an argument of the entry costs in these states; along axes of the batch alone, whose replicas hold the same, it may be cut or not."""
    division = problem.division
    if division is None or argument not in division.stored:
        return 0
    counted = tuple(s if counts else REPLICATED for s, counts in zip(states, problem.model_axes, strict=True))
    return round(division.picoseconds_per_byte * _bytes(problem, argument.type, counted))


def _made(problem: Problem, op: Operation, option: JointOption) -> int:
    """Bytes of an operation's results on a device: the work of a program without contractions."""
    return sum(_bytes(problem, r.type, states) for r, states in zip(op.results, option.results, strict=True))


def _bytes(problem: Problem, type_: Attribute, states: AxisStates) -> int:
    return problem.prices.bytes(type_, states)
