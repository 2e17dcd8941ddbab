"""Where the meaning of each operator dialect is: the one place in which an interpreter learns of a new one.

    reference   run(op, arrays, floats) -> arrays               what it computes (`distir.interpreters.reference`)
    types       infer(op, operand types) -> result types        (`distir.interpreters.mixed`)
    work        work(op) -> Work | None                         flops of contractions; None: the default holds

Modules are imported when an operation of the dialect is first met: a program without `aten` never imports torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple


class Meaning(NamedTuple):
    """Functions, as `module:name`."""

    reference: str
    types: str | None = None
    """None: the mixed domain has its own implementations."""
    work: str | None = None
    """None: `distir.interpreters.work` has them."""


MEANINGS = {
    "aten": Meaning(
        reference="distir.interpreters.aten_reference:run_aten",
        types="distir.interpreters.aten_types:infer_aten",
        work="distir.interpreters.aten_work:aten_work",
    ),
    "grad": Meaning(
        reference="distir.interpreters.grad:run_grad",
        types="distir.interpreters.grad:grad_types",
    ),
    "onnx": Meaning(reference="distir.interpreters.onnx_reference:run_onnx"),
}


@cache
def function_of(place: str) -> Callable[..., Any]:
    """The function that a `Meaning` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
