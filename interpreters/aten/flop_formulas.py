"""Flops of an `aten` operation that is no matrix product. In go the operation and its shapes; out come flops, by the
formula of torch.utils.flop_counter, which takes torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.flop_counter import flop_registry

from distir.dialects.aten import AtenOperation
from distir.interpreters.aten.calls import compile_call, overload


def flops(op: AtenOperation, operands: Sequence[Sequence[int]], results: Sequence[Sequence[int] | None]) -> int:
    """Of an operation on operands of these shapes, with results of these, or none."""
    shapes: list[Any] = [_Shaped(torch.Size(shape)) for shape in operands]
    made = [None if shape is None else torch.Size(shape) for shape in results]
    counted, formula = list[int](), cast(Any, flop_registry)[overload(op.schema).overloadpacket]

    def count(**arguments: Any) -> Any:
        positional = [arguments.pop(a.name) for a in op.schema.arguments if a.name in arguments and not a.keyword_only]
        if (of_shapes := getattr(formula, "__wrapped__", None)) is not None:
            positional = [each.shape if isinstance(each, _Shaped) else each for each in positional]
            counted.append(int(of_shapes(*positional, **arguments, out_shape=made[0] if len(made) == 1 else made)))
        else:
            counted.append(int(formula(*positional, **arguments, out_val=[each and _Shaped(each) for each in made])))
        return [None for _ in made]

    compile_call(op, function=count)(shapes)
    return counted[0]


@dataclass(frozen=True)
class _Shaped:
    """A shape in place of a tensor of it: formulas ask for no more, and torch has no tensors whose sizes exceed 64 bits, as
    those of a batch without number do (`simulate/batches`)."""

    shape: torch.Size
