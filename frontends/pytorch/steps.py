"""What can be imported: training steps, modules and functions. In goes one of these; out comes a function of named
tensors with roles that returns named tensors with roles. The user's own code runs in it, on tensors that stand for
what it remembers from step to step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.arguments import Arguments, Results, described, named_results
from distir.frontends.pytorch.remembering import Port, Remembering, Tensors, TracedFunction


@dataclass(frozen=True)
class TrainingStep:
    """A training step: forward, loss, backward, optimizer. Made by `training_step`, which says what the fields are."""

    model: nn.Module
    loss: Callable[..., Tensor] | None
    optimizers: Sequence[torch.optim.Optimizer]
    autocast: torch.dtype | None = None
    example_args: Sequence[Any] | Mapping[str, Any] = ()
    schedules: Mapping[Any, int] | None = None
    scaler: torch.amp.GradScaler | None = None  # pyright: ignore[reportPrivateImportUsage]


@dataclass(frozen=True)
class WrittenStep:
    """A step that is a function of the user's. Made by `written_step`, which says what the fields are."""

    function: Callable[..., Any]
    modules: Mapping[str, nn.Module]
    optimizers: Sequence[torch.optim.Optimizer]
    example_args: Sequence[Any] | Mapping[str, Any] = ()
    schedules: Mapping[Any, int] | None = None
    scalers: Sequence[torch.amp.GradScaler] = ()  # pyright: ignore[reportPrivateImportUsage]


def training_step(
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
    optimizer: torch.optim.Optimizer
    | Sequence[torch.optim.Optimizer]
    | Callable[[Any], torch.optim.Optimizer | Sequence[torch.optim.Optimizer]],
    *,
    autocast: torch.dtype | None = None,
    example_args: Sequence[Any] | Mapping[str, Any] = (),
    schedules: Mapping[Any, int] | None = None,
    scaler: torch.amp.GradScaler | None = None,  # pyright: ignore[reportPrivateImportUsage]
) -> TrainingStep:
    """One step of training `model`, to be imported.

    `loss(output, label)` is a scalar: the last example argument is the label, those before go to the model. With None the
    model computes it (its result, or the result's `loss`), and arguments called `label...` or `target...` are labels. A loss
    that is a module may have parameters. `optimizer` is one or several, over parameters of the model and of the loss, or makes
    them of the model's parameters; numbers among its options are fixed in the program, tensors are arguments of it.
    With `autocast`, forward and loss run under torch.autocast in that type, parameters stay as they are. `schedules` are
    learning rate schedulers, each with the number of steps that it is for. With a `scaler`, as
    `scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`.
    """
    is_made = isinstance(optimizer, torch.optim.Optimizer | Sequence)
    made = cast(Any, optimizer if is_made else cast(Any, optimizer)(model.parameters()))
    made = [made] if isinstance(made, torch.optim.Optimizer) else list(made)
    return TrainingStep(model, loss, made, autocast, example_args, schedules, scaler)


def written_step(
    function: Callable[..., Any],
    modules: nn.Module | Mapping[str, nn.Module],
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
    *,
    example_args: Sequence[Any] | Mapping[str, Any] = (),
    schedules: Mapping[Any, int] | None = None,
    scalers: torch.amp.GradScaler | Sequence[torch.amp.GradScaler] = (),  # pyright: ignore[reportPrivateImportUsage]
) -> WrittenStep:
    """A step that the user wrote, to be imported as it is: `function` takes a batch and does all the rest, such as backward
    passes, clipping, steps of optimizers and averages of weights. Whatever it remembers must be in `modules` (by name: `model.`
    stands before the names of `{"model": ...}`, nothing before those of a single module), `optimizers`, `schedules` (as in
    `training_step`) and `scalers`."""
    named = {"": modules} if isinstance(modules, nn.Module) else dict(modules)
    listed = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)
    scaling = [scalers] if isinstance(scalers, torch.amp.GradScaler) else list(scalers)  # pyright: ignore[reportPrivateImportUsage]
    return WrittenStep(function, named, listed, example_args, schedules, scaling)


def traceable(
    function: TrainingStep | WrittenStep | Callable[..., Any], example_args: Sequence[Any] | Mapping[str, Any]
) -> TracedFunction:
    """Anything that can be imported, ready to be traced."""
    if isinstance(function, TrainingStep):
        return _training(function, example_args if len(example_args) else function.example_args)
    if isinstance(function, WrittenStep):
        return _written(function, example_args if len(example_args) else function.example_args)
    if isinstance(function, nn.Module):
        return _inference(function, example_args)
    if callable(function):
        return _plain(function, example_args)
    raise DistirError(f"expected a training step, a torch.nn.Module or a function, got a {type(function).__name__}")


def _inference(model: nn.Module, example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    model = _uncompiled(model)
    name, arguments = type(model).__name__, Arguments.of(model, example_args)
    inputs = [Port(name, "input", tensor) for name, tensor in arguments.tensors.items()]

    def body(tensors: Tensors) -> Results:
        with torch.no_grad():
            args, kwargs = arguments.rebuild(tensors)
            return named_results(model(*args, **kwargs), name)

    return Remembering(name, inputs, {"": model}).traced(body)


def _plain(function: Callable[..., Any], example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    name, arguments = getattr(function, "__name__", "the function"), Arguments.of(function, example_args)

    def run(tensors: Tensors) -> Results:
        args, kwargs = arguments.rebuild(tensors)
        with _WithoutTraining(name):
            return named_results(function(*args, **kwargs), name)

    ports = [Port(name, "input", tensor) for name, tensor in arguments.tensors.items()]
    return TracedFunction(name, ports, run, run, [function])


class _WithoutTraining(TorchFunctionMode):
    """Refuses backward passes: what they leave in parameters is no result of a function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is Tensor.backward:
            raise DistirError(
                f"{self._name} has a backward pass: give a step that trains as written_step({self._name}, modules, optimizers), "
                "or use torch.autograd.grad"
            )
        return func(*args, **(kwargs or {}))


def _training(step: TrainingStep, example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    model = _uncompiled(step.model)
    name = f"the training step of {type(model).__name__}"
    if not len(example_args):
        raise DistirError(f"{name} needs example arguments: give them to import_step, or to training_step")
    arguments = Arguments.of(model, example_args, ("label",) if step.loss is not None else ())
    names = list(arguments.tensors)
    labels = {n for n in names if _is_label(n)} if step.loss is None else {names[-1]}
    inputs = [Port(n, "label" if n in labels else "input", t) for n, t in arguments.tensors.items()]
    modules = {"": model} | ({"loss": step.loss} if isinstance(step.loss, nn.Module) else {})
    scalers = [] if step.scaler is None else [step.scaler]

    def loss_of(tensors: Tensors) -> Any:
        args, kwargs = arguments.rebuild(tensors)
        if step.loss is None:
            found = model(*args, **kwargs)
            if isinstance(found, Mapping):
                found = cast("Mapping[str, Any]", found).get("loss")
            found = found if isinstance(found, Tensor) else cast(Any, getattr(found, "loss", None))
        elif isinstance(example_args, Mapping):
            label = kwargs.pop(names[-1])
            found = step.loss(model(*args, **kwargs), label)
        else:
            found = step.loss(model(*args[:-1]), args[-1])
        return found

    def body(tensors: Tensors) -> Results:
        return _update(name, lambda: loss_of(tensors), step.optimizers, step.autocast, step.scaler)

    def eager(tensors: Tensors) -> Results:
        for optimizer in step.optimizers:
            optimizer.zero_grad()
        found = body(tensors)
        for schedule in step.schedules or ():
            schedule.step()
        return found

    return Remembering(name, inputs, modules, step.optimizers, step.schedules, scalers).traced(body, eager)


def _update(
    name: str,
    loss_of: Callable[[], Any],
    optimizers: Sequence[torch.optim.Optimizer],
    autocast: torch.dtype | None = None,
    scaler: Any = None,
) -> Results:
    """A step as everybody writes it."""
    with torch.enable_grad(), torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        loss = loss_of()
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise DistirError(f"{name}: expected a loss of one element, got {described(loss)}")
    scaled = loss if scaler is None else scaler.scale(loss)
    scaled.backward(torch.full(loss.shape, 1.0, dtype=scaled.dtype))
    for optimizer in optimizers:
        scaler.step(optimizer) if scaler is not None else optimizer.step()
    if scaler is not None:
        scaler.update()
    return {("loss", "output"): loss.detach()}


def _written(step: WrittenStep, example_args: Sequence[Any] | Mapping[str, Any]) -> TracedFunction:
    name = getattr(step.function, "__name__", "the step")
    arguments = Arguments.of(step.function, example_args)
    inputs = [Port(n, "label" if _is_label(n) else "input", t) for n, t in arguments.tensors.items()]
    modules = {prefix: _uncompiled(module) for prefix, module in step.modules.items()}

    def body(tensors: Tensors) -> Results:
        args, kwargs = arguments.rebuild(tensors)
        with torch.enable_grad():
            found = step.function(*args, **kwargs)
        alone = "loss" if isinstance(found, Tensor) and found.numel() == 1 else "output"
        return {key: tensor.detach() for key, tensor in named_results(found, name, alone).items()}

    remembering = Remembering(
        name, inputs, modules, step.optimizers, step.schedules, step.scalers, gradients=True, also=[step.function]
    )
    return remembering.traced(body)


def _is_label(name: str) -> bool:
    return name.lower().startswith(("label", "target"))


def training_function(
    name: str,
    ports: Sequence[Port],
    trained: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[Tensors, Tensors], Tensor],
) -> TracedFunction:
    """Loss, gradients of it and updates of the `trained` parameters, over these ports and the optimizer's state.

    `loss_of(memory, tensors)` is a scalar: `memory` has parameters, to be differentiated."""
    inputs = [port for port in ports if port.name not in trained]
    remembering = Remembering(name, inputs, {}, [optimizer], parameters=trained)

    def body(tensors: Tensors) -> Results:
        others = {port.name: tensors[port.name] for port in inputs}
        return _update(name, lambda: loss_of(remembering.substitutes | others, tensors), [optimizer])

    function, given = remembering.traced(body), {port.name for port in ports}
    return replace(function, ports=[*ports, *(port for port in function.ports if port.name not in given)])


def _uncompiled(model: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given."""
    return cast(nn.Module, getattr(model, "_orig_mod", model))
