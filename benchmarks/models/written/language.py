"""Training steps as people write them by hand: language, adapters, optimizers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, Then, tokens
from benchmarks.models.written.table import adam, classes, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


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
