"""Trial runs, since type inference may accept more than the op does. In go a probe op and a point; out come the
result shapes if the op runs there, else None."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from distir.passes.shardcombine.domains import Array
from distir.passes.shardcombine.probe_op import FLOATING, Failure, Point, ProbeOp, Shapes

LARGEST_STAND_IN = 64_000
"""Elements of any one tensor."""
_MOST_RUN = 5 * LARGEST_STAND_IN
"""Of one of an op that is run to see whether it can: a stand-in with any dim as much longer as dim groups are tried."""


def elements(probe_op: ProbeOp, point: Point, shapes: Shapes) -> int:
    """Of the largest tensor."""
    operands = [probe_op.operand_shape(point, i) for i in probe_op.tensors]
    return max((math.prod(shape) for shape in (*operands, *shapes) if shape is not None), default=0)


def plain_arrays(probe_op: ProbeOp, point: Point, integer: int, distinct: bool = False) -> dict[int, Array]:
    """Data operands of ones, or of distinct numbers between one and two (an invertible matrix); integers are `integer`."""
    arrays: dict[int, Array] = {}
    for i in probe_op.tensors:
        shape, kind = probe_op.operand_shape(point, i), probe_op.kind(i)
        if kind == "integer":
            arrays[i] = np.full(shape, integer, probe_op.integer_dtype(i))
        else:
            arrays[i] = np.ones(shape, {"float": np.float64, "complex": np.complex128}.get(kind, np.bool_))
            if distinct and kind in FLOATING:
                arrays[i] += np.random.default_rng(i).random(shape)
    return arrays


def runs(probe_op: ProbeOp, point: Point) -> Shapes | None:
    """The result shapes at a point if the op runs there and agrees with type inference; if it does not, the
    probe op keeps why, of the first trial."""
    shapes = probe_op.infer(point)
    if shapes is None or any(0 in shape for shape in shapes if shape is not None):
        return None
    if elements(probe_op, point, shapes) > _MOST_RUN:
        return None
    for integer, distinct in product((0, 1), (False, True)):
        try:
            arrays = plain_arrays(probe_op, point, integer, distinct)
            results = probe_op.evaluate(point, probe_op.consistent(point, arrays))
        except Exception as error:
            probe_op.failure = probe_op.failure or Failure.of("reference", error)
            continue
        found = tuple(None if result is None else result.shape for result in results)
        if found == shapes:
            return shapes
        says = f"reference: results of shapes {_text(found)}, and types say {_text(shapes)}"
        probe_op.failure = probe_op.failure or Failure(says)
    return None


def _text(shapes: Shapes) -> str:
    return ", ".join("none" if shape is None else str([*shape]) for shape in shapes)
