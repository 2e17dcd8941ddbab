"""`--train loss=... optimizer=... [freeze=...]` of `distir import`: a model's forward pass becomes a step that trains it.

Each word is KEY=VALUE; the loss and the optimizer take options after a colon, OPTION=VALUE,..., where a value with a
comma is a tuple (`betas=0.9,0.95`). Values are numbers, true or false, or a word: nothing is evaluated.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

TRAIN_HELP = """\
a training step (--train), from any model that computes forward: its operators are differentiated by torch.
  loss=NAME[:OPTION=VALUE,...]       mse_loss, l1_loss, smooth_l1_loss, huber_loss, binary_cross_entropy,
                                     binary_cross_entropy_with_logits, cross_entropy or nll_loss of torch.nn.functional, of the
                                     model's output and a new argument 'label', with the function's options; output=NAME where the
                                     model has several outputs; dim=N where the classes are (default: -1, the last)
  loss=OUTPUT                        this output of the model is the loss: one element
  optimizer=NAME[:OPTION=VALUE,...]  adadelta, adagrad, adam, adamax, adamw, asgd, nadam, radam, rmsprop,
                                     rprop or sgd of torch.optim, with its options: sgd:lr=0.1,momentum=0.9
                                     adamw:lr=1e-3,betas=0.9,0.95
  freeze=NAME                        parameters that are not trained, as a pattern: 'h.*.attn.bias'; may repeat. Parameters
                                     without dimensions are constants, and never trained
Arguments are those of the model, 'label' and the optimizer's state; updated parameters keep their names."""

OPTIMIZERS = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
"""Those of torch.optim for parameters of any shape whose step reads no tensor as a number (Adafactor's does)."""

NOT_OPTIONS = ("params", "foreach", "fused", "capturable", "differentiable")
"""What an optimizer works on, and how it runs: nothing about what it computes."""


def train(module: ModuleOp, model: str, words: Sequence[str]) -> ModuleOp:
    """The training step that the words of `--train` ask for. Raises DistirError, one line."""
    from xdsl.context import Context

    from distir.backends.torch.training import training_program
    from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
    from distir.tools.commands.model import make_static

    given: dict[str, list[str]] = {"loss": [], "optimizer": [], "freeze": []}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in given or not equals or not value:
            raise DistirError(
                f"--train {word}: expected loss=..., optimizer=... or freeze=...; MODEL and other options come before --train"
            )
        given[key].append(value)
    for key in ("loss", "optimizer"):
        if len(given[key]) != 1:
            raise DistirError(f"--train needs {key}=... once, got {len(given[key])}: see distir import --help")
    loss, optimizer = _loss(given["loss"][0]), _optimizer(given["optimizer"][0])
    make_static(module, model)
    OnnxFoldShapesPass().apply(Context(), module)  # what is known needs no derivative
    return training_program(module, loss, optimizer, given["freeze"], model)


def _loss(text: str) -> Any:
    from distir.backends.torch.training import LOSSES, Loss

    name, options = _split("loss", text)
    output = options.pop("output", None)
    known = LOSSES.get(name, ())
    for option, value in options.items():
        if option not in known:
            raise DistirError(f"loss={name} has no option '{option}': it has {', '.join((*known, 'output'))}")
        expected = _LOSS_OPTIONS[option]
        if not isinstance(value, expected) or isinstance(value, bool):
            raise DistirError(f"loss={name}: {option}={value}: expected a {' or '.join(t.__name__ for t in expected)}")
    if options.get("reduction", "mean") not in ("mean", "sum"):
        raise DistirError(f"loss={name}: reduction={options['reduction']}: expected mean or sum, a loss is one number")
    return Loss(name, None if output is None else str(output), options)


_LOSS_OPTIONS: dict[str, tuple[type, ...]] = {
    "beta": (float, int),
    "delta": (float, int),
    "dim": (int,),
    "ignore_index": (int,),
    "label_smoothing": (float, int),
    "reduction": (str,),
}


def _optimizer(text: str) -> Any:
    """A function from parameters to an optimizer of torch.optim over them."""
    import torch

    name, options = _split("optimizer", text)
    classes: dict[str, type[torch.optim.Optimizer]] = {each.lower(): getattr(torch.optim, each) for each in OPTIMIZERS}
    if name.lower() not in classes:
        raise DistirError(f"optimizer={name}: expected one of {', '.join(classes)}{_near(name.lower(), classes)}")
    cls = classes[name.lower()]
    known = [option for option in inspect.signature(cls).parameters if option not in NOT_OPTIONS]
    for option in options:
        if option not in known:
            raise DistirError(f"optimizer={name} has no option '{option}': it has {', '.join(known)}")

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        try:
            return cls(parameters, **options)
        except (TypeError, ValueError) as error:
            raise DistirError(f"optimizer={text}: {str(error).splitlines()[0]}") from error

    return make


def _near(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    found = get_close_matches(name, known, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _split(key: str, text: str) -> tuple[str, dict[str, Any]]:
    """`adamw:lr=1e-3,betas=0.9,0.95` as ("adamw", {"lr": 0.001, "betas": (0.9, 0.95)})."""
    name, colon, rest = text.partition(":")
    values: dict[str, list[str]] = {}
    option = ""
    for part in rest.split(",") if colon else ():
        before, equals, value = part.partition("=")
        if equals:
            option = before
            if option in values:
                raise DistirError(f"{key}={text}: option '{option}' is given twice")
            values[option] = []
        if not option or not (value or part):
            raise DistirError(f"{key}={text}: expected {key}=NAME:OPTION=VALUE,OPTION=VALUE,... at '{part}'")
        values[option].append(value if equals else part)
    return name, {o: _value(v[0]) if len(v) == 1 else tuple(map(_value, v)) for o, v in values.items()}


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if not math.isfinite(value):
            raise DistirError(f"--train: {text}: expected a finite number")
        return value
    return text
