"""Finds the meaning of an operator dialect. In goes a dialect's name and a domain; out comes a function. It is the
one place in which an interpreter learns of a new dialect. A dialect of another package joins by `register_meaning`,
single operations by `register_implementations` (`distir.dialects.plugins`).

    reference   run(op, arrays, floats) -> arrays               results (`distir.interpreters.reference`)
    types       infer(op, operand types) -> result types        (`distir.interpreters.mixed`)
    exact       run(op, arrays) -> arrays                       as reference, on arrays of residues (discovery)
    checked     run(op, arrays) -> arrays                       as reference, raising on an index out of range (discovery, draws)
    kept        kept(op, arrays) -> {operand: array}            integers that another operator gave on the others (discovery)
    work        work(op) -> Work | None                         flops of contractions; None: the default holds
    is_loops    is_loops(op) -> bool                            whether that default, a flop for each element, is about right

Modules are imported when an operation of the dialect is first met: a program without `aten` never imports torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from distir.dialects.plugins import Registry


class Meaning(NamedTuple):
    """Functions, as `module:name`."""

    reference: str
    types: str | None = None
    """None: the mixed domain has its own implementations."""
    exact: str | None = None
    """None: the reference runs on object arrays of exact scalars."""
    checked: str | None = None
    """None: the reference raises on an index out of range. It is asked where that cannot run in a fork, or crashes there."""
    kept: str | None = None
    """None: every integer may be any in range."""
    work: str | None = None
    """None: `distir.interpreters.work` has them."""
    is_loops: str | None = None
    """None: of what has no work of its own it is not known, which tools say."""
    is_forkable: bool = True
    """Whether a fork of this process can run it: not where its library has threads of its own."""


MEANINGS: Registry[Meaning] = Registry(
    "meaning of the dialect",
    {
        "aten": Meaning(
            reference="distir.interpreters.aten.reference:run_aten",
            types="distir.interpreters.aten.types:infer_aten",
            exact="distir.interpreters.aten.exact:run_exactly",
            checked="distir.interpreters.aten.in_range:run_aten_in_range",
            kept="distir.interpreters.aten.gradients:kept_integers",
            work="distir.interpreters.aten.work:aten_work",
            is_loops="distir.interpreters.aten.work:is_loops",
        ),
        "attention": Meaning(
            reference="distir.interpreters.attention:run_attention",
            exact="distir.interpreters.attention:run_exactly",
            types="distir.interpreters.attention:attention_types",
            work="distir.interpreters.attention:work_of_attention",
        ),
        "grad": Meaning(
            reference="distir.interpreters.grad:run_grad",
            types="distir.interpreters.grad:grad_types",
            is_loops="distir.interpreters.work:always",
        ),
        "jax": Meaning(
            reference="distir.interpreters.jax.primitives:run_jax",
            types="distir.interpreters.jax.primitives:infer_jax",
            checked="distir.interpreters.jax.primitives:run_jax_in_range",
            work="distir.interpreters.jax.work:jax_work",
            is_loops="distir.interpreters.jax.work:is_loops",
            is_forkable=False,
        ),
        "onnx": Meaning(
            reference="distir.interpreters.onnx.reference:run_onnx",
            is_loops="distir.interpreters.onnx.work:is_loops",
        ),
        "random": Meaning(
            reference="distir.interpreters.random:run_random",
            types="distir.interpreters.random:random_types",
            is_loops="distir.interpreters.work:always",
        ),
    },
    instance_of=Meaning,
)


@cache
def function_of(place: str) -> Callable[..., Any]:
    """The function that a `Meaning` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
