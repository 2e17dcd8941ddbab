"""Makes a training step of an imported model. In go its level 1 program, a loss and an optimizer; out comes a level
1 program over `aten`. The model runs as torch functions, and autograd's operators are traced.

    step = training_program(module, Loss("cross_entropy"), lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))

No gradient is written here or anywhere: `distir run` computes with the same operators (`operators`), and torch
differentiates them. Loss, gradients and the optimizer's update are traced as for a PyTorch model
(`distir.frontends.pytorch`). It stands among the backends because the operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor, nn
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.program import Program
from distir.dialects.errors import DistirError
from distir.frontends.pytorch.module_paths import NamedCalls
from distir.frontends.pytorch.remembering import Port, Tensors
from distir.frontends.pytorch.steps import training_function
from distir.frontends.pytorch.tracing import trace
from distir.interpreters.entry import Port as EntryPort
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.weights import attach, weights_of

CLASSIFYING = ("cross_entropy", "nll_loss")
"""Losses whose label is an index for each row of classes."""

LOSSES: Mapping[str, tuple[str, ...]] = {
    "mse_loss": ("reduction",),
    "l1_loss": ("reduction",),
    "smooth_l1_loss": ("beta", "reduction"),
    "huber_loss": ("delta", "reduction"),
    "binary_cross_entropy": ("reduction",),
    "binary_cross_entropy_with_logits": ("reduction",),
    "cross_entropy": ("dim", "ignore_index", "label_smoothing", "reduction"),
    "nll_loss": ("dim", "ignore_index", "reduction"),
}
"""Functions of torch.nn.functional, and their options that are no tensors. `dim` is where the classes are."""

LABEL = "label"


@dataclass(frozen=True)
class Loss:
    """`name` is one of LOSSES, of the result `output` (None: the only one) and a label; or a scalar result of the model."""

    name: str
    output: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def training_program(
    module: ModuleOp,
    loss: Loss,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    frozen: Sequence[str] = (),
    where: str = "the model",
) -> ModuleOp:
    """A step that trains a level 1 program with static types, with the values that the program has attached.

    Arguments are the model's, then `label` (unless the model computes its loss), then the optimizer's state; results
    are `loss` and the updates. Trained are the parameters with at least one dim whose name no pattern of `frozen`
    matches (`h.*.attn.bias`): what is written in a file as a number of its own is a constant. Raises DistirError, one line.
    """
    entry = entry_function(module)
    arguments, results = arguments_of(entry), results_of(entry)
    if updates := [port.name for port in results if port.role != "output"]:
        raise DistirError(f"{where} updates '{updates[0]}': it is a training step already")
    chosen = _loss_result(loss, results, where)
    ports = [Port(p.name, p.role or "input", _example(p, where)) for p in arguments]
    scored = loss.name in LOSSES and chosen.name != loss.name
    if scored:
        ports.append(Port(LABEL, "label", _label_for(loss, _example(chosen, where), where)))
    names = [port.name for port in ports]
    if taken := next((name for name in names if name == "loss" or names.count(name) > 1), None):
        raise DistirError(f"{where} has an argument '{taken}', which a training step gives a meaning: rename it")
    trained = _trained(ports, frozen, where)
    program = Program(module, ElementTypes(), torch.device("cpu"))
    function = program.function(entry.sym_name.data)
    position = results.index(chosen)

    def loss_of(memory: Tensors, tensors: Tensors) -> Tensor:
        with NamedCalls(program.path):
            output = cast(Tensor, function([(tensors | memory)[p.name] for p in arguments])[position])
        return _score(loss, output, tensors[LABEL]) if scored else output.reshape(())

    step = trace(
        training_function(f"the training step of {where}", ports, trained, optimizer([*trained.values()]), loss_of)
    )
    attach(step, dict(weights_of(module)) | dict(weights_of(step)))
    return step


def _loss_result(loss: Loss, results: Sequence[EntryPort], where: str) -> EntryPort:
    """The result that the loss is, or that it scores."""
    by_name = {port.name: port for port in results}
    own = by_name.get(loss.name)
    if own is not None and loss.output is None:
        shape = cast("TensorType[Any]", own.type).get_shape()
        if any(size != 1 for size in shape):
            raise DistirError(
                f"{where}: loss={loss.name}: expected a result of one element, it has shape {list(shape)}"
            )
        return own
    if loss.name not in LOSSES:
        raise DistirError(
            f"loss={loss.name}: expected one of {', '.join(LOSSES)}, or a scalar result of {where}, which gives "
            f"{', '.join(by_name)}"
        )
    if loss.output is None and len(results) != 1:
        raise DistirError(
            f"{where} gives {', '.join(by_name)}: say which the loss scores, as in loss={loss.name}:output={results[0].name}"
        )
    name = loss.output or results[0].name
    if name not in by_name:
        raise DistirError(f"loss={loss.name}: {where} has no result '{name}', it gives {', '.join(by_name)}")
    return by_name[name]


def _example(port: EntryPort, where: str) -> Tensor:
    type_ = cast("TensorType[Any]", port.type)
    return torch.empty(type_.get_shape(), dtype=ElementTypes().of(type_.element_type), device="meta")


def _label_for(loss: Loss, output: Tensor, where: str) -> Tensor:
    """An example of the label: an index per row of classes, or as large as the output."""
    if not output.is_floating_point():
        raise DistirError(
            f"loss={loss.name}: the result that it scores is {output.dtype}, expected floating-point elements"
        )
    if loss.name not in CLASSIFYING:
        return output
    dim = loss.options.get("dim", -1)
    if not -output.dim() <= dim < output.dim():
        raise DistirError(f"loss={loss.name}: dim={dim} is outside of the result's shape {list(output.shape)}")
    return torch.empty_like(output.select(dim, 0), dtype=torch.int64)


def _score(loss: Loss, output: Tensor, label: Tensor) -> Tensor:
    options = dict(loss.options)
    if loss.name in CLASSIFYING:
        output = output.movedim(options.pop("dim", -1), -1)
        output, label = output.reshape(-1, output.shape[-1]), label.reshape(-1)
    return getattr(nn.functional, loss.name)(output, label, **options)


def _trained(ports: Sequence[Port], frozen: Sequence[str], where: str) -> dict[str, nn.Parameter]:
    """Parameters in memory that nothing has touched: their values are not looked at."""
    candidates = [port for port in ports if port.role == "parameter"]
    for pattern in frozen:
        if not any(fnmatchcase(port.name, pattern) for port in candidates):
            raise DistirError(f"freeze={pattern}: {where} has no parameter of this name")
    found: dict[str, nn.Parameter] = {}
    for port in candidates:
        if not port.example.dim() or any(fnmatchcase(port.name, pattern) for pattern in frozen):
            continue
        if not port.example.is_floating_point():
            raise DistirError(
                f"parameter '{port.name}' is {port.example.dtype}, which has no gradient: leave it with freeze={port.name}"
            )
        found[port.name] = nn.Parameter(torch.empty(port.example.shape, dtype=port.example.dtype))
    if not found:
        raise DistirError(f"{where} has no parameter to train")
    return found
