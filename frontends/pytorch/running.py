"""A user's step as it runs in eager PyTorch: takes values of what it remembers and the inputs of some steps, and gives the results of
each (`distir.frontends.eager`). The user's own objects run, and are afterwards what they were."""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distir.dialects.errors import DistirError
from distir.frontends.eager import Steps
from distir.frontends.pytorch.draws import ROWS, SEED, counted_draws
from distir.frontends.pytorch.steps import TracedFunction
from distir.interpreters.aten_reference import array_of, tensor_of

Array = np.ndarray[Any, Any]


def eager_steps(function: TracedFunction) -> Steps:
    """The user's code as steps. What it draws at random is what a program draws."""

    def run(values: Mapping[str, Array], batches: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        if function.eager is None:
            raise DistirError(f"{function.name} does not run by itself")
        remembering = function.remembering
        memory = {} if remembering is None else remembering.parameters | remembering.buffers
        if any(tensor.is_meta for tensor in memory.values()):
            raise DistirError(f"{function.name} cannot run: it has parameters without values")
        found: list[dict[str, Array]] = []
        seed = int(values.get(SEED, np.zeros(())))
        with _put_back(function):
            with torch.no_grad():
                for name, tensor in memory.items():
                    tensor.copy_(tensor_of(values[name]))
            for batch in batches:
                inputs = {p.name: tensor_of(batch[p.name]) for p in function.ports if p.name in batch}
                rows = batch[ROWS].tolist() if ROWS in batch else None
                with counted_draws(seed, rows) as draws:
                    results = function.eager({name: t.clone() for name, t in inputs.items()})
                seed = int(draws.next_seed)
                now = {} if remembering is None else remembering.now()
                found.append({name: array_of(t.detach().clone()) for (name, _), t in (results | now).items()})
        return found

    return run


@contextmanager
def _put_back(function: TracedFunction) -> Generator[None]:
    """Parameters, buffers, gradients and optimizers are what they were, afterwards."""
    remembering = function.remembering
    if remembering is None:
        yield
        return
    tensors: list[Tensor] = [*remembering.parameters.values(), *remembering.buffers.values()]
    before = [(tensor, tensor.detach().clone(), tensor.grad) for tensor in tensors]
    optimizers = [memory.optimizer for memory in remembering.memories]
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    for tensor in tensors:
        tensor.grad = None if tensor.grad is None else tensor.grad.clone()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value, gradient in before:
                tensor.copy_(value)
                tensor.grad = gradient
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict(state)
