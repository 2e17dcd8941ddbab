"""Domains of operators in ONNX files that are not ONNX's own. In goes a node of such a domain and its operands; out comes an operation of the
dialect that the domain stands for. distir has the gradients of the paper; a plug-in adds domains by `register_onnx_domain`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import AttributeProto, NodeProto
from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.grad import Grad
from distir.dialects.plugins import Registry

Importer = Callable[[NodeProto, Sequence[SSAValue]], Operation]

GRADIENT_DOMAIN = "distir.grad"
"""The custom domain of the paper's gradient and optimizer operators."""

# The operators of the gradient domain by their ONNX names, with the operand whose type each result has.
_GRADIENTS = {op.name: op for op in Grad.operations}
_GRADIENT_RESULTS = {
    "MatmulGrad": ("grad.matmul_grad", (0, 1)),
    "ReluGrad": ("grad.relu_grad", (0,)),
    "Loss": ("grad.loss", (0,)),
    "LossGrad": ("grad.loss_grad", (0,)),
    "Sgd": ("grad.sgd", (0,)),
}


def _gradient(node: NodeProto, operands: Sequence[SSAValue]) -> Operation:
    if node.op_type not in _GRADIENT_RESULTS:
        raise DistirError(
            f"no operator {node.op_type} in domain '{GRADIENT_DOMAIN}': it has {', '.join(_GRADIENT_RESULTS)}"
        )
    name, typed_like = _GRADIENT_RESULTS[node.op_type]
    properties: dict[str, Attribute] = {
        a.name: FloatAttr(a.f, f64) for a in node.attribute if a.type == AttributeProto.FLOAT
    }
    return _GRADIENTS[name].create(
        operands=operands, result_types=[operands[i].type for i in typed_like], properties=properties
    )


ONNX_DOMAINS: Registry[Importer] = Registry("ONNX domain", {GRADIENT_DOMAIN: _gradient})
