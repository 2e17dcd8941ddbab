"""PyTorch as level 1 programs: training steps, modules and functions over tensors become `func.func @main` over `aten`.

    step = training_step(model, torch.nn.functional.cross_entropy, torch.optim.AdamW(model.parameters(), lr=3e-4))
    module = import_step(step, (images, labels))

The function is run once on tensors without data, so parameters, inputs and the model itself may be on the meta device; every
operator that runs is recorded (`make_fx`), the optimizer's too, and nothing is left of Python. Arguments and results:

* a parameter and a buffer have the name of `model.state_dict()`, and so has the result that is its update
* the optimizer's state is `state.<parameter>.<key>`, as torch.distributed.checkpoint names it
* inputs have the names of the function's arguments; a training step's first result is `loss`

Values that the model has are attached to the program (`distir.interpreters.weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.eager import attach_eager
from distir.frontends.pytorch.draws import counted_draws
from distir.frontends.pytorch.reasons import reason_of, where_of
from distir.frontends.pytorch.remembering import TracedFunction
from distir.frontends.pytorch.steps import TrainingStep, WrittenStep, training_step, written_step

__all__ = ["TrainingStep", "WrittenStep", "counted_draws", "import_step", "training_step", "written_step"]


def import_step(
    function: TrainingStep | WrittenStep | Callable[..., Any], example_args: Sequence[Any] | Mapping[str, Any] = ()
) -> ModuleOp:
    """The program of a step (`training_step`, `written_step`), of a module's forward pass, or of a function over tensors.

    `example_args` say shapes and element types: positional arguments, or keyword arguments as a mapping; nested tuples,
    lists and dictionaries of tensors may be among them, and what is not a tensor is fixed. A step that carries its own
    example arguments needs none. Raises DistirError, one line, for what cannot be a program, with the operator named.
    """
    from distir.frontends.pytorch.eager import eager_steps, integer_examples
    from distir.frontends.pytorch.steps import traceable
    from distir.frontends.pytorch.tracing import trace

    name = getattr(function, "__name__", type(function).__name__)
    with ExitStack() as own:
        if torch.get_default_device().type != "cpu":  # what a caller's `with torch.device("meta")` is for is the model
            own.enter_context(torch.device("cpu"))
        try:
            traced: TracedFunction = traceable(function, example_args)
            name = traced.name
            module = trace(traced)
            again = partial(import_step, function, example_args)
            attach_eager(module, eager_steps(traced), integer_examples(traced), again)
            return module
        except DistirError:
            raise
        except Exception as error:
            is_call = isinstance(error, TypeError) and not where_of(error)
            has_label = is_call and isinstance(function, TrainingStep) and function.loss is not None
            hint = (
                "; the last example argument is the loss's label, those before it go to the model" if has_label else ""
            )
            raise DistirError(f"{name} cannot be traced: {reason_of(error)}{hint}") from error
