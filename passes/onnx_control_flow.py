"""Control flow that is known, written out: an `If` becomes the branch that is taken, a `Loop` its iterations.

Part of `onnx-fold-shapes`, which says what is known of each value. Programs of distir are straight-line; what cannot be
written out stays one operation on one device, and `note_opaque` says so: on the operation (`onnx.opaque`, with the
reason) and on stderr.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp, Signedness, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from distir.dialects.onnx import OPERATORS, Constant, TensorAttr, Yield
from distir.interpreters.walk import values_read

OPAQUE = "onnx.opaque"
"""On an operation with graphs inside: why it stays one operation."""

Values = Mapping[SSAValue, Any]


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
        if count is None or not all(self._can_be_stacked(value, count) for value in collected):
            return
        rewriter.replace(op, [], self._unrolled(op, count, rewriter))

    def _can_be_stacked(self, collected: SSAValue, count: int) -> bool:
        type = self.values.get(collected, collected.type) if count == 0 else collected.type
        return isinstance(type, TensorType) and (count > 0 or cast(TensorType[Attribute], type).has_static_shape())

    def _unrolled(self, op: Operation, count: int, rewriter: PatternRewriter) -> list[SSAValue]:
        """The results of all iterations, which are inserted before the loop."""
        import numpy as np

        (body,) = op.regions
        _, condition, *state = op.operands
        collected: list[list[SSAValue]] = [[] for _ in op.results[len(state) :]]

        def add(new: Operation) -> SSAValue:
            rewriter.insert(new)
            return new.results[0]

        if isinstance(self.values.get(condition), type(None)):
            condition = add(Constant(TensorAttr.from_numpy(np.array(True))))
        for i in range(count):
            number = add(Constant(TensorAttr.from_numpy(np.array(i, np.int64))))
            mapped: dict[SSAValue, SSAValue] = dict(zip(body.block.args, [number, condition, *state], strict=True))
            for inner in body.block.ops:
                if isinstance(inner, Yield):
                    condition, *results = (mapped.get(value, value) for value in inner.operands)
                    carried = len(state)
                    state = results[:carried]
                    for values, value in zip(collected, results[carried:], strict=True):
                        values.append(value)
                    break
                clone = inner.clone(mapped)
                if isinstance(name := clone.attributes.get("onnx_node_name"), StringAttr):
                    clone.attributes["onnx_node_name"] = StringAttr(f"{name.data}.{i}")
                rewriter.insert(clone)
        stacks = [
            self._stack(values, result, rewriter)
            for values, result in zip(collected, op.results[len(state) :], strict=True)
        ]
        return [*state, *stacks]

    def _stack(self, values: Sequence[SSAValue], result: SSAValue, rewriter: PatternRewriter) -> SSAValue:
        """The values along a new first dim."""
        import numpy as np

        from distir.dialects.onnx import numpy_dtype

        if not values:
            type = cast(TensorType[Attribute], self.values.get(result, result.type))
            empty = Constant(TensorAttr.from_numpy(np.zeros(type.get_shape(), numpy_dtype(type.element_type))))
            rewriter.insert(empty)
            return empty.output
        axes = Constant(TensorAttr.from_numpy(np.zeros(1, np.int64)))
        new: list[Operation] = [axes]
        for value in values:
            row = cast(TensorType[Attribute], value.type)
            type = TensorType(row.element_type, [1, *row.get_shape()])
            new.append(OPERATORS["Unsqueeze"].create(operands=[value, axes.output], result_types=[type]))
        rows = [op.results[0] for op in new[1:]]
        row = cast(TensorType[Attribute], rows[0].type)
        type = TensorType(row.element_type, [len(rows), *row.get_shape()[1:]])
        axis = IntegerAttr(0, IntegerType(64, Signedness.SIGNED))
        new.append(OPERATORS["Concat"].create(operands=rows, result_types=[type], properties={"axis": axis}))
        rewriter.insert(new)
        return new[-1].results[0]


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
        name = op.attributes.get("onnx_node_name")
        which = f"{op.name} '{name.data}'" if isinstance(name, StringAttr) else op.name
        print(f"distir: note: {which} stays one operation on one device: {reason}", file=sys.stderr)


def _why_opaque(op: Operation, values: Values) -> str:
    from distir.interpreters.mixed_bodies import unknown_trip_count

    if isinstance(op, OPERATORS["If"]):
        return "its condition is not known"
    if isinstance(op, OPERATORS["Loop"]):
        reason = unknown_trip_count(op, _known_operands(op, values))
        return reason or "what it collects cannot be stacked"
    return "only If and Loop are written out"
