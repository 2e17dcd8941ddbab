"""The share of a program on its fullest device. In go a sequential and a distributed program; out comes the largest
share of one device, of parameters or of flops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.dialects.dist.attributes import placement
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.simulate import simulate
from distir.interpreters.work import work_of

MACHINE = "dgx-a100"
"""Any with enough devices: only what they do is counted."""


def parameter_share(module: ModuleOp, distributed: ModuleOp) -> float:
    """Elements of parameters and state on the device that has most, of those of the program."""
    return role_share(module, distributed, ("parameter", "state"))


def role_share(module: ModuleOp, distributed: ModuleOp, roles: Sequence[str]) -> float:
    """Elements of arguments and results of these roles; 1 if there are none."""
    whole, of_device = 0, Counter[int]()
    entry, main = entry_function(module), entry_function(distributed)
    for port in (*arguments_of(entry), *results_of(entry)):
        whole += _elements(port.type) if port.role in roles else 0
    for port in (*arguments_of(main), *results_of(main)):
        if port.role in roles and (on := placement(port.type)) is not None:
            of_device[on.device] += _elements(port.type)
    return max(of_device.values(), default=0) / whole if whole else 1.0


def work_share(module: ModuleOp, distributed: ModuleOp) -> float:
    """Flops of the device that does most, of those of the program; communication has none."""
    whole = max(flops_of(module).values(), default=0)
    return max(flops_of(distributed).values(), default=0) / whole if whole else 1.0


def flops_of(module: ModuleOp) -> Counter[int]:
    """By device."""
    done: Counter[int] = Counter()
    for placed, times in simulate(module, MACHINE).executions.items():
        if not placed.communicates:
            flops = times * work_of(placed.op).flops
            done.update({device: flops for device, _ in placed.streams})
    return done


def _elements(type_: object) -> int:
    return prod(cast("TensorType[Any]", type_).get_shape()) if isinstance(type_, TensorType) else 0
