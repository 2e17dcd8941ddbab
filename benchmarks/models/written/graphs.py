"""Training steps as people write them by hand: graphs, sets of points, tables of entities."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.plain import BATCH
from benchmarks.models.written.table import adam, layers, rows, written
from distir.frontends.pytorch import WrittenStep, written_step

NODES, EDGES = 8, 16


@written
def attention_over_edges() -> WrittenStep:
    """A graph attention network over one graph: softmax over the edges that end in a node."""
    first, second = nn.Linear(6, 16, bias=False), nn.Linear(16, 3)
    ends = nn.Parameter(torch.randn(2, 4, 4) * 0.1)
    model = nn.ModuleDict({"first": first, "second": second})
    model.register_parameter("ends", ends)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    def step(x: Tensor, edges: Tensor, label: Tensor, mask: Tensor) -> Tensor:
        source, target = edges
        h = first(x).view(-1, 4, 4)
        score = F.leaky_relu((h * ends[0]).sum(-1)[source] + (h * ends[1]).sum(-1)[target], 0.2)
        to = target[:, None].expand_as(score)
        most = torch.full((len(x), 4), -1e9).scatter_reduce(0, to, score, "amax")
        weight = (score - most[target].detach()).exp()
        total = torch.zeros(len(x), 4).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-16)
        out = torch.zeros(len(x), 4, 4).index_add(0, target, h[source] * weight[..., None])
        logits = second(F.elu(out.flatten(1)))
        loss = (F.cross_entropy(logits, label, reduction="none") * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    edges = torch.randint(0, NODES, (2, EDGES))
    args = torch.randn(NODES, 6), edges, torch.randint(0, 3, (NODES,)), (torch.rand(NODES) > 0.3).float()
    return written_step(step, model, optimizer, example_args=args)


@written
def molecules() -> WrittenStep:
    """Graphs padded to a size, messages along edges by gather and scatter, sums over nodes that are there."""
    embed, message = nn.Embedding(8, 16), layers(32 + 4, 32, 16)
    update, out = nn.GRUCell(16, 16), layers(16, 16, 1)
    model = nn.ModuleDict({"embed": embed, "message": message, "cell": update, "out": out})
    optimizer = adam(model)

    def step(atoms: Tensor, edges: Tensor, bonds: Tensor, energy: Tensor) -> Tensor:
        h = embed(atoms)
        for _ in range(2):
            a = h.gather(1, edges[..., :1].expand(-1, -1, 16))
            b = h.gather(1, edges[..., 1:].expand(-1, -1, 16))
            m = message(torch.cat([a, b, bonds], -1))
            m = torch.zeros_like(h).scatter_add(1, edges[..., 1:].expand(-1, -1, 16), m)
            h = update(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        there = (atoms > 0).float()[..., None]
        loss = F.l1_loss((out(h) * there).sum((1, 2)), energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    args = torch.randint(0, 8, (BATCH, 5)), torch.randint(0, 5, (BATCH, 8, 2)), rows(8, 4), torch.randn(BATCH)
    return written_step(step, model, optimizer, example_args=args)


@written
def pooled_by_graph() -> WrittenStep:
    """Nodes of several graphs one after another, with the number of the graph of each; a dense adjacency."""
    first, second, out = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 2)
    model = nn.ModuleDict({"first": first, "second": second, "out": out})
    optimizer = adam(model)

    def step(x: Tensor, adjacency: Tensor, graph: Tensor, label: Tensor) -> Tensor:
        degree = adjacency.sum(-1, keepdim=True).clamp(min=1)
        h = F.relu(first(adjacency @ x / degree))
        h = F.relu(second(adjacency @ h / degree))
        count = torch.zeros(BATCH).index_add(0, graph, torch.ones(len(x)))
        pooled = torch.zeros(BATCH, 16).index_add(0, graph, h) / count.clamp(min=1)[:, None]
        loss = F.cross_entropy(out(pooled), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    args = (
        torch.randn(NODES, 6),
        (torch.rand(NODES, NODES) > 0.6).float(),
        torch.arange(NODES) // 2,
        torch.randint(0, 2, (BATCH,)),
    )
    return written_step(step, model, optimizer, example_args=args)


@written
def moving_points() -> WrittenStep:
    """An equivariant network: distances of all pairs, and vectors that are scaled."""
    edge, node, move = layers(33, 32, 16, activation=nn.SiLU), layers(32, 32, 16, activation=nn.SiLU), layers(16, 16, 1)
    model = nn.ModuleDict({"edge": edge, "node": node, "move": move})
    optimizer = adam(model)

    def step(h: Tensor, x: Tensor, after: Tensor) -> Tensor:
        n, start = h.shape[1], x
        other = 1 - torch.eye(n)[..., None]
        for _ in range(2):
            far = x[:, :, None] - x[:, None]
            near = far.square().sum(-1, keepdim=True)
            pairs = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), near], -1)
            m = edge(pairs) * other
            x = x + (far / (near + 1e-8).sqrt().add(1) * move(m)).sum(2) / (n - 1)
            h = h + node(torch.cat([h, m.sum(2)], -1))
        loss = (x - start - after).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(4, 16), rows(4, 3), rows(4, 3)))


@written
def nearest_points() -> WrittenStep:
    """Edge convolutions over the nearest points, maxima over them."""
    first, second, out = layers(6, 16, activation=nn.ReLU), layers(32, 32), nn.Linear(32, 4)
    model = nn.ModuleDict({"first": first, "second": second, "out": out})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def edges(x: Tensor, k: int = 3) -> Tensor:
        chosen = torch.cdist(x, x).topk(k, largest=False).indices
        batch = torch.arange(x.shape[0])[:, None, None]
        near = x[batch, chosen]
        middle = x[:, :, None].expand_as(near)
        return torch.cat([near - middle, middle], -1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        h = F.leaky_relu(first(edges(x)).amax(2), 0.2)
        h = F.leaky_relu(second(edges(h)).amax(2), 0.2)
        loss = F.cross_entropy(out(h.amax(1)), label, label_smoothing=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=(rows(6, 3), torch.randint(0, 4, (BATCH,))))


@written
def translated_entities() -> WrittenStep:
    """Entities and relations as vectors, with a margin to corrupted triples."""
    entities, relations = nn.Embedding(32, 16), nn.Embedding(8, 16)
    model = nn.ModuleDict({"entities": entities, "relations": relations})
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    def step(triples: Tensor, wrong: Tensor) -> Tensor:
        def far(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
            h, t = F.normalize(entities(head), dim=-1), F.normalize(entities(tail), dim=-1)
            return (h + relations(relation) - t).norm(p=1, dim=-1)

        head, relation, tail = triples.unbind(1)
        loss = F.margin_ranking_loss(
            far(head, relation, wrong), far(head, relation, tail), torch.ones(len(head)), margin=1.0
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    triples = torch.stack(
        [torch.randint(0, 32, (BATCH,)), torch.randint(0, 8, (BATCH,)), torch.randint(0, 32, (BATCH,))], 1
    )
    return written_step(step, model, optimizer, example_args=(triples, torch.randint(0, 32, (BATCH,))))


@written
def personal_ranking() -> WrittenStep:
    """Factors of users and items with biases, by pairs of a chosen and another item."""
    users, items, bias = nn.Embedding(16, 8), nn.Embedding(32, 8), nn.Embedding(32, 1)
    model = nn.ModuleDict({"people": users, "things": items, "bias": bias})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(user: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
        def score(item: Tensor) -> Tensor:
            return (users(user) * items(item)).sum(-1) + bias(item).squeeze(-1)

        kept = users(user).square().sum() + items(chosen).square().sum() + items(other).square().sum()
        loss = -F.logsigmoid(score(chosen) - score(other)).mean() + 1e-3 * kept / len(user)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    args = torch.randint(0, 16, (BATCH,)), torch.randint(0, 32, (BATCH,)), torch.randint(0, 32, (BATCH,))
    return written_step(step, model, optimizer, example_args=args)


@written
def survival() -> WrittenStep:
    """Cox's partial likelihood: each event against all that were at risk, in the batch."""
    model = layers(12, 32, 1, activation=nn.SELU)
    optimizer = adam(model)

    def step(x: Tensor, time: Tensor, event: Tensor) -> Tensor:
        order = time.argsort(descending=True)
        risk = model(x).squeeze(-1)[order]
        loss = -((risk - risk.logcumsumexp(0)) * event[order]).sum() / event.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(
        step, model, optimizer, example_args=(rows(12), torch.rand(BATCH), torch.tensor([1.0, 0, 1, 1]))
    )


@written
def listwise_ranking() -> WrittenStep:
    model = layers(10, 32, 16, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Tensor, gain: Tensor, there: Tensor) -> Tensor:
        score = model(x).squeeze(-1).masked_fill(~there, -1e9)
        wanted = gain.masked_fill(~there, -1e9).softmax(-1)
        listed = -(wanted * score.log_softmax(-1)).sum(-1)
        pairs = F.softplus(-(score[:, :, None] - score[:, None])) * (gain[:, :, None] > gain[:, None]) * there[:, None]
        loss = (listed + pairs.sum((1, 2))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    there = torch.arange(6) < torch.tensor([6, 5, 3, 4])[:, None]
    return written_step(
        step, model, optimizer, example_args=(rows(6, 10), torch.randint(0, 4, (BATCH, 6)).float(), there)
    )
