"""Training steps as people write them by hand: vision."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then, images
from benchmarks.models.written.table import adam, classes, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


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
