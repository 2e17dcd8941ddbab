"""Flops of `aten` contractions, by the formulas of torch.utils.flop_counter; everything else moves bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.flop_counter import flop_registry
from xdsl.dialects.builtin import NoneType, TensorType
from xdsl.ir import Operation

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten_calls import compile_call, overload
from distir.interpreters.work import Kind, Work, moved_bytes


def aten_work(op: Operation) -> Work | None:
    """The work of an operator that torch has a formula for; None for any other."""
    assert isinstance(op, AtenOperation)
    formula: Any = flop_registry.get(overload(op.schema).overloadpacket)
    if formula is None:
        return None
    counted: list[int] = []
    shaped: list[Any] = [_Shaped(torch.Size(_shape(v.type))) for v in op.operands]
    made = [None if isinstance(type_, NoneType) else torch.Size(_shape(type_)) for type_ in op.result_types]

    def count(**arguments: Any) -> Any:
        positional = [arguments.pop(a.name) for a in op.schema.arguments if a.name in arguments and not a.keyword_only]
        if (of_shapes := getattr(formula, "__wrapped__", None)) is not None:
            positional = [each.shape if isinstance(each, _Shaped) else each for each in positional]
            counted.append(int(of_shapes(*positional, **arguments, out_shape=made[0] if len(made) == 1 else made)))
        else:
            counted.append(int(formula(*positional, **arguments, out_val=[each and _Shaped(each) for each in made])))
        return [None for _ in made]

    compile_call(op, function=count)(shaped)
    return Work(Kind.MATMUL, counted[0], moved_bytes(op))


@dataclass(frozen=True)
class _Shaped:
    """A shape in place of a tensor of it: formulas ask for no more, and torch has no tensors whose sizes exceed 64 bits, as
    those of a batch without number do (`simulate/batches`)."""

    shape: torch.Size


def _shape(type_: Any) -> Sequence[int]:
    assert isinstance(type_, TensorType)
    return cast(TensorType[Any], type_).get_shape()
