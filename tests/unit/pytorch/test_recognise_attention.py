"""Attention that PyTorch models spell out becomes one operation, forward and backward, with equal values in double precision; where the pattern does not hold,
nothing changes."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate.analysis import Analysis
from distir.passes.recognise_attention import RecogniseAttentionPass

BATCH, LENGTH, WIDTH, HEADS = 2, 6, 24, 3
Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def causal(scores: Tensor) -> Tensor:
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -torch.inf)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(causal(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])), -1) @ v


def before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries are scaled, scores are masked by a sum."""
    hidden = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)
    return torch.softmax((q * 0.3) @ k.transpose(-2, -1) + hidden, -1) @ v


def selected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As GPT-2 of transformers."""
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().view(1, 1, LENGTH, LENGTH)
    scores = (q @ k.transpose(-2, -1)) * 0.5
    return torch.softmax(torch.where(seen, scores, torch.finfo(scores.dtype).min), -1) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(0.2).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads are rows of the batch, as in Megatron-LM, and keys come first in the product."""
    q, k, v = (each.reshape(-1, LENGTH, each.shape[-1]) for each in (q, k, v))
    scores = torch.bmm(k, q.transpose(1, 2)) * 0.25
    weights = torch.softmax(scores, 1)
    return torch.bmm(weights.transpose(1, 2), v).reshape(BATCH, HEADS, LENGTH, -1)


def decomposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A softmax of its parts (forward only: its gradient has another form)."""
    scores = q @ k.transpose(-2, -1)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ v


class Layer(nn.Module):
    def __init__(self, core: Core):
        super().__init__()
        self.core = core
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for each in self.qkv(x).split(WIDTH, 2))
        return self.out(self.core(q, k, v).transpose(1, 2).reshape(x.shape))


def recognised(module: ModuleOp) -> ModuleOp:
    found = module.clone()
    RecogniseAttentionPass().apply(Context(), found)
    found.verify()
    return found


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name.startswith("attention.")]


def assert_equal(module: ModuleOp, found: ModuleOp) -> None:
    assert verify(module, found).holds


def forward_of(core: Core) -> ModuleOp:
    layer = Layer(core)
    return import_step(lambda x: layer(x), (torch.ones(BATCH, LENGTH, WIDTH),))


@pytest.mark.parametrize("core", [plain, scaled, before, selected, by_einsum, merged, decomposed])
def test_forward(core: Core) -> None:
    module = forward_of(core)
    found = recognised(module)
    assert names(found) == ["attention.forward"]
    assert not any("softmax" in op.name for op in found.walk())
    assert_equal(module, found)


def training(layer: nn.Module, autocast: torch.dtype | None = None) -> ModuleOp:
    example = torch.ones(BATCH, LENGTH, WIDTH), torch.ones(BATCH, LENGTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    return import_step(training_step(layer, nn.functional.mse_loss, optimizer, example_args=example, autocast=autocast))


@pytest.mark.parametrize("core", [before, by_einsum, merged])
def test_training_step(core: Core) -> None:
    module = training(Layer(core))
    found = recognised(module)
    assert names(found) == ["attention.forward", "attention.backward"]
    assert not any("softmax" in op.name for op in found.walk())
    assert_equal(module, found)


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.dropout(torch.softmax(causal(q @ k.transpose(-2, -1) / 2), -1), 0.3) @ v


def native(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.native_dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.3, True)[0] @ v


def dropped_of_merged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads are rows of the batch: the draw has a position for each of both."""
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    weights = torch.softmax(torch.bmm(q * 0.5, k.transpose(1, 2)), -1)
    return torch.bmm(nn.functional.dropout(weights, 0.3), v).view(BATCH, HEADS, LENGTH, -1)


def dropped_guarded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = nn.functional.dropout(torch.softmax(causal(q @ k.transpose(-2, -1)), -1), 0.5)
    return weights.to(torch.float64).float() @ v


@pytest.mark.parametrize("core", [dropped, native, dropped_of_merged, dropped_guarded])
def test_weights_that_are_dropped(core: Core) -> None:
    """The operation draws what the program drew."""
    module = training(Layer(core))
    found = recognised(module)
    assert names(found) == ["attention.forward", "attention.backward"]
    assert not any("softmax" in op.name or op.name == "random.bernoulli" for op in found.walk())
    assert_equal(module, found)


def dropped_unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Weights that are left are not divided by their share."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return (weights * torch.bernoulli(torch.full_like(weights, 0.5), 0.7)) @ v


def dropped_by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """All weights of a head are dropped together."""
    return nn.functional.dropout3d(torch.softmax(q @ k.transpose(-2, -1), -1)[None], 0.3)[0] @ v


def dropped_across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The draw has rows and keys in the other order."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return nn.functional.dropout(weights.transpose(-2, -1), 0.3).transpose(-2, -1) @ v


def dropped_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.dropout(nn.functional.dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.3), 0.3) @ v


def dropped_once_more(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What is not dropped is used too."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return nn.functional.dropout(weights, 0.3) @ v + weights @ v


@pytest.mark.parametrize("core", [dropped_unscaled, dropped_by_head, dropped_across, dropped_twice, dropped_once_more])
def test_what_is_dropped_otherwise_stays(core: Core) -> None:
    module = training(Layer(core))
    found = recognised(module)
    assert not names(found)
    assert_equal(module, found)


def test_time_and_memory_fall() -> None:
    """Of a step with long sequences: scores of all heads are most of what it holds."""
    layer = Layer(lambda q, k, v: torch.softmax(causal(q @ k.transpose(-2, -1) / 8), -1) @ v)
    example = torch.ones(2, 2048, WIDTH, device="meta"), torch.ones(2, 2048, WIDTH, device="meta")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    module = import_step(training_step(layer, nn.functional.mse_loss, optimizer, example_args=example))
    spelled, whole = (Analysis(each, load_machine("dgx-a100")).summary for each in (module, recognised(module)))
    scores = 2 * HEADS * 2048 * 2048 * 4
    assert spelled.peak_memory_bytes[0] > 2 * scores
    assert whole.peak_memory_bytes[0] < scores / 4
    assert whole.makespan_seconds < spelled.makespan_seconds / 2


def test_autocast_computes_the_softmax_in_single_precision() -> None:
    found = recognised(training(Layer(scaled), torch.bfloat16))
    assert names(found) == ["attention.forward", "attention.backward"]
    (forward,) = (op for op in found.walk() if op.name == "attention.forward")
    assert [str(v.type).rpartition("x")[2] for v in (*forward.operands, *forward.results)] == ["bf16>"] * 4 + ["f32>"]


class Grouped(nn.Module):
    """Three query heads for each key head, which are repeated (Llama's repeat_kv)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(WIDTH, 6 * 4), nn.Linear(WIDTH, 2 * 2 * 4)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).view(BATCH, LENGTH, 6, 4).transpose(1, 2)
        k, v = (each.view(BATCH, LENGTH, 2, 4).transpose(1, 2) for each in self.kv(x).split(8, -1))
        k, v = (each[:, :, None].expand(BATCH, 2, 3, LENGTH, 4).reshape(BATCH, 6, LENGTH, 4) for each in (k, v))
        return scaled(q, k, v)


def test_heads_that_are_repeated() -> None:
    layer = Grouped()
    module = import_step(lambda x: layer(x), (torch.ones(BATCH, LENGTH, WIDTH),))
    found = recognised(module)
    (forward,) = (op for op in found.walk() if op.name == "attention.forward")
    assert "2x2x6x4xf32" in str(forward.operands[1].type)  # keys of two heads, not six
    assert_equal(module, found)
    module = training(layer_with_output(layer))
    found = recognised(module)
    assert names(found) == ["attention.forward", "attention.backward"]
    assert_equal(module, found)


def layer_with_output(layer: nn.Module) -> nn.Module:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = layer, nn.Linear(6 * 4, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(x).transpose(1, 2).reshape(BATCH, LENGTH, 24))

    return Whole()


def over_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The softmax goes over queries."""
    return torch.softmax(q @ k.transpose(-2, -1), -2) @ v


def over_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), 1) @ v


def squared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-2, -1)).square(), -1) @ v


def used_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return weights @ v + weights.sum()


def masked_late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return causal(torch.softmax(q @ k.transpose(-2, -1), -1)).clamp(min=0) @ v


def scaled_late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mask of numbers is multiplied too."""
    bias = torch.arange(LENGTH * LENGTH).view(LENGTH, LENGTH) * 0.1
    return torch.softmax((q @ k.transpose(-2, -1) + bias) * 0.5, -1) @ v


def row_without_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A row that sees nothing is the mean here, and would be zero."""
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(-1)
    return torch.softmax(torch.where(seen, q @ k.transpose(-2, -1), -1e9), -1) @ v


def values_of_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The weights are summed over queries."""
    return torch.softmax(q @ k.transpose(-2, -1), -1).transpose(-2, -1) @ v


def other_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Weights meet values of other rows of the batch."""
    weights = torch.softmax(q @ k.transpose(-2, -1), -1)
    return weights.transpose(0, 1).reshape(BATCH, HEADS, LENGTH, LENGTH) @ v


def root_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A mask of a dim that scores have not."""
    scores = (q @ k.transpose(-2, -1)).reshape(BATCH, HEADS, 2, LENGTH // 2, LENGTH) + torch.arange(2.0).view(2, 1, 1)
    return torch.softmax(scores, -1).reshape(BATCH, HEADS, LENGTH, LENGTH) @ v


NOT = [
    over_rows,
    over_heads,
    squared,
    used_twice,
    masked_late,
    scaled_late,
    row_without_keys,
    values_of_rows,
    root_mask,
]


@pytest.mark.parametrize("core", NOT)
def test_what_is_no_attention_stays(core: Core) -> None:
    module = forward_of(core)
    text = str(module)
    found = recognised(module)
    assert not names(found)
    assert "softmax" in text
    assert any("softmax" in op.name for op in found.walk())


def test_the_gradient_of_the_values_is_no_result() -> None:
    """With a softmax over queries it has the form of a result, of values that are made of what the first product gives."""
    assert not names(recognised(training(Layer(over_rows))))


def test_heads_that_meet_others_stay_equal() -> None:
    module = forward_of(other_heads)
    assert_equal(module, recognised(module))


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(HEADS, LENGTH, LENGTH))
        self.layer = Layer(lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) + self.bias, -1) @ v)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_a_mask_with_a_gradient_stays() -> None:
    """Its gradient is that of the scores."""
    assert not names(recognised(training(Biased())))
    biased = Biased()
    module = import_step(lambda x: biased(x), (torch.ones(BATCH, LENGTH, WIDTH),))
    found = recognised(module)
    assert names(found) == ["attention.forward"]
    assert_equal(module, found)


def test_checkpointed_layers() -> None:
    """What is recomputed for the backward part is one operation there too."""

    class Checkpointed(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    module = training(Checkpointed(scaled))
    found = recognised(module)
    assert set(names(found)) == {"attention.forward", "attention.backward"}
    assert not any("softmax" in op.name for op in found.walk())
    assert_equal(module, found)
