"""Any optimizer of torch.optim as a function from parameters, gradients and state to parameters and state.

The optimizer's own `step` runs, on copies that are traced. What its state is, is seen by running it once on tensors
without data; what the state starts at, by asking it for the state of a small parameter; that a step from there is a step
from no state, by running both."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx
from torch.overrides import TorchFunctionMode

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
        """Raises DistirError for a parameter that is not among these, for an update that depends on the values of tensors
        as Python numbers, and for state that starts at neither one number nor what the optimizer has."""
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
        starts = unstarted._starts(parameters)
        found: list[StateTensor] = []
        for name, key, example in unstarted._state_after_a_step(parameters):
            known = optimizer.state.get(parameters[name], {}).get(key)
            if isinstance(known, Tensor):
                initial = known.detach().to(example.dtype)
            else:
                device = "meta" if parameters[name].is_meta and example.dim() else "cpu"
                initial = _filled(example, starts[name].get(key, 0.0), device)
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
        with _tensors_stay_tensors(), _TensorsAsNumbers():
            optimizer.step()
        return parameters, {name: dict(optimizer.state[p]) for name, p in parameters.items() if p in optimizer.state}

    def _state_after_a_step(self, parameters: Mapping[str, nn.Parameter]) -> list[tuple[str, str, Tensor]]:
        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = {n: torch.empty(p.shape, dtype=p.dtype) for n, p in parameters.items()}
            held = {n: _fake_state(self.optimizer.state.get(p, {})) for n, p in parameters.items()}
            try:
                _, state = self._run(fakes, {n: torch.empty_like(p) for n, p in fakes.items()}, held)
            except (RuntimeError, TypeError) as error:
                raise DistirError(
                    f"{type(self.optimizer).__name__} has no program: its step needs more than parameters and gradients, or "
                    f"reads values as numbers ({type(error).__name__}: {str(error).strip().splitlines()[0]}); "
                    "Adam, AdamW, SGD and most of torch.optim have one"
                ) from error
        found: list[tuple[str, str, Tensor]] = []
        for name, entries in state.items():
            found += [(name, key, value) for key, value in entries.items() if isinstance(value, Tensor)]
        return found

    def _starts(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, dict[str, float]]:
        """By parameter and key, the number that all elements of a new state are; none for what a step makes itself."""
        starts: dict[str, dict[str, float]] = {}
        kinds: dict[object, dict[str, float]] = {}
        for number, (options, names) in enumerate(self.groups):
            for name in names:
                kind = number, parameters[name].dim(), parameters[name].dtype
                if kind not in kinds:
                    small = torch.zeros([2] * parameters[name].dim(), dtype=parameters[name].dtype)
                    kinds[kind] = self._start(options, small)
                starts[name] = kinds[kind]
        return starts

    def _start(self, options: dict[str, Any], parameter: Tensor) -> dict[str, float]:
        """The state that the optimizer makes for a parameter before its first step (`_init_group` of torch.optim)."""
        init = getattr(self.optimizer, "_init_group", None)
        if init is None:
            return {}
        optimizer = copy.copy(self.optimizer)
        optimizer.state = defaultdict(dict)
        parameter.grad = torch.zeros_like(parameter)
        lists = [[] for _ in list(signature(init).parameters)[1:]]
        with _tensors_stay_tensors():
            try:
                type(optimizer)._init_group(optimizer, {"params": [parameter], **options}, *lists)  # type: ignore
            except (RuntimeError, TypeError, KeyError):
                return {}
        entries = optimizer.state[parameter].items()
        starts = {
            key: value.flatten()[0].item() for key, value in entries if isinstance(value, Tensor) and value.numel()
        }
        for key, start in starts.items():
            if not bool((optimizer.state[parameter][key] == start).all()):
                raise DistirError(self._no_start())
        return starts

    def _no_start(self) -> str:
        return (
            f"the state of {type(self.optimizer).__name__} with these options does not start at zero, or at one number: run "
            "one optimizer.step() in PyTorch first, its state is imported"
        )

    def _check_start(self) -> None:
        """That a step from no state is a step from a state of what it starts at, on parameters of two elements."""
        names = [name for _, names in self.groups for name in names]
        small = {n: torch.tensor([0.5, -2.0], dtype=torch.float64) for n in names[:1]}
        alone = FunctionalOptimizer(self.optimizer, [(o, [n for n in g if n in small]) for o, g in self.groups], [])
        gradients = {n: torch.tensor([1.5, -0.25], dtype=torch.float64) for n in small}
        first, state = alone._run({n: p.clone() for n, p in small.items()}, gradients, {})
        starts = alone._starts({n: nn.Parameter(p) for n, p in small.items()})
        started = {
            n: {
                k: _filled(v, starts[n].get(k, 0.0), "cpu").clone() if isinstance(v, Tensor) else v
                for k, v in s.items()
            }
            for n, s in state.items()
        }
        second, _ = alone._run({n: p.clone() for n, p in small.items()}, gradients, started)
        if any(not torch.equal(first[n], second[n]) for n in small):
            raise DistirError(self._no_start())


def _filled(example: Tensor, value: float, device: str) -> Tensor:
    """A tensor like the example, of one number; zeros take no memory until they are touched, other numbers one element."""
    if value == 0:
        return torch.zeros(example.shape, dtype=example.dtype, device=device)
    return torch.full((), value, dtype=example.dtype, device=device).expand(example.shape)


def _fake_state(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of a state without data; counters are float64, as in a program."""
    return {
        key: torch.empty(value.shape, dtype=value.dtype if value.dim() else torch.float64)
        if isinstance(value, Tensor)
        else value
        for key, value in entries.items()
    }


_TRACEABLE = {"foreach": False, "fused": False, "capturable": True}
"""Options that say how a step runs, not what it computes."""


class _TensorsAsNumbers(TorchFunctionMode):
    """A number that scales an operand may be a tensor, as a step counter is: `p.addcdiv_(g, s, value=-lr / t)`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        key = _SCALES.get(getattr(func, "__name__", "").removesuffix("_"), "")
        if isinstance(kwargs.get(key), Tensor) and len(args) > 1:
            args = (args[0], args[1] * kwargs.pop(key), *args[2:])
        return func(*args, **kwargs)


_SCALES = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
"""The argument, a number, that scales the first operand after `self`."""


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
