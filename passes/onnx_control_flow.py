"""Control flow, written out. In goes a program; out comes one where an `If` is the branch that is taken, or both and
a selection, and a `Loop` or `Scan` is its iterations.

Part of `onnx-fold-shapes`, which says what is known of each value. Programs of distir are straight-line; what cannot be
written out stays one operation on one device, and `note_opaque` says so: on the operation (`onnx.opaque`, with the
reason) and on stderr."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from distir.dialects.onnx import OPERATORS, Yield
from distir.interpreters.walk import values_read
from distir.passes.onnx_building import Values, axis_attribute, constant, known_type, stacked

OPAQUE = "onnx.opaque"
"""On an operation with graphs inside: why it stays one operation."""


@dataclass
class KnownBranchIsTaken(RewritePattern):
    """An `onnx.If` on a known condition is replaced by the operations of one branch."""

    values: Values

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from numpy import ndarray

        from distir.interpreters.onnx.bodies import branch

        if not isinstance(op, OPERATORS["If"]):
            return
        condition = self.values.get(op.operands[0])
        if not isinstance(condition, ndarray):
            return
        block = branch(op, cast("ndarray[Any, Any]", condition)).block
        terminator = block.last_op
        assert isinstance(terminator, Yield)
        results = list(terminator.operands)
        rewriter.erase(terminator)
        rewriter.inline_block(block, rewriter.insertion_point)
        rewriter.replace(op, [], results)


@dataclass
class KnownLoopIsUnrolled(RewritePattern):
    """An `onnx.Loop` whose every iteration is known to come or not is replaced by its iterations."""

    values: Values

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from numpy import ndarray

        from distir.interpreters.mixed_bodies import trip_count

        if not isinstance(op, OPERATORS["Loop"]) or OPAQUE in op.attributes:
            return
        if all(isinstance(self.values.get(r), ndarray) or r.first_use is None for r in op.results):
            return  # nothing is left to compute: constants follow
        count = trip_count(op, _known_operands(op, self.values))
        collected = op.results[len(op.operands) - 2 :]
        if count is None or not all(_can_be_stacked(known_type(value, self.values), count) for value in collected):
            return
        rewriter.replace(op, [], self._unrolled(op, count, rewriter))

    def _unrolled(self, op: Operation, count: int, rewriter: PatternRewriter) -> list[SSAValue]:
        """The results of all iterations, which are inserted before the loop."""
        import numpy as np

        _, condition, *state = op.operands
        carried = len(state)
        collected: list[list[SSAValue]] = [[] for _ in op.results[carried:]]
        if isinstance(self.values.get(condition), type(None)):
            condition = constant(np.array(True), rewriter)
        for i in range(count):
            number = constant(np.array(i, np.int64), rewriter)
            condition, *results = _iteration(op.regions[0], [number, condition, *state], i, rewriter)
            state = results[:carried]
            for values, value in zip(collected, results[carried:], strict=True):
                values.append(value)
        stacks = [
            stacked(values, known_type(result, self.values), 0, rewriter)
            for values, result in zip(collected, op.results[carried:], strict=True)
        ]
        return [*state, *stacks]


@dataclass
class KnownScanIsUnrolled(RewritePattern):
    """An `onnx.Scan` over a known number of slices is replaced by its iterations."""

    values: Values

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        from distir.interpreters.mixed_bodies import LARGEST_LOOP

        if not isinstance(op, OPERATORS["Scan"]):
            return
        if (length := _length_of_scan(op, self.values)) is None or length * len(list(op.walk())) > LARGEST_LOOP:
            return
        collected = (known_type(result, self.values) for result in op.results)
        if all(_can_be_stacked(type, length) for type in collected):
            rewriter.replace(op, [], self._unrolled(op, length, rewriter))

    def _unrolled(self, op: Operation, length: int, rewriter: PatternRewriter) -> list[SSAValue]:
        """The results of all iterations, which are inserted before the operation."""
        from distir.interpreters.onnx.bodies import scan_shape

        types = [known_type(value, self.values) for value in op.operands]
        how = scan_shape(op, [len(cast(TensorType[Attribute], type).get_shape()) for type in types])
        state, scanned = list(op.operands[: how.carried]), op.operands[how.carried :]
        collected: list[list[SSAValue]] = [[] for _ in how.output_axes]
        for i in range(length):
            slices = [
                _slice(value, type, length - 1 - i if backwards else i, axis, rewriter)
                for value, type, axis, backwards in zip(
                    scanned, types[how.carried :], how.input_axes, how.backwards, strict=True
                )
            ]
            results = _iteration(op.regions[0], [*state, *slices], i, rewriter)
            state = results[: how.carried]
            for values, value in zip(collected, results[how.carried :], strict=True):
                values.append(value)
        stacks: list[SSAValue] = []
        for result, values, axis, prepended in zip(
            op.results[how.carried :], collected, how.output_axes, how.prepended, strict=True
        ):
            type = known_type(result, self.values)
            rank = len(cast(TensorType[Attribute], type).get_shape())
            stacks.append(stacked(values[::-1] if prepended else values, type, axis % rank, rewriter))
        return [*state, *stacks]


@dataclass
class BothBranchesAreComputed(RewritePattern):
    """An `onnx.If` on a condition that is not known is replaced by the operations of both branches, of whose results the condition selects: where
    these have the same static types, and nothing inside iterates."""

    values: Values

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, OPERATORS["If"]) or not isinstance(op.parent_op(), FuncOp):
            return
        iterates = any(each.regions and not isinstance(each, OPERATORS["If"]) for each in op.walk())
        if iterates or not self._are_same(op):
            return
        print(f"distir: note: {_named(op)}: both branches are computed: its condition is not known", file=sys.stderr)
        else_results, then_results = (self._inlined(region, rewriter) for region in op.regions)
        condition = self._scalar(op.operands[0], rewriter)
        results: list[SSAValue] = []
        for one, other, result in zip(then_results, else_results, op.results, strict=True):
            selected = OPERATORS["Where"].create(
                operands=[condition, one, other], result_types=[known_type(result, self.values)]
            )
            rewriter.insert(selected)
            results.append(selected.results[0])
        rewriter.replace(op, [], results)

    def _are_same(self, op: Operation) -> bool:
        yields = [cast(Yield, region.block.last_op) for region in op.regions]
        for results in zip(*(each.operands for each in yields), strict=True):
            types = {known_type(value, self.values) for value in results}
            type = next(iter(types))
            if len(types) > 1 or not isinstance(type, TensorType):
                return False
            if not cast(TensorType[Attribute], type).has_static_shape():
                return False
        return True

    def _inlined(self, branch: Region, rewriter: PatternRewriter) -> list[SSAValue]:
        terminator = branch.block.last_op
        assert isinstance(terminator, Yield)
        results = list(terminator.operands)
        rewriter.erase(terminator)
        rewriter.inline_block(branch.block, rewriter.insertion_point)
        return results

    def _scalar(self, condition: SSAValue, rewriter: PatternRewriter) -> SSAValue:
        """A condition has one element; where it has dims, without them."""
        import numpy as np

        type = cast(TensorType[Attribute], known_type(condition, self.values))
        if not type.get_shape():
            return condition
        scalar = OPERATORS["Reshape"].create(
            operands=[condition, constant(np.zeros(0, np.int64), rewriter)],
            result_types=[TensorType(type.element_type, [])],
        )
        rewriter.insert(scalar)
        return scalar.results[0]


def _can_be_stacked(type: Attribute, count: int) -> bool:
    return isinstance(type, TensorType) and (count > 0 or cast(TensorType[Attribute], type).has_static_shape())


def _length_of_scan(op: Operation, values: Values) -> int | None:
    from distir.interpreters.onnx.bodies import scan_shape

    types = [known_type(value, values) for value in op.operands]
    if not all(isinstance(type, TensorType) for type in types):
        return None
    shapes = [cast(TensorType[Attribute], type).get_shape() for type in types]
    how = scan_shape(op, [len(shape) for shape in shapes])
    lengths = {shape[axis] for shape, axis in zip(shapes[how.carried :], how.input_axes, strict=True)}
    return lengths.pop() if len(lengths) == 1 and DYNAMIC_INDEX not in lengths else None


def _iteration(body: Region, arguments: Sequence[SSAValue], number: int, rewriter: PatternRewriter) -> list[SSAValue]:
    """What a body yields; its operations are inserted, with the number of the iteration in their names."""
    mapped: dict[SSAValue, SSAValue] = dict(zip(body.block.args, arguments, strict=True))
    for inner in body.block.ops:
        if isinstance(inner, Yield):
            return [mapped.get(value, value) for value in inner.operands]
        clone = inner.clone(mapped)
        if isinstance(name := clone.attributes.get("onnx_node_name"), StringAttr):
            clone.attributes["onnx_node_name"] = StringAttr(f"{name.data}.{number}")
        rewriter.insert(clone)
    raise AssertionError("a body ends in onnx.Yield")


def _slice(value: SSAValue, type: Attribute, index: int, axis: int, rewriter: PatternRewriter) -> SSAValue:
    """One index of a dim, which goes."""
    import numpy as np

    tensor = cast(TensorType[Attribute], type)
    shape = list(tensor.get_shape())
    del shape[axis]
    taken = OPERATORS["Gather"].create(
        operands=[value, constant(np.array(index), rewriter)],
        result_types=[TensorType(tensor.element_type, shape)],
        properties={"axis": axis_attribute(axis)},
    )
    rewriter.insert(taken)
    return taken.results[0]


def _known_operands(op: Operation, values: Values) -> list[Any]:
    from distir.interpreters.mixed import abstract

    return [values[value] if value in values else abstract(value.type) for value in values_read(op)]


def note_opaque(module: ModuleOp, values: Values) -> None:
    """Mark each operation that keeps its graphs with the reason, and say it."""
    from distir.interpreters.onnx.bodies import has_bodies

    for op in module.walk():
        if not has_bodies(op) or OPAQUE in op.attributes:
            continue
        reason = _why_opaque(op, values)
        op.attributes[OPAQUE] = StringAttr(reason)
        print(f"distir: note: {_named(op)} stays one operation on one device: {reason}", file=sys.stderr)


def _named(op: Operation) -> str:
    name = op.attributes.get("onnx_node_name")
    return f"{op.name} '{name.data}'" if isinstance(name, StringAttr) else op.name


def _why_opaque(op: Operation, values: Values) -> str:
    from distir.interpreters.mixed_bodies import unknown_trip_count

    if isinstance(op, OPERATORS["If"]):
        return "its condition is not known, and its branches do not give the same types, or iterate"
    if isinstance(op, OPERATORS["Loop"]):
        reason = unknown_trip_count(op, _known_operands(op, values))
        return reason or "what it collects cannot be stacked"
    if isinstance(op, OPERATORS["Scan"]):
        return "its length is not known, or it would be too many operations"
    return "its iterations are not written out"
