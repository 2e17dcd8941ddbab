"""Which floating-point initializers are no parameters of the model but part of its shapes: the scales of a resize, the
ends of a range. They become constants, since a program's shapes are known.

Nothing here knows an operator. A value that is computed from small initializers and constants alone can be evaluated;
where onnx infers another type for a result with that value than without it, the result's shape depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
import onnx.shape_inference
from onnx import AttributeProto, GraphProto, NodeProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from distir.dialects.onnx import OPSET_VERSION, SCHEMAS
from distir.frontends.onnx.loading import GRADIENT_DOMAIN, LoadedModel
from distir.frontends.onnx.protos import type_of, type_proto

LARGEST = 64
"""Arrays of more elements are no shapes, nor what a shape is computed from."""

Array = np.ndarray[Any, Any]
Types: TypeAlias = "Mapping[str, Attribute | TypeProto]"

OPSETS = [
    helper.make_opsetid(domain, max(s.since_version for s in SCHEMAS.values() if s.domain == domain))
    for domain in sorted({schema.domain for schema in SCHEMAS.values()} - {""})
] + [helper.make_opsetid("", OPSET_VERSION)]


class Small:
    """A value that can be known, and the parameters that it is computed from."""

    def __init__(self, parameters: frozenset[str], array: Array | None = None) -> None:
        self.parameters = parameters
        self.array = array
        self.pending: tuple[NodeProto, Mapping[str, Small]] | None = None

    def value(self) -> Array | None:
        """The array, computed when it is first asked for; None where onnx cannot."""
        if self.pending is not None:
            node, operands = self.pending
            self.pending, self.array = None, _evaluated(node, operands)
        return self.array


def shape_parameters(loaded: LoadedModel, types: Mapping[str, Attribute]) -> set[str]:
    """The names of the parameters that the type of a value depends on. `types` are those inferred without their values.

    A parameter that the model's metadata names (it is updated, or has a role) stays one."""
    named = {part for entry in loaded.metadata.items() for text in entry for part in (text, text.partition(":")[2])}
    small = {
        name: Small(frozenset([name]), array)
        for name, array in loaded.parameters.items()
        if array.size <= LARGEST and name not in named
    }
    found: set[str] = set()
    if small:
        _search(loaded.proto.graph, small, types, found)
    return found


def _search(graph: GraphProto, around: Mapping[str, Small], around_types: Types, found: set[str]) -> None:
    """Add the parameters that matter to the nodes of a graph; `around` is known in the graphs around it."""
    small = dict(around)
    types: Types = {
        **{value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)},
        **around_types,
    }
    for tensor in graph.initializer:
        if np.prod(tensor.dims) <= LARGEST:
            small[tensor.name] = Small(frozenset(), numpy_helper.to_array(tensor))
    for node in graph.node:
        known = {name: small[name] for name in node.input if name in small}
        bodies = [attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH]
        for body in bodies:
            own = {value.name for value in body.input}
            _search(body, {name: value for name, value in small.items() if name not in own}, types, found)
        if bodies:  # a condition or a count says how they run
            for value in known.values():
                if value.parameters and (array := value.value()) is not None and array.dtype.kind in "bi":
                    found |= value.parameters
        elif node.domain != GRADIENT_DOMAIN:
            parameters = frozenset[str]().union(*(value.parameters for value in known.values()))
            if parameters and _types_differ(node, known, types):
                found |= parameters
            _note_results(node, known, parameters, types, small)


def _note_results(
    node: NodeProto, known: Mapping[str, Small], parameters: frozenset[str], types: Types, small: dict[str, Small]
) -> None:
    """A single result is small if the operands are, and its type says so."""
    if len(node.output) != 1 or any(name and name not in known for name in node.input):
        return
    (name,) = node.output
    size = _size(types.get(name))
    if size is not None and size <= LARGEST and SCHEMAS[node.op_type].deterministic:
        small[name] = Small(parameters)
        small[name].pending = node, known


def _size(type: Attribute | TypeProto | None) -> int | None:
    """The number of elements of a tensor of this type, if it is known."""
    attribute = type_of(type) if isinstance(type, TypeProto) else type
    if not isinstance(attribute, TensorType):
        return None
    tensor = cast(TensorType[Attribute], attribute)
    return prod(tensor.get_shape()) if tensor.has_static_shape() else None


def _types_differ(node: NodeProto, known: Mapping[str, Small], types: Types) -> bool:
    """Whether onnx infers another type for a result when it knows the values that come from parameters."""
    given: dict[str, TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name in filter(None, node.input):
        type = types.get(name)
        if type is not None:
            given[name] = type if isinstance(type, TypeProto) else type_proto(type)
        if name in known and (array := known[name].value()) is not None:
            data[name] = numpy_helper.from_array(array)
    without = {name: tensor for name, tensor in data.items() if not known[name].parameters}
    schema = onnx.defs.get_schema(node.op_type, OPSET_VERSION, node.domain)
    try:
        one, other = (
            onnx.shape_inference.infer_node_outputs(schema, node, given, values, opset_imports=OPSETS)
            for values in (without, data)
        )
    except Exception:  # `onnx-fold-shapes` names a node that does not fit its operands
        return False
    return {n: t.SerializeToString() for n, t in one.items()} != {n: t.SerializeToString() for n, t in other.items()}


def _evaluated(node: NodeProto, operands: Mapping[str, Small]) -> Array | None:
    """The result of a node."""
    arrays = {name: operand.value() for name, operand in operands.items()}
    if any(array is None for array in arrays.values()):
        return None
    inputs = [helper.make_value_info(name, TypeProto()) for name in arrays]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "op", inputs, outputs), opset_imports=OPSETS)
    try:
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(model).run(None, arrays)
    except Exception:  # then it is not known here
        return None
    return result if isinstance(result, np.ndarray) else None
