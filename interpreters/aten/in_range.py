"""Runs an operation of the `aten` dialect that may have indices out of range, which its kernel does not check. In go
the operation and arrays; out come its results, or the error of torch's decomposition on these arrays, before the
kernel sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.ir import Operation

from distir.interpreters.aten.calls import binding_of, overload
from distir.interpreters.aten.reference import Array, run_aten, tensor_of

_MASKED = torch.ops.aten._unsafe_masked_index
_MASKED_ACCUMULATE = torch.ops.aten._unsafe_masked_index_put_accumulate


def run_aten_in_range(op: Operation, operands: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """The results. Raises where an operand is an index out of range, if torch has a decomposition of the operator that is made of what checks
    indices or masks them."""
    from torch._decomp import decomposition_table

    operator = overload(op.schema)  # type: ignore[attr-defined]
    if (decomposition := decomposition_table.get(operator)) is not None:
        compute = binding_of(op).compute(partial(in_order, operator, decomposition))
        with torch.no_grad(), _Unmasked():
            compute([tensor_of(np.asarray(operand)) for operand in operands])
    return run_aten(op, operands)


class _Unmasked(TorchDispatchMode):
    """An index out of range raises where a mask would hide it too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (_MASKED.default, _MASKED_ACCUMULATE.default):
            for extent, indices in zip(args[0].shape, args[2], strict=False):
                if indices is not None and ((indices < 0) | (indices >= extent)).any():
                    raise IndexError(f"{func}: an index is out of range")
        return func(*args, **(kwargs or {}))


def in_order(operator: Any, decomposition: Callable[..., Any], **given: Any) -> Any:
    """What a decomposition gives for what its operator takes, by other names."""
    arguments = operator._schema.arguments
    values = {a.name: given.get(a.name, a.default_value) for a in arguments}
    by_name = {a.name: values[a.name] for a in arguments if a.kwarg_only and a.name in given}
    return decomposition(*(values[a.name] for a in arguments if not a.kwarg_only), **by_name)
