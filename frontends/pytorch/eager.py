"""A user's step as it runs in eager PyTorch. In go values of what it remembers and the inputs of some steps; out
come the results of each step and the values remembered after it (`distir.frontends.eager`, which compares them with a program).

The user's own objects run, and are afterwards what they were."""

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
from distir.frontends.pytorch.devices import autocast_on_cpu
from distir.frontends.pytorch.draws import SEED, counted_draws
from distir.frontends.pytorch.remembering import TracedFunction
from distir.frontends.pytorch.side_effects import Surroundings
from distir.interpreters.aten.reference import array_of, tensor_of

Array = np.ndarray[Any, Any]


def eager_steps(function: TracedFunction) -> Steps:
    """The user's code as steps. What it draws at random is what a program draws."""

    def run(values: Mapping[str, Array], batches: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        remembering = function.remembering
        memory = {} if remembering is None else remembering.parameters | remembering.buffers
        if any(tensor.is_meta for tensor in memory.values()):
            raise DistirError(f"{function.name} cannot run: it has parameters without values")
        found: list[dict[str, Array]] = []
        seed = int(values.get(SEED, np.zeros(())))
        with _put_back(function), autocast_on_cpu():
            with torch.no_grad():
                for name, tensor in memory.items():
                    if name in values:
                        tensor.copy_(tensor_of(values[name]))
            for batch in batches:
                inputs = [port for port in function.ports if port.role in ("input", "label")]
                tensors = {p.name: _tensor(batch.get(p.name), p.example) for p in inputs}
                rows = next((len(t) for t in tensors.values() if t.dim()), None)
                with counted_draws(seed, None if rows is None else range(rows)) as draws:
                    results = function.eager(tensors)
                seed = int(draws.next_seed)
                now = {} if remembering is None else remembering.now()
                found.append({name: _array(tensor) for (name, _), tensor in (results | now).items()})
        return found

    return run


def integer_examples(function: TracedFunction) -> dict[str, Array]:
    """The inputs among the examples that are whole numbers and have values."""
    inputs = [port for port in function.ports if port.role in ("input", "label") and not port.example.is_meta]
    integers = [p for p in inputs if not p.example.is_floating_point() and not p.example.is_complex()]
    return {port.name: _array(port.example) for port in integers}


def _tensor(given: Array | None, example: Tensor) -> Tensor:
    """A value of an input; the example where the program has no such input, since nothing reads it."""
    if given is None:
        return torch.zeros(example.shape, dtype=example.dtype) if example.is_meta else example.detach().clone()
    return tensor_of(given).to(example.dtype).clone()


@contextmanager
def _put_back(function: TracedFunction) -> Generator[None]:
    """Parameters, buffers and optimizers are what they were, afterwards."""
    remembering = function.remembering
    surroundings = Surroundings(function.keeps)
    tensors = [] if remembering is None else [*remembering.parameters.values(), *remembering.buffers.values()]
    datas = [tensor.data for tensor in tensors]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [tensor.grad for tensor in tensors]
    memories = [] if remembering is None else remembering.memories
    held = [(each, each.detach().clone()) for memory in memories for each in memory.held()]
    others = [] if remembering is None else [table.scheduler for table in remembering.tables]
    others += [] if remembering is None else [each.scaler for each in remembering.scalers]
    states = [copy.deepcopy(each.state_dict()) for each in others]
    for tensor in tensors:
        tensor.grad = None if tensor.grad is None else tensor.grad.clone()
    try:
        yield
    finally:
        surroundings.restore()  # optimizers too, which may share what `load_state_dict` would make anew for each
        with torch.no_grad():
            for tensor, data, value, gradient in zip(tensors, datas, values, gradients, strict=True):
                tensor.data = data
                tensor.copy_(value)
                tensor.grad = gradient
            for tensor, value in held:
                tensor.copy_(value)
        for each, state in zip(others, states, strict=True):
            each.load_state_dict(state)


def _array(tensor: Tensor) -> Array:
    return array_of(tensor.detach().cpu().contiguous().clone())
