"""Training steps as people write them by hand: sequences."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH, tokens
from benchmarks.models.written.table import adam, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step


class Grouped(nn.Module):
    """A decoder's layer: two key heads for four query heads, positions as rotations of complex numbers, a gated feed-forward part."""

    def __init__(self, width: int = 32, length: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv, self.o = (nn.Linear(width, n, bias=False) for n in (width, width, width))
        self.gate, self.up, self.down = nn.Linear(width, 64), nn.Linear(width, 64), nn.Linear(64, width)
        angles = torch.outer(torch.arange(length), 1.0 / 100 ** (torch.arange(4) / 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotated(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.turns[:, None]).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        q = self.rotated(self.q(h).unflatten(-1, (4, 8)))
        k, v = self.kv(h).unflatten(-1, (4, 8)).chunk(2, -2)
        k = self.rotated(k)
        k, v = (t.repeat_interleave(2, -2).transpose(1, 2) for t in (k, v))
        h = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).flatten(-2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@written
def grouped_queries() -> WrittenStep:
    embed = nn.Embedding(32, 32)
    body = nn.Sequential(Grouped(), Grouped(), nn.RMSNorm(32))
    model = nn.ModuleDict({"embed": embed, "body": body})
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)

    def step(ids: Tensor, label: Tensor) -> Tensor:
        logits = body(embed(ids)) @ embed.weight.t()
        loss = F.cross_entropy(logits.flatten(0, 1), label.flatten(), ignore_index=0)
        loss = loss + 1e-4 * logits.logsumexp(-1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(8), tokens(8)))


@written
def transducer() -> WrittenStep:
    """RNN-T: a joint network over frames and labels, and the sum over alignments by the forward algorithm."""
    encoder, predictor = nn.GRU(12, 16, batch_first=True), nn.Embedding(8, 16)
    joint = nn.Linear(16, 8)
    model = nn.ModuleDict({"encoder": encoder, "predictor": predictor, "joint": joint})
    optimizer = adam(model)

    def step(x: Tensor, label: Tensor) -> Tensor:
        frames, _ = encoder(x)
        before = F.pad(label, (1, 0))
        logits = joint(torch.tanh(frames[:, :, None] + predictor(before)[:, None])).log_softmax(-1)
        blank, emit = (
            logits[..., 0],
            logits[:, :, :-1].gather(-1, label[:, None, :, None].expand(-1, x.shape[1], -1, 1)).squeeze(-1),
        )
        alpha = torch.cat([torch.zeros_like(emit[:, 0, :1]), emit[:, 0].cumsum(1)], 1)
        for t in range(1, x.shape[1]):
            stay = alpha + blank[:, t - 1]
            row = [stay[:, 0]]
            for u in range(label.shape[1]):
                row.append(torch.logaddexp(stay[:, u + 1], row[-1] + emit[:, t, u]))
            alpha = torch.stack(row, 1)
        loss = -(alpha[:, -1] + blank[:, -1, -1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(5, 12), torch.randint(1, 8, (BATCH, 3))))


@written
def scan_by_doubling() -> WrittenStep:
    """A gated linear recurrence as a prefix scan in log(length) steps."""
    into, gates, out = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 8)
    model = nn.ModuleDict({"into": into, "gates": gates, "out": out})
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        a = gates(x).sigmoid()
        b = (1 - a) * into(x)
        reach = 1
        while reach < x.shape[1]:
            before_a = F.pad(a[:, :-reach], (0, 0, reach, 0), value=1.0)
            before_b = F.pad(b[:, :-reach], (0, 0, reach, 0))
            a, b, reach = a * before_a, b + a * before_b, 2 * reach
        loss = F.smooth_l1_loss(out(b), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(8, 8), rows(8, 8)))


@written
def chunks_of_states() -> WrittenStep:
    """Mamba 2's duality: masked products inside chunks, and a recurrence between them."""
    into, out = nn.Linear(16, 16 + 4 + 4 + 2), nn.Linear(16, 16)
    log = nn.Parameter(torch.zeros(2))
    model = nn.ModuleDict({"into": into, "out": out})
    model.register_parameter("log", log)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def sums(x: Tensor) -> Tensor:
        length = x.shape[-1]
        c = x.cumsum(-1)
        d = c[..., :, None] - c[..., None, :]
        return d.masked_fill(~torch.ones(length, length, dtype=torch.bool).tril(), -torch.inf)

    def step(u: Tensor, y: Tensor) -> Tensor:
        x, b, c, dt = into(u).split([16, 4, 4, 2], -1)
        dt = F.softplus(dt)
        x = (x.unflatten(-1, (2, 8)) * dt[..., None]).unflatten(1, (2, 4))
        a = (-log.exp() * dt).unflatten(1, (2, 4)).permute(0, 3, 1, 2)
        b, c = b.unflatten(1, (2, 4)), c.unflatten(1, (2, 4))
        inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, sums(a).exp(), x)
        left = (a.cumsum(-1)[..., -1:] - a.cumsum(-1)).exp()
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, left, x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
        carry = sums(F.pad(a.sum(-1), (1, 0))).exp()
        states = torch.einsum("bhzc,bchpn->bzhpn", carry, states)[:, :-1]
        across = torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, a.cumsum(-1).exp())
        loss = F.mse_loss(out((inside + across).flatten(1, 2).flatten(-2)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(8, 16), rows(8, 16)))


class Carried(nn.Module):
    """A language model of two recurrent layers, tied to its embedding; the state of the stream before is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(32, 16), nn.LSTM(16, 16, 2, batch_first=True)
        self.out = nn.Linear(16, 32, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("h", torch.zeros(2, BATCH, 16))
        self.register_buffer("c", torch.zeros(2, BATCH, 16))

    def forward(self, ids: Tensor) -> Tensor:
        y, (h, c) = self.lstm(self.embed(ids), (self.h.clone(), self.c.clone()))
        self.h.copy_(h.detach())
        self.c.copy_(c.detach())
        return self.out(y)


@written
def truncated_through_time() -> WrittenStep:
    model = Carried()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(ids: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(ids).flatten(0, 1), label.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(), tokens()))


@written
def retention() -> WrittenStep:
    q, k, v, g, o = (nn.Linear(16, 16, bias=False) for _ in range(5))
    norm = nn.GroupNorm(2, 16)
    model = nn.ModuleDict({"q": q, "k": k, "v": v, "g": g, "o": o, "norm": norm})
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
    decay = torch.log(1 - 2.0 ** (-3 - torch.arange(2.0)))

    def step(x: Tensor, y: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        far = place[:, None] - place
        mask = torch.where(far >= 0, (far * decay[:, None, None]).exp(), 0.0)
        heads = [p(x).unflatten(-1, (2, 8)).transpose(1, 2) for p in (q, k, v)]
        scores = heads[0] @ heads[1].transpose(-1, -2) / 8**0.5 * mask
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1)
        h = (scores @ heads[2]).transpose(1, 2).flatten(-2)
        h = norm(h.flatten(0, 1)).view_as(x) * F.silu(g(x))
        loss = F.huber_loss(o(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(6, 16), rows(6, 16)))


@written
def translating_with_padding() -> WrittenStep:
    source, target = nn.Embedding(32, 16, padding_idx=0), nn.Embedding(32, 16, padding_idx=0)
    body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    out = nn.Linear(16, 32)
    model = nn.ModuleDict({"source": source, "target": target, "body": body, "out": out})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) ** -0.5, (n + 1) * 4**-1.5))

    def step(src: Tensor, tgt: Tensor) -> Tensor:
        given, wanted = tgt[:, :-1], tgt[:, 1:]
        causal = nn.Transformer.generate_square_subsequent_mask(given.shape[1])
        h = body(
            source(src) * math.sqrt(16), target(given) * math.sqrt(16), tgt_mask=causal,
            src_key_padding_mask=src == 0, tgt_key_padding_mask=given == 0, memory_key_padding_mask=src == 0,
        )  # fmt: skip
        loss = F.cross_entropy(out(h).transpose(1, 2), wanted, ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm.step()
        return loss

    src, tgt = torch.randint(1, 32, (BATCH, 6)), torch.randint(1, 32, (BATCH, 6))
    src[1, 4:] = 0
    tgt[2, 3:] = 0
    return written_step(step, model, optimizer, example_args=(src, tgt), schedules={warm: 8})


@written
def pointing() -> WrittenStep:
    """A pointer network: each step of the decoder chooses a place of the input that it has not chosen."""
    encoder, cell = nn.LSTM(2, 16, batch_first=True), nn.LSTMCell(2, 16)
    left, right, score = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
    model = nn.ModuleDict({"encoder": encoder, "cell": cell, "left": left, "right": right, "score": score})
    optimizer = adam(model)

    def step(points: Tensor, order: Tensor) -> Tensor:
        memory, (h, c) = encoder(points)
        h, c, given, loss = h[0], c[0], points.mean(1), 0.0
        seen = torch.zeros_like(order, dtype=torch.bool)
        for t in range(order.shape[1]):
            h, c = cell(given, (h, c))
            logits = score(torch.tanh(left(memory) + right(h)[:, None])).squeeze(-1).masked_fill(seen, -1e9)
            chosen = order[:, t]
            loss = loss + F.cross_entropy(logits, chosen)
            seen = seen.scatter(1, chosen[:, None], True)
            given = points.gather(1, chosen[:, None, None].expand(-1, 1, 2)).squeeze(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    order = torch.stack([torch.randperm(4) for _ in range(BATCH)])
    return written_step(step, model, optimizer, example_args=(rows(4, 2), order))


@written
def words_by_neighbours() -> WrittenStep:
    """Skip-grams with negative samples, over bags of character n-grams."""
    bags, context = nn.EmbeddingBag(64, 16, mode="mean"), nn.Embedding(32, 16)
    model = nn.ModuleDict({"bags": bags, "context": context})
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    def step(grams: Tensor, near: Tensor, far: Tensor) -> Tensor:
        h = bags(grams)
        right = F.logsigmoid((h * context(near)).sum(-1))
        wrong = F.logsigmoid(-torch.bmm(context(far), h[..., None]).squeeze(-1)).sum(-1)
        loss = -(right + wrong).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(5, 64), torch.randint(0, 32, (BATCH,)), tokens(6)))


@written
def several_tokens_ahead() -> WrittenStep:
    """A prompt of free vectors before a frozen body, and heads for the next, second and third token."""
    embed = nn.Embedding(32, 32).requires_grad_(False)
    body = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).requires_grad_(False)
    prompt = nn.Parameter(torch.randn(1, 3, 32) * 0.02)
    heads = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
    model = nn.ModuleDict({"embed": embed, "body": body, "heads": heads})
    model.register_parameter("prompt", prompt)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step(ids: Tensor) -> dict[str, Tensor]:
        x = torch.cat([prompt.expand(len(ids), -1, -1), embed(ids)], 1)
        h = body(x, src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True)[:, 3:]
        losses = [
            F.cross_entropy(head(h)[:, :-ahead].flatten(0, 1), ids[:, ahead:].flatten())
            for ahead, head in enumerate(heads, 1)
        ]
        loss = sum(0.5**i * each for i, each in enumerate(losses))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {f"head{i}": each.detach() for i, each in enumerate(losses)}

    return written_step(step, model, optimizer, example_args=(tokens(8),))


@written
def experts_with_balance() -> WrittenStep:
    gate = nn.Linear(16, 4, bias=False)
    up, down = nn.Parameter(torch.randn(4, 16, 32) / 4), nn.Parameter(torch.randn(4, 32, 16) / 6)
    model = nn.ModuleDict({"gate": gate, "shared": layers(16, 32, 16, activation=nn.SiLU)})
    model.register_parameter("up", up)
    model.register_parameter("down", down)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)

    def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(0, 1)
        p = gate(flat).softmax(-1)
        weight, chosen = p.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        mix = torch.zeros_like(p).scatter(-1, chosen, weight)
        h = F.gelu(torch.einsum("td,edf->tef", flat, up))
        out = torch.einsum("tef,efd,te->td", h, down, mix) + model["shared"](flat)
        share = F.one_hot(chosen, 4).float().sum(1).mean(0)
        balance = 4 * (share * p.mean(0)).sum()
        error = F.mse_loss(out.view_as(x), y)
        optimizer.zero_grad()
        (error + 0.01 * balance).backward()
        optimizer.step()
        return {"error": error.detach(), "balance": balance.detach()}

    return written_step(step, model, optimizer, example_args=(rows(6, 16), rows(6, 16)))


@written
def tagging_a_chain() -> WrittenStep:
    """The negative log-likelihood of a linear chain: forward algorithm, scores by gather, masks of lengths."""
    embed, out = nn.Embedding(32, 16), nn.Linear(16, 5)
    moves = nn.Parameter(torch.randn(5, 5) * 0.1)
    model = nn.ModuleDict({"embed": embed, "out": out})
    model.register_parameter("moves", moves)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(ids: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        scores = out(embed(ids))
        each = scores.gather(-1, tags[..., None]).squeeze(-1) * mask
        pairs = moves[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        total = scores[:, 0]
        for t in range(1, ids.shape[1]):
            more = torch.logsumexp(total[:, :, None] + moves, 1) + scores[:, t]
            total = torch.where(mask[:, t, None] > 0, more, total)
        loss = (total.logsumexp(-1) - each.sum(1) - pairs.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    mask = (torch.arange(6) < torch.tensor([6, 4, 5, 3])[:, None]).float()
    return written_step(step, model, optimizer, example_args=(tokens(), tokens(most=5), mask))


@written
def memory_of_slots() -> WrittenStep:
    """A cache that every step overwrites at a place of its own, and reads by attention."""
    into, query, out = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)
    model = nn.ModuleDict({"into": into, "query": query, "out": out})
    optimizer = adam(model)

    def step(x: Tensor, place: Tensor, y: Tensor) -> Tensor:
        memory = x.new_zeros(x.shape[0], 5, 16)
        batch, found = torch.arange(x.shape[0]), []
        for t in range(x.shape[1]):
            memory = memory.index_put((batch, place[:, t]), into(x[:, t]))
            weights = torch.einsum("bd,bsd->bs", query(x[:, t]), memory).softmax(-1)
            found.append(torch.einsum("bs,bsd->bd", weights, memory))
        loss = F.l1_loss(out(torch.stack(found, 1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(3, 8), torch.randint(0, 5, (BATCH, 3)), rows(3, 8)))


@written
def means_so_far() -> WrittenStep:
    """Attention without scores: every place has the mean of those before it, beside a decayed sum."""
    embed, mix, out = nn.Embedding(32, 16), nn.Linear(32, 32), nn.Linear(32, 32)
    model = nn.ModuleDict({"embed": embed, "mix": mix, "out": out})
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)

    def step(ids: Tensor, label: Tensor) -> Tensor:
        x = embed(ids)
        mean = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        best = x.cummax(1).values
        h = F.elu(mix(torch.cat([mean, best], -1)))
        loss = F.cross_entropy(out(h).permute(0, 2, 1), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(tokens(), tokens()))
