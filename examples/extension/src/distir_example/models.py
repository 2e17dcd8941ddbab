"""How models come in: nodes of the ONNX domain `com.example`, and `.layers` files, which list the widths of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from onnx import NodeProto, helper
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.frontends.text import parse_program
from distir_example.dialect import NormMatmulOp


def import_node(node: NodeProto, operands: Sequence[SSAValue]) -> Operation:
    """The operation of a node of the domain. distir says which node it is when this raises a DistirError."""
    if node.op_type != "NormMatMul" or len(operands) != 3:
        raise DistirError("com.example has one operator, NormMatMul(x, scale, weight)")
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    try:
        return NormMatmulOp(*operands, attributes.get("epsilon", 1e-5))
    except VerifyException as error:
        raise DistirError(str(error)) from error


def import_layers(path: str, shapes: Mapping[str, Sequence[int]] | None = None) -> ModuleOp:
    """The network of a file such as `8 16 32 4`: rows, then widths. Parameters have no values, so they are drawn."""
    try:
        rows, *widths = (int(word) for word in Path(path).read_text("utf-8").split())
    except (OSError, ValueError) as error:
        raise DistirError(f"{path}: expected rows and at least two widths, as in 8 16 32 4 ({error})") from error
    rows = (shapes or {}).get("x", [rows])[0]
    if len(widths) < 2 or min(rows, *widths) < 1:
        raise DistirError(f"{path}: expected rows and at least two widths of at least 1, as in 8 16 32 4")
    return parse_program(program_context(), _text(rows, widths), path)


def _text(rows: int, widths: Sequence[int]) -> str:
    """The program, in the dialect's syntax."""
    arguments, body, value = [f'%x: tensor<{rows}x{widths[0]}xf32> {{dist.name = "x", dist.role = "input"}}'], [], "%x"
    for i, (k, n) in enumerate(pairwise(widths)):
        for name, shape in ((f"scale{i}", f"{k}"), (f"weight{i}", f"{k}x{n}")):
            arguments.append(f'%{name}: tensor<{shape}xf32> {{dist.name = "{name}", dist.role = "parameter"}}')
        types = f"(tensor<{rows}x{k}xf32>, tensor<{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{rows}x{n}xf32>"
        body.append(f"%y{i} = example.norm_matmul {value}, %scale{i}, %weight{i} epsilon 1.0e-05 : {types}")
        value = f"%y{i}"
    last = f"tensor<{rows}x{widths[-1]}xf32>"
    return (
        f'func.func @main({", ".join(arguments)}) -> ({last} {{dist.name = "y", dist.role = "output"}}) {{\n'
        + "\n".join([*body, f"func.return {value} : {last}"])
        + "\n}\n"
    )
