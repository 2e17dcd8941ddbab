"""Training steps as people write them by hand: acting."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then, tokens
from benchmarks.models.written.table import adam, classes, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


@written
def clipped_policy() -> WrittenStep:
    """PPO with advantages made alike."""
    body, policy, value = layers(8, 32, 32, activation=nn.Tanh), nn.Linear(32, 4), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *policy.parameters(), *value.parameters()], lr=3e-4, eps=1e-5)

    def step(seen: Tensor, done: Tensor, old: Tensor, gain: Tensor, returns: Tensor) -> dict[str, Tensor]:
        h = body(seen)
        logs = policy(h).log_softmax(-1)
        log = logs.gather(1, done[:, None])[:, 0]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        ratio = (log - old).exp()
        actor = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        critic = F.smooth_l1_loss(value(h)[:, 0], returns)
        entropy = -(logs.exp() * logs).sum(-1).mean()
        optimizer.zero_grad()
        (actor + 0.5 * critic - 0.01 * entropy).backward()
        nn.utils.clip_grad_norm_([*body.parameters(), *policy.parameters(), *value.parameters()], 0.5)
        optimizer.step()
        return {"actor": actor, "critic": critic, "entropy": entropy}

    args = rows(8), classes(4), -torch.rand(BATCH), rows(), rows()
    return written_step(step, {"body": body, "policy": policy, "value": value}, optimizer, example_args=args)


@written
def soft_actor_critic() -> WrittenStep:
    """Three optimizers, twin critics with slow targets, a temperature that is learned."""
    actor, critics = layers(6, 32, 4), nn.ModuleList([layers(8, 32, 1), layers(8, 32, 1)])
    slow, heat = copy.deepcopy(critics).requires_grad_(False), nn.Parameter(torch.zeros(()))
    store = Then(lambda m, x: x, heat=heat)
    optimizers = [adam(actor), adam(critics), torch.optim.Adam([heat], lr=3e-4)]

    def drawn(s: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = actor(s).chunk(2, -1)
        log = log.clamp(-5, 2)
        noise = torch.randn_like(mean)
        a = torch.tanh(mean + log.exp() * noise)
        density = (-0.5 * noise**2 - log - 0.5 * math.log(2 * math.pi) - torch.log(1 - a**2 + 1e-6)).sum(-1)
        return a, density

    def step(s: Tensor, a: Tensor, reward: Tensor, after: Tensor, ended: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            next_a, density = drawn(after)
            q = torch.min(*(c(torch.cat([after, next_a], 1))[:, 0] for c in slow))
            aim = reward + 0.99 * (1 - ended) * (q - heat.exp() * density)
        error = sum(F.mse_loss(c(torch.cat([s, a], 1))[:, 0], aim) for c in critics)
        optimizers[1].zero_grad()
        error.backward()
        optimizers[1].step()
        new_a, density = drawn(s)
        q = torch.min(*(c(torch.cat([s, new_a], 1))[:, 0] for c in critics))
        gain = (heat.exp().detach() * density - q).mean()
        optimizers[0].zero_grad()
        gain.backward()
        optimizers[0].step()
        warm = -(heat * (density.detach() - 2)).mean()
        optimizers[2].zero_grad()
        warm.backward()
        optimizers[2].step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), critics.parameters(), strict=True):
                old.mul_(0.995).add_(0.005 * new)
        return {"error": error, "gain": gain, "warm": warm}

    args = rows(6), rows(2).tanh(), rows(), rows(6), torch.zeros(BATCH)
    modules = {"actor": actor, "critics": critics, "slow": slow, "store": store}
    return written_step(step, modules, optimizers, example_args=args)


@written
def duelling_values() -> WrittenStep:
    body, value, gain = layers(8, 32, 32), nn.Linear(32, 1), nn.Linear(32, 5)
    model = nn.ModuleDict({"body": body, "value": value, "gain": gain})
    slow = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def values(m: Any, s: Tensor) -> Tensor:
        h = m["body"](s)
        a = m["gain"](h)
        return m["value"](h) + a - a.mean(1, keepdim=True)

    def step(s: Tensor, a: Tensor, r: Tensor, after: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            best = values(model, after).argmax(1, keepdim=True)
            aim = r + 0.99 * values(slow, after).gather(1, best)[:, 0]
        error = aim - values(model, s).gather(1, a[:, None])[:, 0]
        loss = (weights * F.huber_loss(error, torch.zeros_like(error), reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, error.abs().detach()

    return written_step(
        step,
        {"model": model, "slow": slow},
        optimizer,
        example_args=(rows(8), classes(5), rows(), rows(8), torch.rand(BATCH)),
    )


@written
def preferred_answers() -> WrittenStep:
    """DPO of a small language model against a frozen copy."""

    def language() -> nn.Module:
        return nn.Sequential(nn.Embedding(32, 24), nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 32))

    model = language()
    reference = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def log(m: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
        logs = m(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return (logs * mask[:, 1:]).sum(-1)

    def step(better: Tensor, worse: Tensor, mask: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            base = log(reference, better, mask) - log(reference, worse, mask)
        margin = 0.1 * (log(model, better, mask) - log(model, worse, mask) - base)
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "right": (margin > 0).float().mean()}

    args = tokens(), tokens(), (torch.rand(BATCH, 6) > 0.3).float()
    return written_step(step, {"model": model, "reference": reference}, optimizer, example_args=args)
