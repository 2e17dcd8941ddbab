"""Training steps as people write them by hand: statistics of batches, buffers that the forward pass updates, weights that are made of others."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from benchmarks.models.plain import BATCH, images, tokens
from benchmarks.models.written.table import adam, classes, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


class Residual(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


@written
def residual_with_batch_norm() -> WrittenStep:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "right": (logits.argmax(1) == y).float().mean()}

    return written_step(step, model, optimizer, example_args=(images(), classes(10)))


@written
def spectrally_normed_judge() -> WrittenStep:
    """Hinge losses; the judge's weights are divided by their largest singular values, whose vectors are buffers; the maker has batch norms."""
    makes = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 12))
    judges = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(12, 32)),
        nn.LeakyReLU(0.2),
        parametrizations.spectral_norm(nn.Linear(32, 1)),
    )
    a, b = torch.optim.Adam(makes.parameters(), lr=1e-4), torch.optim.Adam(judges.parameters(), lr=4e-4)

    def step(x: Tensor, z: Tensor) -> dict[str, Tensor]:
        made = makes(z)
        judged = F.relu(1 - judges(x)).mean() + F.relu(1 + judges(made.detach())).mean()
        b.zero_grad()
        judged.backward()
        b.step()
        loss = -judges(makes(z)).mean()
        a.zero_grad()
        loss.backward()
        a.step()
        return {"judged": judged.detach(), "made": loss.detach()}

    return written_step(step, {"makes": makes, "judges": judges}, [a, b], example_args=(rows(12), rows(8)))


@written
def weight_normed_waves() -> WrittenStep:
    class Layer(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.pad = dilation
            self.conv = parametrizations.weight_norm(nn.Conv1d(8, 16, 2, dilation=dilation))
            self.out = parametrizations.weight_norm(nn.Conv1d(8, 8, 1))

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
            return x + self.out(a.tanh() * b.sigmoid())

    model = nn.Sequential(nn.Conv1d(1, 8, 1), Layer(1), Layer(2), Layer(4), nn.ReLU(), nn.Conv1d(8, 16, 1))
    optimizer = adam(model)

    def step(x: Tensor) -> Tensor:
        level = ((x.squeeze(1) + 1) / 2 * 15).round().long().clamp(0, 15)
        loss = F.cross_entropy(model(x)[..., :-1], level[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(torch.rand(BATCH, 1, 16) * 2 - 1,))


@written
def mean_teacher() -> WrittenStep:
    student = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = adam(student)

    def step(x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        logits = student(x)
        with torch.no_grad():
            soft = teacher(x + 0.1 * noise).softmax(-1)
        loss = F.cross_entropy(logits, y) + F.mse_loss(logits.softmax(-1), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(teacher.parameters(), student.parameters(), strict=True):
                a.lerp_(b, 0.01)
        return loss

    return written_step(
        step, {"student": student, "teacher": teacher}, optimizer, example_args=(rows(12), classes(5), rows(12))
    )


class Codebook(nn.Module):
    """Vectors that follow the mean of what is nearest to them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(16, 8))
        self.register_buffer("sums", torch.randn(16, 8))
        self.register_buffer("counts", torch.ones(16))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        flat = z.reshape(-1, 8)
        chosen = torch.cdist(flat, self.codes).argmin(-1)
        quantised = F.embedding(chosen, self.codes).view_as(z)
        with torch.no_grad():
            hot = F.one_hot(chosen, 16).float()
            self.counts.mul_(0.99).add_(hot.sum(0), alpha=0.01)
            self.sums.mul_(0.99).add_(hot.t() @ flat, alpha=0.01)
            self.codes.copy_(self.sums / (self.counts + 1e-5)[:, None])
        return z + (quantised - z).detach(), F.mse_loss(z, quantised.detach())


@written
def codebook_by_averages() -> WrittenStep:
    encode, codes, decode = nn.Linear(12, 8), Codebook(), nn.Linear(8, 12)
    model = nn.ModuleDict({"encode": encode, "codes": codes, "decode": decode})
    optimizer = adam(encode, decode)

    def step(x: Tensor) -> Tensor:
        z, commitment = codes(encode(x))
        loss = F.mse_loss(decode(z), x) + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(4, 12),))


@written
def variance_and_covariance() -> WrittenStep:
    """VICReg: two views close, each feature varied, features uncorrelated."""
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(a: Tensor, b: Tensor) -> Tensor:
        x, y = model(a), model(b)
        loss = F.mse_loss(x, y) * 25
        for z in (x, y):
            z = z - z.mean(0)
            loss = loss + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() * 12.5
            c = z.t() @ z / (len(z) - 1)
            loss = loss + (c.square().sum() - c.diagonal().square().sum()) / 16
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(12), rows(12)))


@written
def angular_margin() -> WrittenStep:
    """Faces: a margin of the angle to the own class, and the distance to a centre that follows."""
    body, faces = layers(16, 32, 8), nn.Parameter(torch.randn(6, 8))
    model = nn.ModuleDict({"body": body})
    model.register_parameter("faces", faces)
    model.register_buffer("centres", torch.zeros(6, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        h = body(x)
        cosine = F.linear(F.normalize(h), F.normalize(faces)).clamp(-1 + 1e-7, 1 - 1e-7)
        hot = F.one_hot(y, 6).float()
        logits = 16 * torch.cos(cosine.acos() + 0.3 * hot)
        loss = F.cross_entropy(logits, y) + 0.01 * (h - model.centres[y]).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.centres.index_add_(0, y, h.detach() - model.centres[y], alpha=0.1)
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), classes(6)))


class Rounded(nn.Module):
    """A layer whose weights and inputs are rounded to eight bits; the largest input so far is a buffer."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.linear = nn.Linear(a, b)
        self.register_buffer("most", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.most.copy_(torch.maximum(self.most * 0.99, x.detach().abs().max()))
        scale, w = self.most / 127, self.linear.weight
        rounded = (x / scale).round().clamp(-128, 127) * scale
        scales = w.detach().abs().amax(1, keepdim=True) / 127
        weight = (w / scales).round().clamp(-128, 127) * scales
        return F.linear(x + (rounded - x).detach(), w + (weight - w).detach(), self.linear.bias)


@written
def aware_of_rounding() -> WrittenStep:
    model = nn.Sequential(Rounded(16, 32), nn.ReLU(), Rounded(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), classes(10)))


@written
def ensemble_by_vmap() -> WrittenStep:
    members = nn.ParameterDict(
        {
            "w1": torch.randn(3, 12, 16) / 3,
            "b1": torch.zeros(3, 16),
            "w2": torch.randn(3, 16, 1) / 4,
            "b2": torch.zeros(3, 1),
        }
    )
    optimizer = torch.optim.Adam(members.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        def one(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
            return ((x @ w1 + b1).relu() @ w2 + b2).squeeze(-1)

        found = torch.vmap(one)(members["w1"], members["b1"], members["w2"], members["b2"])
        loss = (found - y).square().mean(1).sum() - 0.1 * found.var(0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, members, optimizer, example_args=(rows(12), torch.randn(BATCH)))


@written
def adapted_by_direction() -> WrittenStep:
    """DoRA: a frozen weight plus a product of two thin ones, normed by column, times a length; in bfloat16 by autocast."""
    base = nn.Linear(16, 32).requires_grad_(False)
    head = nn.Linear(32, 4)
    a, b = nn.Parameter(torch.randn(2, 16) * 0.1), nn.Parameter(torch.zeros(32, 2))
    length = nn.Parameter(base.weight.detach().norm(dim=1, keepdim=True))
    model = nn.ModuleDict({"base": base, "head": head})
    for name, p in (("a", a), ("b", b), ("length", length)):
        model.register_parameter(name, p)
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            w = base.weight + b @ a
            w = length * w / w.norm(dim=1, keepdim=True).detach()
            logits = head(F.gelu(F.linear(x, w, base.bias)))
        loss = F.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(16), classes(4)))


@written
def layerwise_rates() -> WrittenStep:
    """LAMB, by hand: each weight's step is scaled by its length over the step's."""
    model = nn.Sequential(
        nn.Embedding(32, 16), nn.Flatten(), nn.Linear(96, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)
    )
    first = nn.ParameterList(torch.zeros_like(p) for p in model.parameters()).requires_grad_(False)
    second = nn.ParameterList(torch.zeros_like(p) for p in model.parameters()).requires_grad_(False)

    def step(ids: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(ids), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g, m, v in zip(model.parameters(), grads, first, second, strict=True):
                m.lerp_(g, 0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                u = m / (v.sqrt() + 1e-6) + 0.01 * p
                size, moved = p.norm(), u.norm()
                trust = torch.where((size > 0) & (moved > 0), size / moved, 1.0)
                p.sub_(1e-2 * trust * u)
        return loss.detach()

    modules = {"model": model, "first": first, "second": second}
    return written_step(step, modules, example_args=(tokens(), classes(8)))


@written
def weights_from_a_network() -> WrittenStep:
    """Each row has weights of its own, which a network makes from its context."""
    makes = layers(6, 32, 8 * 4 + 4)
    optimizer = torch.optim.Rprop(makes.parameters(), lr=1e-3)

    def step(context: Tensor, x: Tensor, y: Tensor) -> Tensor:
        w, b = makes(context).split([32, 4], -1)
        out = torch.einsum("bni,bio->bno", x, w.view(-1, 8, 4)) + b[:, None]
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, makes, optimizer, example_args=(rows(6), rows(5, 8), rows(5, 4)))


@written
def quantiles_with_dropout() -> WrittenStep:
    model = nn.Sequential(nn.Linear(12, 32), nn.Dropout(0.2), nn.PReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.ASGD(model.parameters(), lr=1e-2)
    levels = torch.tensor([0.1, 0.5, 0.9])

    def step(x: Tensor, y: Tensor) -> Tensor:
        error = y[:, None] - model(x)
        loss = torch.maximum(levels * error, (levels - 1) * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(12), torch.randn(BATCH)))


@written
def choices_by_gumbel() -> WrittenStep:
    encode, decode = layers(16, 32, 12), layers(12, 32, 16)
    optimizer = adam(encode, decode)

    def step(x: Tensor) -> Tensor:
        logits = encode(x).unflatten(-1, (3, 4))
        z = F.gumbel_softmax(logits, tau=0.7, hard=True).flatten(1)
        p = logits.softmax(-1)
        kl = (p * (p * 4).clamp(min=1e-6).log()).sum((1, 2)).mean()
        loss = F.binary_cross_entropy_with_logits(decode(z), x.sigmoid()) + 0.1 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, {"encode": encode, "decode": decode}, optimizer, example_args=(rows(16),))
