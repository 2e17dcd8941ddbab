"""Takes a step and batches, and gives what eager PyTorch computes from them step by step, for comparison with its program:

    program = import_step(step)
    differences = against_eager(step, steps=3)

The user's own objects run, and are afterwards what they were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.devices import autocast_on_cpu
from distir.frontends.pytorch.draws import SEED, counted_draws
from distir.frontends.pytorch.remembering import TracedFunction
from distir.frontends.pytorch.side_effects import Surroundings
from distir.frontends.pytorch.steps import TrainingStep, WrittenStep, traceable
from distir.frontends.weights import weights_of
from distir.interpreters import reference

Array = np.ndarray[Any, Any]


def eager_steps(
    step: TrainingStep | WrittenStep | Callable[..., Any], example_args: Any, batches: Sequence[Mapping[str, Tensor]]
) -> list[dict[str, Array]]:
    """By name, the results of each step and what is remembered after it, on batches of inputs by name; what a model
    draws at random is what a program draws."""
    function = traceable(step, example_args)
    if any(port.value is None for port in function.ports if port.role == "parameter"):
        raise DistirError(f"{function.name} cannot run: it has parameters without values")
    found: list[dict[str, Array]] = []
    seed = 0
    with _put_back(function), autocast_on_cpu():
        for batch in batches:
            rows = next((len(t) for t in batch.values() if t.dim()), None)
            with counted_draws(seed, None if rows is None else range(rows)) as draws:
                results = function.eager({name: t.clone() for name, t in batch.items()})
            seed = int(draws.next_seed)
            now = {} if function.remembering is None else function.remembering.now()
            found.append({name: _array(tensor) for (name, _), tensor in (results | now).items()})
    return found


def against_eager(
    step: TrainingStep | WrittenStep | Callable[..., Any],
    example_args: Any = (),
    steps: int = 3,
    program: ModuleOp | None = None,
) -> dict[str, float]:
    """By name, the largest difference between the program's results (imported unless given) and eager PyTorch's over some
    steps, relative to the largest element (and to 1, if that is less). Batches are drawn like the example arguments."""
    from distir.frontends.pytorch import import_step

    program = import_step(step, example_args) if program is None else program
    given = example_args if len(example_args) else getattr(step, "example_args", ())
    function = traceable(step, given)
    batches = [
        {p.name: _like(p.example, number) for p in function.ports if p.role in ("input", "label")}
        for number in range(steps)
    ]
    memory = {name: value.copy() for name, value in weights_of(program).items()}
    names = {port.name for port in function.ports}
    found: dict[str, float] = {}
    for batch, expected in zip(batches, eager_steps(step, given, batches), strict=True):
        results = reference.run(program, memory | {name: _array(t) for name, t in batch.items()})
        memory |= {name: value for name, value in results.items() if name in names or name == SEED}
        for name, value in expected.items():
            here = results.get(name, memory.get(name))
            if here is not None:
                found[name] = max(found.get(name, 0.0), _difference(here, value))
    return found


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return float("inf")
    wide = [np.asarray(each, np.complex128 if np.iscomplexobj(each) else np.float64) for each in (a, b)]
    if not wide[0].size or np.array_equal(*wide, equal_nan=True):
        return 0.0
    scale = max(1.0, float(np.abs(wide[1]).max()))
    worst = float(np.abs(wide[0] - wide[1]).max()) / scale
    return worst if worst == worst else float("inf")


def _like(example: Tensor, number: int) -> Tensor:
    """Other values of the same kind: integers are a permutation of the example's, so that they are as valid."""
    random = torch.Generator().manual_seed(number)
    if example.is_floating_point() or example.is_complex():
        return torch.randn(example.shape, dtype=example.dtype, generator=random)
    if example.is_meta:
        return torch.zeros(example.shape, dtype=example.dtype)
    if example.dim() == 0:
        return example.detach().cpu().clone()
    return example.detach().cpu()[torch.randperm(len(example), generator=random)]


@contextmanager
def _put_back(function: TracedFunction) -> Generator[None]:
    """Parameters, buffers and optimizers are what they were, afterwards."""
    remembering = function.remembering
    surroundings = Surroundings(function.keeps)
    tensors = [] if remembering is None else [*remembering.parameters.values(), *remembering.buffers.values()]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [tensor.grad for tensor in tensors]
    optimizers = [] if remembering is None else [memory.optimizer for memory in remembering.memories]
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    for tensor in tensors:
        tensor.grad = None if tensor.grad is None else tensor.grad.clone()
    try:
        yield
    finally:
        surroundings.restore()
        with torch.no_grad():
            for tensor, value, gradient in zip(tensors, values, gradients, strict=True):
                tensor.copy_(value)
                tensor.grad = gradient
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict(state)


def _array(tensor: Tensor) -> Array:
    from distir.interpreters.aten_reference import array_of

    return array_of(tensor.detach().cpu().contiguous().clone())
