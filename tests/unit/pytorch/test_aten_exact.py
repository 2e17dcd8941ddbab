"""ATen operators over exact scalars: what the classification by behaviour says, against arithmetic done here."""

import numpy as np
import pytest
import torch

from distir.interpreters.aten.exact import ExactTensor
from distir.interpreters.exact.scalars import PRIME

aten = torch.ops.aten


def exact(*shape: int, seed: int = 0) -> ExactTensor:
    return ExactTensor(np.random.default_rng([seed, *shape]).integers(1, PRIME, shape), torch.float32)


def values(array: np.ndarray) -> list[int]:
    return array.reshape(-1).tolist()


def test_views_move_elements() -> None:
    x = exact(2, 3, 4)
    moved = aten.permute(aten.slice(x, 2, 1, 3), [2, 0, 1])
    assert values(moved.exact) == values(x.exact[:, :, 1:3].transpose(2, 0, 1))


def test_a_mask_puts_in_a_constant() -> None:
    x, mask = exact(2, 2), torch.tensor([[True, False], [False, True]])
    filled = aten.masked_fill(x, mask, 2.0)
    assert values(filled.exact) == [2, *values(x.exact)[1:3], 2]


def test_what_has_no_dims_is_moved_and_summed_too() -> None:
    x = exact()
    assert values(aten.sum(aten.view(x, [1])).exact) == values(aten.sum(x).exact) == values(x.exact)
    assert values(aten.div(x, 2.0).exact) == [values(x.exact)[0] * pow(2, -1, PRIME) % PRIME]


def test_a_small_constant_is_not_lost() -> None:
    """In doubles of some size it would be, and the operator would seem to move elements."""
    x = exact(4)
    assert values(aten.add(x, 1e-5).exact) != values(x.exact)


@pytest.mark.parametrize("name", ["acos", "asin", "atanh", "erfinv", "special_ndtri"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_function_that_is_nan_on_a_few_numbers_is_no_constant(name: str, count: int) -> None:
    """The numbers that tell what an operator moves are all outside its domain where they are few."""
    function = getattr(aten, name)
    first, second = (values(function(exact(count, seed=seed)).exact) for seed in (0, 1))
    assert len({*first, *second}) == 2 * count


def test_contractions_are_exact() -> None:
    a, b = exact(3, 40), exact(40, 2, seed=1)
    product = np.array(values(a.exact), object).reshape(3, 40) @ np.array(values(b.exact), object).reshape(40, 2)
    assert values(aten.mm(a, b).exact) == (product % PRIME).reshape(-1).tolist()


def test_a_convolution_is_the_sum_over_its_window() -> None:
    x, w = exact(1, 1, 5), exact(1, 1, 3, seed=1)
    y = aten.convolution(x, w, None, [1], [0], [1], False, [0], 1)
    a, b = values(x.exact), values(w.exact)
    assert values(y.exact) == [sum(a[i + j] * b[j] for j in range(3)) % PRIME for i in range(3)]


def test_scatter_adds_what_is_at_one_place() -> None:
    source, index = exact(4), torch.tensor([0, 1, 0, 0])
    summed = aten.index_put(ExactTensor(exact(2).exact * 0, torch.float32), [index], source, True)
    a = values(source.exact)
    assert values(summed.exact) == [(a[0] + a[2] + a[3]) % PRIME, a[1]]


@pytest.mark.parametrize("name", ["relu", "gelu", "floor", "tanh", "erf", "abs", "rsqrt", "sigmoid", "silu", "round"])
def test_functions_do_not_commute_with_addition(name: str) -> None:
    function = getattr(aten, name)
    a, b = exact(5), exact(5, seed=1)
    together = function(ExactTensor((a.exact + b.exact) % PRIME, torch.float32))
    assert any((together.exact != (function(a).exact + function(b).exact) % PRIME).tolist())


@pytest.mark.parametrize("name", ["relu", "gelu", "floor", "_softmax", "native_layer_norm", "cumsum"])
def test_an_operator_gives_the_same_each_time(name: str) -> None:
    x = exact(2, 3, 4)
    arguments = {
        "_softmax": (-1, False),
        "native_layer_norm": ([4], None, None, 1e-5),
        "cumsum": (1,),
        "max_pool1d": ([2],),
    }
    first, second = (getattr(aten, name)(x, *arguments.get(name, ())) for _ in range(2))
    first, second = (r[0] if isinstance(r, tuple) else r for r in (first, second))
    assert values(first.exact) == values(second.exact)


def test_what_needs_machine_numbers_says_so() -> None:
    with pytest.raises(TypeError):
        aten._to_copy(exact(3), dtype=torch.int64)


def test_a_number_is_moved_and_summed() -> None:
    """The sum of one element is that element: a result of no dims, of an operator that moves elements there."""
    one, three = exact(1), exact(3)
    assert values(aten.sum(one).exact) == values(one.exact)
    assert values(aten.sum(three).exact) == [sum(values(three.exact)) % PRIME]
