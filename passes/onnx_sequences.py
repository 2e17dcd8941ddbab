"""Sequences and optional values of known elements, written out. In go operations on a sequence; out come its
elements themselves, or operations on them.

Part of `onnx-fold-shapes`, which says what is known of each value. A sequence that an opaque `Loop` fills, or that comes in, stays one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from distir.dialects.onnx import OPERATORS, OptionalType
from distir.passes.onnx_building import Values, axis_attribute, constant, known_type, stacked


@dataclass
class KnownSequencesAreWrittenOut(RewritePattern):
    """Operations that take a sequence of known elements, or split a value into one, are replaced by operations on tensors."""

    values: Values

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, OPERATORS["SplitToSequence"]):
            self._split(op, rewriter)
        elif isinstance(op, OPERATORS["SequenceAt"]):
            elements, place = self._elements(op.operands[0]), self._number(op.operands[1])
            if elements is not None and place is not None and -len(elements) <= place < len(elements):
                rewriter.replace(op, [], [elements[place]])
        elif isinstance(op, OPERATORS["SequenceLength"]):
            if (elements := self._elements(op.operands[0])) is not None:
                rewriter.replace(op, [], [_count(len(elements), rewriter)])
        elif isinstance(op, OPERATORS["OptionalHasElement"]):
            if (element := _of_optional(op)) is not None:
                rewriter.replace(op, [], [_true(rewriter)])
        elif isinstance(op, OPERATORS["OptionalGetElement"]):
            if (element := _of_optional(op)) is not None:
                rewriter.replace(op, [], [element])
        elif isinstance(op, OPERATORS["ConcatFromSequence"]) and (elements := self._elements(op.operands[0])):
            rewriter.replace(op, [], [self._joined(op, elements, rewriter)])

    def _elements(self, sequence: SSAValue) -> list[SSAValue] | None:
        """The elements, if operations on known ones made the sequence."""
        edits: list[Operation] = []
        while isinstance(
            op := sequence.owner, tuple(OPERATORS[n] for n in ("SequenceInsert", "SequenceErase", "Identity"))
        ):
            edits.append(op)
            sequence = op.operands[0]
        if isinstance(op, OPERATORS["SequenceConstruct"]):
            elements = list(op.operands)
        elif isinstance(op, OPERATORS["SequenceEmpty"]):
            elements = list[SSAValue]()
        else:
            return None
        for edit in reversed(edits):
            if not self._edit(elements, edit):
                return None
        return elements

    def _edit(self, elements: list[SSAValue], edit: Operation) -> bool:
        """Does what an operation does to a sequence; False if its place is not known."""
        if isinstance(edit, OPERATORS["Identity"]):
            return True
        inserts = isinstance(edit, OPERATORS["SequenceInsert"])
        at_end = len(elements) if inserts else -1
        place = self._number(edit.operands[1 + inserts], at_end) if len(edit.operands) > 1 + inserts else at_end
        if place is None or not -len(elements) <= place < len(elements) + inserts:
            return False
        if inserts:
            elements.insert(place, edit.operands[1])
        else:
            del elements[place]
        return True

    def _number(self, value: SSAValue, absent: int | None = None) -> int | None:
        from numpy import ndarray

        known = self.values.get(value, value.type)
        if known is None:
            return absent
        return int(cast("ndarray[Any, Any]", known).reshape(-1)[0]) if isinstance(known, ndarray) else None

    def _split(self, op: Operation, rewriter: PatternRewriter) -> None:
        """A split into parts, of which the sequence is made."""
        import numpy as np

        type = known_type(op.operands[0], self.values)
        if not isinstance(type, TensorType):
            return
        tensor = cast(TensorType[Attribute], type)
        shape = tensor.get_shape()
        axis = _integer(op, "axis", 0) % len(shape)
        sizes = self._sizes(op, shape[axis])
        if sizes is None:
            return
        types = [TensorType(tensor.element_type, [*shape[:axis], size, *shape[axis + 1 :]]) for size in sizes]
        parts = OPERATORS["Split"].create(
            operands=[op.operands[0], constant(np.array(sizes, np.int64), rewriter)],
            result_types=types,
            properties={"axis": axis_attribute(axis)},
        )
        rewriter.insert(parts)
        elements: Sequence[SSAValue] = parts.results
        is_given = len(op.operands) > 1 and self.values.get(op.operands[1], op.operands[1].type) is not None
        if not is_given and not _integer(op, "keepdims", 1):
            axes = constant(np.array([axis]), rewriter)
            whole = TensorType(tensor.element_type, [*shape[:axis], *shape[axis + 1 :]])
            rows = [OPERATORS["Squeeze"].create(operands=[part, axes], result_types=[whole]) for part in elements]
            rewriter.insert(rows)
            elements = [row.results[0] for row in rows]
        made = OPERATORS["SequenceConstruct"].create(operands=elements, result_types=[op.results[0].type])
        rewriter.replace(op, made)

    def _sizes(self, op: Operation, extent: int) -> list[int] | None:
        """Of the parts: given, all but the last equal, or one each."""
        from numpy import ndarray

        known = self.values.get(op.operands[1], op.operands[1].type) if len(op.operands) > 1 else None
        if extent == DYNAMIC_INDEX or not extent or (known is not None and not isinstance(known, ndarray)):
            return None
        if known is None:
            return [1] * extent
        given = cast("ndarray[Any, Any]", known)
        if given.ndim:
            return [int(size) for size in given]
        size = int(given)
        return [min(size, extent - start) for start in range(0, extent, size)] if size > 0 else None

    def _joined(self, op: Operation, elements: Sequence[SSAValue], rewriter: PatternRewriter) -> SSAValue:
        first = cast(TensorType[Attribute], known_type(elements[0], self.values))
        axis, shape = _integer(op, "axis", 0), list(first.get_shape())
        if _integer(op, "new_axis", 0):
            axis %= len(shape) + 1
            shape.insert(axis, len(elements))
            return stacked(elements, TensorType(first.element_type, shape), axis, rewriter)
        shape[axis] = DYNAMIC_INDEX  # inferred from all
        joined = OPERATORS["Concat"].create(
            operands=elements,
            result_types=[TensorType(first.element_type, shape)],
            properties={"axis": axis_attribute(axis)},
        )
        rewriter.insert(joined)
        return joined.results[0]


def _of_optional(op: Operation) -> SSAValue | None:
    """The element of an optional value: what it was made of, or itself, if it is no optional."""
    if not op.operands:
        return None
    value = op.operands[0]
    if not isinstance(value.type, OptionalType):
        return None if isinstance(value.type, NoneType) else value
    made = value.owner
    return made.operands[0] if isinstance(made, OPERATORS["Optional"]) and made.operands else None


def _count(count: int, rewriter: PatternRewriter) -> SSAValue:
    import numpy as np

    return constant(np.array(count, np.int64), rewriter)


def _true(rewriter: PatternRewriter) -> SSAValue:
    import numpy as np

    return constant(np.array(True), rewriter)


def _integer(op: Operation, name: str, default: int) -> int:
    attribute = op.properties.get(name)
    return cast(IntegerAttr[Any], attribute).value.data if isinstance(attribute, IntegerAttr) else default
