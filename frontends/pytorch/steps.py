"""What can be imported, as one thing: a function of named tensors with roles that returns named tensors with roles."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.stateless import _reparametrize_module  # pyright: ignore[reportPrivateUsage]
from torch.utils import _pytree as pytree

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.optimizers import FunctionalOptimizer

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Port:
    """One argument: an example of it (its data is not looked at) and, where there is one, its value."""

    name: str
    role: str
    example: Tensor
    value: Tensor | None = None


@dataclass(frozen=True)
class TracedFunction:
    """`run` takes tensors by name, in the order of the ports, and returns results by (name, role)."""

    name: str
    ports: Sequence[Port]
    run: Callable[[Tensors], dict[tuple[str, str], Tensor]]


@dataclass(frozen=True)
class TrainingStep:
    """A training step: forward, loss, backward, optimizer. Made by `training_step`, which says what the fields are."""

    model: nn.Module
    loss: Callable[..., Tensor] | None
    optimizer: torch.optim.Optimizer
    autocast: torch.dtype | None = None
    example_args: Sequence[Any] | Mapping[str, Any] = ()


def training_step(
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer],
    *,
    autocast: torch.dtype | None = None,
    example_args: Sequence[Any] | Mapping[str, Any] = (),
) -> TrainingStep:
    """One step of training `model`, to be imported.

    `loss(output, label)` is a scalar: the last example argument is the label, those before go to the model. With None the
    model computes it (its result, or the result's `loss`), and arguments called `label...` or `target...` are labels.
    `optimizer` is any of torch.optim over parameters of the model, or makes one of them; a learning rate is fixed in the
    program. With `autocast`, forward and loss run under torch.autocast in that type, parameters stay as they are.
    """
    made = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer(model.parameters())
    return TrainingStep(model, loss, made, autocast, example_args)


def traceable(
    function: TrainingStep | Callable[..., Any], example_args: Sequence[Any] | Mapping[str, Any]
) -> TracedFunction:
    """Anything that can be imported, ready to be traced."""
    if isinstance(function, TrainingStep):
        return _training(function, example_args if len(example_args) else function.example_args)
    if isinstance(function, nn.Module):
        return _inference(function, example_args)
    if callable(function):
        return _plain(function, example_args)
    raise DistirError(f"expected a training step, a torch.nn.Module or a function, got a {type(function).__name__}")


@dataclass(frozen=True)
class _Arguments:
    """Example arguments with the tensors among them taken out: `rebuild` puts tensors by name in their places."""

    tensors: Mapping[str, Tensor]
    rebuild: Callable[[Mapping[str, Tensor]], tuple[list[Any], dict[str, Any]]]


def _arguments(
    callee: Callable[..., Any], given: Sequence[Any] | Mapping[str, Any], extra: Sequence[str]
) -> _Arguments:
    """Tensors are named by the parameters of the callee (then `extra`), and by their place inside nested ones."""
    if isinstance(given, Mapping):
        whole: dict[str, Any] = dict(given)
    else:
        given = (given,) if isinstance(given, Tensor) else given
        own = len(given) - len(extra)
        names = _parameter_names(callee)[:own]
        names += [f"arg{i}" for i in range(len(names), own)]
        whole = dict(zip([*names, *extra], given, strict=True))
    leaves, structure = pytree.tree_flatten_with_path(whole)
    places = [(_path_name(path), leaf) for path, leaf in leaves]
    tensors = {name: leaf for name, leaf in places if isinstance(leaf, Tensor)}

    def rebuild(by_name: Mapping[str, Tensor]) -> tuple[list[Any], dict[str, Any]]:
        values = [by_name.get(name, leaf) if isinstance(leaf, Tensor) else leaf for name, leaf in places]
        filled = cast(dict[str, Any], pytree.tree_unflatten(values, structure))
        return ([], filled) if isinstance(given, Mapping) else (list(filled.values()), {})

    return _Arguments(tensors, rebuild)


def _parameter_names(callee: Callable[..., Any]) -> list[str]:
    target: Callable[..., Any] = callee.forward if isinstance(callee, nn.Module) else callee
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _path_name(path: Sequence[Any]) -> str:
    """`x`, or `cache.0.key` for a tensor inside."""
    words = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
    return ".".join(map(str, words))


def _named_results(results: Any) -> dict[tuple[str, str], Tensor]:
    if isinstance(results, Tensor):
        return {("output", "output"): results}
    leaves, _ = pytree.tree_flatten_with_path(results)
    found: dict[tuple[str, str], Tensor] = {}
    for path, leaf in leaves:
        if isinstance(leaf, Tensor):
            name = _path_name(path)
            found[f"output{name}" if name[:1].isdigit() else name, "output"] = leaf
    return found


@dataclass(frozen=True)
class _Memory:
    """What a model remembers: parameters and buffers by their names in `state_dict()`, tied ones once."""

    model: nn.Module

    def ports(self) -> list[Port]:
        found = [Port(n, "parameter", p, _value(p)) for n, p in self.model.named_parameters()]
        return found + [Port(n, "buffer", b, _value(b)) for n, b in self.model.named_buffers()]

    @contextmanager
    def holding(self, tensors: Tensors) -> Generator[None]:
        """The model has these for its own meanwhile: in the backward pass too, where a checkpointed module runs again."""
        with _reparametrize_module(self.model, tensors, tie_weights=True):
            yield

    def call(self, tensors: Tensors, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return functional_call(self.model, tensors, tuple(args), dict(kwargs), tie_weights=True)


def _value(tensor: Tensor) -> Tensor | None:
    return None if tensor.is_meta else tensor.detach()


def _inference(model: nn.Module, example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    memory, arguments = _Memory(model), _arguments(model, example_args, ())
    remembered = memory.ports()
    inputs = [Port(name, "input", tensor) for name, tensor in arguments.tensors.items()]

    def run(tensors: Tensors) -> dict[tuple[str, str], Tensor]:
        with torch.no_grad():
            held = {port.name: tensors[port.name].clone() for port in remembered}
            args, kwargs = arguments.rebuild(tensors)
            results = _named_results(memory.call(held, args, kwargs))
        return results | {(p.name, p.role): held[p.name] for p in remembered if p.role == "buffer"}

    return TracedFunction(type(model).__name__, [*inputs, *remembered], run)


def _plain(function: Callable[..., Any], example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    arguments = _arguments(function, example_args, ())

    def run(tensors: Tensors) -> dict[tuple[str, str], Tensor]:
        args, kwargs = arguments.rebuild(tensors)
        return _named_results(function(*args, **kwargs))

    ports = [Port(name, "input", tensor) for name, tensor in arguments.tensors.items()]
    return TracedFunction(getattr(function, "__name__", "the function"), ports, run)


def _training(step: TrainingStep, example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    name = f"the training step of {type(step.model).__name__}"
    if not len(example_args):
        raise DistirError(f"{name} needs example arguments: give them to import_step, or to training_step")
    memory = _Memory(step.model)
    arguments = _arguments(step.model, example_args, ("label",) if step.loss is not None else ())
    trained = {n: p for n, p in step.model.named_parameters() if p.requires_grad}
    names = list(arguments.tensors)
    labels = {n for n in names if n.lower().startswith(("label", "target"))} if step.loss is None else {names[-1]}
    inputs = [Port(n, "label" if n in labels else "input", t) for n, t in arguments.tensors.items()]

    def loss_of(held: Tensors, tensors: Tensors) -> Tensor:
        args, kwargs = arguments.rebuild(tensors)
        if step.loss is None:
            found = step.model(*args, **kwargs)
            found = found if isinstance(found, Tensor) else getattr(found, "loss", None)
        elif isinstance(example_args, Mapping):
            label = kwargs.pop(names[-1])
            found = step.loss(step.model(*args, **kwargs), label)
        else:
            found = step.loss(step.model(*args[:-1]), args[-1])
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise DistirError(f"{name}: expected a loss of one element, got {_described(found)}")
        return found

    ports = [*inputs, *memory.ports()]
    return training_function(name, ports, trained, step.optimizer, loss_of, step.autocast, memory.holding)


def training_function(
    name: str,
    ports: Sequence[Port],
    trained: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[Tensors, Tensors], Tensor],
    autocast: torch.dtype | None = None,
    holding: Callable[[Tensors], AbstractContextManager[None]] = nullcontext,
) -> TracedFunction:
    """Loss, gradients of it and updates of the `trained` parameters, over these ports and the optimizer's state.

    `loss_of(memory, tensors)` is a scalar: `memory` has parameters, to be differentiated, and buffers, to be written to.
    Forward and backward pass run within `holding(memory)`.
    """
    functional = FunctionalOptimizer.of(optimizer, trained)
    remembered = [port for port in ports if port.role in ("parameter", "buffer")]
    state = [Port(each.name, "state", each.initial, _value(each.initial)) for each in functional.state]

    def run(tensors: Tensors) -> dict[tuple[str, str], Tensor]:
        held = {p.name: tensors[p.name].detach() for p in remembered if p.role == "parameter"}
        for parameter in trained:
            held[parameter].requires_grad_()
        held |= {p.name: tensors[p.name].clone() for p in remembered if p.role == "buffer"}
        enabled = autocast is not None
        with holding(held):
            with torch.enable_grad(), torch.autocast("cpu", autocast or torch.bfloat16, enabled=enabled):
                loss = loss_of(held, tensors)
            leaves = [held[parameter] for parameter in trained]
            one = torch.full(loss.shape, 1.0, dtype=loss.dtype)
            found = cast(Any, torch.autograd.grad(loss, leaves, one, allow_unused=True))
        gradients = {n: g for n, g in zip(trained, found, strict=True) if g is not None}
        results = {("loss", "output"): loss.detach()}
        with torch.no_grad():
            updated, new_state = functional.step({n: tensors[n] for n in trained}, gradients, tensors)
        results |= {(n, "parameter"): updated[n] for n in trained}
        results |= {(n, "state"): t for n, t in new_state.items()}
        return results | {(p.name, p.role): held[p.name] for p in remembered if p.role == "buffer"}

    return TracedFunction(name, [*ports, *state], run)


def _described(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
