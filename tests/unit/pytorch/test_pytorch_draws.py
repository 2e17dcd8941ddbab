"""Dropout in programs: masks are those of eager PyTorch under `counted_draws`, whatever the plan."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i64

from distir.backends.torch import execute
from distir.dialects.errors import DistirError
from distir.dialects.random import BernoulliOp, UniformOp
from distir.frontends.pytorch import counted_draws, import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.random import bits, mix, run_random
from distir.interpreters.random_tensors import bernoulli, uniform
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.structure import shape_of

ROWS = 8
Arrays = dict[str, np.ndarray]


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class Block(nn.Module):
    """A transformer's layer: dropout of attention weights, of attention and of the feed-forward block."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)
        x = x + self.dropout(self.project(attended.transpose(1, 2).reshape(batch, tokens, width)))
        return x + self.dropout(self.down(torch.relu(self.up(x))))


class Checkpointed(nn.Module):
    """Runs what is inside again in the backward pass."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inside, x, use_reentrant=False)  # pyright: ignore


class Classifier(nn.Module):
    def __init__(self, layer: Callable[[], nn.Module], layers: int) -> None:
        super().__init__()
        self.embed, self.classify = nn.Linear(6, 8), nn.Linear(8, 3)
        self.layers = nn.Sequential(*(layer() for _ in range(layers)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.layers(self.embed(x)).mean(1))


def transformer(layers: int = 2, layer: Callable[[], nn.Module] = Block) -> nn.Module:
    torch.manual_seed(0)
    return Classifier(layer, layers).double()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(ROWS, 5, 6, dtype=torch.float64), torch.randint(0, 3, (ROWS,))) for _ in range(3)]


def imported(model: nn.Module) -> ModuleOp:
    return import_step(training_step(model, cross_entropy, momentum), batches()[0])


def eager_steps(model: nn.Module) -> list[Arrays]:
    """Loss and parameters after each of three steps."""
    model, seed, found = copy.deepcopy(model), 0, list[Arrays]()
    optimizer = momentum(model.parameters())
    for x, label in batches():
        optimizer.zero_grad()
        with counted_draws(seed, range(ROWS)) as draws:
            loss = cross_entropy(model(x), label)
            loss.backward()
        optimizer.step()
        seed = int(draws.next_seed)
        found.append({"loss": loss.detach().numpy()} | {n: p.clone().numpy() for n, p in model.state_dict().items()})
    return found


def program_steps(module: ModuleOp, state: Arrays) -> list[Arrays]:
    found: list[Arrays] = []
    for x, label in batches():
        found.append(run(module, state | {"x": x.numpy(), "label": label.numpy()}, dtype=np.float64))
        state = state | {name: value for name, value in found[-1].items() if name != "loss"}
    return found


def assert_agree(expected: list[Arrays], got: list[Arrays]) -> None:
    for want, have in zip(expected, got, strict=True):
        for name, value in want.items():
            np.testing.assert_allclose(have[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("layer", [Block, lambda: Checkpointed(Block())], ids=["kept", "checkpointed"])
def test_three_steps_with_dropout_are_those_of_torch(layer: Callable[[], nn.Module]) -> None:
    """Each step has its own masks: the seed goes on by the draws of a step, of which a layer has three. A layer that is
    computed again in the backward pass draws what it drew."""
    model = transformer(layer=layer)
    module = imported(model)
    steps = program_steps(module, dict(weights_of(module)))
    assert_agree(eager_steps(model), steps)
    assert [int(step["random.seed"]) for step in steps] == [6, 12, 18]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"dp": 2, "tp": 2}, marks=pytest.mark.long),
        pytest.param({"pp": 2, "microbatches": 4}, marks=pytest.mark.long),
        {"dp": 2, "tp": 2, "pp": 2, "microbatches": 2},
    ],
    ids=str,
)
def test_every_plan_draws_what_the_whole_program_draws(plan: dict[str, int]) -> None:
    module = imported(transformer())
    state = dict(weights_of(module))
    expected = program_steps(module, state)
    DtpParallelizePass(**plan).apply(Context(), module)
    module.verify()
    assert_agree(expected, program_steps(module, state))


def test_a_rank_draws_its_part_of_a_mask_alone() -> None:
    """Masks of activations are [rows, tokens, columns], and a rank has half of the columns."""
    module = imported(transformer(layers=1))
    DtpParallelizePass(tp=2).apply(Context(), module)
    assert [shape_of(op.output) for op in module.walk() if isinstance(op, BernoulliOp)] == [(ROWS, 5, 4)] * 4


def test_processes_draw_the_same() -> None:
    """Two stages of two microbatches, three steps in one run."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Flatten(), nn.Linear(40, 3)).double()
    module = import_step(training_step(model, cross_entropy, momentum), batches()[0])
    state = dict(weights_of(module))
    DtpParallelizePass(pp=2, microbatches=2).apply(Context(), module)
    given = [{"input": x.numpy(), "label": label.numpy()} for x, label in batches()]
    outputs = execute(module, state | given[0], following=given[1:]).outputs
    assert_agree(eager_steps(model)[-1:], [outputs])


def test_layers_that_draw_are_outlined() -> None:
    """Each has its own keys, which are arguments. Of four layers with two draws each, beside those of attention, three are calls of one function."""
    module = imported(transformer(layers=4))
    OutlineRepeatsPass().apply(Context(), module)
    assert sum(isinstance(op, BernoulliOp) for op in module.walk()) == 2 * 2


def test_rows_merged_with_heads_or_tokens_are_rows() -> None:
    """[batch * tokens, width] draws what [batch, tokens, width] draws."""

    def merged(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x.flatten(0, 1), 0.5)

    x = torch.ones(ROWS, 3, 4)
    module = import_step(merged, (x,))
    names = {port.name: port.role for port in arguments_of(entry_function(module))}
    assert names["random.rows"] == "seed"
    weights = dict(weights_of(module))
    whole = run(module, weights | {"x": x.numpy()})["output"]
    swapped = weights | {"random.rows": weights["random.rows"][::-1].copy()}
    other = run(module, swapped | {"x": x.numpy()})["output"]
    np.testing.assert_array_equal(other.reshape(ROWS, 3, 4)[::-1], whole.reshape(ROWS, 3, 4))
    assert len({row.tobytes() for row in whole.reshape(ROWS, -1)}) == ROWS


def test_normal_and_uniform_draws() -> None:
    def noisy(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x + torch.randn_like(x), torch.empty_like(x).uniform_(-1, 3), torch.bernoulli(torch.full_like(x, 0.2))

    x = torch.zeros(ROWS, 2000)
    module = import_step(noisy, (x,))
    results = list(run(module, dict(weights_of(module)) | {"x": x.numpy()}).values())
    with counted_draws(0, range(ROWS)):
        expected = noisy(x)
    for want, got in zip(expected, results, strict=False):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-5)
    normal, spread, ones = results[:3]
    assert abs(normal.mean()) < 0.05
    assert normal.std() == pytest.approx(1, abs=0.05)
    assert (spread.min(), spread.max(), spread.mean()) == pytest.approx((-1, 3, 1), abs=0.05)
    assert ones.mean() == pytest.approx(0.2, abs=0.02)


def test_a_model_that_draws_nothing_has_no_seed() -> None:
    module = imported(nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(30, 3)).double())
    assert not {"random.seed", "random.rows"} & {port.name for port in arguments_of(entry_function(module))}


def test_draws_of_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(DistirError, match=r"aten\.poisson draws random numbers.*compute the others from these"):
        import_step(torch.poisson, (torch.ones(4),))


def test_generators_are_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(DistirError, match=r"no torch\.Generator"):
        import_step(lambda x: torch.empty_like(x).uniform_(0, 1, generator=generator), (torch.ones(4),))


# --- the hash ---------------------------------------------------------------------------------------------------------


def test_the_stream_is_that_of_splitmix64() -> None:
    """First outputs of SplitMix64 from seed 1234567, as rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64 has them."""
    seeds = 1234567 + np.arange(1, 6, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert mix(seeds).tolist() == expected


def test_tensors_and_arrays_draw_the_same() -> None:
    key, positions = np.int64(-3), [np.array([0, 5, 2**40, -1]), np.arange(7), np.arange(2)]
    tensors = [torch.from_numpy(p) for p in positions]
    drawn = BernoulliOp(*operands(positions), 0.3), UniformOp(*operands(positions))
    expected = [run_random(op, [key, *positions])[0] for op in drawn]
    got = bernoulli(torch.tensor(-3), tensors, 0.3), uniform(torch.tensor(-3), tensors, torch.float32)
    for want, have in zip(expected, got, strict=True):
        np.testing.assert_array_equal(have.numpy(), want)


def operands(positions: list[np.ndarray]) -> Any:
    from xdsl.dialects.builtin import TensorType
    from xdsl.dialects.test import TestOp

    types = [TensorType(i64, []), *(TensorType(i64, p.shape) for p in positions)]
    key, *vectors = TestOp(result_types=types).results
    return key, vectors


def test_draws_are_even_and_do_not_recur() -> None:
    """Of 64 keys, rows and columns each: no value twice, and each of the 64 bits is as often set as not, to 5 sigma."""
    drawn = np.stack([bits(np.int64(key), [np.arange(64), np.arange(64)]) for key in range(64)])
    assert np.unique(drawn).size == drawn.size
    shares = np.unpackbits(drawn.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    assert np.abs(shares - 0.5).max() < 5 * 0.5 / np.sqrt(drawn.size)
