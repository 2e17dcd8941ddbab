"""The types of a graph's values. In goes a model; out come types by name, as far as onnx infers them from the types of its inputs."""

import onnx
import onnx.shape_inference
from onnx import ModelProto
from xdsl.dialects.builtin import UnrankedTensorType
from xdsl.ir import Attribute

from distir.dialects.onnx.apart import are_safe, crashes
from distir.dialects.onnx.protos import type_of, with_defaults


def value_types(model: ModelProto) -> dict[str, Attribute]:
    """By name, of the main graph; those of unknown rank are left out. Where inference fails, what the graph itself says."""
    graph = model.graph

    def infer() -> ModelProto:
        with with_defaults(graph.node, {each.domain: each.version for each in model.opset_import}):
            return onnx.shape_inference.infer_shapes(model, data_prop=True)

    try:
        if are_safe(graph.node) or not crashes(infer):
            graph = infer().graph
    except onnx.shape_inference.InferenceError:
        pass  # node by node then, and `onnx-fold-shapes` names the node
    types: dict[str, Attribute] = {}
    for value in (*graph.output, *graph.value_info, *graph.input):
        type = type_of(value.type)
        if type is not None and not isinstance(type, UnrankedTensorType):
            types[value.name] = type
    return types
