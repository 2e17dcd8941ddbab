"""Compiles one operator for torch. In goes the operation; out comes a function of tensors, compiled once and called
many times.

ONNX operators come from the table (`table`, `layers`, `activations`, `resampling`, `recurrent`). Other operators, and cases that the table leaves out, come
from the ONNX reference evaluation, through numpy. Attributes become Python values once, with the schema's defaults
filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, NoneType, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, TypeAttribute

from distir.backends.torch.elements import EVERYDAY, ElementTypes, plain_array
from distir.backends.torch.recurrent import TABLE
from distir.backends.torch.table import Node, NotInTable
from distir.dialects.aten import AtenOperation
from distir.dialects.attention import AttentionOp, CombineOp, ForwardOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import LossGradOp, LossOp, MatmulGradOp, ReluGradOp, SgdOp
from distir.dialects.onnx import Constant, NoValue, OnnxOperation, TensorAttr
from distir.dialects.plugins import Registry
from distir.dialects.random import BernoulliOp, DrawOp
from distir.interpreters import attention_tensors, random_tensors
from distir.interpreters.aten.calls import compile_call
from distir.interpreters.aten.reference import call_on_any_layout
from distir.interpreters.operator_dialects import MEANINGS
from distir.interpreters.reference import has_reference, run_operator

Compute = Callable[[list[Any]], Sequence[Any]]
"""Operands (None for an absent one) to results."""


KERNELS: Registry[Callable[[Operation, ElementTypes, torch.device], Compute]] = Registry("torch kernels of the dialect")
"""What plug-ins have for their dialects; those of distir are below."""


def compile_operator(op: Operation, types: ElementTypes, device: torch.device) -> Compute:
    """The operation as a function of its operands. Raises DistirError for a dialect that the backend does not know."""
    if isinstance(op, OnnxOperation | NoValue):
        return _compile_onnx(op, types, device)
    if op.dialect_name() == "grad":
        return _compile_grad(op)
    if isinstance(op, AtenOperation):
        return _compile_aten(op, types, device)
    if isinstance(op, DrawOp):
        return _compile_draw(op, types)
    if isinstance(op, AttentionOp | CombineOp):
        return _compile_attention(op)
    if (kernels := KERNELS.get(op.dialect_name())) is not None:
        return kernels(op, types, device)
    if has_reference(op):
        return _by_reference(op, types, device)
    raise DistirError(
        f"{op.name} does not run on the torch backend: it runs the rank and dist dialects, and {', '.join(MEANINGS)}"
    )


# --- onnx ------------------------------------------------------------------------------------------------------------


def _compile_onnx(op: OnnxOperation | NoValue, types: ElementTypes, device: torch.device) -> Compute:
    if isinstance(op, NoValue):
        return lambda operands: (None,)
    if isinstance(op, Constant):
        constant = types.value(op.value.to_numpy(), device)
        return lambda operands: (constant,)
    by_reference = _by_reference(op, types, device)
    function = TABLE.get(op.schema.name) if not op.schema.domain else None
    tensors = [v.type for v in (*op.operands, *op.results) if not isinstance(v.type, NoneType)]
    if function is None or not all(map(types.holds, tensors)) or not _element_types(op, types) <= EVERYDAY:
        return by_reference
    node = _node(op, types, device)

    def compute(operands: list[Any]) -> Sequence[Any]:
        try:
            results = function(node, *operands)
        except NotInTable:
            return by_reference(operands)
        return (results,) if isinstance(results, Tensor) else results

    return compute


def _element_types(op: Operation, types: ElementTypes) -> set[torch.dtype]:
    return {types.of_tensor(v.type) for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)}


def _node(op: OnnxOperation, types: ElementTypes, device: torch.device) -> Node:
    values: dict[str, Any] = {a.name: a.default for a in op.schema.attributes}
    values |= {name: _python(value, types, device) for name, value in op.properties.items()}
    if op.schema.name == "ConstantOfShape" and values["value"] is None:
        values["value"] = torch.zeros(1, dtype=types.adapted(torch.float32), device=device)
    wanted = [i for i, result in enumerate(op.results) if not isinstance(result.type, NoneType)]
    return Node(values, max(wanted, default=0) + 1)


def _python(attribute: Attribute, types: ElementTypes, device: torch.device) -> Any:
    """An attribute as a Python value; a type as a torch type, a tensor as a tensor."""
    match attribute:
        case IntegerAttr() | FloatAttr():
            return attribute.value.data
        case StringAttr(data=text):
            return text
        case ArrayAttr(data=items):
            return [_python(item, types, device) for item in items]
        case TensorAttr():
            return types.tensor(attribute.to_numpy(), device)
        case TypeAttribute():
            return types.of(attribute)
        case _:
            return attribute


def _by_reference(op: Operation, types: ElementTypes, device: torch.device) -> Compute:
    floats: np.dtype[Any] | None = np.dtype(np.float64) if types.in_float64 else None

    def compute(operands: list[Any]) -> Sequence[Any]:
        if any(isinstance(value, FakeTensor) for value in operands):
            raise DistirError("this case of the operator has no definition in torch: it cannot be differentiated")
        arrays = [_plain(value) for value in operands]
        results = run_operator(op, arrays, floats)
        return [types.value(result, device) for result in results]

    return compute


def _plain(value: Any) -> Any:
    """A tensor as an array, also in a sequence."""
    if isinstance(value, list):
        return [_plain(item) for item in cast(list[Any], value)]
    return plain_array(value) if isinstance(value, Tensor) else value


# --- aten ------------------------------------------------------------------------------------------------------------


def _compile_aten(op: AtenOperation, types: ElementTypes, device: torch.device) -> Compute:
    compute = compile_call(op, types.adapted)
    if op.operands:
        return lambda operands: call_on_any_layout(op, compute, operands)

    def create(operands: list[Any]) -> Sequence[Any]:
        with torch.device(device):
            return compute(operands)

    return create


# --- attention -------------------------------------------------------------------------------------------------------


def _compile_attention(op: AttentionOp | CombineOp) -> Compute:
    if isinstance(op, CombineOp):
        return lambda operands: attention_tensors.combine(*operands)
    compute = attention_tensors.forward if isinstance(op, ForwardOp) else attention_tensors.backward
    scale, diagonal = op.scale.value.data, None if op.diagonal is None else op.diagonal.value.data
    masked, drawn_by = op.mask is not None, len(op.draw)
    probability = 0.0 if op.dropout is None else op.dropout.value.data

    def attend(operands: list[Any]) -> Sequence[Any]:
        given = operands[: len(operands) - drawn_by]
        key, *positions = operands[len(given) :] or [None]
        dropout = None if key is None else attention_tensors.Dropout(probability, key, positions)
        return cast(Any, compute)(*given, *([] if masked else [None]), scale, diagonal, dropout)

    return attend


# --- random ----------------------------------------------------------------------------------------------------------


def _compile_draw(op: DrawOp, types: ElementTypes) -> Compute:
    if isinstance(op, BernoulliOp):
        probability = op.probability.value.data
        return lambda operands: (random_tensors.bernoulli(operands[0], operands[1:], probability),)
    dtype = types.of_tensor(op.output.type)
    return lambda operands: (random_tensors.uniform(operands[0], operands[1:], dtype),)


# --- grad ------------------------------------------------------------------------------------------------------------


def _compile_grad(op: Operation) -> Compute:
    match op:
        case MatmulGradOp():
            return _matmul_grad
        case ReluGradOp():
            return lambda operands: (torch.where(operands[0] > 0, operands[1], 0),)
        case LossOp():
            return lambda operands: ((operands[0] - operands[1]).square() / operands[2],)
        case LossGradOp():
            return lambda operands: (2 * (operands[0] - operands[1]) / operands[2],)
        case SgdOp():
            rate = op.learning_rate.value.data
            return lambda operands: (torch.sub(operands[0], operands[1], alpha=rate),)
        case _:
            raise DistirError(f"{op.name} does not run on the torch backend")


def _matmul_grad(operands: list[Any]) -> Sequence[Any]:
    x, w, dy = operands
    samples, gradients = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dy @ w.T, samples.T @ gradients
