"""The parts of an operation of the `aten` dialect. In goes the operation; out comes a program of its decomposition
in torch, or None where there is none."""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation

from distir.dialects.aten import AtenOperation
from distir.dialects.errors import DistirError
from distir.frontends.pytorch.remembering import Port, Tensors, TracedFunction
from distir.frontends.pytorch.tracing import trace
from distir.interpreters.aten.calls import compile_call, overload, torch_dtype
from distir.interpreters.aten.in_range import in_order


def parts_of(op: Operation) -> ModuleOp | None:
    """A program that takes what the operation takes and gives what it gives; None where torch has no decomposition, or none into several
    operations."""
    from torch._decomp import decomposition_table

    if not isinstance(op, AtenOperation) or (decomposition := decomposition_table.get(overload(op.schema))) is None:
        return None
    if not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
        return None
    distinct = list(dict.fromkeys(op.operands))
    types = [cast(TensorType, value.type) for value in distinct]  # pyright: ignore[reportMissingTypeArgument, reportUnknownVariableType]
    names = [f"operand{i}" for i in range(len(types))]
    empty = [torch.empty(t.get_shape(), dtype=torch_dtype(t.element_type), device="meta") for t in types]  # pyright: ignore
    compute = compile_call(op, function=partial(in_order, overload(op.schema), decomposition))

    def run(tensors: Tensors) -> dict[tuple[str, str], torch.Tensor]:
        given = dict(zip(distinct, (tensors[name] for name in names), strict=True))
        results = compute([given[value] for value in op.operands])
        return {(f"result{i}", "output"): cast(torch.Tensor, result) for i, result in enumerate(results)}

    ports = [Port(name, "buffer", tensor) for name, tensor in zip(names, empty, strict=True)]
    try:
        return trace(TracedFunction(op.name, ports, run, run))
    except (DistirError, RuntimeError, TypeError):
        return None
