"""The mixed domain inside graphs. In go an `If`, `Loop` or `Scan` and its operands, as arrays or types; out come its
results and the values inside, as arrays or types.

An `If` on a known condition gives its branch's results, any other the join of both branches. A `Loop` whose trip
count or condition is known at every iteration is followed. For any other, and a `Scan`, the results hold for any
number of runs: its state is joined with the body's results until nothing changes.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneType, TensorType, i1, i64
from xdsl.ir import Attribute, Operation, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OnnxOperation
from distir.interpreters import mixed
from distir.interpreters.mixed import LARGEST_CONCRETE, MixedValue, join, type_of
from distir.interpreters.onnx.bodies import branch, run_body, run_loop, scan_shape, surroundings

Remember = Callable[[Sequence[SSAValue], Sequence[MixedValue]], None]
Values: TypeAlias = list[MixedValue]

LARGEST_LOOP = 20_000
"""A loop of more operations is not followed, nor unrolled."""


def infer_with_bodies(op: Operation, operands: Sequence[MixedValue], remember: Remember | None = None) -> Values:
    """What is known of the results; `remember` is told of every value inside.

    Raises DistirError when nothing can be said: a graph does not fit what is known of the operands."""
    return _Inference(op, operands, remember or (lambda values, known: None)).results()


def unknown_trip_count(op: Operation, operands: Sequence[MixedValue]) -> str | None:
    """Why a loop cannot be followed to its end; None if it can."""
    return run_loop(op, operands, mixed.mixed_operator, LARGEST_LOOP).unknown


def trip_count(op: Operation, operands: Sequence[MixedValue]) -> int | None:
    """How often a loop runs, where that is known."""
    done = run_loop(op, operands, mixed.mixed_operator, LARGEST_LOOP)
    return done.count if done.unknown is None else None


class _Inference:
    def __init__(self, op: Operation, operands: Sequence[MixedValue], remember: Remember) -> None:
        self.op, self.operands, self.remember = op, operands, remember
        self.own = operands[: len(op.operands)]
        self.outer = surroundings(op, operands)

    def results(self) -> Values:
        match cast(OnnxOperation, self.op).schema.name:
            case "If":
                return self._if()
            case "Loop":
                return self._loop()
            case "Scan":
                return self._scan()
            case name:
                raise DistirError(f"onnx.{name} has no type inference")

    def _run(self, op: Operation, operands: Sequence[MixedValue]) -> Sequence[MixedValue]:
        results = mixed.mixed_operator(op, operands, self.remember)
        self.remember(op.results, results)
        return results

    def _body(self, body: Region, arguments: Values) -> Values:
        self.remember(body.block.args, arguments)
        return run_body(body, arguments, self.outer, self._run)

    def _if(self) -> Values:
        (condition,) = self.own
        if isinstance(condition, np.ndarray):
            return self._body(branch(self.op, condition), [])
        one, two = (self._body(region, []) for region in self.op.regions)
        return [join(a, b) for a, b in zip(one, two, strict=True)]

    def _loop(self) -> Values:
        done = run_loop(self.op, self.operands, mixed.mixed_operator, LARGEST_LOOP)
        _, condition, *state = self.own
        followed = done.unknown is None
        carried = len(state)
        arguments: Values = [TensorType(i64, []), type_of(condition) if condition is not None else TensorType(i1, [])]
        # The values inside, over all iterations; of a loop that is followed, its results too.
        state, scanned = self._fixed_point(self.op.regions[0], arguments, state, [], 1)
        count = done.count if followed else DYNAMIC_INDEX
        if not followed:
            return [*state, *(_stacked(value, count, 0) for value in scanned)]
        collected: Values = []
        for values, result in zip(done.scanned, self.op.results[carried:], strict=True):
            known = all(isinstance(v, np.ndarray) for v in values) and 0 < len(values)
            small = sum(v.size for v in values if isinstance(v, np.ndarray)) <= LARGEST_CONCRETE
            if known and small:
                collected.append(np.stack(cast(list[mixed.Array], values)))
            elif not values:
                collected.append(_stacked(_element(mixed.abstract(result.type)), 0, 0))
            else:
                collected.append(_stacked(_joined(values), count, 0))
        return [*done.state, *collected]

    def _scan(self) -> Values:
        types = [_ranked(self.op, value) for value in self.own]
        how = scan_shape(self.op, [type.get_num_dims() for type in types])
        state = list(self.own[: how.carried])
        slices: Values = []
        length = DYNAMIC_INDEX
        for type, axis in zip(types[how.carried :], how.input_axes, strict=True):
            shape = list(type.get_shape())
            size = shape.pop(axis)
            length = length if size == DYNAMIC_INDEX else size
            slices.append(TensorType(type.element_type, shape))
        state, scanned = self._fixed_point(self.op.regions[0], [], state, slices, 0)
        return [*state, *(_stacked(v, length, axis) for v, axis in zip(scanned, how.output_axes, strict=True))]

    def _fixed_point(
        self, body: Region, before: Values, state: Values, after: Values, skipped: int
    ) -> tuple[Values, Values]:
        """The state that holds before and after every iteration, and what an iteration gives besides."""
        for _ in range(2 + 8 * max(1, len(state))):
            results = self._body(body, [*before, *state, *after])[skipped:]
            joined = [join(old, new) for old, new in zip(state, results[: len(state)], strict=True)]
            if all(_same(old, new) for old, new in zip(state, joined, strict=True)):
                return joined, results[len(state) :]
            state = joined
        raise DistirError(f"{self.op.name}: the types of what it carries do not settle")


def _same(a: MixedValue, b: MixedValue) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return a == b


def _ranked(op: Operation, value: MixedValue) -> TensorType[Attribute]:
    type = NoneType() if value is None else type_of(value)
    if not isinstance(type, TensorType):
        raise DistirError(f"{op.name}: an operand has an unknown number of dimensions")
    return cast(TensorType[Attribute], type)


def _joined(values: Sequence[MixedValue]) -> MixedValue:
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _element(type: MixedValue) -> MixedValue:
    """The type of what is stacked, from the type of the stack."""
    if not isinstance(type, TensorType):
        return type
    tensor = cast(TensorType[Attribute], type)
    return TensorType(tensor.element_type, tensor.get_shape()[1:])


def _stacked(value: MixedValue, count: int, axis: int) -> MixedValue:
    """The type of `count` such values along a new dim; unknown where the values differ."""
    type = None if value is None else type_of(value)
    if not isinstance(type, TensorType):
        return type
    tensor = cast(TensorType[Attribute], type)
    shape = list(tensor.get_shape())
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, count)
    return TensorType(tensor.element_type, shape)
