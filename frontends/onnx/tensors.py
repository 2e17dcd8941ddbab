"""The tensors of a model, and where their values go. In goes a loaded model; out come its tensors, whatever node
holds them (`model_tensors`). Once each has a role, out comes the model with those of a role as inputs and the others
as constants (`settle`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from distir.dialects.errors import DistirError
from distir.dialects.onnx.protos import is_floating, is_quantised
from distir.frontends.onnx.loading import LoadedModel
from distir.frontends.onnx.parameters import ModelTensor
from distir.frontends.onnx.protos import array_of
from distir.frontends.onnx.validity import graphs_in, graphs_of

LARGEST_WRITTEN = 64 * 1024
"""A floating-point constant of more elements has its values beside the program: a buffer. No shape is computed from it."""


def model_tensors(loaded: LoadedModel) -> list[ModelTensor]:
    """Floating-point and quantised tensors: those that were taken out of the model, then Constants and initializers inside."""
    found = [ModelTensor(name, array) for name, array in loaded.tensors.items()]
    for graph in graphs_of(loaded.proto.graph):
        if graph is not loaded.proto.graph:
            for tensor in graph.initializer:
                if may_be_parameter(tensor):
                    found.append(ModelTensor(tensor.name, array_of(tensor, loaded.folder, loaded.name), graph, tensor))
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain and len(node.attribute) == 1:
                (attribute,) = node.attribute
                if attribute.name == "value" and may_be_parameter(attribute.t):
                    array = array_of(attribute.t, loaded.folder, loaded.name)
                    found.append(ModelTensor(node.output[0], array, graph, node))
                elif attribute.name in ("value_float", "value_floats"):
                    value = np.array(helper.get_attribute_value(attribute), np.float32)
                    found.append(ModelTensor(node.output[0], value, graph, node))
    return found


def may_be_parameter(tensor: TensorProto) -> bool:
    """Whether a tensor's type is one that weights have."""
    return is_floating(tensor.data_type) or is_quantised(tensor.data_type)


def choose(tensors: Sequence[ModelTensor], parameters: Sequence[str], constants: Sequence[str], where: str) -> None:
    """Set the roles of the tensors that patterns name. Raises DistirError for a pattern that names none."""
    for option, patterns, role in (("--parameters", parameters, "parameter"), ("--constants", constants, None)):
        for pattern in patterns:
            chosen = [tensor for tensor in tensors if tensor.name == pattern or fnmatchcase(tensor.name, pattern)]
            if not chosen:
                near = get_close_matches(pattern, [tensor.name for tensor in tensors], 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise DistirError(
                    f"{where}: {option} {pattern}: the model holds no floating-point tensor of this name{hint}"
                )
            for tensor in chosen:
                tensor.role = role


def settle(loaded: LoadedModel, tensors: Iterable[ModelTensor]) -> None:
    """Tensors with a role become inputs of the model, whose values and roles are beside it; the others are constants."""
    names = Counter(_defined(loaded.proto.graph))
    for tensor in tensors:
        if tensor.role is None and tensor.array.size > LARGEST_WRITTEN and is_floating(_code(tensor)):
            tensor.role = "buffer"
        if tensor.graph is None:
            if tensor.role is None and not loaded.is_named(tensor.name):
                loaded.tensors.pop(tensor.name)
                _no_input(loaded.proto.graph, tensor.name)
                loaded.proto.graph.initializer.append(numpy_helper.from_array(tensor.array, tensor.name))
            else:
                loaded.roles[tensor.name] = tensor.role or "parameter"
        elif tensor.role is not None:
            graph = tensor.graph
            name = tensor.name
            while names[name] > (name == tensor.name):
                name += "_"
            _remove(tensor)
            if name != tensor.name:
                names[tensor.name], names[name] = names[tensor.name] - 1, 1
                _rename(graph, tensor.name, name)
            loaded.tensors[name], loaded.roles[name] = tensor.array, tensor.role
            value = helper.make_tensor_value_info(name, _code(tensor), tensor.array.shape)
            loaded.proto.graph.input.append(value)


def _code(tensor: ModelTensor) -> int:
    return helper.np_dtype_to_tensor_dtype(tensor.array.dtype)


def _no_input(graph: GraphProto, name: str) -> None:
    for i, value in enumerate(graph.input):
        if value.name == name:
            del graph.input[i]
            return


def _remove(tensor: ModelTensor) -> None:
    """The node or initializer goes from its graph."""
    graph = tensor.graph
    assert graph is not None
    if isinstance(tensor.node, NodeProto):
        at = next(i for i, node in enumerate(graph.node) if tensor.name in node.output)
        del graph.node[at]
        return
    at = next(i for i, initializer in enumerate(graph.initializer) if initializer.name == tensor.name)
    del graph.initializer[at]
    _no_input(graph, tensor.name)


def _defined(graph: GraphProto) -> Iterator[str]:
    """The names that the graph and those inside it give to values, as often as they do."""
    for each in graphs_of(graph):
        yield from {value.name for value in each.input} | {tensor.name for tensor in each.initializer}
        for node in each.node:
            yield from node.output


def _rename(graph: GraphProto, old: str, new: str) -> None:
    """What the graph, and those inside it, read under the old name."""
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == old:
                node.input[i] = new
        for inner in graphs_in(node):
            if old not in {value.name for value in inner.input} | {name for n in inner.node for name in n.output}:
                _rename(inner, old, new)
    for value in graph.output:
        if value.name == old:
            value.name = new
