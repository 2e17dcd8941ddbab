"""`scaled_dot_product_attention` of PyTorch steps is one operation, which computes what torch does, keeps no scores, and costs what fused
kernels do."""

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.dialects.attention import BackwardOp, ForwardOp
from distir.frontends.eager import verify_against_eager
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters import reference
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.costs import Costs
from distir.interpreters.machines import load_machine
from distir.interpreters.work import Kind, visible_share, work_of


def gradients_of(function: Any) -> Any:
    """The result of a function of tensors, and its gradients by those that are floats."""

    def run(*tensors: Tensor) -> Any:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
            result = function(*leaves)
            wanted = [t for t in leaves if t.requires_grad]
            return result.detach(), *torch.autograd.grad((result * result.detach().sin()).sum(), wanted)

    return run


def names(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name.split(".")[0] in ("aten", "attention")]


def check(function: Any, tensors: list[Tensor], tolerance: float = 1e-5) -> ModuleOp:
    """That the program computes what eager PyTorch does; the program."""
    module = import_step(gradients_of(function), tensors)
    inputs = {str(d.data["dist.name"].data): t.numpy() for d, t in zip(_arguments(module), tensors, strict=False)}
    found = list(reference.run(module, inputs).values())
    with sdpa_kernel(SDPBackend.MATH):
        expected = gradients_of(function)(*tensors)
    for mine, torch_s in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, torch_s.detach().numpy(), rtol=tolerance, atol=tolerance)
    return module


def _arguments(module: ModuleOp) -> Any:
    return module.body.block.first_op.arg_attrs.data  # pyright: ignore


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


QKV = [(2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 5, 8)]
GROUPED = [(2, 4, 6, 8), (2, 2, 5, 8), (2, 2, 5, 8)]


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, QKV),
        ({"is_causal": True}, QKV),
        ({"scale": 0.3}, [(6, 8), (5, 8), (5, 4)]),
        ({"is_causal": True, "enable_gqa": True}, GROUPED),
        ({}, [(2, 4, 6, 8), (1, 4, 5, 8), (1, 4, 5, 8)]),
    ],
)
def test_values_and_gradients_are_torch_s(options: Any, shapes: Any) -> None:
    module = check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), drawn(*shapes))
    assert sum(isinstance(op, ForwardOp) for op in module.walk()) == 1
    assert sum(isinstance(op, BackwardOp) for op in module.walk()) == 1
    assert not {"aten._softmax", "aten.bmm"} & set(names(module))


@pytest.mark.parametrize("grouped", [False, True])
def test_masks(grouped: bool) -> None:
    """A mask of truths of which one row sees nothing, and one of numbers with minus infinity."""
    q, k, v = drawn(*(GROUPED if grouped else QKV))
    truths = torch.rand(2, 1, 6, 5) > 0.4
    truths[..., 0] = True
    numbers = torch.where(truths, torch.randn(2, 4, 6, 5), -torch.inf)
    for mask in (truths, numbers):
        module = check(
            lambda q, k, v, m=mask: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=grouped), [q, k, v]
        )
        assert names(module).count("attention.forward") == 1


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"enable_gqa": True}, {"attn_mask": True}])
def test_dropout_is_drawn_inside(options: dict[str, Any]) -> None:
    """The program is what eager PyTorch computes with the program's draws, over three steps."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(32, 32), nn.Linear(32, 32 if "enable_gqa" in options else 64)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x).unflatten(-1, (4, 8)).transpose(1, 2)
            k, v = (each.unflatten(-1, (-1, 8)).transpose(1, 2) for each in self.kv(x).chunk(2, -1))
            given = options | ({"attn_mask": torch.ones(6, 6).tril(2)} if "attn_mask" in options else {})
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **given).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    model = Layer()
    example = torch.ones(2, 6, 32), torch.ones(2, 6, 32)
    step = training_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1), example_args=example)
    module = import_step(step)
    assert [n for n in names(module) if "attention" in n] == ["attention.forward", "attention.backward"]
    assert not any(op.name.startswith("random.") for op in module.walk())
    assert verify_against_eager(module).holds


def test_rows_that_see_nothing_are_zero() -> None:
    q, k, v = drawn(*QKV)
    blind = torch.zeros(6, 5, dtype=torch.bool)
    module = import_step(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, blind), [q, k, v])
    (found,) = reference.run(module, {"q": q.numpy(), "k": k.numpy(), "v": v.numpy()}).values()
    assert not found.any()


def test_what_has_no_case_is_its_definition() -> None:
    """A mask that is trained, and a second derivative."""
    q, k, v, bias = drawn(*QKV, (6, 5))
    module = check(lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b), [q, k, v, bias])
    assert "attention.forward" not in names(module)

    def twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        (slope,) = torch.autograd.grad(result.square().sum(), q, create_graph=True)
        return result.sum() + slope.square().sum()

    check(twice, [q, k, v], 1e-4)


def test_under_autocast_it_computes_in_halves() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.scaled_dot_product_attention(q, k, v)

    module = import_step(function, drawn(*QKV))
    (op,) = (op for op in module.walk() if isinstance(op, ForwardOp))
    assert str(op.query.type.element_type) == str(op.output.type.element_type) == "bf16"  # pyright: ignore
    assert str(op.logsumexp.type.element_type) == "f32"  # pyright: ignore


def test_recomputed_layers_hold_no_scores() -> None:
    """Under activation checkpointing the forward is there twice; nothing in the program is of the size of scores."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(attended.transpose(1, 2).flatten(2))

    layer = Layer()

    def function(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)  # pyright: ignore

    module = import_step(gradients_of(function), [torch.randn(2, 128, 32)])
    assert names(module).count("attention.forward") == 2
    sizes = [prod(r.type.get_shape()) for op in module.walk() for r in op.results if isinstance(r.type, TensorType)]  # pyright: ignore
    assert max(sizes) < 2 * 4 * 128 * 128
    # What fused kernels write lies as a model reads it: nothing is copied to merge the heads.
    assert "aten.clone" not in names(import_step(layer, [torch.randn(2, 128, 32)]))


def test_work() -> None:
    shapes = [(2, 4, 64, 16)] * 3
    module = import_step(gradients_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), drawn(*shapes))
    whole = [work_of(op) for op in module.walk() if isinstance(op, ForwardOp | BackwardOp)]
    product = 2 * 8 * 64 * 64 * 16
    assert [(w.kind, w.flops) for w in whole] == [(Kind.ATTENTION, 2 * product), (Kind.ATTENTION_GRADIENT, 5 * product)]
    assert whole[0].bytes == 4 * (4 * 8 * 64 * 16 + 8 * 64)


@pytest.mark.parametrize(
    ("rows", "keys", "diagonal"), [(4, 4, 0), (4, 7, 3), (7, 4, -3), (5, 3, 0), (3, 3, 9), (3, 3, -9)]
)
def test_share_that_is_seen(rows: int, keys: int, diagonal: int) -> None:
    assert visible_share(rows, keys, diagonal) == np.tri(rows, keys, diagonal).mean()


def test_seconds_are_those_of_the_machine_file() -> None:
    """At head size 128 an A100 reaches 72 % of 312 TFLOP/s forward, 62 % backward; halves of f32 tensors have no such kernel."""
    costs = Costs(AnalyticCostModel(load_machine("dgx-a100")))
    tensors = [torch.empty(4, 16, 8192, 128, dtype=torch.bfloat16, device="meta")] * 3
    module = import_step(gradients_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v)), tensors)
    forward, backward = (costs.of(op, (0,)) for op in module.walk() if isinstance(op, ForwardOp | BackwardOp))
    product = 2 * 64 * 8192 * 8192 * 128
    assert forward.picoseconds == pytest.approx(2e12 * product / (312e12 * 0.72), rel=1e-2)
    assert backward.picoseconds == pytest.approx(5e12 * product / (312e12 * 0.62), rel=1e-2)
