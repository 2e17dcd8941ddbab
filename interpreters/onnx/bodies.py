"""Runs ONNX operators with graphs inside, `If`, `Loop`, `Scan` and `SequenceMap`, in any domain. In go an op and its
operands; out come its results.

The operands of such an op are followed by the values that its graphs use from outside (`walk.values_read`). `run`
gives the results of one op of a body; a domain passes its own. onnx's reference evaluator is not asked: in 1.23.2
its Loop stacks results of two dims wrongly and takes an absent condition for false.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OnnxOperation, Yield, numpy_dtype
from distir.interpreters.walk import values_read

Run = Callable[[Operation, Sequence[Any]], Sequence[Any]]

WITH_BODIES = ("If", "Loop", "Scan", "SequenceMap")


def has_bodies(op: Operation) -> bool:
    """Whether the op is one of those that are run here."""
    return isinstance(op, OnnxOperation) and op.schema.name in WITH_BODIES and len(op.regions) > 0


def surroundings(op: Operation, operands: Sequence[Any]) -> dict[SSAValue, Any]:
    """The values from outside that the op's graphs use."""
    captured = values_read(op)[len(op.operands) :]
    given = operands[len(op.operands) :]
    if len(captured) != len(given):
        raise DistirError(f"{op.name} cannot be evaluated alone: its graph uses values from outside")
    return dict(zip(captured, given, strict=True))


def run_body(body: Region, arguments: Sequence[Any], outer: Mapping[SSAValue, Any], run: Run) -> list[Any]:
    """The results of one graph."""
    values: dict[SSAValue, Any] = {**outer, **dict(zip(body.block.args, arguments, strict=True))}
    for op in body.block.ops:
        operands = [values[value] for value in values_read(op)]
        if isinstance(op, Yield):
            return operands
        values.update(zip(op.results, run(op, operands), strict=True))
    raise DistirError("the graph of an operator does not end in onnx.Yield")


def branch(op: Operation, condition: np.ndarray[Any, Any]) -> Region:
    """The branch of an `If` that a condition takes."""
    else_branch, then_branch = op.regions  # in alphabetical order, as all attributes
    return then_branch if condition.all() else else_branch


def run_with_bodies(op: Operation, operands: Sequence[Any], run: Run) -> list[Any]:
    """The results on concrete operands."""
    outer, own = surroundings(op, operands), operands[: len(op.operands)]
    match cast(OnnxOperation, op).schema.name:
        case "If":
            return run_body(branch(op, own[0]), (), outer, run)
        case "Loop":
            done = run_loop(op, operands, run)
            return [*done.state, *(_stacked(op, i, values) for i, values in enumerate(done.scanned, len(done.state)))]
        case "Scan":
            return _scan(op, own, outer, run)
        case _:
            return _sequence_map(op, own, outer, run)


# Loop.


@dataclass
class LoopRun:
    """How far a loop was followed: its whole run, unless `unknown` says what stopped it."""

    state: list[Any]
    scanned: list[list[Any]]
    """For each value that the loop collects, one per iteration."""
    count: int = 0
    unknown: str | None = None


def run_loop(op: Operation, operands: Sequence[Any], run: Run, largest: int | None = None) -> LoopRun:
    """Iterate while the trip count and the condition are arrays and say so, for at most `largest` operations."""
    outer = surroundings(op, operands)
    limit, condition, *state = operands[: len(op.operands)]
    (body,) = op.regions
    carried, size = len(state), len(list(body.walk()))
    done = LoopRun(state, [[] for _ in op.results[carried:]])
    while True:
        if _is_abstract(limit):
            done.unknown = "its trip count is not known"
        elif limit is not None and done.count >= int(limit.reshape(-1)[0]):
            return done
        elif _is_abstract(condition):
            done.unknown = f"its condition after iteration {done.count} is not known"
        elif condition is not None and not condition.all():
            return done
        elif largest is not None and (done.count + 1) * size > largest:
            done.unknown = f"it would be more than {largest} operations"
        if done.unknown is not None:
            return done
        arguments = [np.array(done.count, np.int64), np.array(True) if condition is None else condition, *done.state]
        condition, *rest = run_body(body, arguments, outer, run)
        done.state = rest[:carried]
        for collected, value in zip(done.scanned, rest[carried:], strict=True):
            collected.append(value)
        done.count += 1


def _is_abstract(value: object) -> bool:
    return value is not None and not isinstance(value, np.ndarray)


def _stacked(op: Operation, index: int, values: Sequence[Any], axis: int = 0) -> np.ndarray[Any, Any]:
    """The values of all iterations along a new dim."""
    if values:
        return np.stack(values, axis)
    type = op.results[index].type
    if not isinstance(type, TensorType):
        raise DistirError(f"{op.name} collects nothing in no iteration: the shape of result {index} is not known")
    tensor = cast(TensorType[Attribute], type)
    shape = [max(dim, 0) for dim in tensor.get_shape()]
    shape[axis] = 0
    return np.zeros(shape, numpy_dtype(tensor.element_type))


# Scan and SequenceMap.


@dataclass
class ScanShape:
    """How a `Scan` cuts its operands and stacks its results; axes count from the front."""

    carried: int
    input_axes: list[int] = field(default_factory=list[int])
    backwards: list[bool] = field(default_factory=list[bool])
    output_axes: list[int] = field(default_factory=list[int])
    prepended: list[bool] = field(default_factory=list[bool])


def scan_shape(op: Operation, ranks: Sequence[int]) -> ScanShape:
    """`ranks` are the numbers of dims of all operands."""
    scanned = cast(IntegerAttr[Any], op.properties["num_scan_inputs"]).value.data
    carried = len(op.operands) - scanned
    outputs = len(op.results) - carried

    def listed(name: str, count: int) -> list[int]:
        given = op.properties.get(name)
        return _integers(given) if isinstance(given, ArrayAttr) else [0] * count

    axes = [a % rank for a, rank in zip(listed("scan_input_axes", scanned), ranks[carried:], strict=True)]
    return ScanShape(
        carried,
        axes,
        [direction == 1 for direction in listed("scan_input_directions", scanned)],
        listed("scan_output_axes", outputs),
        [direction == 1 for direction in listed("scan_output_directions", outputs)],
    )


def _integers(attribute: ArrayAttr[Any]) -> list[int]:
    return [cast(IntegerAttr[Any], item).value.data for item in attribute]


def _scan(op: Operation, own: Sequence[Any], outer: Mapping[SSAValue, Any], run: Run) -> list[Any]:
    how = scan_shape(op, [value.ndim for value in own])
    state, scanned = list(own[: how.carried]), own[how.carried :]
    collected: list[list[Any]] = [[] for _ in how.output_axes]
    lengths = {value.shape[axis] for value, axis in zip(scanned, how.input_axes, strict=True)}
    if len(lengths) != 1:
        raise DistirError(f"{op.name}: expected scanned operands of one length, got {sorted(lengths)}")
    (length,) = lengths
    for i in range(length):
        slices = [
            np.take(value, length - 1 - i if backwards else i, axis)
            for value, axis, backwards in zip(scanned, how.input_axes, how.backwards, strict=True)
        ]
        results = run_body(op.regions[0], [*state, *slices], outer, run)
        state = results[: how.carried]
        for values, value in zip(collected, results[how.carried :], strict=True):
            values.append(value)
    stacked = [
        _stacked(op, how.carried + i, values[::-1] if prepended else values, axis)
        for i, (values, axis, prepended) in enumerate(zip(collected, how.output_axes, how.prepended, strict=True))
    ]
    return [*state, *stacked]


def _sequence_map(op: Operation, own: Sequence[Any], outer: Mapping[SSAValue, Any], run: Run) -> list[Any]:
    """The body of each element; operands that are sequences go element by element, others whole."""
    results: list[list[Any]] = [[] for _ in op.results]
    for i in range(len(own[0])):
        arguments = [value[i] if isinstance(value, list) else value for value in own]
        for sequence, value in zip(results, run_body(op.regions[0], arguments, outer, run), strict=True):
            sequence.append(value)
    return list(results)
