"""More training steps for `mutated_programs`, of other kinds of models: nothing goes in but a number of samples; the sequential program comes out.
Rotated grouped heads with dropout and clipped gradients, recurrent layers, an autoencoder of images with norms by groups, messages along edges,
sequences without an alignment, and a convolution of JAX."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step


def rotated(batch: int = 4, width: int = 8) -> ModuleOp:
    """Two heads of queries to each of keys, rotary positions, RMS norms, a gate, dropout; AdamW of gradients clipped to a norm."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    length, heads = 4, 4

    def turned(x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1] // 2
        angles = torch.arange(length).unsqueeze(1) / 10 ** torch.arange(size)
        a, b = x[..., :size], x[..., size:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(11, width)
            self.norm, self.q = nn.RMSNorm(width), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, width // 2, bias=False) for _ in range(2))
            self.out, self.head = nn.Linear(width, width, bias=False), nn.Linear(width, 11, bias=False)
            self.gate, self.up, self.down = nn.Linear(width, 12), nn.Linear(width, 12), nn.Linear(12, width)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.tokens(ids)
            y = self.norm(x)
            q, k, v = (f(y).unflatten(-1, (-1, width // heads)).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k, v = turned(q), turned(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            weights = F.dropout(torch.softmax(q @ k.transpose(-1, -2), -1), 0.3)
            x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
            return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x))).flatten(0, 1)

    model = Model()

    class Clipped(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            torch.nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 0.5)
            return super().step(closure)

    ids = torch.randint(0, 11, (batch, length))
    return import_step(
        training_step(
            model,
            lambda y, label: F.cross_entropy(y, label.flatten()),
            lambda p: Clipped(p, lr=1e-2),
            example_args=(ids, ids),
        )
    )


def recurrent(batch: int = 6) -> ModuleOp:
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.GRU(3, 4, batch_first=True), nn.LSTM(4, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.second(self.first(x)[0])[0][:, -1])

    example = torch.randn(batch, 3, 3), torch.randint(0, 3, (batch,))
    momentum = lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True)  # noqa: E731
    return import_step(training_step(Model(), nn.functional.cross_entropy, momentum, example_args=example))


def autoencoder(batch: int = 4) -> ModuleOp:
    """With a skip, a transposed convolution, norms by groups, and a mean of absolute differences; RMSprop."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
            self.down, self.up = nn.Conv2d(4, 6, 2, stride=2), nn.ConvTranspose2d(6, 4, 2, stride=2)
            self.leave = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            high = torch.tanh(self.norm(self.enter(x)))
            return self.leave(torch.cat([high, self.up(torch.relu(self.down(high)))], 1))

    example = torch.randn(batch, 2, 4, 4), torch.randn(batch, 2, 4, 4)
    return import_step(
        training_step(Model(), nn.functional.l1_loss, lambda p: torch.optim.RMSprop(p, lr=1e-2), example_args=example)
    )


def messages(batch: int = 4) -> ModuleOp:
    """Graphs of five nodes with edges that the input names; what comes in over edges is added up at the nodes where they end."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.edge = nn.Linear(3, 6), nn.Linear(12, 6)
            self.score, self.leave = nn.Linear(6, 1), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = torch.tanh(self.enter(x))
            ends = edges.unsqueeze(-1).expand(-1, -1, -1, 6)
            source, target = x.gather(1, ends[:, 0]), x.gather(1, ends[:, 1])
            message = torch.tanh(self.edge(torch.cat([source, source - target], -1)))
            message = message * torch.sigmoid(self.score(message))
            x = x + torch.zeros_like(x).scatter_add(1, ends[:, 1], message)
            return self.leave(x.amax(1) - x.mean(1))

    model = Model()
    example = torch.randn(batch, 5, 3), torch.randint(0, 5, (batch, 2, 7)), torch.randn(batch, 2)
    return import_step(
        training_step(model, nn.functional.smooth_l1_loss, lambda p: torch.optim.Adam(p, lr=1e-2), example_args=example)
    )


def sequences(batch: int = 4) -> ModuleOp:
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.over, self.head = nn.Conv1d(3, 4, 3, padding=1), nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.over(x)).transpose(1, 2)).log_softmax(-1).transpose(0, 1)

    def loss(y: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        lengths: Any = ([4] * batch, [2] * batch)
        return nn.functional.ctc_loss(y, label, *lengths, blank=4)

    example = torch.randn(batch, 3, 4), torch.randint(0, 4, (batch, 2))
    return import_step(training_step(Model(), loss, lambda p: torch.optim.Adagrad(p, lr=1e-2), example_args=example))


def jax_convolution() -> ModuleOp:
    """Of images, with momentum, a mean over pixels and a maximum by classes."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from distir.frontends.jax import import_step as import_jax

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(jax.lax.conv(x, params["kernel"], (2, 2), "SAME"))
        scores = h.mean((2, 3)) @ params["head"]
        return jnp.mean(jax.nn.logsumexp(scores, -1) - jnp.take_along_axis(scores, y[:, None], 1)[:, 0])

    def train(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, gradients)
        return jax.tree.map(lambda p, m: p - 1e-2 * m, params, state), state, value

    random = np.random.default_rng(0)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    params = {"kernel": draw(4, 2, 3, 3), "head": draw(4, 3)}
    example = params, params, draw(4, 2, 4, 4), np.arange(4) % 3
    return import_jax(
        train, example, ("parameter", "state", "input", "label"), results=("parameter", "state", "output")
    )
