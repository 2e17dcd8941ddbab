"""Recurrent layers of the `onnx` dialect: RNN, GRU and LSTM as the standard has them, with lengths, any activations, clipping and peepholes.
The reference evaluator of the onnx package (1.23.2) has no lengths, no clipping and few activations, so all is computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Activation = Callable[[Array, Any, Any], Array]
"""Of values, alpha and beta."""

_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""Of one direction."""


def _sigmoid(x: Array) -> Array:
    """Without overflow for large negative numbers."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


_ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
}
"""By name in lower case: names are the same in any."""

_NUMBERS: Mapping[str, tuple[float | None, float | None]] = {
    "affine": (np.nan, np.nan),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (np.nan, np.nan),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""Alpha and beta where none are given: None where an activation has none, NaN where one must be given (the standard takes those of the operator
of that name, and there is none)."""


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: its weights, and what it makes of the sum of a gate."""

    w: Array
    """Gates after each other, by inputs."""
    r: Array
    """The same by hidden values."""
    bias_w: Array
    bias_r: Array
    peepholes: Array
    """Of the input, output and forget gate, after each other."""
    activations: Sequence[Callable[[Array], Array]]
    clip: float | None
    reset_after: bool
    input_forget: bool

    def gate(self, activation: int, value: Array) -> Array:
        """Of a sum: clipped, then activated."""
        clipped = value if self.clip is None else np.clip(value, -self.clip, self.clip)
        return self.activations[activation](clipped).astype(value.dtype)

    def rnn(self, x: Array, h: Array) -> tuple[Array, ...]:
        return (self.gate(0, x @ self.w.T + h @ self.r.T + self.bias_w + self.bias_r),)

    def gru(self, x: Array, h: Array) -> tuple[Array, ...]:
        size = h.shape[-1]
        of_x = x @ self.w.T + self.bias_w
        of_h = h @ self.r[: 2 * size].T + self.bias_r[: 2 * size]
        z, reset = np.split(self.gate(0, of_x[:, : 2 * size] + of_h), 2, -1)
        r, bias = self.r[2 * size :].T, self.bias_r[2 * size :]
        last = reset * (h @ r + bias) if self.reset_after else (reset * h) @ r + bias
        return ((1 - z) * self.gate(1, of_x[:, 2 * size :] + last) + z * h,)

    def lstm(self, x: Array, h: Array, c: Array) -> tuple[Array, ...]:
        i, o, f, new = np.split(x @ self.w.T + h @ self.r.T + self.bias_w + self.bias_r, 4, -1)
        p_i, p_o, p_f = np.split(self.peepholes, 3)
        i = self.gate(0, i + p_i * c)
        f = 1 - i if self.input_forget else self.gate(0, f + p_f * c)
        c = f * c + i * self.gate(1, new)
        return self.gate(0, o + p_o * c) * self.activations[2](c).astype(c.dtype), c


def _run(
    name: str,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    peepholes: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """All hidden states, the last one, and the last cells of an LSTM. Results are zero beyond the end of a sequence."""
    by_batch = bool(attributes.get("layout"))
    x = x.swapaxes(0, 1) if by_batch else x
    states = [a.swapaxes(0, 1) if a is not None and by_batch else a for a in (initial_h, initial_c)]
    steps, batch, directions, size = *x.shape[:2], w.shape[0], r.shape[-1]
    if lengths is None:
        lengths = np.full(batch, steps)
    if lengths.shape != (batch,) or any(not 0 <= n <= steps for n in lengths):
        raise ValueError(f"expected {batch} lengths of at most {steps}, got {lengths.tolist()}")
    kinds = [str(attributes.get("direction") or "forward")]
    if kinds == ["bidirectional"]:
        kinds = ["forward", "reverse"]
    if directions != len(kinds):
        raise ValueError(f"expected weights of {len(kinds)} directions, got {directions}")
    y = np.zeros((steps, directions, batch, size), x.dtype)
    last = [np.zeros((directions, batch, size), x.dtype) for _ in range(2 if name == "LSTM" else 1)]
    for d, (kind, activations) in enumerate(
        zip(kinds, activations_of(name, directions, attributes, _ACTIVATIONS), strict=True)
    ):
        bias = np.zeros(2 * w.shape[1], x.dtype) if b is None else b[d]
        layer = _Direction(
            w[d],
            r[d],
            bias[: w.shape[1]],
            bias[w.shape[1] :],
            np.zeros(3 * size, x.dtype) if peepholes is None else peepholes[d],
            activations,
            attributes.get("clip"),
            bool(attributes.get("linear_before_reset")),
            bool(attributes.get("input_forget")),
        )
        step = {"RNN": layer.rnn, "GRU": layer.gru, "LSTM": layer.lstm}[name]
        now = [np.zeros((batch, size), x.dtype) if s is None else s[d] for s in states[: len(last)]]
        for t in range(steps) if kind == "forward" else reversed(range(steps)):
            goes_on = (lengths > t)[:, None]
            now = [np.where(goes_on, new, old) for new, old in zip(step(x[t], *now), now, strict=True)]
            y[t, d] = np.where(goes_on, now[0], 0)
        for whole, state in zip(last, now, strict=True):
            whole[d] = np.where((lengths > 0)[:, None], state, 0)
    if by_batch:
        return y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)
    return y, *last


def activations_of(
    name: str, directions: int, attributes: Mapping[str, Any], functions: Mapping[str, Callable[[Any, Any, Any], Any]]
) -> Iterator[Sequence[Callable[[Any], Any]]]:
    """Of each direction, made of functions by name in lower case. Alphas and betas are given to those activations that have them, in order."""
    own = _DEFAULTS[name] * directions
    stated: Sequence[str] = attributes.get("activations") or own
    if len(stated) < len(own):
        raise ValueError(f"expected {len(own)} activations, got {', '.join(stated)}")
    alphas, betas = (iter(attributes.get(f"activation_{each}") or ()) for each in ("alpha", "beta"))
    found: list[Callable[[Any], Any]] = []
    for each in stated[: len(own)]:
        if (kind := each.lower()) not in functions:
            raise ValueError(f"{name} has no activation {each}; known are {', '.join(functions)}")
        alpha, beta = _NUMBERS.get(kind, (None, None))
        alpha = None if alpha is None else next(alphas, alpha)
        beta = None if beta is None else next(betas, beta)
        if any(number is not None and np.isnan(number) for number in (alpha, beta)):
            raise ValueError(
                f"the activation {each} of {name} has no default: give activation_alpha and activation_beta"
            )
        found.append(partial(_with_numbers, functions[kind], alpha, beta))
    count = len(_DEFAULTS[name])
    return (found[d * count : (d + 1) * count] for d in range(directions))


def _with_numbers(function: Callable[[Any, Any, Any], Any], alpha: float | None, beta: float | None, x: Any) -> Any:
    return function(x, alpha, beta)


class RNN(OpRun):
    op_domain = ""

    def _run(self, *operands: Any, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run("RNN", *operands, **attributes)


class GRU(OpRun):
    op_domain = ""

    def _run(self, *operands: Any, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run("GRU", *operands, **attributes)


class LSTM(OpRun):
    op_domain = ""

    def _run(self, *operands: Any, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run("LSTM", *operands, **attributes)


RECURRENT: list[type[OpRun]] = [GRU, LSTM, RNN]
