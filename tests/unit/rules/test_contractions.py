"""Contractions of PyTorch and JAX programs as matrix products: flops as torch counts them, and sizes that do not fit a kernel cost more."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.pytorch import import_step
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.costs import Costs
from distir.interpreters.machines import load_machine
from distir.interpreters.work import Contraction, Kind, work_of


def contractions(module: ModuleOp) -> list[tuple[Contraction, ...]]:
    works = [work_of(op) for op in module.walk() if op.name.startswith(("aten.", "jax."))]
    return [work.contractions for work in works if work.kind is Kind.MATMUL]


F = torch.nn.functional
CASES: list[tuple[Callable[..., Any], Sequence[tuple[int, ...]], Contraction]] = [
    (torch.mm, [(5, 7), (7, 11)], Contraction(1, 5, 11, 7)),
    (lambda x, w, b: F.linear(x, w, b), [(2, 5, 7), (11, 7), (11,)], Contraction(1, 10, 11, 7)),
    (torch.bmm, [(3, 5, 7), (3, 7, 11)], Contraction(3, 5, 11, 7)),
    (torch.baddbmm, [(3, 5, 11), (3, 5, 7), (3, 7, 11)], Contraction(3, 5, 11, 7)),
    (lambda x, w: F.conv2d(x, w, stride=2), [(2, 3, 9, 9), (4, 3, 3, 3)], Contraction(1, 2 * 16, 4, 27)),
    (lambda x, w: F.conv2d(x, w, groups=2), [(2, 6, 9, 9), (4, 3, 3, 3)], Contraction(2, 2 * 49, 2, 27)),
    (F.conv_transpose2d, [(2, 6, 5, 5), (6, 4, 3, 3)], Contraction(1, 2 * 25, 36, 6)),
]


@pytest.mark.parametrize(("function", "shapes", "product"), CASES)
def test_products_and_flops_are_torch_s(function: Any, shapes: Any, product: Contraction) -> None:
    examples = [torch.empty(shape, device="meta") for shape in shapes]
    assert contractions(import_step(function, examples)) == [(product,)]
    with FlopCounterMode(display=False) as counter:
        function(*examples)
    assert product.flops == counter.get_total_flops()


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_convolutions(transposed: bool) -> None:
    convolve = F.conv_transpose2d if transposed else F.conv2d

    def gradients(x: torch.Tensor, w: torch.Tensor) -> Any:
        result = convolve(x.requires_grad_(), w.requires_grad_(), stride=2)
        return torch.autograd.grad(result.sum(), (x, w))

    examples = [torch.empty(2, 6, 9, 9, device="meta"), torch.empty(6, 6, 3, 3, device="meta")]
    found = contractions(import_step(gradients, examples))
    with FlopCounterMode(display=False) as counter:
        gradients(*examples)
    # The result is not needed, so the program has no forward convolution, which torch counts; each of the three has the same flops.
    assert sum(p.flops for products in found for p in products) == counter.get_total_flops() * 2 // 3


def test_a_linear_layer_of_odd_width_takes_longer() -> None:
    """Rows that are no multiple of 16 bytes miss the fast units of an A100: half as long again, as the machine file says."""
    costs = Costs(AnalyticCostModel(load_machine("dgx-a100")))

    def seconds(columns: int) -> int:
        examples = [torch.empty(s, dtype=torch.float16, device="meta") for s in ((8192, 4096), (columns, 4096))]
        module = import_step(F.linear, examples)
        return sum(costs.of(op, (0,)).picoseconds for op in module.walk() if op.name == "aten.mm")

    aligned, odd, odder, wider = seconds(4096), seconds(4097), seconds(4099), seconds(4160)
    assert aligned < wider < odd
    assert odd / aligned == pytest.approx(1.5, rel=0.05)
    assert odder == pytest.approx(odd, rel=0.01)


def test_products_of_jax() -> None:
    import jax
    from jax import numpy as jnp

    from distir.frontends.jax import import_step as import_jax

    def function(x: Any, y: Any, image: Any, weight: Any) -> Any:
        convolved = jax.lax.conv_general_dilated(image, weight, (1, 1), "VALID", feature_group_count=2)
        return jnp.einsum("bik,bkj->bij", x, y), convolved

    shapes = [(3, 5, 7), (3, 7, 11), (2, 6, 9, 9), (4, 3, 3, 3)]
    module = import_jax(function, [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes])
    assert sorted(p.flops for (p,) in contractions(module)) == sorted([2 * 3 * 5 * 7 * 11, 2 * 2 * 4 * 49 * 27])
    assert {(Contraction(3, 5, 11, 7),), (Contraction(2, 98, 2, 27),)} == set(contractions(module))


def test_views_are_free_declared_or_not() -> None:
    """Merging heads copies once: the view of the copy takes no time and no memory."""

    def merge(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(2, 5, 12)

    module = import_step(merge, [torch.empty(2, 3, 5, 4, device="meta")])
    works = {op.name: work_of(op).kind for op in module.walk() if op.name.startswith("aten.")}
    assert works == {
        "aten.transpose.int": Kind.VIEW,
        "aten.clone": Kind.ELEMENTWISE,
        "aten._unsafe_view": Kind.VIEW,
    }
