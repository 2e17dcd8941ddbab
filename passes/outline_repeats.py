"""`outline-repeats`: finds repeated runs of isomorphic operations (layers), outlines each once, calls it instead.

Where it stands: after shapes are static (`onnx-fold-shapes`), before rules and distribution, so that the cost of everything
that follows depends on the number of distinct bodies. It knows no operator: two runs are isomorphic if their operations
have the same names, attributes and types and are wired alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from distir.dialects.errors import DistirError
from distir.interpreters.entry import entry_function
from distir.interpreters.model_names import NAMES, model_name, rename
from distir.interpreters.shared import Shared, texts_of_regions
from distir.interpreters.walk import values_read
from distir.interpreters.work import type_bytes
from distir.passes.structure import argument_attributes, is_constant, is_stated, text, unique_symbol


@dataclass(frozen=True)
class OutlineRepeatsPass(ModulePass):
    """Outlines repeated runs of at least `minimum` operations in the entry function. Where runs take the same parameters
    (an encoder of two views) and mostly consist of repeated layers, these are outlined instead, so that pipeline stages begin between them.

    Requires: level 1 or 2, straight-line code. Ensures: equal semantics; each repeated run is a `func.call`. Keeps all
    `dist.*` attributes of operations."""

    name = "outline-repeats"
    minimum: int = 2
    """Operations that a repeat has at least."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.minimum < 1:
            raise DistirError(f"minimum: expected at least 1, got {self.minimum}")
        entry = entry_function(op)
        parameters = _parameters(entry)
        while (repeat := find_repeat(_operations(entry.body.block), self.minimum)) is not None:
            for each in divided(repeat, parameters, self.minimum):
                outline(op, entry.body.block, each)


@dataclass(frozen=True)
class Repeat:
    """`runs[i][j]` is the j-th operation of the i-th repetition."""

    runs: tuple[tuple[Operation, ...], ...]


def _operations(block: Block) -> list[Operation]:
    """What a block computes: constants belong to their users."""
    return [op for op in block.ops if not is_constant(op) and not isinstance(op, ReturnOp)]


def _parameters(entry: FuncOp) -> set[SSAValue]:
    ports = zip(entry.body.block.args, argument_attributes(entry), strict=True)
    return {value for value, attributes in ports if text(attributes, "dist.role", "input") == "parameter"}


def divided(repeat: Repeat, parameters: Collection[SSAValue], minimum: int) -> list[Repeat]:
    """The repeats to outline instead of one: where its runs take the same parameters (an encoder of two views), the layers that it mostly
    consists of, so that pipeline stages begin between them."""
    if not _takes_again(repeat, parameters):
        return [repeat]
    unit, found, layers = repeat.runs[0], list[Repeat](), 0
    between = [(0, len(unit))]
    while between:
        start, stop = between.pop()
        if (inner := find_repeat(unit[start:stop], minimum)) is None:
            continue
        length = len(inner.runs[0])
        first = unit.index(inner.runs[0][0])
        last = first + len(inner.runs) * length
        found.append(Repeat(tuple(run[i : i + length] for run in repeat.runs for i in range(first, last, length))))
        between += (start, first), (last, stop)
        layers += last - first
    return found if 2 * layers > len(unit) else [repeat]


def _takes_again(repeat: Repeat, parameters: Collection[SSAValue]) -> bool:
    """Whether most of what a repeat takes of parameters is taken by several of its runs."""
    times = Counter(value for run in repeat.runs for value in _inputs(run) if value in parameters)
    return 2 * sum(type_bytes(v.type) for v, n in times.items() if n > 1) > sum(type_bytes(v.type) for v in times)


def find_repeat(ops: Sequence[Operation], minimum: int) -> Repeat | None:
    """The repeat that covers most of these operations; None if nothing of `minimum` operations repeats.

    A call (it stands for a repeat already) or an operation whose regions use values from outside is never part of one."""
    import numpy as np

    numbers: dict[Hashable, int] = {}
    shared = Shared()
    codes = np.array([numbers.setdefault(token(op, shared), len(numbers)) for op in ops], dtype=np.int64)
    candidates: list[tuple[int, int, int, int]] = []  # covered, -period, first, length of the run of equal tokens
    for period in range(minimum, len(ops) // 2 + 1):
        equal = np.concatenate(([False], codes[:-period] == codes[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - first >= period and not _repeats_shorter(codes[first : first + period].tolist(), minimum):
                covered = ((end - first) // period + 1) * period
                candidates.append((covered, -period, first, end - first))
    for _, period, first, length in sorted(candidates, reverse=True):
        if (repeat := _isomorphic_runs(ops[first : first - period + length], -period)) is not None:
            return repeat
    return None


def _repeats_shorter(unit: list[int], minimum: int) -> bool:
    """Whether a unit is itself a repetition of fewer than `minimum` tokens (then it is no layer)."""
    return any(unit == unit[:size] * (len(unit) // size) for size in range(1, minimum) if len(unit) % size == 0)


def token(op: Operation, shared: Shared) -> Hashable:
    """Equal for operations that compute the same function of operands of the same types."""
    if isinstance(op, CallOp) or len(values_read(op)) > len(op.operands):
        return id(op)
    number = shared.number
    attributes = frozenset((k, number(v)) for k, v in op.attributes.items() if k not in NAMES)
    properties = frozenset((k, number(v)) for k, v in op.properties.items())
    operands = tuple(_constant_content(v, shared) or number(v.type) for v in op.operands)
    results = tuple(number(result.type) for result in op.results)
    return op.name, attributes, properties, operands, results, texts_of_regions(op)


def _constant_content(value: SSAValue, shared: Shared) -> Hashable | None:
    if not is_stated(value):
        return None
    op = value.op
    return op.name, frozenset((k, shared.number(v)) for k, v in op.properties.items()), shared.number(value.type)


def _isomorphic_runs(ops: Sequence[Operation], period: int) -> Repeat | None:
    """Cuts a run of periodic tokens where fewest values cross, and keeps the repetitions wired like the first one."""
    repetitions = len(ops) // period
    wires = _wires(ops)
    escapes = _escapes(ops)
    best: tuple[int, int, int] | None = None
    for shift in range(len(ops) - repetitions * period + 1):
        starts = range(shift, shift + repetitions * period, period)
        wiring = _wiring(wires, shift, period)
        alike = 1
        while alike < repetitions and _wiring(wires, starts[alike], period) == wiring:
            alike += 1
        if alike > 1:
            crossing = sum(_crossing(escapes, start, period) for start in starts[:alike])
            if best is None or (-alike, crossing) < best[:2]:
                best = (-alike, crossing, shift)
    if best is None:
        return None
    count, _, shift = best
    return Repeat(tuple(tuple(ops[shift + i * period : shift + (i + 1) * period]) for i in range(-count)))


_CONSTANT = -1, -1
Wire: TypeAlias = tuple[int, int]
"""An operand: position of the operation that gives it and number of its result; (-1, -1) for a constant; for a value from
before the first operation, a number below -1 that is its own."""


def _wires(ops: Sequence[Operation]) -> list[tuple[Wire, ...]]:
    """The operands of each operation."""
    wires: dict[SSAValue, Wire] = {r: (i, j) for i, op in enumerate(ops) for j, r in enumerate(op.results)}
    found: list[tuple[Wire, ...]] = []
    for op in ops:
        for value in op.operands:
            if value not in wires:
                wires[value] = _CONSTANT if is_stated(value) else (-2 - len(wires), 0)
        found.append(tuple(wires[value] for value in op.operands))
    return found


def _wiring(wires: Sequence[tuple[Wire, ...]], start: int, period: int) -> list[Wire]:
    """How the operands of a run are wired: to a result inside the run, or to the n-th distinct value from outside."""
    outside: dict[Wire, Wire] = {}
    wiring: list[Wire] = []
    for operands in wires[start : start + period]:
        for wire in operands:
            if wire[0] >= start:
                wiring.append((wire[0] - start, wire[1]))
            elif wire is _CONSTANT:
                wiring.append(wire)
            else:
                wiring.append(outside.setdefault(wire, (-2 - len(outside), 0)))
    return wiring


def _escapes(ops: Sequence[Operation]) -> list[list[int]]:
    """For each result of each operation, the position of its last user: past the end for one that is none of these."""
    place = {op: i for i, op in enumerate(ops)}
    end = len(ops)
    return [[max((place.get(use.operation, end) for use in r.uses), default=-1) for r in op.results] for op in ops]


def _crossing(escapes: Sequence[Sequence[int]], start: int, period: int) -> int:
    """How many results of a run are used after it."""
    return sum(last >= start + period for results in escapes[start : start + period] for last in results)


def _inputs(run: Sequence[Operation]) -> list[SSAValue]:
    """Distinct values from outside, by first use."""
    inside = {result for op in run for result in op.results}
    operands = (v for op in run for v in op.operands)
    return list(dict.fromkeys(v for v in operands if v not in inside and not is_stated(v)))


def _escaping(run: Sequence[Operation]) -> list[tuple[int, int]]:
    """Positions of results that are used after the run."""
    ops = set(run)
    return [
        (i, j)
        for i, op in enumerate(run)
        for j, result in enumerate(op.results)
        if any(use.operation not in ops for use in result.uses)
    ]


def outline(module: ModuleOp, block: Block, repeat: Repeat) -> FuncOp:
    """Moves the first repetition into a new function and replaces every repetition by a call of it."""
    escaping = sorted({position for run in repeat.runs for position in _escaping(run)})
    function = _function_of(repeat.runs[0], escaping, unique_symbol(module, "layer"))
    module.body.block.add_op(function)
    for run in repeat.runs:
        results = [run[i].results[j] for i, j in escaping]
        call = CallOp(function.sym_name.data, _inputs(run), [r.type for r in results])
        rename(call, zip(map(model_name, repeat.runs[0]), map(model_name, run), strict=True))
        block.insert_op_before(call, run[-1])  # every input is defined by then, and no user of a result comes earlier
        for old, new in zip(results, call.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        for op in reversed(run):
            block.erase_op(op)
    _erase_dead_constants(block)
    return function


def _function_of(run: Sequence[Operation], escaping: Sequence[tuple[int, int]], name: str) -> FuncOp:
    inputs = _inputs(run)
    body = Block(arg_types=[v.type for v in inputs])
    mapping: dict[SSAValue, SSAValue] = dict(zip(inputs, body.args, strict=True))
    for value, argument in zip(inputs, body.args, strict=True):
        argument.name_hint = value.name_hint
    for op in run:
        for value in op.operands:
            if value not in mapping and is_stated(value):
                body.add_op(value.op.clone(mapping))
        body.add_op(op.clone(mapping))
    results = [mapping[run[i].results[j]] for i, j in escaping]
    body.add_op(ReturnOp(*results))
    return FuncOp(name, ([v.type for v in inputs], [r.type for r in results]), Region(body), visibility="private")


def _erase_dead_constants(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if is_constant(op) and not any(result.uses.get_length() for result in op.results):
            block.erase_op(op)
