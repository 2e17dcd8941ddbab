"""Flops of `aten` contractions, by the formulas of torch.utils.flop_counter; everything else moves bytes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten_calls import compile_call, overload, torch_dtype
from distir.interpreters.work import Kind, Work, moved_bytes


def aten_work(op: Operation) -> Work | None:
    """The work of an operator that torch has a formula for; None for any other."""
    assert isinstance(op, AtenOperation)
    formula: Any = flop_registry.get(overload(op.schema).overloadpacket)
    if formula is None:
        return None
    counted: list[int] = []

    def count(**arguments: Any) -> Any:
        results = overload(op.schema)(**arguments)
        positional = [arguments.pop(a.name) for a in op.schema.arguments if a.name in arguments and not a.keyword_only]
        counted.append(int(formula(*positional, **arguments, out_val=results)))
        return results

    tensors = [_meta(v.type) for v in op.operands]
    compile_call(op, function=count)(tensors)
    return Work(Kind.MATMUL, counted[0], moved_bytes(op))


def _meta(type_: Any) -> torch.Tensor:
    assert isinstance(type_, TensorType)
    return torch.empty(type_.get_shape(), dtype=torch_dtype(type_.element_type), device="meta")  # pyright: ignore
