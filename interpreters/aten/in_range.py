"""An operation of the `aten` dialect whose kernel does not check indices: the operation and arrays go in; its results come out, or what
torch's decomposition of it raises on these arrays, before the kernel sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from xdsl.ir import Operation

from distir.interpreters.aten.calls import binding_of, overload
from distir.interpreters.aten.reference import Array, run_aten, tensor_of


def run_aten_in_range(op: Operation, operands: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """The results. Raises where an operand is an index out of range, if torch has a decomposition of the operator."""
    from torch._decomp import decomposition_table

    operator = overload(op.schema)  # type: ignore[attr-defined]
    if (decomposition := decomposition_table.get(operator)) is not None:
        compute = binding_of(op).compute(partial(in_order, operator, decomposition))
        with torch.no_grad():
            compute([tensor_of(np.asarray(operand)) for operand in operands])
    return run_aten(op, operands)


def in_order(operator: Any, decomposition: Callable[..., Any], **given: Any) -> Any:
    """What a decomposition gives for what its operator takes, by other names."""
    arguments = operator._schema.arguments
    values = {a.name: given.get(a.name, a.default_value) for a in arguments}
    by_name = {a.name: values[a.name] for a in arguments if a.kwarg_only and a.name in given}
    return decomposition(*(values[a.name] for a in arguments if not a.kwarg_only), **by_name)
