"""Training steps as people write them by hand: generating."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then, images
from benchmarks.models.written.table import adam, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


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
