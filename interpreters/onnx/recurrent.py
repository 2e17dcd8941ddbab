"""Recurrent layers of the `onnx` dialect. In go sequences of a batch with a length for each; out come their states.
The reference evaluator of the onnx package (1.23.2) ignores the lengths. It has neither clipping nor other
activations of gated layers; they are refused here, not left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_gru, op_lstm, op_rnn

Array = np.ndarray[Any, Any]

_ACTIVATIONS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
"""Of one direction, in lower case: names are the same in any."""


def _run_by_length(
    layer: OpRun, parent: Any, operands: Sequence[Array | None], attributes: dict[str, Any]
) -> tuple[Array, ...]:
    """Runs the sequences of each length together. Results are zero beyond the end of a sequence."""
    x, w, r, b, lengths, *states = (*operands, *[None] * (5 - len(operands)))
    assert x is not None
    assert w is not None
    _refuse(type(layer).__name__, w.shape[0], attributes)
    if lengths is None:
        return parent(x, w, r, b, None, *states, **attributes)
    layout = int(attributes.get("layout") or 0)
    steps, batch = x.shape[layout], x.shape[1 - layout]
    if lengths.shape != (batch,) or any(not 0 <= n <= steps for n in lengths):
        raise ValueError(f"expected {batch} lengths of at most {steps}, got {lengths.tolist()}")
    results: list[Array] = []
    for n in np.unique(lengths)[::-1]:
        items = np.flatnonzero(lengths == n)
        own = [s.take(items, 1 - layout) if s is not None and s.ndim == 3 else s for s in states]
        part = x.take(items, 1 - layout).take(range(max(n, 1)), layout)
        made = parent(part, w, r, b, None, *own, **attributes)
        if not results:
            results = [np.zeros(_whole(y.shape, i, layout, steps, batch), y.dtype) for i, y in enumerate(made)]
        for i, (whole, y) in enumerate(zip(results, made if n else (), strict=False)):
            if i == 0:
                place = (items, slice(n)) if layout else (slice(n), slice(None), items)
            else:
                place = (items,) if layout else (slice(None), items)
            whole[place] = y
    return tuple(results)


def _refuse(name: str, directions: int, attributes: dict[str, Any]) -> None:
    """Raises ValueError for what the evaluator would leave out. It has one activation of a plain layer, and the defaults of others."""
    if attributes.get("clip") is not None or attributes.get("input_forget"):
        raise ValueError(f"{name} with 'clip' or 'input_forget' is not implemented")
    own = _ACTIVATIONS[name] * directions
    stated = [activation.lower() for activation in attributes.get("activations") or ()][: len(own)]
    if stated and stated != own and len(own) > 1:
        raise ValueError(f"{name} with the activations {stated} is not implemented")


def _whole(shape: Sequence[int], result: int, layout: int, steps: int, batch: int) -> list[int]:
    """The shape for all steps and the whole batch."""
    whole = list(shape)
    if result == 0:
        whole[layout] = steps
    whole[0 if layout else 2 if result == 0 else 1] = batch
    return whole


class RNN(op_rnn.RNN_14):
    op_domain = ""

    def _run(self, *operands: Array | None, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run_by_length(self, super()._run, operands, attributes)


class GRU(op_gru.GRU):
    op_domain = ""

    def _run(self, *operands: Array | None, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run_by_length(self, super()._run, operands, attributes)


class LSTM(op_lstm.LSTM):
    op_domain = ""

    def _run(self, *operands: Array | None, **attributes: Any) -> tuple[Array, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _run_by_length(self, super()._run, operands, attributes)


RECURRENT: list[type[OpRun]] = [GRU, LSTM, RNN]
