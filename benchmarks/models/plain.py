"""Plain PyTorch modules that one finds in applications, by name: a function gives the module and its example inputs (a batch of 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 4
Made = tuple[nn.Module, list[Tensor]]
PLAIN: dict[str, Callable[[], Made]] = {}


def plain(make: Callable[[], Made]) -> Callable[[], Made]:
    PLAIN[make.__name__.replace("_", "-")] = make
    return make


def images(channels: int = 3, size: int = 16) -> Tensor:
    return torch.randn(BATCH, channels, size, size)


def tokens(length: int = 6, most: int = 32) -> Tensor:
    return torch.randint(0, most, (BATCH, length))


class Then(nn.Module):
    """A module whose forward is given."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


@plain
def mlp() -> Made:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)), [
        torch.randn(BATCH, 16)
    ]


@plain
def deep_and_wide() -> Made:
    def forward(m: Any, ids: Tensor, x: Tensor) -> Tensor:
        return m.wide(x) + m.deep(torch.cat([m.embed(ids).flatten(1), x], 1))

    deep = nn.Sequential(nn.Linear(6 * 8 + 12, 64), nn.ReLU(), nn.Linear(64, 4))
    return Then(forward, embed=nn.Embedding(32, 8), deep=deep, wide=nn.Linear(12, 4)), [
        tokens(),
        torch.randn(BATCH, 12),
    ]


@plain
def two_towers() -> Made:
    def forward(m: Any, a: Tensor, b: Tensor) -> Tensor:
        return F.normalize(m.left(a), dim=-1) @ F.normalize(m.right(b), dim=-1).t() * 10.0

    towers = {name: nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16)) for name in ("left", "right")}
    return Then(forward, **towers), [torch.randn(BATCH, 12), torch.randn(BATCH, 12)]


@plain
def lstm() -> Made:
    def forward(m: Any, ids: Tensor) -> Tensor:
        return m.out(m.lstm(m.embed(ids))[0])

    return Then(forward, embed=nn.Embedding(32, 16), lstm=nn.LSTM(16, 16, 2, batch_first=True), out=nn.Linear(16, 8)), [
        tokens()
    ]


@plain
def gru_both_ways() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.out(m.gru(x)[0].mean(1))

    return Then(forward, gru=nn.GRU(12, 16, bidirectional=True, batch_first=True), out=nn.Linear(32, 4)), [
        torch.randn(BATCH, 6, 12)
    ]


@plain
def lstm_cell() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for step in range(x.shape[1]):
            h, c = m.cell(x[:, step], (h, c))
        return m.out(h)

    return Then(forward, cell=nn.LSTMCell(12, 16), out=nn.Linear(16, 4)), [torch.randn(BATCH, 4, 12)]


@plain
def convolutional_classifier() -> Made:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 10)
    return nn.Sequential(*layers), [images()]


@plain
def autoencoder() -> Made:
    down = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1)
    up = nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.PReLU(8), nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3, 1, 1)
    return nn.Sequential(*down, *up), [images()]


@plain
def unet() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.down1(x)
        b = m.down2(F.max_pool2d(a, 2))
        return m.out(m.up(torch.cat([F.interpolate(b, scale_factor=2, mode="bilinear"), a], 1)))

    def block(i: int, o: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    return Then(forward, down1=block(3, 8), down2=block(8, 16), up=block(24, 8), out=nn.Conv2d(8, 2, 1)), [images()]


@plain
def diffusion_step() -> Made:
    def forward(m: Any, x: Tensor, t: Tensor) -> Tensor:
        w = torch.exp(-torch.arange(8) / 8.0)
        e = m.time(torch.cat([torch.sin(t[:, None] * w), torch.cos(t[:, None] * w)], 1))
        return m.second(F.silu(m.norm(m.first(x)) * (1 + e[:, :, None, None]))) + x

    parts = {"first": nn.Conv2d(3, 16, 3, padding=1), "second": nn.Conv2d(16, 3, 3, padding=1)}
    return Then(forward, time=nn.Linear(16, 16), norm=nn.GroupNorm(4, 16), **parts), [images(), torch.rand(BATCH)]


@plain
def transformer_encoder() -> Made:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), [torch.randn(BATCH, 6, 32)]


@plain
def transformer() -> Made:
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    return model, [torch.randn(BATCH, 6, 32), torch.randn(BATCH, 5, 32)]


@plain
def causal_attention() -> Made:
    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.embed(ids) + m.position[: ids.shape[1]]
        mask = torch.triu(torch.full((ids.shape[1],) * 2, float("-inf")), 1)
        x = x + m.attend(m.norm(x), m.norm(x), m.norm(x), attn_mask=mask, need_weights=False)[0]
        return m.head(x)

    attend = nn.MultiheadAttention(32, 4, batch_first=True)
    position = nn.Parameter(torch.randn(16, 32))
    parts = {"embed": nn.Embedding(32, 32), "head": nn.Linear(32, 32), "norm": nn.LayerNorm(32)}
    return Then(forward, attend=attend, position=position, **parts), [tokens()]


@plain
def fused_attention() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = (h.unflatten(-1, (4, 8)).transpose(1, 2) for h in m.qkv(x).chunk(3, -1))
        return m.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    return Then(forward, qkv=nn.Linear(32, 96), out=nn.Linear(32, 32)), [torch.randn(BATCH, 6, 32)]


@plain
def key_value_cache() -> Made:
    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        keys, values = torch.cat([keys, m.k(x)], 1), torch.cat([values, m.v(x)], 1)
        weights = (m.q(x) @ keys.transpose(1, 2) / 4.0).softmax(-1)
        return m.o(weights @ values)

    past = torch.randn(BATCH, 5, 16)
    return Then(forward, **{name: nn.Linear(16, 16) for name in "qkvo"}), [
        torch.randn(BATCH, 1, 16),
        past,
        past.clone(),
    ]


@plain
def mixture_of_experts() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        weights, chosen = m.gate(x).softmax(-1).topk(2, -1)
        gates = torch.zeros(*x.shape[:-1], 4).scatter(-1, chosen, weights)
        y = torch.einsum("bsd,edf->bsef", x, m.first).relu()
        return torch.einsum("bsef,efd,bse->bsd", y, m.second, gates)

    first, second = nn.Parameter(torch.randn(4, 16, 32)), nn.Parameter(torch.randn(4, 32, 16))
    return Then(forward, gate=nn.Linear(16, 4), first=first, second=second), [torch.randn(BATCH, 6, 16)]


@plain
def graph_convolution() -> Made:
    def forward(m: Any, x: Tensor, adjacency: Tensor) -> Tensor:
        degrees = adjacency.sum(-1, keepdim=True).clamp(min=1)
        return m.second(adjacency @ m.first(x).relu() / degrees).mean(1)

    adjacency = (torch.rand(BATCH, 5, 5) > 0.5).float()
    return Then(forward, first=nn.Linear(6, 16), second=nn.Linear(16, 4)), [torch.randn(BATCH, 5, 6), adjacency]


@plain
def weight_normed() -> Made:
    norm = torch.nn.utils.parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(16, 32)), nn.Tanh(), nn.Linear(32, 1)), [torch.randn(BATCH, 16)]


@plain
def temporal_convolution() -> Made:
    layers = nn.Conv1d(4, 16, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=4, dilation=4)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4)), [torch.randn(BATCH, 4, 32)]


@plain
def wavenet_gate() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = F.pad(x, (4, 0))
        return m.out(torch.tanh(m.f(h)) * torch.sigmoid(m.g(h)) + x)

    gates = {name: nn.Conv1d(8, 8, 3, dilation=2) for name in "fg"}
    return Then(forward, out=nn.Conv1d(8, 8, 1), **gates), [torch.randn(BATCH, 8, 20)]


@plain
def super_resolution() -> Made:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
    ), [images()]


@plain
def squeeze_and_excite() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.depthwise(F.hardswish(m.expand(x)))
        return m.project(y * F.hardsigmoid(m.scale(y.mean((2, 3), keepdim=True)))) + x

    depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
    parts = {"expand": nn.Conv2d(8, 16, 1), "project": nn.Conv2d(16, 8, 1), "scale": nn.Conv2d(16, 16, 1)}
    return Then(forward, depthwise=depthwise, **parts), [images(8)]


@plain
def instance_normed() -> Made:
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(0.1)
    ), [images()]


@plain
def kernel_of_points() -> Made:
    def forward(m: Any, points: Tensor) -> Tensor:
        return m.out(m.each(points).amax(1))

    return Then(forward, each=nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32)), out=nn.Linear(32, 5)), [
        torch.randn(BATCH, 10, 3)
    ]


@plain
def linear_attention() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        q, k, v = F.elu(m.q(x)) + 1, F.elu(m.k(x)) + 1, m.v(x)
        return (q @ (k.transpose(1, 2) @ v)) / (q @ k.sum(1, keepdim=True).transpose(1, 2))

    return Then(forward, **{name: nn.Linear(16, 16) for name in "qkv"}), [torch.randn(BATCH, 6, 16)]


@plain
def state_space() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        decay, state, found = torch.sigmoid(m.decay), x.new_zeros(x.shape[0], 16), []
        for step in m.into(x).unbind(1):
            state = decay * state + (1 - decay) * step
            found.append(state)
        return m.out(torch.stack(found, 1))

    return Then(forward, into=nn.Linear(8, 16), out=nn.Linear(16, 8), decay=nn.Parameter(torch.randn(16))), [
        torch.randn(BATCH, 5, 8)
    ]


@plain
def fourier_mixer() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.mlp(m.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=1).real))

    mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    return Then(forward, mlp=mlp, norm=nn.LayerNorm(16)), [torch.randn(BATCH, 6, 16)]


@plain
def mlp_mixer() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = x + m.tokens(m.first(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channels(m.second(x))

    def two(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    return Then(forward, tokens=two(6), channels=two(16), first=nn.LayerNorm(16), second=nn.LayerNorm(16)), [
        torch.randn(BATCH, 6, 16)
    ]


@plain
def factorisation_machine() -> Made:
    def forward(m: Any, ids: Tensor) -> Tensor:
        v = m.factors(ids)
        return m.linear(ids).sum((1, 2)) + 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(1)

    return Then(forward, factors=nn.Embedding(32, 8), linear=nn.Embedding(32, 1)), [tokens()]


@plain
def mixture_density() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        weights, means, widths = m.net(x).chunk(3, -1)
        return torch.logsumexp(weights.log_softmax(-1) - 0.5 * (means / widths.exp()) ** 2 - widths, -1, keepdim=True)

    return Then(forward, net=nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 15))), [torch.randn(BATCH, 6)]


@plain
def spatial_transformer() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        theta = m.where(x.flatten(1)).view(-1, 2, 3)
        return m.what(F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False))

    return Then(forward, where=nn.Linear(3 * 64, 6), what=nn.Conv2d(3, 4, 3)), [images(3, 8)]
