"""Weights of operations for balancing stages. In go an operation and a machine; out come seconds per row, of its
arithmetic and of writing its results.

Both grow alike with the batch (parameters' bytes are left out), so that a cut that is balanced at one batch size is nearly so at
others: what does not grow is little, as a rule (a weight that is cast where it is used)."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from distir.interpreters.machines import Machine
from distir.passes.structure import callee_of, functions, is_constant


def stage_weights(module: ModuleOp, machine: Machine, rows: int) -> Callable[[Operation], float]:
    """A function from operations (calls included) to seconds per row, of a module whose batch has so many rows."""
    from distir.interpreters.work import type_bytes, work_of

    device = machine.device
    peak = max(device.peak_flops_per_second.values())
    bandwidth = device.memory_bandwidth_bytes_per_second
    table = functions(module)
    bodies: dict[str, float] = {}

    def weigh(op: Operation) -> float:
        if (callee := callee_of(op)) is not None:
            if callee not in bodies:
                block = table[callee].body.block
                bodies[callee] = sum(weigh(o) for o in block.ops if o is not block.last_op)
            return bodies[callee]
        if is_constant(op):
            return 0.0
        written = sum(type_bytes(t) for t in op.result_types)
        return work_of(op).flops / rows / peak + written / rows / bandwidth

    return weigh
