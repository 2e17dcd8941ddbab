"""Small models as `dtp-parallelize` takes them: imported, folded, outlined and annotated once, with inputs for a run.

GPT-2 has random layer norms and biases and weights large enough that attention is far from uniform: a distribution that
mixes up heads, positions or shards computes something else.
"""

import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.interpreters.inputs import draw_inputs
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare

EXAMPLES = Path(__file__).parents[1] / "examples"
VOCABULARY, POSITIONS, SEQUENCE = 97, 32, 8


@dataclass(frozen=True, eq=False)
class Model:
    """An annotated program, and inputs for all its arguments, parameters included."""

    module: ModuleOp
    inputs: dict[str, np.ndarray]

    def sequential(self, dtype: Any) -> dict[str, np.ndarray]:
        return run(self.module, self.inputs, dtype=dtype)

    def distributed(self, **options: Any) -> ModuleOp:
        """A copy, distributed and checked."""
        module = self.module.clone()
        DtpParallelizePass(**options).apply(Context(), module)
        module.verify()
        check_module(module)
        return module


def annotated(proto: Any, shapes: dict[str, tuple[int, ...]] | None = None) -> ModuleOp:
    module = import_model(proto, shapes=shapes)
    prepare(Context(), module)
    return module


@cache
def gpt2(layers: int = 4, batch: int = 8) -> Model:
    """Width 24 in 6 heads: cut by 2 and by 3."""
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    proto = build(n_layer=layers, d_model=24, n_head=6, vocab=VOCABULARY, n_ctx=POSITIONS)
    module = annotated(proto, {"input1": (batch, 1, SEQUENCE)})
    random = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {}
    for name, value in weights_of(module).items():
        centre = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
        inputs[name] = (centre + 0.3 * random.standard_normal(value.shape)).astype(np.float32)
    inputs["input1"] = random.integers(0, VOCABULARY, (batch, 1, SEQUENCE))
    return Model(module, inputs)


@cache
def mlp(widths: tuple[int, ...] = (12,) * 5, batch: int = 8) -> Model:
    """A training step; all widths alike are outlined as layers, others are not."""
    module = annotated(runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"](widths, batch=batch, learning_rate=0.5))
    random = np.random.default_rng(1)
    inputs = {name: np.asarray(value) for name, value in weights_of(module).items()}
    inputs["x"] = random.standard_normal((batch, widths[0])).astype(np.float32)
    inputs["z"] = random.standard_normal((batch, widths[-1])).astype(np.float32)
    inputs["n"] = np.float32(batch)
    return Model(module, inputs)


@cache
def residual_step(layers: int = 4, width: int = 4, batch: int = 8) -> Model:
    """A PyTorch training step, with momentum, of layers with residuals: a gradient goes past each."""
    import torch
    from torch import nn

    from distir.frontends.pytorch import import_step, training_step

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.Linear(2 * width, width),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.tanh(self.up(self.norm(x))))

    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = training_step(model, nn.functional.mse_loss, optimizer)
    module = import_step(step, (torch.randn(batch, width), torch.randn(batch, width)))
    prepare(Context(), module)
    return Model(module, {**weights_of(module), **draw_inputs(module, 0)})
