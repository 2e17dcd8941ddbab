"""Training steps for benchmarks, as level 1 programs: MetaDist's other two workloads (a wide ResNet-50 and a graph attention network;
Tables 2 to 4 of the paper give the sizes) and a decoder like Llama. Parameters are on the meta device, since nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from xdsl.dialects.builtin import ModuleOp


def imported(make: Any, loss: Any, inputs: Any, training: bool = True) -> ModuleOp:
    """Forward, loss, backward and SGD of `make()` on `inputs()`, the last of which is the label; or only the forward part."""
    import torch

    from distir.frontends.pytorch import import_step, training_step

    with torch.device("meta"):
        model, example = make(), inputs()
    if not training:
        return import_step(model.eval(), example[:-1])
    step = training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), example_args=example)
    return import_step(step, example)


def wide_resnet_step(
    width: int,
    batch: int,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    classes: int = 1000,
    channels: int = 64,
    image: int = 224,
    training: bool = True,
) -> ModuleOp:
    """ResNet-50 (He et al., 2016) whose bottlenecks are `width` channels wide at first instead of 64 (Zagoruyko & Komodakis, 2016),
    on square images. `channels` are those after the first convolution."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    class Bottleneck(nn.Module):
        def __init__(self, entering: int, inside: int, leaving: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(entering, inside, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU()),
                *(nn.Conv2d(inside, inside, 3, stride, 1, bias=False), nn.BatchNorm2d(inside), nn.ReLU()),
                *(nn.Conv2d(inside, leaving, 1, bias=False), nn.BatchNorm2d(leaving)),
            )
            is_same = stride == 1 and entering == leaving
            projection = nn.Conv2d(entering, leaving, 1, stride, bias=False)
            self.around = nn.Identity() if is_same else nn.Sequential(projection, nn.BatchNorm2d(leaving))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.body(x) + self.around(x))

    def make() -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        entering = channels
        for stage, count in enumerate(blocks):
            for i in range(count):
                leaving = 4 * channels << stage
                layers.append(Bottleneck(entering, width << stage, leaving, 2 if stage and not i else 1))
                entering = leaving
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(entering, classes))

    def inputs() -> tuple[Tensor, ...]:
        return torch.zeros(batch, 3, image, image), torch.zeros(batch, dtype=torch.long)

    return imported(make, cross_entropy, inputs, training)


def gat_step(nodes: int, width: int, heads: int, classes: int = 64, layers: int = 1, training: bool = True) -> ModuleOp:
    """Layers of graph attention (Velickovic et al., 2018, equations 1 to 5) of `heads` heads, each `width` wide, over a dense
    adjacency matrix, and a classifier of nodes."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, elu, leaky_relu

    class Layer(nn.Module):
        def __init__(self, entering: int) -> None:
            super().__init__()
            self.project = nn.Linear(entering, heads * width, bias=False)
            self.source, self.target = (nn.Parameter(torch.zeros(heads, width)) for _ in range(2))

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            h = self.project(x).unflatten(-1, (heads, width)).transpose(0, 1)
            scores = (h @ self.source.unsqueeze(2)) + (h @ self.target.unsqueeze(2)).transpose(1, 2)
            scores = leaky_relu(scores, 0.2).masked_fill(adjacency == 0, -1e11)
            return elu(scores.softmax(-1) @ h).transpose(0, 1).flatten(1)

    class GraphAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(heads * width if i else width) for i in range(layers))
            self.classify = nn.Linear(heads * width, classes)

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x, adjacency)
            return self.classify(x)

    def inputs() -> tuple[Tensor, ...]:
        return torch.zeros(nodes, width), torch.zeros(nodes, nodes), torch.zeros(nodes, dtype=torch.long)

    return imported(GraphAttention, cross_entropy, inputs, training)


def llama_step(
    layers: int, width: int, heads: int, kv_heads: int, hidden: int, vocabulary: int, batch: int, sequence: int
) -> ModuleOp:
    """A decoder of RMSNorm, rotary positions, grouped-query attention and SwiGLU (Llama 3; Grattafiori et al., 2024)."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, silu

    size, groups = width // heads, heads // kv_heads

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))

    def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        a, b = x.split(size // 2, -1)
        return x * cosine + torch.cat((-b, a), -1) * sine

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = Norm(), Norm()
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, kv_heads * size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(hidden, width, bias=False)

        def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
            h = self.norm_1(x)
            q, k, v = (f(h).unflatten(-1, (-1, size)).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
            k, v = (t.unsqueeze(2).expand(-1, -1, groups, -1, -1).flatten(1, 2) for t in (k, v))
            weights = (q @ k.transpose(-1, -2) / size**0.5 + mask).softmax(-1)
            x = x + self.o((weights @ v).transpose(1, 2).flatten(2))
            h = self.norm_2(x)
            return x + self.down(silu(self.gate(h)) * self.up(h))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = Norm(), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x, cosine, sine, mask)
            return self.head(self.norm(x))

    def inputs() -> tuple[Tensor, ...]:
        tables = (torch.zeros(sequence, size), torch.zeros(sequence, size), torch.zeros(sequence, sequence))
        return (torch.zeros(batch, sequence, dtype=torch.long), *tables, torch.zeros(batch, sequence, dtype=torch.long))

    return imported(Decoder, lambda logits, labels: cross_entropy(logits.flatten(0, 1), labels.flatten()), inputs)
