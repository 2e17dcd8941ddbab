"""What the reference executor computes where the evaluator of the onnx package is wrong or needs too much, against torch and numpy."""

import tracemalloc
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import torch
from onnx import TypeProto, helper
from onnx.reference import ReferenceEvaluator
from torch.nn import functional

from distir.frontends.onnx import import_model
from distir.interpreters.reference import run

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)


def computed(operator: str, *operands: Any, results: int = 1, **attributes: Any) -> list[Array]:
    """The results of one operator of opset 22."""
    arrays = {f"i{i}": np.asarray(operand) for i, operand in enumerate(operands) if operand is not None}
    names = [f"i{i}" if operand is not None else "" for i, operand in enumerate(operands)]
    outputs = [f"o{i}" for i in range(results)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, **attributes)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ],
        [helper.make_value_info(name, TypeProto()) for name in outputs],
    )
    module = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]))
    return list(run(module, arrays).values())


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape, np.float32)


POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
MAXIMA = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


@pytest.mark.parametrize(("rank", "stride", "pad", "ceil"), [*product((1, 2, 3), (1, 2, 3), (0, 1), (False, True))])
def test_pools_are_those_of_torch(rank: int, stride: int, pad: int, ceil: bool) -> None:
    x = drawn(2, 3, *[8, 7, 6][:rank])
    window = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank, "ceil_mode": int(ceil)}
    for whole in (False, True):
        (found,) = computed("AveragePool", x, count_include_pad=int(whole), **window)
        expected = POOLS[rank](torch.tensor(x), 3, stride, pad, ceil, whole)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
    for dilation in (1, 2):
        found, where = computed("MaxPool", x, results=2, dilations=[dilation] * rank, **window)
        expected, indices = MAXIMA[rank](torch.tensor(x), 3, stride, pad, dilation, ceil, return_indices=True)
        np.testing.assert_array_equal(found, expected.numpy())
        np.testing.assert_array_equal(where % np.prod(x.shape[2:]), indices.numpy())


def test_windows_padded_to_the_same_size_have_a_result_for_each_step() -> None:
    x = drawn(1, 1, 9, 5)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = {"kernel_shape": [2, 3], "strides": [3, 1], "dilations": [2, 1], "auto_pad": auto_pad}
        for operator in ("MaxPool", "AveragePool", "LpPool"):
            assert computed(operator, x, **shape)[0].shape == (1, 1, 3, 5)
    (found,) = computed(
        "AveragePool", np.ones((1, 1, 5), np.float32), kernel_shape=[2], strides=[3], auto_pad="SAME_UPPER"
    )
    np.testing.assert_array_equal(found, [[[1, 1]]])


def test_global_maximum_of_one_to_three_dims() -> None:
    for rank in (1, 2, 3):
        x = drawn(2, 3, *[4, 5, 6][:rank])
        (found,) = computed("GlobalMaxPool", x)
        np.testing.assert_array_equal(found.reshape(2, 3), x.reshape(2, 3, -1).max(-1))


def test_a_long_convolution_takes_the_memory_of_its_result() -> None:
    x, w = drawn(1, 8, 50_000), drawn(8, 8, 64)
    tracemalloc.start()
    (found,) = computed("Conv", x, w, pads=[32, 31])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = functional.conv1d(functional.pad(torch.tensor(x), (32, 31)), torch.tensor(w)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert most < 20 * found.nbytes  # unfolded, it has 64 times the operand


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(-1, 2), (2, -1), (-2, -1), (1, 1)])
def test_negative_pads_take_away(mode: str, pads: tuple[int, int]) -> None:
    x = drawn(6, 4)
    kept = x[max(-pads[0], 0) : len(x) + min(pads[1], 0)]
    expected = np.pad(kept, [(max(pads[0], 0), max(pads[1], 0)), (0, 0)], mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]
    (found,) = computed("Pad", x, np.array(pads), None, np.array([-2]), mode=mode)
    np.testing.assert_array_equal(found, expected)


def test_backward_slices_begin_inside() -> None:
    """Starts are clamped to [0, n - 1], as the specification of Slice says for negative steps."""
    x = np.arange(5.0)
    for start, end, expected in ((-9, -(2**31), [0]), (7, -9, [4, 3, 2, 1, 0]), (2, 0, [2, 1]), (0, 2**31 - 1, [])):
        (found,) = computed("Slice", x, np.array([start]), np.array([end]), np.array([0]), np.array([-1]))
        np.testing.assert_array_equal(found, expected)


def test_norms_are_of_absolute_values() -> None:
    x = drawn(3, 4)
    (found,) = computed("LpNormalization", x, axis=0, p=1)
    np.testing.assert_allclose(found, x / abs(x).sum(0), rtol=1e-5)


def test_means_broadcast_and_numbers_have_no_dims() -> None:
    one, other = drawn(1, 3), drawn(2, 1)
    np.testing.assert_allclose(computed("Mean", one, other)[0], (one + other) / 2, rtol=1e-6)
    assert computed("Softsign", np.float32(-3))[0] == np.float32(-0.75)


@pytest.mark.parametrize(("groups", "shared"), [(1, 1), (2, 1), (2, 4)])
def test_a_deformed_convolution_reads_between_pixels(groups: int, shared: int) -> None:
    """Of places half a row further down, it is the convolution of the means of rows; of the mask, each product is a part."""
    x, w, b = drawn(2, 4, 8, 9), drawn(6, 4 // groups, 3, 2), drawn(6)
    window = {"strides": [1, 2], "dilations": [2, 1], "pads": [1, 0, 2, 1]}
    offset = np.zeros((2, shared, 6, 2, 7, 5), np.float32)
    offset[:, :, :, 0] = 0.5
    mask = np.full((2, shared * 6, 7, 5), 0.25, np.float32)
    given = x, w, offset.reshape(2, -1, 7, 5), b, mask
    (found,) = computed("DeformConv", *given, group=groups, offset_group=shared, **window)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 3), (0, 1)])
    means = torch.tensor((padded[:, :, :-1] + padded[:, :, 1:]) / 2)
    expected = functional.conv2d(means, 0.25 * torch.tensor(w), torch.tensor(b), (1, 2), 0, (2, 1), groups)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "padding", "aligned"),
    [*product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1))],
)
def test_samples_of_a_grid_are_those_of_the_evaluator(mode: str, padding: str, aligned: int) -> None:
    """It goes place by place; the grid has places far outside."""
    sampled: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    for rank in (2, 3):
        x, grid = drawn(2, 3, *[3, 4, 2][:rank]), 2 * drawn(2, *[2, 2, 1][:rank], rank)
        (found,) = computed("GridSample", x, grid, **sampled)
        node = helper.make_node("GridSample", ["x", "grid"], ["y"], **sampled)
        (expected,) = cast(list[Array], ReferenceEvaluator(node).run(None, {"x": x, "grid": grid}))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_volumes_are_sampled_as_by_torch() -> None:
    x, grid = drawn(2, 3, 16, 12, 8), drawn(2, 10, 9, 8, 3)
    (found,) = computed("GridSample", x, grid)
    expected = functional.grid_sample(torch.tensor(x), torch.tensor(grid), align_corners=False)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_depth_of_a_one_hot_is_a_number_or_a_vector_of_one(rank: int) -> None:
    """And its values may be infinite, as those of a mask are."""
    labels, values = np.array([[0, 2], [-1, 1]]), np.array([-np.inf, 0], np.float32)
    (found,) = computed("OneHot", labels, np.full((1,) * rank, 3), values, axis=1)
    chosen = functional.one_hot(torch.tensor(labels) % 3, 3).movedim(2, 1).numpy()
    np.testing.assert_array_equal(found, np.where(chosen, np.float32(0), np.float32(-np.inf)))


def test_a_global_norm_is_that_of_all_places() -> None:
    x = drawn(2, 3, 4, 5)
    (found,) = computed("GlobalLpPool", x, p=3)
    np.testing.assert_allclose(found.reshape(2, 3), np.linalg.norm(x.reshape(6, -1), 3, 1).reshape(2, 3), rtol=1e-5)


def test_an_attribute_that_is_left_out_has_its_default_in_types_too() -> None:
    """Half of the frequencies of an STFT: onnx's inference of shapes takes all."""
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    x = helper.make_tensor_value_info("x", 1, [3, 40, 1])
    numbers = [helper.make_tensor("step", 7, [], [4]), helper.make_tensor("length", 7, [], [8])]
    graph = helper.make_graph([node], "one", [x], [helper.make_value_info("y", TypeProto())], numbers)
    module = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert "tensor<3x9x5x2xf32>" in str(module)
    (found,) = run(module, {"x": drawn(3, 40, 1)}).values()
    assert found.shape == (3, 9, 5, 2)
    assert not node.attribute
