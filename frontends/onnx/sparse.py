"""Sparse tensors of a file as dense ones. In goes a model; out comes the model with dense initializers and
constants: the dialect has no sparse type, and no operator of ONNX gives or takes one.

A sparse tensor lists its values that are not zero, with linearised positions (one number each) or coordinates (a row
each)."""

from collections.abc import Callable
from math import prod
from typing import Any, cast

import numpy as np
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, numpy_helper

from distir.dialects.errors import DistirError
from distir.frontends.onnx.validity import graphs_in, graphs_of

LARGEST_BYTES = 2 << 30
"""A sparse tensor that takes more bytes as a dense one is refused."""

ArrayOf = Callable[[TensorProto], np.ndarray[Any, Any]]


def make_dense(model: ModelProto, array_of: ArrayOf, where: str) -> None:
    """Replace the sparse initializers and constants of all graphs. `array_of` reads a tensor.

    Raises DistirError for positions that lie outside the shape, and for tensors too large to be dense."""
    graphs = [*graphs_of(model.graph), *(g for f in model.functions for node in f.node for g in graphs_in(node))]
    for graph in graphs:
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name, array_of, where))
        del graph.sparse_initializer[:]
    for nodes in (*(graph.node for graph in graphs), *(function.node for function in model.functions)):
        for node in nodes:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.type == AttributeProto.SPARSE_TENSOR:
                    dense = _dense(attribute.sparse_tensor, node.output[0], array_of, where)
                    attribute.Clear()
                    attribute.name, attribute.type = "value", AttributeProto.TENSOR
                    attribute.t.CopyFrom(dense)


def _dense(sparse: SparseTensorProto, name: str, array_of: ArrayOf, where: str) -> TensorProto:
    shape = tuple(sparse.dims)
    values = array_of(sparse.values)
    if any(dim < 0 for dim in shape) or prod(shape) * values.dtype.itemsize > LARGEST_BYTES:
        raise DistirError(
            f"{where}: sparse tensor '{name}' of shape {list(shape)} is too large to be made dense "
            f"(at most {LARGEST_BYTES >> 30} GB): export it dense, as external data"
        )
    positions = array_of(sparse.indices)
    linear = positions.ndim == 1
    # Coordinates are a row each; a shape whose dims they do not have falls out below, as one position too few.
    columns = [positions] if linear else list(np.moveaxis(positions, -1, 0))
    sizes = (prod(shape),) if linear else shape
    fits = len(columns) == len(sizes) and values.ndim == 1 and all(c.shape == values.shape for c in columns)
    if not fits or any(c.size and not 0 <= c.min() <= c.max() < n for c, n in zip(columns, sizes, strict=True)):
        raise DistirError(f"{where}: the indices of sparse tensor '{name}' do not fit its shape {list(shape)}")
    dense = np.zeros(sizes, values.dtype)
    dense[tuple(columns)] = values
    return numpy_helper.from_array(cast(np.ndarray[Any, Any], dense.reshape(shape)), name)
