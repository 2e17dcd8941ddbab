"""Pairs of a sequential program and a distributed one, small, for mutation testing: MLP, GPT, convolutions, experts (more models in
`models_to_mutate`); training with SGD, momentum and AdamW; pipelines, with several stages on a rank and with backward parts in two;
recomputation; two of JAX; uneven shards; ZeRO 1, 2, 3 and state that is cut anyhow; plans of `ilp-shard`; ring attention.

    sequential, distributed = PROGRAMS["gpt-adamw"](folder)
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp

from distir.dialects.sharding import REPLICATED, MeshOp, Sharded, ShardingAttr, StrategyAttr
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import entry_function
from distir.interpreters.module_check import check_module
from distir.interpreters.weights import attach, weights_of
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.context_parallel import ContextParallelPass
from distir.passes.distribution.inline import inline_calls
from distir.passes.distribution.lower import canonical_options
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import options
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.recognise_attention import RecogniseAttentionPass
from distir.passes.ring_attention import RingAttentionPass
from distir.passes.structure import argument_attributes, shape_of
from tests import models_to_mutate, small_models
from tests.slow_machine import written

Pair = tuple[ModuleOp, ModuleOp]


def copied(module: ModuleOp) -> ModuleOp:
    """A copy that has the weights too."""
    copy = module.clone()
    attach(copy, weights_of(module))
    return copy


def _checked(sequential: ModuleOp, distributed: ModuleOp) -> Pair:
    distributed.verify()
    check_module(distributed)
    return sequential, distributed


def _parallel(sequential: ModuleOp, **degrees: Any) -> Pair:
    distributed = copied(sequential)
    DtpParallelizePass(**degrees).apply(Context(), distributed)
    return _checked(sequential, distributed)


def _ring(sequential: ModuleOp, folder: Path, mesh: str) -> Pair:
    """Attention is one operation, whose keys and values go around along an axis."""
    RecogniseAttentionPass().apply(Context(), sequential)
    distributed = copied(sequential)
    ContextParallelPass().apply(Context(), distributed)
    IlpShardPass(machine=written(folder), mesh=mesh, shards="even").apply(Context(), distributed)
    ApplyShardingPass(grouped=True).apply(Context(), distributed)
    RingAttentionPass().apply(Context(), distributed)
    return _checked(sequential, distributed)


def _planned(sequential: ModuleOp, folder: Path, **settings: Any) -> Pair:
    distributed = copied(sequential)
    IlpShardPass(machine=written(folder), **settings).apply(Context(), distributed)
    ApplyShardingPass().apply(Context(), distributed)
    return _checked(sequential, distributed)


def _with_cut_state(sequential: ModuleOp, axes: dict[str, int], seed: int) -> Pair:
    """Everything does anything that its rule allows, parameters and state are cut where their first dim can be."""
    distributed, rng = copied(sequential), random.Random(seed)
    prepare(Context(), distributed)
    function = entry_function(distributed)
    inline_calls(distributed, function)
    distributed.body.block.insert_op_before(MeshOp("mesh", axes), function)
    mesh = Mesh(tuple(axes.items()), uneven=True)
    for op in function.body.block.ops:
        for _ in range(10 if "dist.rule" in op.attributes else 0):
            picked = [rng.choice(options(op, size, [], uneven=True)) for size in axes.values()]
            states = canonical_options(picked, mesh)
            values = [*zip(*(o.operands for o in states), strict=True), *zip(*(o.results for o in states), strict=True)]
            if all(mesh.conflict(value) is None for value in values):
                choices = {axis: option.choice for axis, option in zip(axes, picked, strict=True)}
                op.attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
                break
    attributes = [dict(known) for known in argument_attributes(function)]
    for argument, known in zip(function.body.block.args, attributes, strict=True):
        shape = shape_of(argument)
        states = [
            Sharded(0, (shape[0],)) if shape and shape[0] > 1 and rng.random() < 0.6 else REPLICATED for _ in axes
        ]
        if mesh.conflict(tuple(states)) is None:
            known["dist.sharding"] = ShardingAttr.of("mesh", len(shape), dict(zip(axes, states, strict=True)))
    function.arg_attrs = ArrayAttr([DictionaryAttr(known) for known in attributes])
    ApplyShardingPass().apply(Context(), distributed)
    return _checked(sequential, distributed)


# --- models ---


def _torch_step(model: Any, loss: Any, optimizer: Callable[[Any], Any], *example: Any) -> ModuleOp:
    return import_step(training_step(model, loss, optimizer, example_args=example))


def mlp_adamw(batch: int = 8, widths: tuple[int, ...] = (6, 8, 10, 4)) -> ModuleOp:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for entering, leaving in itertools.pairwise(widths):
        layers += [nn.Linear(entering, leaving), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    example = torch.randn(batch, widths[0]), torch.randint(0, widths[-1], (batch,))
    return _torch_step(model, nn.functional.cross_entropy, lambda p: torch.optim.AdamW(p, lr=1e-3), *example)


def gpt(optimizer: Callable[[Any], Any], batch: int = 4, layers: int = 2, width: int = 12) -> ModuleOp:
    """Heads of 6, a fused projection, tied head, labels that may be ignored."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    vocabulary, sequence, heads = 14, 4, 2

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm_1(x)).split(width, dim=-1)
            q, k, v = (t.unflatten(-1, (heads, width // heads)).transpose(1, 2) for t in (q, k, v))
            weights = torch.softmax(q @ k.transpose(-1, -2) / (width // heads) ** 0.5, -1)
            x = x + self.projection((weights @ v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm_2(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(sequence, width))
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.positions
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.tokens.weight.t()

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    ids = torch.randint(0, vocabulary, (batch, sequence))
    return _torch_step(Gpt(), loss, optimizer, ids, ids)


def convolutions(batch: int = 4) -> ModuleOp:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )
    example = torch.randn(batch, 2, 8, 8), torch.randint(0, 4, (batch,))
    return _torch_step(
        model, nn.functional.cross_entropy, lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), *example
    )


def experts(batch: int = 8) -> ModuleOp:
    """Four experts whose outputs are weighted by a softmax."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(6, 4)
            self.up, self.down = nn.Parameter(torch.randn(4, 6, 8)), nn.Parameter(torch.randn(4, 8, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.softmax(self.gate(x), -1)
            hidden = torch.relu(torch.einsum("bd,edh->ebh", x, self.up))
            return torch.einsum("ebd,be->bd", torch.bmm(hidden, self.down), weights)

    example = torch.randn(batch, 6), torch.randn(batch, 6)
    return _torch_step(Experts(), nn.functional.mse_loss, lambda p: torch.optim.Adam(p, lr=1e-2), *example)


def routed_experts(batch: int = 8) -> ModuleOp:
    """Each row goes to the two of four experts that a gate gives the most weight."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(6, 4)
            self.up, self.down = nn.Parameter(torch.randn(4, 6, 8)), nn.Parameter(torch.randn(4, 8, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = torch.softmax(self.gate(x), -1).topk(2, -1)
            routed = torch.zeros(len(x), 4).scatter(1, chosen, weights / weights.sum(-1, keepdim=True))
            hidden = torch.nn.functional.silu(torch.einsum("bd,edh->ebh", x, self.up))
            return torch.einsum("ebh,ehd,be->bd", hidden, self.down, routed)

    example = torch.randn(batch, 6), torch.randn(batch, 6)
    return _torch_step(Routed(), nn.functional.mse_loss, lambda p: torch.optim.Adam(p, lr=1e-2), *example)


def _sgd(parameters: Any) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=1e-3)


def _adamw(parameters: Any) -> Any:
    import torch

    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)


def jax_transformer() -> ModuleOp:
    from examples.transformer_jax import arguments, build

    return build(*arguments(layers=1, width=8, heads=2, vocabulary=10, batch=4, length=4))


def jax_scan() -> ModuleOp:
    """An MLP whose layers are a scan."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from distir.frontends.jax import import_step as import_jax

    def loss(params: Any, x: Any, y: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(h @ w["w"] + w["b"]), None

        h, _ = jax.lax.scan(layer, x, params)
        return jnp.mean((h - y) ** 2)

    def train(params: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, params, gradients), value

    random = np.random.default_rng(0)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    params = {"w": draw(3, 6, 6), "b": draw(3, 6)}
    return import_jax(
        train, (params, draw(8, 6), draw(8, 6)), ("parameter", "input", "label"), results=("parameter", "output")
    )


def _onnx(model: small_models.Model, **degrees: Any) -> Pair:
    return _checked(model.module, model.distributed(**degrees))


GB = "1GB"
PROGRAMS: dict[str, Callable[[Path], Pair]] = {
    "mlp-onnx": lambda _: _onnx(small_models.mlp(batch=8), dp=2, tp=2, pp=2, microbatches=2, schedule="1f1b"),
    "gpt2-onnx": lambda _: _onnx(small_models.gpt2(2, 4), dp=1, tp=2, pp=2, microbatches=2, schedule="gpipe"),
    "mlp-adamw": lambda _: _parallel(mlp_adamw(), dp=2, tp=2),
    "gpt-sgd-pipeline": lambda _: _parallel(gpt(_sgd), pp=2, microbatches=2, schedule="1f1b"),
    "gpt-adamw": lambda _: _parallel(gpt(_adamw, layers=1), tp=2),
    "convolutions": lambda _: _parallel(convolutions(), dp=2, tp=2),
    "experts": lambda folder: _planned(experts(), folder, mesh="ep=2"),
    "jax-transformer": lambda _: _parallel(jax_transformer(), dp=2, tp=2),
    "jax-scan": lambda _: _parallel(jax_scan(), dp=2, microbatches=2),
    "mlp-zero": lambda _: _with_cut_state(mlp_adamw(batch=6), {"a": 2}, 1),
    "uneven": lambda _: _with_cut_state(mlp_adamw(batch=7, widths=(5, 9, 7)), {"a": 3}, 2),
    "mlp-zero-2": lambda _: _parallel(mlp_adamw(), dp=2, microbatches=2, sharding="ilp", zero=2),
    "gpt-zero-3-pipeline": lambda _: _parallel(gpt(_adamw), dp=2, pp=2, microbatches=2, sharding="ilp", zero=3),
    "gpt-zero-1": lambda _: _parallel(gpt(_adamw, layers=1), dp=2, microbatches=2, sharding="ilp", zero=1),
    "mlp-zero-bubble": lambda _: _parallel(mlp_adamw(), pp=2, microbatches=4, sharding="ilp", schedule="zb-h1"),
    "mlp-interleaved": lambda _: _parallel(
        mlp_adamw(widths=(6, 8, 8, 10, 4)), pp=2, microbatches=4, sharding="ilp", schedule="interleaved"
    ),
    "gpt-recomputed": lambda _: _parallel(gpt(_sgd), tp=2, microbatches=2, sharding="ilp", recompute="full"),
    "gpt-recomputed-pipeline": lambda _: _parallel(
        gpt(_sgd), dp=2, pp=2, microbatches=2, sharding="ilp", recompute="full", schedule="1f1b"
    ),
    "gpt-grouped": lambda folder: _parallel(
        gpt(_adamw, layers=1), dp=2, tp=2, microbatches=2, sharding="ilp", grouped=True, machine=written(folder)
    ),
    "gpt-ring": lambda folder: _ring(gpt(_adamw, layers=1), folder, "dp=2,cp=2"),
    "mlp-zero-3-streams": lambda _: _parallel(
        mlp_adamw(), dp=3, microbatches=2, sharding="ilp", zero=3, overlap=True, bucket=200
    ),
    "gpt-dualpipev": lambda _: _parallel(
        gpt(_sgd, layers=4, batch=8), pp=2, microbatches=4, sharding="ilp", schedule="dualpipev"
    ),
    "routed-experts": lambda _: _parallel(routed_experts(), dp=2, tp=2, sharding="ilp", divide=True),
    "jax-scan-planned": lambda folder: _planned(jax_scan(), folder, mesh="dp=2,tp=2"),
    "gpt-planned": lambda folder: _planned(gpt(_adamw, layers=1), folder, mesh="dp=2,tp=2"),
    "rotated": lambda _: _parallel(models_to_mutate.rotated(), dp=2, tp=2),
    "rotated-zero-2": lambda _: _parallel(models_to_mutate.rotated(), dp=2, microbatches=2, sharding="ilp", zero=2),
    "recurrent-pipeline": lambda _: _parallel(models_to_mutate.recurrent(), dp=2, pp=2),
    "recurrent-planned": lambda folder: _planned(models_to_mutate.recurrent(), folder, mesh="a=3"),
    "autoencoder-zero": lambda _: _parallel(
        models_to_mutate.autoencoder(), dp=2, microbatches=2, sharding="ilp", zero=1
    ),
    "messages": lambda _: _parallel(models_to_mutate.messages(), dp=2, tp=2),
    "sequences": lambda _: _parallel(models_to_mutate.sequences(), dp=2, microbatches=2, sharding="ilp"),
    "jax-convolution-planned": lambda folder: _planned(models_to_mutate.jax_convolution(), folder, mesh="dp=2,tp=2"),
}
