"""Operators that ONNX Runtime's optimizer and quantizer write are imported as the standard operators that they are. Expected values are
written from ONNX Runtime's documentation of them (ContribOperators.md) with numpy and torch; they were compared with ONNX Runtime 1.32."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, TypeProto, helper, numpy_helper
from torch.nn import functional

from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape, np.float32)


def model(operator: str, operands: Sequence[Any], outputs: Sequence[str] = ("y",), **attributes: Any) -> ModelProto:
    """One node, whose first operand is an input."""
    names = ["" if operand is None else f"i{n}" for n, operand in enumerate(operands)]
    arrays = {name: np.asarray(operand) for name, operand in zip(names, operands, strict=True) if name}
    first = arrays.pop("i0")
    domain = "" if operator == "SimplifiedLayerNormalization" else "com.microsoft"
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(first.dtype), first.shape)],
        [helper.make_value_info(name, TypeProto()) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def computed(operator: str, *operands: Any, **options: Any) -> list[Array]:
    return list(run(import_model(model(operator, operands, **options)), {"i0": np.asarray(operands[0])}).values())


def agrees(found: Array, expected: Any) -> None:
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_activations() -> None:
    x, b = drawn(2, 4), drawn(4)
    agrees(computed("BiasGelu", x, b)[0], functional.gelu(torch.tensor(x + b)))
    agrees(computed("FastGelu", x)[0], functional.gelu(torch.tensor(x), approximate="tanh"))
    agrees(computed("QuickGelu", x, alpha=1.5)[0], x / (1 + np.exp(-1.5 * x)))


def test_normalisations_of_sums() -> None:
    x, skip, scale, shift, bias = drawn(2, 3, 8), drawn(2, 3, 8), drawn(8), drawn(8), drawn(8)
    y, total = computed("SkipLayerNormalization", x, skip, scale, shift, bias, outputs=["y", "", "", "s"], epsilon=1e-5)
    agrees(total, x + skip + bias)
    agrees(y, functional.layer_norm(torch.tensor(total), [8], torch.tensor(scale), torch.tensor(shift)))
    (y,) = computed("SkipSimplifiedLayerNormalization", x, skip, scale, epsilon=1e-5)
    agrees(y, functional.rms_norm(torch.tensor(x + skip), [8], torch.tensor(scale), 1e-5))
    (y,) = computed("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5, stash_type=1)
    agrees(y, functional.rms_norm(torch.tensor(x), [8], torch.tensor(scale), 1e-5))


def test_an_operator_without_its_domain_in_a_file_that_is_converted() -> None:
    """ONNX Runtime's optimizer writes it so, and the reduction has changed since opset 17."""
    x, scale = drawn(2, 8), drawn(8)
    file = model("SimplifiedLayerNormalization", [x, scale], epsilon=1e-5)
    file.graph.node[0].output[0] = "n"
    file.graph.node.append(helper.make_node("ReduceMax", ["n"], ["y"], axes=[1], keepdims=0))
    (y,) = run(import_model(file), {"i0": x}).values()
    agrees(y, functional.rms_norm(torch.tensor(x), [8], torch.tensor(scale), 1e-5).amax(1))


def test_an_operator_of_a_later_opset_without_its_domain() -> None:
    x, scale, shift = drawn(2, 8), drawn(8), drawn(8)
    file = model("LayerNormalization", [x, scale, shift], epsilon=1e-5)
    file.graph.node[0].domain = ""
    file.opset_import[0].version = 14
    (y,) = run(import_model(file), {"i0": x}).values()
    agrees(y, functional.layer_norm(torch.tensor(x), [8], torch.tensor(scale), torch.tensor(shift), 1e-5))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zeros", [True, False])
def test_products_with_weights_of_few_bits(bits: int, has_zeros: bool) -> None:
    """Three rows of 20 columns in blocks of 16; a byte has its first number in the lowest bits, and what is beyond the columns counts for nothing."""
    x, numbers = drawn(2, 20), RANDOM.integers(0, 2**bits, (3, 2, 16))
    scales, bias = drawn(3, 2), drawn(3)
    zeros = RANDOM.integers(0, 2**bits, (3, 2)) if has_zeros else np.full((3, 2), 2 ** (bits - 1))

    def packed(values: Array) -> Array:
        values = np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, -values.shape[-1] % (8 // bits))])
        parts = values.reshape(*values.shape[:-1], -1, 8 // bits)
        return (parts << (np.arange(8 // bits) * bits)).sum(-1).astype(np.uint8)

    given = packed(zeros) if has_zeros else None
    operands = [x, packed(numbers), scales, given, None, bias]
    (y,) = computed("MatMulNBits", *operands, bits=bits, block_size=16, K=20, N=3)
    weights = ((numbers - zeros[..., None]) * scales[..., None]).reshape(3, 32)[:, :20]
    agrees(y, x @ weights.T + bias)


def test_embeddings_are_summed_and_normalised() -> None:
    ids, kinds = RANDOM.integers(0, 9, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
    words, places, sorts, scale, shift = drawn(10, 8), drawn(12, 8), drawn(2, 8), drawn(8), drawn(8)
    (y,) = computed("EmbedLayerNormalization", ids, kinds, words, places, sorts, scale, shift, outputs=["y", ""])
    total = words[ids] + places[:5] + sorts[kinds]
    agrees(y, functional.layer_norm(torch.tensor(total), [8], torch.tensor(scale), torch.tensor(shift), 1e-12))


def test_fused_products() -> None:
    x, w = drawn(2, 4, 3), drawn(2, 4, 5)
    agrees(computed("FusedMatMul", x, w, transA=1, alpha=0.5)[0], 0.5 * x.transpose(0, 2, 1) @ w)
    rows = drawn(4, 2, 3)  # batches of 2 after the first dim
    agrees(computed("FusedMatMul", rows, w, transBatchA=1, transA=1)[0], rows.transpose(1, 2, 0) @ w)
    agrees(computed("FusedMatMul", w, rows, transA=1, transBatchB=1)[0], w.transpose(0, 2, 1) @ rows.transpose(1, 0, 2))
    a, b, c = drawn(2, 3), drawn(3, 4), drawn(4)
    agrees(
        computed("FusedGemm", a, b, c, activation="LeakyRelu", activation_alpha=0.2)[0],
        functional.leaky_relu(torch.tensor(a @ b + c), 0.2),
    )
    image, filters, added = drawn(1, 2, 5, 5), drawn(3, 2, 3, 3), drawn(1, 3, 5, 5)
    (y,) = computed("FusedConv", image, filters, None, added, activation="Relu", pads=[1, 1, 1, 1])
    agrees(
        y,
        functional.relu(functional.conv2d(torch.tensor(image), torch.tensor(filters), padding=1) + torch.tensor(added)),
    )


def attended(q: Array, k: Array, v: Array, heads: int, mask: Array | None = None, causal: bool = False) -> Array:
    def apart(rows: Array) -> torch.Tensor:
        return torch.tensor(rows).unflatten(-1, (heads, -1)).transpose(1, 2)

    added = None if mask is None else torch.tensor(np.where(mask, 0, -10000.0).astype(np.float32))[:, None, None]
    y = functional.scaled_dot_product_attention(apart(q), apart(k), apart(v), added, is_causal=causal)
    return y.transpose(1, 2).flatten(-2).numpy()


def test_attention_of_packed_weights() -> None:
    x, w, b = drawn(2, 3, 8), drawn(8, 24), drawn(24)
    a, c, d = np.split(x @ w + b, 3, -1)
    agrees(computed("Attention", x, w, b, num_heads=2)[0], attended(a, c, d, 2))
    agrees(computed("Attention", x, w, b, num_heads=2, unidirectional=1)[0], attended(a, c, d, 2, causal=True))
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    agrees(computed("Attention", x, w, b, mask, num_heads=2)[0], attended(a, c, d, 2, mask))
    q, k, v = drawn(2, 3, 8), drawn(2, 5, 8), drawn(2, 5, 8)
    parts = np.split(b, 3)
    counts, mask = np.array([4, 2], np.int32), np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
    for given in (counts, mask, np.repeat(mask[:, None], 3, 1)):
        file = model("MultiHeadAttention", [q, k, v, b], num_heads=2)
        file.graph.node[0].input.append("m")
        file.graph.input.append(helper.make_tensor_value_info("m", TensorProto.INT32, given.shape))
        (y,) = run(import_model(file), {"i0": q, "m": given}).values()
        agrees(y, attended(q + parts[0], k + parts[1], v + parts[2], 2, mask))
    agrees(
        computed("MultiHeadAttention", q, k, v, b, num_heads=2)[0],
        attended(q + parts[0], k + parts[1], v + parts[2], 2),
    )


def test_grouped_attention_appends_to_the_past() -> None:
    """Two heads share the keys and values of one; rotation by angles of zero changes nothing."""
    q, k, v = drawn(2, 1, 8), drawn(2, 5, 4), drawn(2, 5, 4)
    past, counts, angles = (
        [each[:, None, :4] for each in (k, v)],
        np.array([4, 4], np.int32),
        np.zeros((8, 2), np.float32),
    )
    given = [q, k[:, 4:], v[:, 4:], *past, counts, np.int32(5), angles + 1, angles]
    options: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "outputs": ["y", "k", "v"]}
    y, keys, values = computed("GroupQueryAttention", *given, **options)
    agrees(y, attended(q, np.tile(k, 2), np.tile(v, 2), 2))
    agrees(keys, k[:, None])
    agrees(values, v[:, None])
    packed = np.concatenate([np.tile(q, 2)[..., :8], k[:, 4:], v[:, 4:]], -1)
    y, *_ = computed("GroupQueryAttention", packed, None, None, *given[3:], local_window_size=2, **options)
    agrees(y, attended(q, np.tile(k[:, 3:], 2), np.tile(v[:, 3:], 2), 2))


def u8(*shape: int) -> Array:
    return RANDOM.integers(0, 200, shape).astype(np.uint8)


def real(x: Array, scale: float, zero: int) -> Array:
    return (x.astype(np.float32) - zero) * np.float32(scale)


def rounded(x: Array, scale: float, zero: int) -> Array:
    return np.clip(np.rint(x / np.float32(scale)) + zero, 0, 255)


def test_quantised_operators() -> None:
    def by(scale: float, zero: int) -> tuple[Any, Any]:
        return np.float32(scale), np.uint8(zero)

    a, b = u8(2, 3), u8(2, 3)
    (y,) = computed("QLinearAdd", a, *by(0.1, 3), b, *by(0.2, 5), *by(0.3, 7))
    np.testing.assert_allclose(y, rounded(real(a, 0.1, 3) + real(b, 0.2, 5), 0.3, 7), atol=1)
    (y,) = computed("QLinearSigmoid", a, *by(0.1, 100), *by(0.01, 7))
    np.testing.assert_allclose(y, rounded(1 / (1 + np.exp(-real(a, 0.1, 100))), 0.01, 7), atol=1)
    w, bias = u8(3, 4), RANDOM.integers(-9, 9, 4).astype(np.int32)
    (y,) = computed("QGemm", a, *by(0.1, 3), w, *by(0.2, 5), bias, *by(0.5, 9))
    expected = real(a, 0.1, 3) @ real(w, 0.2, 5) + bias * 0.02
    np.testing.assert_allclose(y, rounded(expected, 0.5, 9), atol=1)
    x, weights = drawn(2, 3), RANDOM.integers(-99, 99, (3, 4)).astype(np.int8)
    proto = model("DynamicQuantizeMatMul", [x, weights, np.float32(0.05), np.int8(2), drawn(4)])
    roles = {port.name: port.role for port in arguments_of(entry_function(import_model(proto)))}
    assert roles["i1"] == roles["i4"] == "parameter"
    (y,) = run(import_model(proto), {"i0": x}).values()
    bias = numpy_helper.to_array(proto.graph.initializer[-1])
    np.testing.assert_allclose(y, x @ real(weights, 0.05, 2) + bias, atol=0.2)


def test_a_quantised_lstm_has_weights_by_columns() -> None:
    x, w, r = drawn(3, 2, 4), *(RANDOM.integers(-99, 99, (1, n, 12)).astype(np.int8) for n in (4, 3))
    scale, zero = np.array([0.01], np.float32), np.zeros(1, np.int8)
    (y,) = computed(
        "DynamicQuantizeLSTM", x, w, r, None, None, None, None, None, scale, zero, scale, zero, hidden_size=3
    )
    lstm = torch.nn.LSTM(4, 3)
    order = [0, 2, 3, 1]  # ONNX has input, output, forget, cell; torch input, forget, cell, output
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
            else:
                gates = np.split((w if name == "weight_ih_l0" else r)[0].T * np.float32(0.01), 4)
                parameter.copy_(torch.tensor(np.concatenate([gates[i] for i in order])))
        expected, _ = lstm(torch.tensor(x))
    agrees(y[:, 0], expected)


@pytest.mark.parametrize(
    ("operator", "operands", "attributes", "message"),
    [
        (
            "Attention",
            [drawn(1, 2, 4), drawn(4, 12), None, None, drawn(2, 1, 1, 2, 4)],
            {"num_heads": 1},
            "operand 4 is not supported",
        ),
        ("FusedGemm", [drawn(2, 2), drawn(2, 2)], {"activation": "Swish"}, "activation Swish is not known"),
        ("Gelu", [drawn(2)], {"beta": 2}, "attribute beta is not supported"),
        ("SparseAttention", [drawn(2)], {}, "in the unknown domain 'com.microsoft'"),
    ],
)
def test_what_is_not_known_is_refused(
    operator: str, operands: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DistirError, match=message):
        import_model(model(operator, operands, **attributes))
