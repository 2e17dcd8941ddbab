"""Any optimizer of torch.optim as a function from parameters, gradients and state to parameters and state.

The optimizer's own `step` runs, on copies that are traced. What its state is, is seen by running it once on tensors
without data; that the state may start at zero, by running it twice on a small one."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx

from distir.dialects.errors import DistirError

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class StateTensor:
    """One tensor of the state: `key` of `parameter`, and what it is before the next step."""

    parameter: str
    key: str
    initial: Tensor

    @property
    def name(self) -> str:
        return f"state.{self.parameter}.{self.key}"


@dataclass(frozen=True)
class FunctionalOptimizer:
    """An optimizer over named parameters."""

    optimizer: torch.optim.Optimizer
    groups: list[tuple[dict[str, Any], list[str]]]
    """Options and the names of the parameters that have them."""
    state: list[StateTensor]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> FunctionalOptimizer:
        """Raises DistirError for a parameter that is not among these, and for state that cannot start at zero."""
        names = {parameter: name for name, parameter in parameters.items()}
        groups: list[tuple[dict[str, Any], list[str]]] = []
        for group in optimizer.param_groups:
            if any(p not in names for p in group["params"] if p.requires_grad):
                raise DistirError(
                    f"{type(optimizer).__name__} holds a parameter that is not the model's: give it only those"
                )
            options = {key: value for key, value in group.items() if key != "params"}
            options |= {key: value for key, value in _TRACEABLE.items() if key in options}
            groups.append((options, [names[p] for p in group["params"] if p in names]))
        unstarted = cls(optimizer, groups, [])
        found: list[StateTensor] = []
        for name, key, example in unstarted._state_after_a_step(parameters):
            known = optimizer.state.get(parameters[name], {}).get(key)
            if isinstance(known, Tensor):
                initial = known.detach().to(example.dtype)
            else:
                device = "meta" if parameters[name].is_meta and example.dim() else "cpu"
                initial = torch.zeros(example.shape, dtype=example.dtype, device=device)
            found.append(StateTensor(name, key, initial))
        if not optimizer.state and found:
            unstarted._check_start()
        return cls(optimizer, groups, found)

    def step(self, parameters: Tensors, gradients: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        """The parameters and the state (by `StateTensor.name`) after one step. Those without a gradient stay.

        Parameters of one shape with the same options share one trace of their update, which is replayed for each."""
        updated = dict(parameters)
        new_state = {each.name: state[each.name] for each in self.state}
        keys: dict[str, list[str]] = defaultdict(list)
        for each in self.state:
            keys[each.parameter].append(each.key)
        updates: dict[object, Any] = {}
        for number, (options, names) in enumerate(self.groups):
            for name in names:
                if name not in gradients:
                    continue
                own = [f"state.{name}.{key}" for key in keys[name]]
                tensors = [parameters[name], gradients[name], *(state[each] for each in own)]
                kind = number, tuple(keys[name]), tuple((t.shape, t.dtype) for t in tensors)
                if kind not in updates:
                    updates[kind] = self._update(options, keys[name], tensors)
                updated[name], *after = updates[kind](*tensors)
                new_state |= dict(zip(own, after, strict=True))
        return updated, new_state

    def _update(self, options: dict[str, Any], keys: Sequence[str], examples: Sequence[Tensor]) -> Any:
        """The update of one parameter, traced: (parameter, gradient, state) to (parameter, state)."""
        alone = FunctionalOptimizer(self.optimizer, [(options, ["it"])], [])

        def update(parameter: Tensor, gradient: Tensor, *state: Tensor) -> list[Tensor]:
            held = {"it": {key: t.clone() for key, t in zip(keys, state, strict=True)}} if keys else {}
            updated, after = alone._run({"it": parameter.clone()}, {"it": gradient}, held)
            return [updated["it"], *(after["it"][key] for key in keys)]

        with disable_proxy_modes_tracing(), detect_fake_mode(list(examples)) or FakeTensorMode():
            fakes = [torch.empty(t.shape, dtype=t.dtype) for t in examples]
            return make_fx(functionalize(update), tracing_mode="fake")(*fakes)

    def _run(
        self, parameters: Tensors, gradients: Tensors, state: Mapping[str, dict[str, Any]]
    ) -> tuple[Tensors, dict[str, dict[str, Any]]]:
        """Runs the optimizer's step on these tensors, in place."""
        optimizer = copy.copy(self.optimizer)
        optimizer.param_groups = [
            {"params": [parameters[n] for n in names], **options} for options, names in self.groups
        ]
        optimizer.state = defaultdict(dict, {parameters[n]: dict(each) for n, each in state.items()})
        for name, gradient in gradients.items():
            parameters[name].grad = gradient
        with _tensors_stay_tensors():
            optimizer.step()
        return parameters, {name: dict(optimizer.state[p]) for name, p in parameters.items() if p in optimizer.state}

    def _state_after_a_step(self, parameters: Mapping[str, nn.Parameter]) -> list[tuple[str, str, Tensor]]:
        with FakeTensorMode():
            fakes = {n: torch.empty(p.shape, dtype=p.dtype) for n, p in parameters.items()}
            _, state = self._run(fakes, {n: torch.empty_like(p) for n, p in fakes.items()}, {})
        found: list[tuple[str, str, Tensor]] = []
        for name, entries in state.items():
            found += [(name, key, value) for key, value in entries.items() if isinstance(value, Tensor)]
        return found

    def _check_start(self) -> None:
        """That a step from no state is a step from a state of zeros, on parameters of two elements."""
        names = [name for _, names in self.groups for name in names]
        small = {n: torch.tensor([0.5, -2.0], dtype=torch.float64) for n in names[:1]}
        alone = FunctionalOptimizer(self.optimizer, [(o, [n for n in g if n in small]) for o, g in self.groups], [])
        gradients = {n: torch.tensor([1.5, -0.25], dtype=torch.float64) for n in small}
        first, state = alone._run({n: p.clone() for n, p in small.items()}, gradients, {})
        zeros = {
            n: {k: torch.zeros_like(v) if isinstance(v, Tensor) else v for k, v in s.items()} for n, s in state.items()
        }
        second, _ = alone._run({n: p.clone() for n, p in small.items()}, gradients, zeros)
        if any(not torch.equal(first[n], second[n]) for n in small):
            raise DistirError(
                f"the state of {type(self.optimizer).__name__} with these options does not start at zero: run one "
                "optimizer.step() in PyTorch first, its state is imported"
            )


_TRACEABLE = {"foreach": False, "fused": False, "capturable": True}
"""Options that say how a step runs, not what it computes."""


@contextmanager
def _tensors_stay_tensors() -> Any:
    """Optimizers compute with step counters as tensors while they are compiled; and counters are float64, as Python's
    numbers are with which they compute otherwise."""
    compiling, default = getattr(torch.compiler, "_is_compiling_flag"), torch.get_default_dtype()
    setattr(torch.compiler, "_is_compiling_flag", True)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        setattr(torch.compiler, "_is_compiling_flag", compiling)
        torch.set_default_dtype(default)
