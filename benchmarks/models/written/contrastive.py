"""Training steps as people write them by hand: contrastive and self-distilling."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import Then, tokens
from benchmarks.models.written.table import adam, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


@written
def images_and_words() -> WrittenStep:
    sees, reads = layers(48, 64, 32), nn.EmbeddingBag(32, 32, mode="mean")
    scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    model = Then(lambda m, x: x, sees=sees, reads=reads, scale=scale)
    optimizer = adam(model)

    def step(x: Tensor, ids: Tensor) -> Tensor:
        a, b = F.normalize(sees(x), dim=-1), F.normalize(reads(ids), dim=-1)
        logits = a @ b.T * scale.exp().clamp(max=100)
        right = torch.arange(len(x))
        loss = (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(48), tokens()))


@written
def two_views_normalised() -> WrittenStep:
    """SimCLR: both views in one batch, the diagonal masked."""
    model = layers(24, 64, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(a: Tensor, b: Tensor) -> Tensor:
        z = F.normalize(model(torch.cat([a, b])), dim=1)
        n = len(a)
        near = (z @ z.T / 0.5).masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
        loss = F.cross_entropy(near, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(24), rows(24)))


@written
def bootstrapped_latents() -> WrittenStep:
    """BYOL: a target network that is an exponential average."""
    online, predictor = layers(24, 32, 16), layers(16, 32, 16)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = adam(online, predictor)

    def step(a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            aim = F.normalize(target(b), dim=-1)
        loss = (2 - 2 * (F.normalize(predictor(online(a)), dim=-1) * aim).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(target.parameters(), online.parameters(), strict=True):
                old.lerp_(new, 0.01)
        return loss

    modules = {"online": online, "predictor": predictor, "target": target}
    return written_step(step, modules, optimizer, example_args=(rows(24), rows(24)))


@written
def queue_of_keys() -> WrittenStep:
    """MoCo: a queue of negatives that each step shifts."""
    query = layers(24, 32, 16)
    key = copy.deepcopy(query).requires_grad_(False)
    store = nn.Module()
    store.register_buffer("queue", F.normalize(torch.randn(32, 16), dim=1))
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03)

    def step(a: Tensor, b: Tensor) -> Tensor:
        q = F.normalize(query(a), dim=1)
        with torch.no_grad():
            for old, new in zip(key.parameters(), query.parameters(), strict=True):
                old.mul_(0.99).add_(new, alpha=0.01)
            k = F.normalize(key(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ store.queue.T], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        store.queue.copy_(torch.cat([k, store.queue[: -len(k)]]))
        return loss

    return written_step(
        step, {"query": query, "key": key, "store": store}, optimizer, example_args=(rows(24), rows(24))
    )


@written
def triplets() -> WrittenStep:
    model = layers(24, 32, 8)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def step(anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        loss = F.triplet_margin_loss(model(anchor), model(near), model(far), margin=0.3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(24), rows(24), rows(24)))
