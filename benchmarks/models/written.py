"""Training steps as people write them by hand (several optimizers, averages of weights, losses of their own, frozen parts), by name: a
function gives the step, to be imported with its own example arguments (a batch of 4)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then, images, tokens
from distir.frontends.pytorch import WrittenStep, written_step

WRITTEN: dict[str, Callable[[], WrittenStep]] = {}


def written(make: Callable[[], WrittenStep]) -> Callable[[], WrittenStep]:
    """Puts a function into the table."""
    WRITTEN[make.__name__.replace("_", "-")] = make
    return make


def rows(*shape: int) -> Tensor:
    return torch.randn(BATCH, *shape)


def classes(most: int) -> Tensor:
    return torch.randint(0, most, (BATCH,))


def layers(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    found: list[nn.Module] = []
    for a, b in pairwise(widths):
        found += [nn.Linear(a, b), activation()]
    return nn.Sequential(*found[:-1])


def adam(*modules: nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for m in modules for p in m.parameters() if p.requires_grad], lr=rate)


# --- vision ---


@written
def distilled_with_temperature() -> WrittenStep:
    teacher, student = layers(16, 64, 10).requires_grad_(False), layers(16, 32, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 4, -1)
        logits = student(x)
        hard = F.cross_entropy(logits, y, label_smoothing=0.1)
        kl = F.kl_div(F.log_softmax(logits / 4, -1), soft, reduction="batchmean") * 16
        optimizer.zero_grad(set_to_none=True)
        (0.5 * hard + 0.5 * kl).backward()
        optimizer.step()
        return {"hard": hard.detach(), "kl": kl.detach()}

    return written_step(step, {"teacher": teacher, "student": student}, optimizer, example_args=(rows(16), classes(10)))


@written
def mixed_images() -> WrittenStep:
    """Mixup over the batch reversed, with a cosine schedule of the weight decay left out."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)

    def step(x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        w = share[:, None, None, None]
        logits = model(x * w + x.flip(0) * (1 - w))
        loss = (
            share * F.cross_entropy(logits, y, reduction="none")
            + (1 - share) * F.cross_entropy(logits, y.flip(0), reduction="none")
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(), classes(10), torch.rand(BATCH)))


@written
def segmenting_with_dice() -> WrittenStep:
    down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    deep = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    up = nn.ConvTranspose2d(16, 8, 2, stride=2)
    out = nn.Conv2d(16, 1, 1)
    model = nn.ModuleDict({"down": down, "deep": deep, "up": up, "out": out})
    optimizer = adam(model)

    def step(x: Tensor, mask: Tensor) -> Tensor:
        a = down(x)
        logits = out(torch.cat([a, up(deep(a))], 1))
        p = logits.sigmoid()
        both = (p * mask).sum((1, 2, 3))
        dice = 1 - (2 * both + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(), (torch.rand(BATCH, 1, 16, 16) > 0.5).float()))


@written
def detecting_boxes() -> WrittenStep:
    """One box a cell: focal loss, generalised intersection over union."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 9, 1)
    )
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)

    def step(x: Tensor, kinds: Tensor, boxes: Tensor) -> dict[str, Tensor]:
        found = model(x).permute(0, 2, 3, 1)
        logits, found = found[..., :5], found[..., 5:].sigmoid()
        p = logits.sigmoid()
        ce = F.binary_cross_entropy_with_logits(logits, kinds, reduction="none")
        right = p * kinds + (1 - p) * (1 - kinds)
        focal = (0.25 * (1 - right) ** 2 * ce).sum() / kinds.sum().clamp(min=1)
        low, high = torch.maximum(found[..., :2], boxes[..., :2]), torch.minimum(found[..., 2:], boxes[..., 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        mine, given = ((b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1) for b in (found, boxes))
        union = mine + given - shared + 1e-6
        weight = kinds.amax(-1)
        giou = ((1 - shared / union) * weight).sum() / weight.sum().clamp(min=1)
        optimizer.zero_grad()
        (focal + giou).backward()
        optimizer.step()
        return {"focal": focal, "giou": giou}

    kinds = F.one_hot(torch.randint(0, 5, (BATCH, 4, 4)), 5).float()
    return written_step(step, model, optimizer, example_args=(images(), kinds, torch.rand(BATCH, 4, 4, 4)))


@written
def masked_autoencoder() -> WrittenStep:
    embed, encoder = (
        nn.Linear(48, 32),
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True),
    )
    decoder, hidden = nn.Linear(32, 48), nn.Parameter(torch.zeros(1, 1, 32))
    model = Then(lambda m, x: x, embed=embed, encoder=encoder, decoder=decoder, hidden=hidden)
    place = nn.Parameter(torch.randn(1, 16, 32) * 0.02)
    model.place = place
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

    def step(x: Tensor, order: Tensor) -> Tensor:
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], 16, 48)
        h = embed(patches) + place
        kept = order[:, :4]
        h = encoder(h.gather(1, kept[..., None].expand(-1, -1, 32)))
        filled = torch.cat([h, hidden.expand(x.shape[0], 12, 32)], 1)
        filled = filled.gather(1, order.argsort(1)[..., None].expand(-1, -1, 32)) + place
        error = (decoder(filled) - patches).square().mean(-1)
        mask = torch.ones_like(error).scatter(1, kept, 0.0)
        loss = (error * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    order = torch.stack([torch.randperm(16) for _ in range(BATCH)])
    return written_step(step, model, optimizer, example_args=(images(), order))


# --- contrastive and self-distilling ---


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


# --- generating ---


@written
def adversaries() -> WrittenStep:
    makes = nn.Sequential(
        nn.Linear(8, 4 * 4 * 16),
        nn.Unflatten(1, (16, 4, 4)),
        nn.ConvTranspose2d(16, 8, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    )
    judges = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(256, 1),
    )
    a = torch.optim.Adam(makes.parameters(), lr=2e-4, betas=(0.5, 0.999))
    b = torch.optim.Adam(judges.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(x: Tensor, z: Tensor) -> dict[str, Tensor]:
        made = makes(z)
        judged = F.relu(1 - judges(x)).mean() + F.relu(1 + judges(made.detach())).mean()
        b.zero_grad()
        judged.backward()
        b.step()
        loss = -judges(made).mean()
        a.zero_grad()
        loss.backward()
        a.step()
        return {"judged": judged, "made": loss}

    return written_step(step, {"makes": makes, "judges": judges}, [a, b], example_args=(images(), rows(8)))


@written
def penalised_gradient() -> WrittenStep:
    """WGAN-GP's critic: a gradient of a gradient."""
    critic = layers(16, 32, 32, 1, activation=nn.Tanh)
    optimizer = adam(critic)

    def step(real: Tensor, made: Tensor, share: Tensor) -> Tensor:
        between = (share * real + (1 - share) * made).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(made).mean() - critic(real).mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, critic, optimizer, example_args=(rows(16), rows(16), torch.rand(BATCH, 1)))


@written
def variational() -> WrittenStep:
    encode, decode = layers(24, 32, 16), layers(8, 32, 24)
    optimizer = adam(encode, decode)

    def step(x: Tensor) -> dict[str, Tensor]:
        mean, log = encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp()
        error = F.mse_loss(decode(z), x, reduction="sum") / len(x)
        kl = -0.5 * (1 + log - mean.square() - log.exp()).sum(-1).mean()
        optimizer.zero_grad()
        (error + 0.1 * kl).backward()
        optimizer.step()
        return {"error": error, "kl": kl}

    return written_step(step, {"encode": encode, "decode": decode}, optimizer, example_args=(rows(24),))


@written
def denoising_with_average() -> WrittenStep:
    """DDPM with steps drawn inside, a table of noise, and an average of the weights."""
    net = Then(
        lambda m, x, t: m.out(F.silu(m.into(x) + m.time(torch.cat([(t[:, None] * m.w).sin(), (t[:, None] * m.w).cos()], 1)))),
        into=nn.Linear(16, 64), time=nn.Linear(16, 64), out=nn.Linear(64, 16),
    )  # fmt: skip
    net.register_buffer("w", 10000.0 ** -torch.linspace(0, 1, 8))
    net.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0))
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimizer = adam(net)

    def step(x: Tensor) -> Tensor:
        t = torch.randint(0, 100, (len(x),))
        noise = torch.randn_like(x)
        a = net.kept[t][:, None]
        loss = F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
        return loss

    return written_step(step, {"net": net, "average": average}, optimizer, example_args=(rows(16),))


@written
def flow_matching() -> WrittenStep:
    net = layers(17, 64, 64, 16, activation=nn.SiLU)
    optimizer = torch.optim.NAdam(net.parameters(), lr=1e-3)

    def step(x: Tensor, t: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        at = torch.lerp(noise, x, t[:, None])
        loss = ((net(torch.cat([at, t[:, None]], 1)) - (x - noise)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, net, optimizer, example_args=(rows(16), torch.rand(BATCH)))


# --- audio ---


@written
def speech_with_ctc() -> WrittenStep:
    model = nn.Sequential(
        nn.Conv1d(8, 32, 3, padding=1),
        nn.GELU(),
        nn.Conv1d(32, 32, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv1d(32, 12, 1),
    )
    optimizer = adam(model)

    def step(x: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
        found = model(x).permute(2, 0, 1).log_softmax(-1)
        whole = torch.full((x.shape[0],), found.shape[0], dtype=torch.long)
        loss = F.ctc_loss(found, target, whole, lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    args = rows(8, 24), torch.randint(1, 12, (BATCH, 4)), torch.tensor([4, 3, 2, 4])
    return written_step(step, model, optimizer, example_args=args)


@written
def spectral_loss() -> WrittenStep:
    """Waveforms compared by magnitudes of short-time spectra at two resolutions."""
    model = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4), nn.Tanh(), nn.Conv1d(16, 1, 9, padding=4))
    optimizer = adam(model)
    windows = {n: torch.hann_window(n) for n in (16, 32)}

    def magnitude(x: Tensor, n: int) -> Tensor:
        s = torch.stft(x, n, n // 4, window=windows[n], return_complex=True)
        return (s.real**2 + s.imag**2 + 1e-7).sqrt()

    def step(x: Tensor, clean: Tensor) -> Tensor:
        y = model(x[:, None])[:, 0]
        loss = x.new_zeros(())
        for n in windows:
            a, b = magnitude(y, n), magnitude(clean, n)
            loss = loss + F.l1_loss(a.log(), b.log()) + (a - b).norm() / b.norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(128), rows(128)))


@written
def fourier_operator() -> WrittenStep:
    """Complex weights on the lowest modes."""
    weight = nn.Parameter(torch.randn(8, 8, 5, dtype=torch.cfloat) * 0.1)
    model = Then(lambda m, x: x, lift=nn.Linear(1, 8), mix=nn.Conv1d(8, 8, 1), drop=nn.Linear(8, 1), weight=weight)
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        h = model.lift(x[..., None]).transpose(1, 2)
        modes = torch.einsum("bix,iox->box", torch.fft.rfft(h)[..., :5], model.weight)
        h = F.gelu(torch.fft.irfft(modes, n=h.shape[-1]) + model.mix(h))
        loss = F.mse_loss(model.drop(h.transpose(1, 2))[..., 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), rows(16)))


# --- acting ---


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


# --- language, adapters, optimizers ---


class Adapted(nn.Module):
    """A frozen linear layer with a product of two small ones beside."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = (
            nn.Parameter(torch.randn(rank, base.in_features) * 0.1),
            nn.Parameter(torch.zeros(base.out_features, rank)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * 2.0


@written
def adapted_frozen_tied() -> WrittenStep:
    """LoRA on a frozen decoder whose output layer is its embedding."""
    table = nn.Embedding(32, 32).requires_grad_(False)
    q, k, v, o = (Adapted(nn.Linear(32, 32)) for _ in range(4))
    model = Then(lambda m, x: x, table=table, q=q, k=k, v=v, o=o, norm=nn.RMSNorm(32))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step(ids: Tensor) -> Tensor:
        h = table(ids[:, :-1])
        x = model.norm(h)
        heads = [each(x).unflatten(-1, (4, 8)).transpose(1, 2) for each in (q, k, v)]
        a = F.scaled_dot_product_attention(*heads, is_causal=True)
        h = h + o(a.transpose(1, 2).flatten(2))
        loss = F.cross_entropy((h @ table.weight.T).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(),))


@written
def accumulated_by_hand() -> WrittenStep:
    """Two halves of the batch, gradients added up, then clipped; the loss with a penalty of large logits."""
    model = nn.Sequential(nn.Embedding(32, 32), nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(ids: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for i in range(2):
            logits = model(ids[2 * i : 2 * i + 2]).flatten(0, 1)
            loss = F.cross_entropy(logits, label[2 * i : 2 * i + 2].flatten(), ignore_index=-100)
            loss = loss + 1e-4 * logits.logsumexp(-1).square().mean()
            (loss / 2).backward()
            total = total + loss.detach() / 2
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total

    return written_step(step, model, optimizer, example_args=(tokens(), tokens()))


@written
def orthogonalised_momentum() -> WrittenStep:
    """Muon for matrices, AdamW for the rest."""
    model = nn.Sequential(
        nn.Embedding(32, 24),
        nn.Linear(24, 48, bias=False),
        nn.SiLU(),
        nn.Linear(48, 24, bias=False),
        nn.RMSNorm(24),
        nn.Linear(24, 32),
    )
    matrices = [model[1].weight, model[3].weight]
    rest = [p for p in model.parameters() if all(p is not m for m in matrices)]
    optimizers = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=1e-3)]

    def step(ids: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(ids).flatten(0, 1), label.flatten())
        for o in optimizers:
            o.zero_grad()
        loss.backward()
        for o in optimizers:
            o.step()
        return loss

    return written_step(step, model, optimizers, example_args=(tokens(), tokens()))


@written
def compiled() -> WrittenStep:
    model = torch.compile(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.MultiMarginLoss()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), classes(8)), schedules={schedule: 100})


@written
def several_tasks() -> WrittenStep:
    """Losses weighed by learned uncertainties, a dictionary in and out."""
    body, heads = (
        layers(16, 32, 32),
        nn.ModuleDict({"kind": nn.Linear(32, 5), "size": nn.Linear(32, 1), "tags": nn.Linear(32, 6)}),
    )
    logs = nn.Parameter(torch.zeros(3))
    model = Then(lambda m, x: x, body=body, heads=heads, logs=logs)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)

    def step(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        h = body(batch["x"])
        found = {name: head(h) for name, head in heads.items()}
        each = torch.stack(
            [
                F.cross_entropy(found["kind"], batch["kind"]),
                F.poisson_nll_loss(found["size"][:, 0], batch["size"]),
                F.multilabel_soft_margin_loss(found["tags"], batch["tags"]),
            ]
        )
        loss = (each * (-logs).exp() + logs).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, **found}

    batch = {"x": rows(16), "kind": classes(5), "size": torch.rand(BATCH), "tags": (torch.rand(BATCH, 6) > 0.5).float()}
    return written_step(step, model, optimizer, example_args=(batch,))


@written
def routed_with_capacity() -> WrittenStep:
    """A mixture with two experts a token, places counted by cumulative sums, and a loss that balances."""
    gate = nn.Linear(16, 4, bias=False)
    up, down = nn.Parameter(torch.randn(4, 16, 32) * 0.1), nn.Parameter(torch.randn(4, 32, 16) * 0.1)
    model = Then(lambda m, x: x, gate=gate, up=up, down=down, out=nn.Linear(16, 8))
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        p = gate(flat).softmax(-1)
        top, which = p.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        chosen = F.one_hot(which, 4).to(x.dtype)
        place = (chosen.flatten(0, 1).cumsum(0).view_as(chosen) * chosen).sum(-1).long() - 1
        kept = (place < 16).to(x.dtype)
        slots = F.one_hot(place.clamp(0, 15), 16).to(x.dtype) * kept[..., None]
        dispatch = torch.einsum("tke,tkc->tec", chosen, slots)
        weights = torch.einsum("tk,tke,tkc->tec", top, chosen, slots)
        h = torch.einsum("tec,td->ecd", dispatch, flat)
        h = torch.bmm(F.gelu(torch.bmm(h, up)), down)
        flat = flat + torch.einsum("tec,ecd->td", weights, h)
        balance = 4 * (p.mean(0) * chosen.sum(1).mean(0)).sum()
        loss = F.cross_entropy(model.out(flat.view_as(x).mean(1)), y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(8, 16), classes(8)))


@written
def sharpness_aware() -> WrittenStep:
    """SAM: two gradients, one at weights moved uphill and back."""
    model = layers(16, 32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        first = F.cross_entropy(model(x), y)
        first.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moved = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            for p, m in zip(model.parameters(), moved, strict=True):
                p.add_(m)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, m in zip(model.parameters(), moved, strict=True):
                p.sub_(m)
        optimizer.step()
        optimizer.zero_grad()
        return first

    return written_step(step, model, optimizer, example_args=(rows(16), classes(8)))


@written
def learned_inside() -> WrittenStep:
    """MAML: a step of gradient descent inside the model, by `torch.func`."""
    model = layers(8, 32, 1)
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor, later: Tensor, aim: Tensor) -> Tensor:
        weights = dict(model.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(model, weights, x), y)
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
        loss = F.mse_loss(torch.func.functional_call(model, fast, later), aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(8), rows(1), rows(8), rows(1)))


@written
def equation_by_vmap() -> WrittenStep:
    """A residual of a differential equation: derivatives of the network in its input, by `torch.func`, over the batch by `vmap`."""
    model = layers(2, 32, 32, 1, activation=nn.Tanh)
    optimizer = adam(model)

    def u(at: Tensor) -> Tensor:
        return model(at)[0]

    def step(at: Tensor, edge: Tensor, known: Tensor) -> Tensor:
        slope = torch.func.vmap(torch.func.grad(u))(at)
        bend = torch.func.vmap(torch.func.hessian(u))(at)
        inside = (slope[:, 0] - 0.1 * bend[:, 1, 1]).square().mean()
        loss = inside + F.mse_loss(model(edge), known)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(2), rows(2), rows(1)))


@written
def stochastic_depth_seq2seq() -> WrittenStep:
    """`nn.Transformer` as it is, in training mode, with a mask of padding and of the future."""
    body = nn.Transformer(32, 4, 1, 1, 64, dropout=0.1, batch_first=True)
    model = Then(lambda m, x: x, body=body, table=nn.Embedding(32, 32, padding_idx=0), out=nn.Linear(32, 32))
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}],
        lr=1e-3,
    )  # fmt: skip

    def step(source: Tensor, target: Tensor) -> Tensor:
        a, b = target[:, :-1], target[:, 1:]
        future = nn.Transformer.generate_square_subsequent_mask(a.shape[1])
        found = body(model.table(source), model.table(a), tgt_mask=future, tgt_is_causal=True)
        loss = F.cross_entropy(model.out(found).flatten(0, 1), b.flatten(), ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(), tokens()))
