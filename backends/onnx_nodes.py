"""Parts of `distir.backends.onnx`. In go SSA values, and distir's local and rank operations; out come unique names
and ONNX nodes."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from onnx import NodeProto, helper, numpy_helper
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, StringAttr, TensorType, TupleType
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.dist import AccumulateOp, CastOp, ConcatOp, InsertOp, ScaleOp, SliceOp, ZerosOp
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.onnx import numpy_dtype
from distir.dialects.rank import RankOp
from distir.dialects.reductions import Reduction, ReductionAttr


class Names:
    """The names of the values of one graph: one each, of a tuple one per element."""

    def __init__(self) -> None:
        self._of: dict[SSAValue, list[str]] = {}
        self._taken: set[str] = set()

    def fresh(self, wish: str) -> str:
        """The name, or that with a number if it is taken."""
        name, number = wish, 0
        while name in self._taken or not name:
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return name

    def knows(self, value: SSAValue) -> bool:
        return value in self._of

    def assign(self, value: SSAValue, name: str) -> None:
        """Give the value a name that is already taken for it."""
        self._of[value] = [name]

    def alias(self, value: SSAValue, names: Sequence[str]) -> None:
        """The value is what other names mean."""
        self._of[value] = list(names)

    def define(self, value: SSAValue, wish: str | None = None) -> list[str]:
        """New names for a value, or those that it has."""
        if value not in self._of:
            wish = wish or value.name_hint or "v"
            count = len(value.type.types) if isinstance(value.type, TupleType) else 1
            self._of[value] = [self.fresh(wish if count == 1 else f"{wish}_{i}") for i in range(count)]
        return self._of[value]

    def all_of(self, value: SSAValue) -> list[str]:
        return self.define(value)

    def __getitem__(self, value: SSAValue) -> str:
        (name,) = self.define(value)
        return name


def _constant(names: Names, value: object, dtype: Any = np.int64) -> NodeProto:
    tensor = numpy_helper.from_array(np.array(value, dtype=dtype))
    return helper.make_node("Constant", [], [names.fresh("constant")], value=tensor)


def _slice(op: SliceOp, names: Names) -> list[NodeProto]:
    starts, stops = (_constant(names, [r[i] for r in op.ranges]) for i in (0, 1))
    inputs = [names[op.input], starts.output[0], stops.output[0]]
    return [starts, stops, helper.make_node("Slice", inputs, [names[op.output]])]


def _insert(op: InsertOp, names: Names) -> list[NodeProto]:
    dim, start = op.dim.value.data, op.start.value.data
    stop = start + _tensor(op.part).get_shape()[dim]
    nodes: list[NodeProto] = []
    parts: list[str] = []
    for first, last in ((0, start), (stop, 2**62)):
        ends = [_constant(names, [value]) for value in (first, last, dim)]
        parts.append(names.fresh("part"))
        nodes += [*ends, helper.make_node("Slice", [names[op.input], *(e.output[0] for e in ends)], [parts[-1]])]
    joined = [parts[0], names[op.part], parts[1]]
    return [*nodes, helper.make_node("Concat", joined, [names[op.output]], axis=dim)]


def _concat(op: ConcatOp, names: Names) -> list[NodeProto]:
    inputs = [names[value] for value in op.operands]
    return [helper.make_node("Concat", inputs, [names[op.output]], axis=op.dim.value.data)]


_PAIRWISE = {
    Reduction.SUM: "Add",
    Reduction.MEAN: "Add",
    Reduction.PROD: "Mul",
    Reduction.MAX: "Max",
    Reduction.MIN: "Min",
}


def _accumulate(op: AccumulateOp, names: Names) -> list[NodeProto]:
    """Pair by pair, in order: the sum of two has every number type, unlike ONNX's Sum."""
    reduction = op.reduction.data
    inputs = [names[value] for value in op.operands]
    mean = reduction == Reduction.MEAN
    nodes: list[NodeProto] = []
    total = inputs[0]
    for i, operand in enumerate(inputs[1:], start=2):
        target = names[op.output] if i == len(inputs) and not mean else names.fresh("partial")
        nodes.append(helper.make_node(_PAIRWISE[reduction], [total, operand], [target]))
        total = target
    if mean:
        count = _constant(names, len(inputs), _dtype(op.output))
        nodes += [count, helper.make_node("Div", [total, count.output[0]], [names[op.output]])]
    elif len(inputs) == 1:
        nodes.append(helper.make_node("Identity", inputs, [names[op.output]]))
    return nodes


def _zeros(op: ZerosOp, names: Names) -> list[NodeProto]:
    shape = _constant(names, _tensor(op.output).get_shape())
    value = numpy_helper.from_array(np.zeros(1, _dtype(op.output)))
    return [shape, helper.make_node("ConstantOfShape", shape.output, [names[op.output]], value=value)]


def _scale(op: ScaleOp, names: Names) -> list[NodeProto]:
    numerator, denominator = (_constant(names, n, _dtype(op.output)) for n in op.factor.data)
    product = names.fresh("product")
    return [
        numerator,
        denominator,
        helper.make_node("Mul", [names[op.input], numerator.output[0]], [product]),
        helper.make_node("Div", [product, denominator.output[0]], [names[op.output]]),
    ]


def _cast(op: CastOp, names: Names) -> list[NodeProto]:
    to = helper.np_dtype_to_tensor_dtype(_dtype(op.output))
    return [helper.make_node("Cast", [names[op.input]], [names[op.output]], to=to)]


def _counted(indices: SSAValue, extent: int, names: Names) -> list[NodeProto]:
    """Indices from the end counted from the start; the last node gives them."""
    zero, last = (_constant(names, n, _dtype(indices)) for n in (0, extent))
    negative, shifted, counted = names.fresh("negative"), names.fresh("shifted"), names.fresh("counted")
    return [
        zero,
        last,
        helper.make_node("Less", [names[indices], zero.output[0]], [negative]),
        helper.make_node("Add", [names[indices], last.output[0]], [shifted]),
        helper.make_node("Where", [negative, shifted, names[indices]], [counted]),
    ]


def _local_index(op: LocalIndexOp, names: Names) -> list[NodeProto]:
    start, stop, extent = op.range
    if op.ignored is not None:
        return _local_or_ignored(op, op.ignored.value.data, names)
    counted = _counted(op.indices, extent, names)
    first, least, most = (_constant(names, n, _dtype(op.indices)) for n in (start, 0, stop - start - 1))
    local = names.fresh("local")
    return [
        *counted,
        first,
        least,
        most,
        helper.make_node("Sub", [counted[-1].output[0], first.output[0]], [local]),
        helper.make_node("Clip", [local, least.output[0], most.output[0]], [names[op.output]]),
    ]


def _local_or_ignored(op: LocalIndexOp, ignored: int, names: Names) -> list[NodeProto]:
    first, end, other = (_constant(names, n, _dtype(op.indices)) for n in (*op.range[:2], ignored))
    local, after, before, inside = (names.fresh(name) for name in ("local", "after", "before", "inside"))
    return [
        first,
        end,
        other,
        helper.make_node("Sub", [names[op.indices], first.output[0]], [local]),
        helper.make_node("GreaterOrEqual", [names[op.indices], first.output[0]], [after]),
        helper.make_node("Less", [names[op.indices], end.output[0]], [before]),
        helper.make_node("And", [after, before], [inside]),
        helper.make_node("Where", [inside, local, other.output[0]], [names[op.output]]),
    ]


def _inside(op: InsideOp, names: Names) -> list[NodeProto]:
    start, stop, extent = op.range
    counted = _counted(op.indices, extent, names)
    first, end = (_constant(names, n, _dtype(op.indices)) for n in (start, stop))
    shape, zero = _constant(names, op.mask_shape), _constant(names, 0, _dtype(op.input))
    otherwise = zero.output[0] if op.otherwise is None else names[op.otherwise]
    spread, after, before, both = (names.fresh(name) for name in ("spread", "after", "before", "inside"))
    return [
        *counted,
        first,
        end,
        shape,
        zero,
        helper.make_node("Reshape", [counted[-1].output[0], shape.output[0]], [spread]),
        helper.make_node("GreaterOrEqual", [spread, first.output[0]], [after]),
        helper.make_node("Less", [spread, end.output[0]], [before]),
        helper.make_node("And", [after, before], [both]),
        helper.make_node("Where", [both, names[op.input], otherwise], [names[op.output]]),
    ]


def _tensor(value: SSAValue) -> TensorType[Attribute]:
    return cast(TensorType[Attribute], value.type)


def _dtype(value: SSAValue) -> np.dtype[Any]:
    return numpy_dtype(_tensor(value).element_type)


NODES: dict[type[Operation], Callable[[Any, Names], list[NodeProto]]] = {
    InsertOp: _insert,
    SliceOp: _slice,
    ConcatOp: _concat,
    AccumulateOp: _accumulate,
    ZerosOp: _zeros,
    ScaleOp: _scale,
    CastOp: _cast,
    LocalIndexOp: _local_index,
    InsideOp: _inside,
}
"""The local operations of the `dist` dialect, as nodes."""


def rank_node(op: RankOp, names: Names, domain: str) -> NodeProto:
    """Communication as one node: `rank.allreduce` is `allreduce`, with the operation's properties as attributes."""
    attributes = {name: _plain(value) for name, value in op.properties.items() if name != "operandSegmentSizes"}
    attributes.pop("resultSegmentSizes", None)
    inputs = [name for value in op.operands for name in names.all_of(value)]
    outputs = [name for value in op.results for name in names.define(value)]
    return helper.make_node(op.name.removeprefix("rank."), inputs, outputs, domain=domain, **attributes)


def _plain(attribute: Attribute) -> Any:
    match attribute:
        case IntegerAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case ReductionAttr():
            return str(attribute.data)
        case DenseArrayBase():
            return list(cast(Any, attribute).get_values())
        case ArrayAttr():
            return [_plain(item) for item in attribute]
        case _:
            return str(attribute)
