"""Recurrent layers of ONNX with a length for each sequence, against each sequence alone."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.interpreters.onnx.reference import run_onnx
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.long_cases import also_long
from tests.unit.onnx_operations import onnx_operation
from tests.unit.shard_executor import violations

STEPS, BATCH, INPUTS, HIDDEN = 6, 4, 3, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    operator: str, direction: str = "forward", layout: int = 0, batch: int = BATCH, properties: str = ""
) -> Operation:
    """A layer with a bias, lengths and the states before."""
    directions, gates = 1 + (direction == "bidirectional"), GATES[operator]
    x = f"{STEPS}x{batch}x{INPUTS}" if layout == 0 else f"{batch}x{STEPS}x{INPUTS}"
    state = f"{directions}x{batch}x{HIDDEN}" if layout == 0 else f"{batch}x{directions}x{HIDDEN}"
    y = f"{STEPS}x{directions}x{batch}x{HIDDEN}" if layout == 0 else f"{batch}x{STEPS}x{directions}x{HIDDEN}"
    states = [f"{state}xf32"] * (2 if operator == "LSTM" else 1)
    weights = [f"{directions}x{gates * HIDDEN}x{n}xf32" for n in (INPUTS, HIDDEN)]
    operands = [f"{x}xf32", *weights, f"{directions}x{2 * gates * HIDDEN}xf32", f"{batch}xi32", *states]
    stated = f'direction = "{direction}", hidden_size = {HIDDEN} : si64, layout = {layout} : si64{properties}'
    return onnx_operation(operator, operands, [f"{y}xf32", *states], stated)


def operands_of(op: Operation, lengths: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(value.type.get_shape()).astype(np.float32) for value in op.operands]  # pyright: ignore
    arrays[4] = np.array(lengths, np.int32)
    return arrays


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize(("direction", "layout"), [("forward", 0), ("reverse", 1), ("bidirectional", 0)])
def test_each_sequence_ends_where_it_ends(operator: str, direction: str, layout: int) -> None:
    lengths = [6, 2, 0, 2]
    whole, alone = layer(operator, direction, layout), layer(operator, direction, layout, 1)
    arrays = operands_of(whole, lengths)
    results = run_onnx(whole, arrays)
    for item, length in enumerate(lengths):
        own = [a if i in (1, 2, 3) else a.take([item], 0 if i == 4 else 1 - layout) for i, a in enumerate(arrays)]
        expected = run_onnx(alone, own)
        steps = results[0].take(item, 0 if layout else 2)  # pyright: ignore
        assert not steps[length:].any()
        assert (steps[:length] != 0).all()
        for got, want, axis in zip(results, expected, [0 if layout else 2, 1 - layout, 1 - layout], strict=False):
            np.testing.assert_allclose(got.take([item], axis), want, rtol=1e-5, atol=1e-6)  # pyright: ignore
        if length and direction == "forward":
            np.testing.assert_allclose(results[1].take(item, 1 - layout)[0], steps[length - 1, 0], rtol=1e-6)  # pyright: ignore


@pytest.mark.parametrize(
    ("lengths", "properties", "reason"),
    [
        ([7, 1, 1, 1], "", "expected 4 lengths of at most 6"),
        ([6, 6, 6, 6], ', activations = ["Sine", "Tanh", "Tanh"]', "no activation Sine; known are relu"),
        ([6, 6, 6, 6], ', activations = ["Affine", "Tanh", "Tanh"]', "Affine of LSTM has no default"),
        ([6, 6, 6, 6], ', activations = ["Tanh"]', "expected 3 activations"),
    ],
)
def test_what_is_not_computed_is_refused(lengths: list[int], properties: str, reason: str) -> None:
    op = layer("LSTM", properties=properties)
    with pytest.raises(DistirError, match=reason):
        run_onnx(op, operands_of(op, lengths))


def test_defaults_in_other_words_are_computed() -> None:
    stated = layer("LSTM", properties=', activations = ["sigmoid", "tanh", "TANH"]')
    arrays = operands_of(stated, [6, 2, 0, 2])
    for got, want in zip(run_onnx(stated, arrays), run_onnx(layer("LSTM"), arrays), strict=True):
        np.testing.assert_array_equal(got, want)  # pyright: ignore[reportArgumentType]


def test_each_activation_takes_the_numbers_that_are_its_own() -> None:
    """The first of two alphas is LeakyRelu's: Tanh has none."""
    kinds = ', activations = ["Tanh", "LeakyRelu", "ScaledTanh"], activation_alpha = [0.5 : f32, 2.0 : f32], activation_beta = [0.25 : f32]'
    op = layer("LSTM", properties=kinds)
    x, w, r, b, _, h, c = operands_of(op, [6] * BATCH)
    y, last_h, last_c = run_onnx(op, operands_of(op, [6] * BATCH))
    h, c = h[0], c[0]
    for step in range(STEPS):
        gates = x[step] @ w[0].T + h @ r[0].T + b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :]
        i, o, f, new = np.split(gates, 4, 1)
        c = np.tanh(f) * c + np.tanh(i) * np.where(new >= 0, new, 0.5 * new)
        h = np.tanh(o) * 2 * np.tanh(0.25 * c)
        np.testing.assert_allclose(y[step, 0], h, rtol=1e-4, atol=1e-5)  # pyright: ignore
    np.testing.assert_allclose(last_h[0], h, rtol=1e-4, atol=1e-5)  # pyright: ignore
    np.testing.assert_allclose(last_c[0], c, rtol=1e-4, atol=1e-5)  # pyright: ignore


def test_clipping_is_before_activations_and_a_coupled_gate_forgets_what_is_not_taken_in() -> None:
    clipped = layer("RNN", properties=', clip = 0.5 : f32, activations = ["Relu"]')
    y = run_onnx(clipped, operands_of(clipped, [6] * BATCH))[0]
    assert (y.min(), y.max()) == (0, 0.5)  # pyright: ignore
    coupled = layer("LSTM", properties=', input_forget = 1 : si64, activations = ["Sigmoid", "Relu", "Tanh"]')
    arrays = operands_of(coupled, [6] * BATCH)
    arrays[6][:] = 1
    arrays[1][:, 3 * HIDDEN :], arrays[2][:, 3 * HIDDEN :], arrays[3][:] = 0, 0, 0
    arrays[3][:, 3 * HIDDEN : 4 * HIDDEN] = 1  # what is new is 1, as what was: their average is 1, whatever the gate
    np.testing.assert_allclose(run_onnx(coupled, arrays)[2], 1, rtol=1e-5)  # pyright: ignore


@pytest.mark.parametrize("operator", also_long(GATES, ["GRU"]))
def test_the_batch_is_cut_with_its_lengths(operator: str) -> None:
    op = layer(operator)
    rule = Discovery(InterpreterDomains()).rule(op)
    state = ", [_, S1, _]" * (2 if operator == "LSTM" else 1)
    assert f"[_, S1, _], [_, _, _], [_, _, _], [_, _], [S1]{state}" in str(rule)
    rng = np.random.default_rng(0)
    assert not violations(op, rule, operands_of(op, [6, 2, 0, 2]), rng).violations
