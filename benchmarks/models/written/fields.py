"""Training steps as people write them by hand: images, volumes, fields on grids."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, images
from benchmarks.models.written.table import adam, classes, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


class Denoiser(nn.Module):
    """A small U with attention at the bottom, and the time added to every level."""

    def __init__(self) -> None:
        super().__init__()
        self.time = layers(8, 16, 16, activation=nn.SiLU)
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1)
        self.norm, self.qkv, self.out = nn.GroupNorm(4, 16), nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1)
        self.up, self.last = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        w = torch.exp(-math.log(100) * torch.arange(4) / 4)
        angles = t[:, None] * w
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))[..., None, None]
        a = F.silu(self.first(x) + time)
        b = F.silu(self.down(a) + time)
        q, k, v = self.qkv(self.norm(b)).flatten(2).chunk(3, 1)
        weights = (q.transpose(1, 2) @ k / 4).softmax(-1)
        b = b + self.out((v @ weights.transpose(1, 2)).view_as(b))
        b = self.up(F.interpolate(b, scale_factor=2, mode="nearest"))
        return self.last(torch.cat([a, b], 1))


@written
def denoising_images() -> WrittenStep:
    """Prediction of velocity, weighted by the signal, with an average of the weights beside."""
    model = Denoiser()
    average = Denoiser().requires_grad_(False)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(x: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        a, s = torch.cos(t * math.pi / 2)[:, None, None, None], torch.sin(t * math.pi / 2)[:, None, None, None]
        wanted = a * noise - s * x
        error = (model(a * x + s * noise, t) - wanted).square().mean((1, 2, 3))
        weight = torch.minimum((a / s.clamp(min=1e-3)).flatten().square(), torch.tensor(5.0))
        loss = (weight * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
        return loss

    modules = {"model": model, "average": average}
    return written_step(step, modules, optimizer, example_args=(images(size=8), torch.rand(BATCH), images(size=8)))


@written
def warped_by_flow() -> WrittenStep:
    """Two frames, a flow between them, the second sampled along it; differences by census and smoothness."""
    model = nn.Sequential(nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1), nn.Tanh())
    optimizer = adam(model)

    def step(a: Tensor, b: Tensor) -> Tensor:
        flow = model(torch.cat([a, b], 1)) * 0.2
        y, x = torch.meshgrid(torch.linspace(-1, 1, a.shape[2]), torch.linspace(-1, 1, a.shape[3]), indexing="ij")
        grid = torch.stack([x, y], -1) + flow.permute(0, 2, 3, 1)
        warped = F.grid_sample(b, grid, padding_mode="border", align_corners=True)
        near = ((warped - a).square() + 1e-6).pow(0.45).mean()
        smooth = (flow[:, :, 1:] - flow[:, :, :-1]).abs().mean() + (flow[..., 1:] - flow[..., :-1]).abs().mean()
        loss = near + 0.1 * smooth
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(size=8), images(size=8)))


class Deformed(nn.Module):
    """A convolution whose taps are moved: nine samplings, weighted by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.moves, self.weight = nn.Conv2d(4, 27, 3, padding=1), nn.Conv2d(36, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        dy, dx, mask = self.moves(x).chunk(3, 1)
        ky, kx = torch.meshgrid(torch.arange(-1, 2), torch.arange(-1, 2), indexing="ij")
        y = torch.arange(h)[:, None] + ky.reshape(-1, 1, 1) + dy
        z = torch.arange(w) + kx.reshape(-1, 1, 1) + dx
        grid = torch.stack([2 * z / (w - 1) - 1, 2 * y / (h - 1) - 1], -1).view(n, 9 * h, w, 2)
        taken = F.grid_sample(x, grid, align_corners=True).view(n, c, 9, h, w) * mask.sigmoid()[:, None]
        return self.weight(taken.flatten(1, 2))


@written
def deformed_taps() -> WrittenStep:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), Deformed(), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.multi_margin_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(size=8), classes(5)))


@written
def volumes() -> WrittenStep:
    """A U of three dims with trilinear upsampling, instance norms, and a Tversky loss."""
    down = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8, affine=True), nn.LeakyReLU())
    deep = nn.Sequential(
        nn.MaxPool3d(2), nn.Conv3d(8, 16, 3, padding=1), nn.InstanceNorm3d(16, affine=True), nn.LeakyReLU()
    )
    up, out = nn.Upsample(scale_factor=2, mode="trilinear", align_corners=False), nn.Conv3d(24, 2, 1)
    model = nn.ModuleDict({"down": down, "deep": deep, "up": up, "out": out})
    optimizer = adam(model)

    def step(x: Tensor, label: Tensor) -> Tensor:
        a = down(x)
        p = out(torch.cat([a, up(deep(a))], 1)).softmax(1)
        hot = F.one_hot(label, 2).movedim(-1, 1).float()
        dims = (0, 2, 3, 4)
        both, wrong, missed = (p * hot).sum(dims), (p * (1 - hot)).sum(dims), ((1 - p) * hot).sum(dims)
        loss = 1 - ((both + 1) / (both + 0.3 * wrong + 0.7 * missed + 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(1, 4, 4, 4), torch.randint(0, 2, (BATCH, 4, 4, 4))))


@written
def spectra_as_gates() -> WrittenStep:
    """Tokens on a grid, mixed by a product in the frequencies."""
    embed, gate, out = nn.Conv2d(3, 16, 2, 2), nn.Parameter(torch.randn(4, 3, 16, 2) * 0.02), nn.Linear(16, 6)
    norm, mlp = nn.LayerNorm(16), layers(16, 32, 16, activation=nn.GELU)
    model = nn.ModuleDict({"embed": embed, "out": out, "norm": norm, "mlp": mlp})
    model.register_parameter("gate", gate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        h = embed(x).permute(0, 2, 3, 1)
        f = torch.fft.rfft2(norm(h), dim=(1, 2), norm="ortho") * torch.view_as_complex(gate)
        h = h + mlp(torch.fft.irfft2(f, s=h.shape[1:3], dim=(1, 2), norm="ortho"))
        loss = F.cross_entropy(out(h.mean((1, 2))), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(size=8), classes(6)))


@written
def periodic_equation() -> WrittenStep:
    """A network with circular pads, whose residual is a finite difference by rolls."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, padding_mode="circular"), nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1, padding_mode="replicate"),
    )  # fmt: skip
    optimizer = adam(model)

    def step(u: Tensor) -> Tensor:
        v = u + 0.1 * model(u)
        laplacian = sum(v.roll(s, d) for s in (1, -1) for d in (2, 3)) - 4 * v
        slope = (v.roll(-1, 2) - v.roll(1, 2)) / 2
        loss = ((v - u) / 0.1 + v * slope - 0.1 * laplacian).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(1, 8, 8),))


@written
def enlarged_images() -> WrittenStep:
    """Pixel shuffles with attention over channels, beside a bicubic enlargement; losses of edges and of frozen features."""
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(16), nn.Conv2d(16, 16, 3, padding=1))
    squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1), nn.Sigmoid())
    up = nn.Sequential(nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))
    features = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2)).requires_grad_(False)
    model = nn.ModuleDict({"body": body, "squeeze": squeeze, "up": up, "features": features})
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        h = body(x)
        found = up(h * squeeze(h)) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        loss = F.l1_loss(found, y) + 0.1 * F.mse_loss(features(found), features(y))
        variation = (found[..., 1:] - found[..., :-1]).abs().sum() + (found[:, :, 1:] - found[:, :, :-1]).abs().sum()
        loss = loss + 1e-5 * variation
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(size=8), images(size=16)))


@written
def unrolled_equation() -> WrittenStep:
    """Four steps of Runge-Kutta of a network, against a path that was seen."""
    model = layers(4, 32, 32, 4, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    def step(x: Tensor, path: Tensor) -> Tensor:
        found, h = [], 0.1
        for _ in range(path.shape[1]):
            a = model(x)
            b = model(x + h / 2 * a)
            c = model(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + model(x + h * c))
            found.append(x)
        loss = F.mse_loss(torch.stack(found, 1), path)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(4), rows(4, 4)), schedules={schedule: 8})


@written
def standardised_weights() -> WrittenStep:
    class Standard(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
            return F.conv2d(x, w, self.bias, self.stride, self.padding)

    model = nn.Sequential(
        Standard(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.Mish(), nn.MaxPool2d(2), Standard(16, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.Hardswish(),
        nn.Dropout2d(0.1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.nll_loss(model(x).log_softmax(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(), classes(10)))


@written
def matched_keypoints() -> WrittenStep:
    """Heat maps to coordinates by soft argmax, matched by pairs of places of two images."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 5, 3, padding=1))
    optimizer = adam(model)

    def step(x: Tensor, places: Tensor) -> Tensor:
        heat = model(x)
        p = heat.flatten(2).softmax(-1).view_as(heat)
        y, z = (p.sum(3) @ torch.linspace(0, 1, p.shape[2]), p.sum(2) @ torch.linspace(0, 1, p.shape[3]))
        found = torch.stack([y, z], -1)
        far = torch.cdist(found, places).min(-1).values.mean() + torch.cdist(places, found).min(-1).values.mean()
        spread = (p * p.clamp(min=1e-9).log()).sum((2, 3)).mean()
        loss = far - 0.01 * spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(images(size=8), torch.rand(BATCH, 5, 2)))
