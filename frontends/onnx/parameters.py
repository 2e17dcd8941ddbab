"""Which tensors of a model are its parameters. In go a graph and its tensors, whatever node holds them; out comes
the role of each: `parameter`, `buffer` (kept beside the program, never trained) or none, a constant of the program.

What decides is what a tensor does. Each is followed through what is computed from tensors alone (casts, transposes, scales, dequantisation)
to the operations where it meets data, a value that depends on the model's inputs:

* as a weight of a contraction, a recurrence or a normalisation: it is a parameter
* as a table whose rows data looks up, or a factor, an addend or a part joined to data: it is one unless it is a single number, or its
  values are those of a formula (`computed`): positions, masks, slopes
* anywhere else (bounds, scales of a resize, fillings): it is none

Integers that came in, and what is counted from them (masks, positions), are no data: a table of angles multiplies them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from distir.dialects.onnx.protos import element_code, is_floating, is_quantised
from distir.frontends.onnx.computed import Origin, is_zero, origin_of
from distir.frontends.onnx.domains import ONNX_DOMAINS

Array = np.ndarray[Any, Any]

CONTRACTIONS: Mapping[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvInteger": (1,),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "Einsum": (0, 1, 2, 3),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3),
}
"""Operands of ONNX's contractions that are weights where they do not depend on data, with what is added to the sums."""

WEIGHTS: Mapping[str, tuple[int, ...]] = CONTRACTIONS | {
    "Attention": (0, 1, 2),
    "BatchNormalization": (1, 2),
    "GRU": (1, 2, 3),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}
"""The same with recurrences, normalisations and learned slopes."""

STATISTICS: Mapping[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
"""Operands that were collected while a model was trained: buffers."""

LOOKUPS = frozenset(["Gather", "GatherElements", "GatherND"])
ELEMENTWISE = frozenset(["Add", "Div", "Mean", "Mul", "Sub", "Sum"])
JOINS: Mapping[str, tuple[int, ...]] = {
    "Concat": tuple(range(1 << 10)),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "SequenceConstruct": tuple(range(1 << 10)),
    "Where": (1, 2),
}
"""Operands that are put beside data."""

QUANTISED = frozenset(["DequantizeLinear"])
OF_SHAPES = frozenset(["Shape", "Size"])


class Level(IntEnum):
    """What a value depends on, at most."""

    CONSTANT = 0
    """Tensors of the file and shapes."""
    COUNTED = 1
    """Integers and booleans that come in: indices, positions, masks."""
    DATA = 2


@dataclass(eq=False)
class ModelTensor:
    """A tensor that the model holds. `graph` and `node` are where, for a Constant or an initializer inside an operator."""

    name: str
    array: Array
    graph: GraphProto | None = None
    node: NodeProto | TensorProto | None = None
    role: str | None = None
    """None is a constant of the program."""

    @property
    def sizes(self) -> list[int]:
        return [size for size in self.array.shape if size > 1]


@dataclass(frozen=True)
class Flow:
    """What is known of a value: the level, and the tensors that it is made of while it depends on nothing else."""

    level: Level
    made_of: frozenset[ModelTensor] = frozenset()


NOTHING = Flow(Level.CONSTANT)

Scope = dict[str, Flow]


def assign_roles(graph: GraphProto, tensors: Iterable[ModelTensor], types: Mapping[str, Attribute]) -> None:
    """Give each tensor its role. `types` are those of the main graph's values."""
    held: dict[int, dict[str, ModelTensor]] = {}
    for tensor in tensors:
        held.setdefault(id(tensor.graph or graph), {})[tensor.name] = tensor
    scope: Scope = {}
    for value in graph.input:
        scope[value.name] = Flow(_level_of(value.type.tensor_type.elem_type))
    Uses(held, types).follow(graph, scope)


def _level_of(element: int) -> Level:
    return Level.DATA if is_floating(element) else Level.COUNTED


class Uses:
    """Follows tensors through graphs."""

    def __init__(self, held: Mapping[int, Mapping[str, ModelTensor]], types: Mapping[str, Attribute]) -> None:
        self._model_tensors = held
        self._types = types
        self._producers: dict[str, NodeProto] = {}
        self._decides = True

    def follow(self, graph: GraphProto, scope: Scope) -> None:
        """Note the flow of every value of a graph; `scope` has what is known of its inputs and of the graphs around it."""
        held = self._model_tensors.get(id(graph), {})
        scope.update({tensor.name: NOTHING for tensor in graph.initializer})
        scope.update({name: Flow(Level.CONSTANT, frozenset([tensor])) for name, tensor in held.items()})
        for node in graph.node:
            self._producers.update(dict.fromkeys(node.output, node))
            if node.op_type == "Constant" and not node.domain:
                scope.setdefault(node.output[0], NOTHING)
                if node.output[0] not in held:
                    scope[node.output[0]] = NOTHING
                continue
            flow = self._result(node, scope)
            scope.update({name: flow for name in node.output if name})

    def _result(self, node: NodeProto, scope: Scope) -> Flow:
        flows = [scope.get(name, NOTHING) for name in node.input]
        graphs = [attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH]
        if graphs:
            return self._of_graphs(node, graphs, flows, scope)
        if node.op_type in OF_SHAPES:
            return NOTHING
        if node.op_type.startswith("Random"):
            return Flow(Level.DATA)
        level = max((flow.level for flow in flows), default=Level.CONSTANT)
        if level is Level.CONSTANT:
            return self._made(node, flows)
        found = [self._meets(node, i, flows) for i, flow in enumerate(flows) if flow.made_of]
        return Flow(Level.DATA if any(found) or level is Level.DATA else level)

    def _made(self, node: NodeProto, flows: Sequence[Flow]) -> Flow:
        """A value that is computed from tensors alone."""
        if not _is_real(self._types.get(node.output[0])) or (
            node.op_type == "Cast" and not _is_real(self._types.get(node.input[0]), integers=False)
        ):
            return NOTHING
        carrying = _carrying(node)
        return Flow(
            Level.CONSTANT,
            frozenset[ModelTensor]().union(*(f.made_of for i, f in enumerate(flows) if i in carrying or node.domain)),
        )

    def _of_graphs(self, node: NodeProto, graphs: Sequence[GraphProto], flows: Sequence[Flow], scope: Scope) -> Flow:
        """All results of an operator with graphs inside: what any of its graphs gives, and what goes round in them."""
        given = [NOTHING, NOTHING, *flows[2:]] if node.op_type == "Loop" else list(flows)
        decides, self._decides = self._decides, False
        result = Flow(max((flow.level for flow in flows), default=Level.CONSTANT))
        for attempt in range(2 + len(Level)):
            self._decides = decides and attempt == 1 + len(Level)
            made = set[ModelTensor]()
            level = result.level
            for graph in graphs:
                inner = dict(scope)
                for value, flow in zip(graph.input, [*given, *[result] * len(graph.input)], strict=False):
                    inner[value.name] = Flow(
                        max(flow.level, Level.CONSTANT if not given else result.level), flow.made_of
                    )
                    if inner[value.name].level is not Level.CONSTANT:
                        inner[value.name] = Flow(inner[value.name].level)
                self.follow(graph, inner)
                for output in graph.output:
                    flow = inner.get(output.name, NOTHING)
                    level, made = max(level, flow.level), made | flow.made_of
            result = Flow(level, frozenset(made) if level is Level.CONSTANT else frozenset())
        return result

    # What a tensor does where it meets data. Each gives whether one of them is found to be a parameter.

    def _meets(self, node: NodeProto, position: int, flows: Sequence[Flow]) -> bool:
        tensors = flows[position].made_of
        beside = max(flow.level for i, flow in enumerate(flows) if i != position)
        kind = node.op_type
        if node.domain in ONNX_DOMAINS:
            return self._are(tensors, "parameter")
        if position in STATISTICS.get(kind, ()):
            return self._are([tensor for tensor in tensors if tensor.role is None], "buffer")
        if position in WEIGHTS.get(kind, ()):
            if beside is not Level.DATA and not self._sums(node, position):
                return False
            return self._are(_weights(tensors), "parameter")
        if kind in LOOKUPS and position == 0:
            return self._are(
                [t for t in tensors if len(t.sizes) > 1 and origin_of(t.array) is not Origin.COMPUTED], "parameter"
            )
        if beside is not Level.DATA:
            return False
        if kind in ELEMENTWISE:
            return self._are([t for t in tensors if self._is_term(node, position, t)], "parameter")
        if position in JOINS.get(kind, ()):
            return self._are([t for t in tensors if _is_joined(t)], "parameter")
        return False

    def _are(self, tensors: Iterable[ModelTensor], role: str) -> bool:
        found = list(tensors)
        if self._decides:
            for tensor in found:
                tensor.role = role
        return bool(found)

    def _sums(self, node: NodeProto, position: int) -> bool:
        """Whether a contraction sums over more than one product: otherwise it multiplies each number with each."""
        if node.op_type == "Einsum":
            (equation,) = (a.s.decode() for a in node.attribute if a.name == "equation")
            operands, arrow, result = equation.replace(" ", "").partition("->")
            labels = [set(operand) for operand in operands.split(",")]
            if not arrow:
                return True
            return any(label not in result for label in labels[position] if sum(label in each for each in labels) > 1)
        shape = _shape(self._types.get(node.input[position]))
        if node.op_type not in ("MatMul", "MatMulInteger") or not shape:
            return True
        return shape[-2 if position == 1 and len(shape) > 1 else -1] != 1

    def _is_term(self, node: NodeProto, position: int, tensor: ModelTensor) -> bool:
        """Whether a factor or an addend of data is learned."""
        origin = origin_of(tensor.array)
        if len(tensor.sizes) > 1:
            # A zero that is added is written down by nobody: a parameter begins so; a mask of attention is square.
            begins = node.op_type == "Add" and is_zero(tensor.array) and tensor.sizes[-1] != tensor.sizes[-2]
            return origin is Origin.LEARNED or (origin is Origin.FILLED and begins)
        if tensor.sizes:
            return origin is not Origin.COMPUTED
        producers = [self._producers.get(name) for i, name in enumerate(node.input) if i != position]
        return tensor.array.ndim > 0 and any(  # the bias of a single result
            p is not None and p.op_type in CONTRACTIONS and (_shape(self._types.get(p.output[0])) or (0,))[-1] == 1
            for p in producers
        )


def _weights(tensors: frozenset[ModelTensor]) -> list[ModelTensor]:
    """Of the tensors that a weight is made of, those that are learned: a single one always is."""
    large = [tensor for tensor in tensors if tensor.sizes]
    if len(large) <= 1:
        return large or [tensor for tensor in tensors if tensor.array.ndim]
    return [tensor for tensor in large if origin_of(tensor.array) is not Origin.COMPUTED] or large


def _is_joined(tensor: ModelTensor) -> bool:
    """Whether a part that is put beside data is learned: a token, say. Zeros there are padding."""
    return bool(tensor.sizes) and origin_of(tensor.array) is Origin.LEARNED


def _carrying(node: NodeProto) -> Sequence[int]:
    """The operands whose numbers are in the result; of most operators, the first."""
    if node.op_type in ELEMENTWISE:
        return range(len(node.input))
    if node.op_type in JOINS:
        return JOINS[node.op_type]
    if node.op_type in WEIGHTS:
        return (0, *WEIGHTS[node.op_type])
    return (0, 1) if node.op_type in QUANTISED else (0,)


def _is_real(type: Attribute | None, integers: bool = True) -> bool:
    """Whether values of the type are numbers that a weight may be made of; `integers` of a byte or less are quantised ones."""
    if not isinstance(type, TensorType):
        return True
    code = element_code(cast(TensorType[Attribute], type).element_type)
    return is_floating(code) or (integers and is_quantised(code))


def _shape(type: Attribute | None) -> tuple[int, ...] | None:
    if not isinstance(type, TensorType):
        return None
    return cast(TensorType[Attribute], type).get_shape()
