"""Plain PyTorch modules of unusual structure (graphs, scans, flows, capsules, matchings), by name, beside those of `plain`: a function gives
the module and its example inputs (a batch of 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, PLAIN, Made, Then, plain, tokens

__all__ = ["PLAIN"]


@plain
def message_passing() -> Made:
    def forward(m: Any, x: Tensor, edges: Tensor) -> Tensor:
        source, target = (edges[:, i, :, None].expand(-1, -1, 16) for i in (0, 1))
        h = m.into(x)
        for layer in (m.first, m.second):
            messages = layer(torch.cat([h.gather(1, source), h.gather(1, target)], -1)).relu()
            h = h + torch.zeros_like(h).scatter_add(1, target, messages)
        return m.out(h.sum(1))

    parts = {"into": nn.Linear(6, 16), "first": nn.Linear(32, 16), "second": nn.Linear(32, 16), "out": nn.Linear(16, 4)}
    return Then(forward, **parts), [torch.randn(BATCH, 5, 6), torch.randint(0, 5, (BATCH, 2, 9))]


@plain
def vector_quantised() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        z = m.encode(x)
        nearest = (z[:, None] - m.codes).square().sum(-1).argmin(-1)
        codes = m.codes[nearest]
        return m.decode(z + (codes - z).detach()) + 0.25 * (z - codes.detach()).square().mean(-1, keepdim=True)

    codes = nn.Parameter(torch.randn(12, 16))
    return Then(forward, codes=codes, encode=nn.Linear(8, 16), decode=nn.Linear(16, 8)), [torch.randn(BATCH, 8)]


@plain
def slot_attention() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        k, v = m.k(x), m.v(x)
        slots = m.slots.expand(x.shape[0], -1, -1)
        for _ in range(2):
            weights = (m.q(m.norm(slots)) @ k.transpose(1, 2) / 4).softmax(1) + 1e-6
            found = (weights / weights.sum(-1, keepdim=True)) @ v
            slots = m.cell(found.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
        return m.out(slots)

    parts = {name: nn.Linear(16, 16) for name in "qkv"} | {"out": nn.Linear(16, 8), "norm": nn.LayerNorm(16)}
    return Then(forward, cell=nn.GRUCell(16, 16), slots=nn.Parameter(torch.randn(1, 3, 16)), **parts), [
        torch.randn(BATCH, 6, 16)
    ]


@plain
def radiance_field() -> Made:
    def forward(m: Any, points: Tensor) -> Tensor:
        w = 2.0 ** torch.arange(4)
        angles = (points[..., None] * w).flatten(-2)
        h = m.body(torch.cat([points, angles.sin(), angles.cos()], -1))
        alpha = 1 - torch.exp(-F.softplus(m.density(h)).squeeze(-1) * 0.1)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)[:, :-1]
        return ((alpha * through)[..., None] * m.colour(h).sigmoid()).sum(1)

    body = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    return Then(forward, body=body, density=nn.Linear(32, 1), colour=nn.Linear(32, 3)), [torch.randn(BATCH, 8, 3)]


@plain
def normalising_flow() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[0])
        for net in m.nets:
            a, b = x.chunk(2, -1)
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x, total = torch.cat([b * scale.exp() + shift, a], -1), total + scale.sum(-1)
        return (-0.5 * x.square().sum(-1) + total)[:, None]

    nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 8)) for _ in range(3))
    return Then(forward, nets=nets), [torch.randn(BATCH, 8)]


@plain
def selective_scan() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        u, gate = m.into(x).chunk(2, -1)
        u = F.silu(m.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        steps, b, c = F.softplus(m.steps(u)), m.b(u), m.c(u)
        decay = torch.exp(steps[..., None] * -m.log.exp())
        state, found = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + (steps[:, t] * u[:, t])[..., None] * b[:, t, None]
            found.append((state @ c[:, t, :, None]).squeeze(-1))
        return m.out(torch.stack(found, 1) * F.silu(gate))

    parts = {
        "into": nn.Linear(8, 32),
        "steps": nn.Linear(16, 16),
        "b": nn.Linear(16, 4),
        "c": nn.Linear(16, 4),
        "out": nn.Linear(16, 8),
    }
    return Then(
        forward, conv=nn.Conv1d(16, 16, 3, padding=2, groups=16), log=nn.Parameter(torch.rand(16, 4)), **parts
    ), [torch.randn(BATCH, 5, 8)]


@plain
def recommender() -> Made:
    def forward(m: Any, ids: Tensor, x: Tensor) -> Tensor:
        v = torch.cat([m.bottom(x)[:, None], m.table(ids)], 1)
        rows, columns = torch.tril_indices(7, 7, -1)
        pairs = (v @ v.transpose(1, 2))[:, rows, columns]
        return m.top(torch.cat([pairs, v[:, 0]], 1))

    bottom, top = (
        nn.Sequential(nn.Linear(12, 16), nn.ReLU()),
        nn.Sequential(nn.Linear(37, 32), nn.ReLU(), nn.Linear(32, 2)),
    )
    return Then(forward, table=nn.Embedding(32, 16), bottom=bottom, top=top), [tokens(), torch.randn(BATCH, 12)]


@plain
def conditional_field() -> Made:
    """A linear chain's partition function."""

    def forward(m: Any, ids: Tensor) -> Tensor:
        scores = m.out(m.embed(ids))
        total = scores[:, 0]
        for t in range(1, ids.shape[1]):
            total = torch.logsumexp(total[:, :, None] + m.moves, 1) + scores[:, t]
        return total.logsumexp(-1, keepdim=True)

    return Then(forward, embed=nn.Embedding(32, 16), out=nn.Linear(16, 6), moves=nn.Parameter(torch.randn(6, 6))), [
        tokens()
    ]


@plain
def optimal_transport() -> Made:
    def forward(m: Any, a: Tensor, b: Tensor) -> Tensor:
        x, y = m.left(a), m.right(b)
        scores = -torch.cdist(x, y)
        for _ in range(3):
            scores = scores - scores.logsumexp(-1, keepdim=True)
            scores = scores - scores.logsumexp(-2, keepdim=True)
        return m.out(scores.exp() @ y)

    return Then(forward, left=nn.Linear(6, 16), right=nn.Linear(6, 16), out=nn.Linear(16, 4)), [
        torch.randn(BATCH, 5, 6),
        torch.randn(BATCH, 4, 6),
    ]


@plain
def decoder_with_attention() -> Made:
    def forward(m: Any, ids: Tensor, x: Tensor) -> Tensor:
        memory, h, found = m.encode(x), x.new_zeros(x.shape[0], 16), []
        for step in m.embed(ids).unbind(1):
            scores = m.score(torch.tanh(m.keys(memory) + m.query(h)[:, None])).squeeze(-1)
            context = (scores.softmax(-1)[:, None] @ memory).squeeze(1)
            h = m.cell(torch.cat([step, context], -1), h)
            found.append(h)
        return m.out(torch.stack(found, 1))

    parts = {
        "encode": nn.Linear(12, 16),
        "keys": nn.Linear(16, 16),
        "query": nn.Linear(16, 16),
        "score": nn.Linear(16, 1),
    }
    return Then(forward, embed=nn.Embedding(32, 16), cell=nn.GRUCell(32, 16), out=nn.Linear(16, 32), **parts), [
        tokens(4),
        torch.randn(BATCH, 6, 12),
    ]


@plain
def redundancy_reduction() -> Made:
    """Two views of a batch, whose features are decorrelated (Barlow Twins)."""

    def forward(m: Any, a: Tensor, b: Tensor) -> Tensor:
        x, y = ((z - z.mean(0)) / (z.std(0) + 1e-4) for z in (m.net(a), m.net(b)))
        c = x.t() @ y / x.shape[0]
        return (c - torch.eye(16)).square()

    return Then(forward, net=nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))), [
        torch.randn(BATCH, 12),
        torch.randn(BATCH, 12),
    ]


@plain
def splines() -> Made:
    """Kolmogorov-Arnold layers: a sum of functions of each input."""

    def forward(m: Any, x: Tensor) -> Tensor:
        grid = torch.linspace(-2, 2, 6)
        for weights in (m.first, m.second):
            x = torch.einsum("big,oig->bo", torch.exp(-((x[..., None] - grid) ** 2)), weights)
        return x

    return Then(forward, first=nn.Parameter(torch.randn(32, 8, 6)), second=nn.Parameter(torch.randn(4, 32, 6))), [
        torch.randn(BATCH, 8)
    ]


@plain
def video_convolution() -> Made:
    layers = (
        nn.Conv3d(3, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.AvgPool3d(2),
        nn.Conv3d(8, 16, 2),
        nn.AdaptiveAvgPool3d(1),
    )
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 5)).eval(), [torch.randn(BATCH, 3, 4, 8, 8)]


@plain
def capsules() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        u = torch.einsum("bid,ijde->bije", x, m.weight)
        logits, v = torch.zeros_like(u[..., 0]), u.mean(1)
        for _ in range(2):
            s = (logits.softmax(2)[..., None] * u).sum(1)
            n = s.square().sum(-1, keepdim=True)
            v = s * n / (1 + n) / (n + 1e-6).sqrt()
            logits = logits + (u * v[:, None]).sum(-1)
        return v.norm(dim=-1)

    return Then(forward, weight=nn.Parameter(torch.randn(6, 4, 8, 12))), [torch.randn(BATCH, 6, 8)]


@plain
def physics_informed() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        def one(point: Tensor) -> Tensor:
            return m.net(point)[0]

        second = torch.func.vmap(torch.func.jacfwd(torch.func.jacrev(one)))(x)
        return second.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) + m.net(x).sin()

    return Then(forward, net=nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))), [torch.randn(BATCH, 2)]


@plain
def hashed_grid() -> Made:
    """Features by hashed integer positions, as in instant radiance fields."""

    def forward(m: Any, x: Tensor) -> Tensor:
        found = []
        for level in range(2):
            p = (x * 4 * 2**level).floor().long()
            found.append(m.table[(p[:, 0] * 1 + p[:, 1] * 2654435761) % 32])
        return m.net(torch.cat(found, -1))

    return Then(
        forward,
        table=nn.Parameter(torch.randn(32, 4)),
        net=nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)),
    ), [torch.rand(BATCH, 2)]


@plain
def top_pooling() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x).relu()
        best, chosen = m.score(h).squeeze(-1).sort(1, descending=True)
        h = h.gather(1, chosen[:, :3, None].expand(-1, -1, 16)) * best[:, :3, None].tanh()
        return m.out(h.flatten(1))

    return Then(forward, first=nn.Linear(6, 16), score=nn.Linear(16, 1), out=nn.Linear(48, 4)), [
        torch.randn(BATCH, 5, 6)
    ]


@plain
def routed_tokens() -> Made:
    """Tokens sorted by expert, with a matrix product of each group's rows."""

    def forward(m: Any, x: Tensor) -> Tensor:
        t = x.flatten(0, 1)
        weight, expert = m.gate(t).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        h = torch.einsum("td,tdf->tf", t[order], m.first[expert[order]]).relu()
        y = torch.einsum("tf,tfd->td", h, m.second[expert[order]]) * weight[order][:, None]
        return torch.zeros_like(t).index_add(0, order, y).view_as(x)

    first, second = nn.Parameter(torch.randn(4, 16, 32) / 4), nn.Parameter(torch.randn(4, 32, 16) / 6)
    return Then(forward, gate=nn.Linear(16, 4), first=first, second=second), [torch.randn(BATCH, 6, 16)]
