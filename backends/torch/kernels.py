"""Operations of an emitted program that torch has no name for. In go operations; out comes a file of functions with
one operation each, in order. Read again, the file gives Python functions on torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.exchange import parse
from distir.backends.torch.program import kernel
from distir.interpreters.walk import values_read


def text_of(kernels: Sequence[Operation]) -> str:
    """A function for each operation, of what it reads."""
    functions: list[Operation] = []
    for number, op in enumerate(kernels):
        read = list(dict.fromkeys(values_read(op)))
        block = Block(arg_types=[value.type for value in read])
        inner = op.clone(dict(zip(read, block.args, strict=True)))
        inner.attributes.clear()
        block.add_ops([inner, ReturnOp(*inner.results)])
        types = [value.type for value in read], [result.type for result in inner.results]
        functions.append(FuncOp(f"kernel_{number}", types, Region(block)))
    return str(ModuleOp(functions)) + "\n"


def load(path: Path, device: torch.device, in_float64: bool) -> list[Callable[[list[Any]], list[Any]]]:
    """The operations of a file as functions of what they read."""
    module = parse(path.read_text("utf-8"))
    operations = [function.body.block.first_op for function in module.ops if isinstance(function, FuncOp)]
    return [kernel(op, ElementTypes(in_float64), device) for op in operations if op is not None]
