"""Programs for random plans: a random generator goes in; a small training step or inference program and its name come out.

Layers of equal and of different widths, tied tables, attention, convolutions, losses of every reduction, optimizers with and without
state, and the straight-line models of `tests.unit.random_models`."""

from __future__ import annotations

import io
import runpy
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.registry import program_context
from distir.frontends.onnx import import_model
from distir.frontends.pytorch import import_step, training_step
from distir.frontends.text import parse_program
from tests.unit.random_models import models

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASSES = 12


def drawn(strategy: st.SearchStrategy[Any], random: Random) -> Any:
    """An example of a strategy, by this generator alone."""
    found: list[Any] = []

    @settings(database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def keep(value: Any) -> None:
        found.append(value)

    while not found:
        keep.hypothesis.fuzz_one_input(random.randbytes(1 << 14))  # pyright: ignore
    return found[0]


def straight_line(random: Random) -> tuple[str, ModuleOp]:
    """A random model of ONNX operators, often with updates."""
    program = drawn(models(random.choice([6, 9, 14])), random)
    return "straight line", parse_program(program_context(), program.text, "model")


def onnx_mlp(random: Random) -> tuple[str, ModuleOp]:
    """A training step of ONNX operators, with gradients spelled out."""
    widths = tuple(random.choice([8, 12]) for _ in range(random.randint(3, 6)))
    build = runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]
    return f"ONNX MLP {widths}", import_model(build(widths, batch=random.choice([8, 12]), learning_rate=0.5))


def onnx_gpt2(random: Random) -> tuple[str, ModuleOp]:
    """Inference."""
    layers, batch = random.randint(1, 4), random.choice([4, 6, 8])
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    proto = build(n_layer=layers, d_model=12, n_head=random.choice([2, 3, 6]), vocab=23, n_ctx=8)
    return f"GPT-2, {layers} layers", import_model(proto, shapes={"input1": (batch, 1, 4)})


# --- steps of PyTorch ---


@cache
def _torch_models() -> dict[str, Callable[[Random], Any]]:
    """Of each: from (random) to (model, inputs of `batch` rows, whether it ends in classes)."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Residual(nn.Module):
        def __init__(self, width: int, dropout: float) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.Linear(2 * width, width),
            )
            self.dropout = dropout

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.down(F.gelu(self.up(self.norm(x))))
            return x + (F.dropout(y, self.dropout) if self.dropout else y)

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int, fused: bool) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.heads, self.fused = heads, fused

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.qkv(self.norm(x)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
            if self.fused:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
            return x + self.out(y.transpose(1, 2).flatten(2))

    class Tokens(nn.Module):
        """A table, blocks, and the same table or another matrix to end with."""

        def __init__(self, random: Random) -> None:
            super().__init__()
            width = random.choice([8, 12])
            self.embedding = nn.Embedding(CLASSES, width)
            fused, dropout = random.random() < 0.5, random.choice([0.0, 0.0, 0.25])
            layers = [
                [Attention(width, 2, fused), Residual(width, dropout)][: random.choice([1, 2, 2])]
                for _ in range(random.randint(1, 3))
            ]
            self.layers = nn.Sequential(*(part for layer in layers for part in layer))
            self.head = None if random.random() < 0.5 else nn.Linear(width, CLASSES)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.layers(self.embedding(tokens))
            return x @ self.embedding.weight.T if self.head is None else self.head(x)

    def dense(random: Random) -> Any:
        layers: list[nn.Module] = []
        alike, width = random.random() < 0.5, random.choice([6, 8, 12])
        for _ in range(random.randint(2, 6)):
            leaving = width if alike else random.choice([6, 8, 12])
            activation = random.choice([nn.ReLU, nn.Tanh, nn.GELU])
            layers += [nn.Linear(width, leaving, bias=random.random() < 0.8), activation()]
            width = leaving
        return nn.Sequential(*layers, nn.Linear(width, CLASSES)), (layers[0].in_features,)  # pyright: ignore

    def residual(random: Random) -> Any:
        width, dropout = random.choice([4, 8]), random.choice([0.0, 0.25])
        layers = [Residual(width, dropout) for _ in range(random.randint(2, 5))]
        return nn.Sequential(*layers, nn.Linear(width, CLASSES)), (width,)

    def convolutions(random: Random) -> Any:
        channels, layers = 2, list[nn.Module]()
        for _ in range(random.randint(1, 3)):
            layers += [nn.Conv2d(channels, 4, random.choice([1, 3]), padding="same"), nn.ReLU()]
            channels = 4
        layers += random.choice([[nn.AvgPool2d(2)], [nn.MaxPool2d(2)], [nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2)]])
        size = 2 if isinstance(layers[-1], nn.AdaptiveAvgPool2d) else 4
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * size * size, CLASSES)), (2, 8, 8)

    def tokens(random: Random) -> Any:
        return Tokens(random), None

    return {"MLP": dense, "residual": residual, "convolutions": convolutions, "tokens": tokens}


def torch_step(random: Random) -> tuple[str, ModuleOp]:
    """A model, a loss and an optimizer of PyTorch."""
    import torch
    from torch.nn import functional as F

    torch.manual_seed(random.randrange(1 << 30))
    kind, make = random.choice(list(_torch_models().items()))
    model, shape = make(random)
    batch = random.choice([4, 6, 8, 12])
    entering = torch.randint(0, CLASSES, (batch, 4)) if shape is None else torch.randn(batch, *shape)
    loss_name = random.choice(["mean", "sum", "ignored", "mse", "mse sum", "mean of rows"])

    def loss(found: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if loss_name.startswith("mse"):
            return F.mse_loss(found, labels, reduction="sum" if loss_name == "mse sum" else "mean")
        found, labels = found.flatten(0, -2), labels.flatten()
        if loss_name == "mean of rows":
            return F.cross_entropy(found, labels, reduction="none").mean()
        if loss_name == "ignored":
            return F.cross_entropy(found, labels, ignore_index=3)
        return F.cross_entropy(found, labels, reduction=loss_name)

    rows = (batch, 4) if shape is None else (batch,)
    labels = torch.randn(*rows, CLASSES) if loss_name.startswith("mse") else torch.randint(0, CLASSES, rows)
    optimizers: dict[str, Callable[[Any], Any]] = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    }
    optimizer_name = random.choice(list(optimizers))
    with redirect_stderr(io.StringIO()):
        name = f"{kind}, {loss_name}, {optimizer_name}, {batch} rows"
        lower = (
            torch.bfloat16 if Random(f"autocast of {name}").random() < 0.3 else None
        )  # by the name: what is drawn stays what it was
        step = training_step(model, loss, optimizers[optimizer_name], example_args=(entering, labels), autocast=lower)
        return f"{name}, {lower or 'f32'}", import_step(step, (entering, labels))


def layers_step(random: Random, batch: int) -> tuple[str, ModuleOp]:
    """A step of equal layers, of which some share a parameter: one that is used before and after them too, or one of two layers alone."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.nn.utils import clip_grad_norm_

    torch.manual_seed(random.randrange(1 << 30))
    width, count = random.choice([4, 8]), random.choice([2, 2, 2, 3, 4])
    attends, tied, shared = random.random() < 0.3, random.random() < 0.4, random.choice(["", "", "all", "ends"])
    biased, masked = random.random() < 0.7, random.random() < 0.3
    rows, labels = torch.randint(0, CLASSES, (batch, 4)), torch.randint(0, CLASSES, (batch, 4))

    class Layer(nn.Module):
        def __init__(self, scale: nn.Parameter | None) -> None:
            super().__init__()
            self.norm, self.scale = nn.LayerNorm(width), scale
            self.up, self.down = nn.Linear(width, 2 * width, biased), nn.Linear(2 * width, width, biased)
            self.qkv = nn.Linear(width, 3 * width) if attends else None
            self.register_buffer("mask", torch.rand(4, width) if masked else None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            if self.qkv is not None:
                q, k, v = self.qkv(y).chunk(3, -1)
                y = y + (q @ k.transpose(-1, -2)).softmax(-1) @ v
            y = self.down(F.gelu(self.up(y)))
            for factor in (self.scale, self.mask):
                y = y if factor is None else y * factor
            return x + y

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.scale = nn.Embedding(CLASSES, width), nn.Parameter(torch.rand(width))
            first_and_last = self.scale if shared else None
            inner = self.scale if shared == "all" else None
            scales = [first_and_last, *[inner] * (count - 2), first_and_last]
            self.layers = nn.Sequential(*map(Layer, scales))
            self.head = nn.Linear(width, CLASSES, bias=False)
            if tied:
                self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            x = self.layers(x * self.scale if shared == "all" else x)
            return self.head(x * self.scale)

    class Clipped(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            clip_grad_norm_([each for group in self.param_groups for each in group["params"]], 0.5)
            return super().step(closure)

    def two(parameters: Any) -> Any:
        several = list(parameters)
        return torch.optim.SGD(several[::2], lr=0.1, momentum=0.9), torch.optim.AdamW(several[1::2], lr=1e-2)

    optimizers: dict[str, Callable[[Any], Any]] = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
        "clipped AdamW": lambda p: Clipped(p, lr=1e-2),
        "SGD and AdamW": two,
    }
    optimizer = random.choice(list(optimizers))
    autocast = random.choice([None, None, None, torch.bfloat16])

    def loss(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(found.flatten(0, -2), wanted.flatten())

    with redirect_stderr(io.StringIO()):
        step = training_step(Layers(), loss, optimizers[optimizer], example_args=(rows, labels), autocast=autocast)
        said = {"attention": attends, "tied": tied, f"shared by {shared}": shared, "buffers": masked}
        names = [f"{count} layers", *[what for what, there in said.items() if there], optimizer, f"{batch} rows"]
        return ", ".join([*names, str(autocast or "f32")]), import_step(step, (rows, labels))


def program(random: Random) -> tuple[str, ModuleOp]:
    """What it is, and the sequential program."""
    kinds = [torch_step] * 5 + [straight_line] * 3 + [onnx_mlp, onnx_gpt2]
    return random.choice(kinds)(random)
