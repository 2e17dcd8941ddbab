"""Single operations of ONNX, as tests ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.onnx import Onnx


def onnx_operation(operator: str, operands: Sequence[str], results: Sequence[str], properties: str = "") -> Operation:
    """One operation on the arguments of a function. Operands and results are `2x3xf32`, or `none`: absent."""
    given = [type_ for type_ in operands if type_ != "none"]
    arguments = iter(range(len(given)))
    names = ["%none" if type_ == "none" else f"%{next(arguments)}" for type_ in operands]
    text = f"""func.func @main({", ".join(f"%{i}: {_type(given[i])}" for i in range(len(given)))}) {{
        %none = "onnx.NoValue"() <{{value}}> : () -> none
        {", ".join(f"%r{i}" for i in range(len(results)))} = "onnx.{operator}"({", ".join(names)}) <{{{properties}}}>
            : ({", ".join(map(_type, operands))}) -> ({", ".join(map(_type, results))})
        func.return
    }}"""
    context = Context()
    for dialect in (Builtin, func.Func, Onnx):
        context.load_dialect(dialect)
    (function,) = Parser(context, text).parse_module().ops
    return next(op for op in function.walk() if op.name == f"onnx.{operator}")


def _type(text: str) -> str:
    return text if text == "none" else f"tensor<{text}>"
