"""Recurrent layers of ONNX on torch, step by step: RNN, GRU and LSTM with lengths, any activations, clipping and peepholes, as
`distir.interpreters.onnx.recurrent` has them. In go a node and its operands; out come tensors. With these, `TABLE` is complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from distir.backends.torch.resampling import TABLE
from distir.backends.torch.table import Node, Results, operator
from distir.interpreters.onnx.recurrent import activations_of

__all__ = ["TABLE"]

_ACTIVATIONS: dict[str, Callable[[Tensor, Any, Any], Tensor]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: torch.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: torch.where(x > a, x, torch.zeros_like(x)),
    "scaledtanh": lambda x, a, b: a * torch.tanh(b * x),
    "hardsigmoid": lambda x, a, b: (a * x + b).clamp(0, 1),
    "elu": lambda x, a, b: torch.where(x >= 0, x, a * torch.expm1(x.clamp(max=0))),
    "softsign": lambda x, a, b: functional.softsign(x),
    "softplus": lambda x, a, b: functional.softplus(x),
}


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: its weights, and what it makes of the sum of a gate."""

    w: Tensor
    r: Tensor
    bias_w: Tensor
    bias_r: Tensor
    peepholes: Tensor | None
    node: Node
    activations: Sequence[Callable[[Tensor], Tensor]]

    def gate(self, activation: int, value: Tensor) -> Tensor:
        clip = self.node["clip"]
        return self.activations[activation](value if clip is None else value.clamp(-clip, clip))

    def rnn(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return (self.gate(0, x + h @ self.r.T + self.bias_r),)

    def gru(self, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        size = h.shape[-1]
        of_h = h @ self.r[: 2 * size].T + self.bias_r[: 2 * size]
        z, reset = self.gate(0, x[:, : 2 * size] + of_h).chunk(2, -1)
        r, bias = self.r[2 * size :].T, self.bias_r[2 * size :]
        last = reset * (h @ r + bias) if self.node["linear_before_reset"] else (reset * h) @ r + bias
        return ((1 - z) * self.gate(1, x[:, 2 * size :] + last) + z * h,)

    def lstm(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, o, f, new = (x + h @ self.r.T + self.bias_r).chunk(4, -1)
        p_i, p_o, p_f = (None,) * 3 if self.peepholes is None else self.peepholes.chunk(3)
        i = self.gate(0, i if p_i is None else i + p_i * c)
        f = 1 - i if self.node["input_forget"] else self.gate(0, f if p_f is None else f + p_f * c)
        c = f * c + i * self.gate(1, new)
        return self.gate(0, o if p_o is None else o + p_o * c) * self.activations[2](c), c


def _layer(
    name: str,
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> Results:
    by_batch = bool(node["layout"])
    x = x.transpose(0, 1) if by_batch else x
    starts = [s.transpose(0, 1) if s is not None and by_batch else s for s in (initial_h, initial_c)]
    steps, batch, directions, size = *x.shape[:2], w.shape[0], r.shape[-1]
    count = 2 if name == "LSTM" else 1
    all_states: list[Tensor] = []
    last: list[list[Tensor]] = []
    of_directions = activations_of(name, directions, node.attributes, _ACTIVATIONS)
    for d, activations in enumerate(of_directions):
        bias = x.new_zeros(2 * w.shape[1]) if b is None else b[d]
        own = None if peepholes is None else peepholes[d]
        layer = _Direction(w[d], r[d], bias[: w.shape[1]], bias[w.shape[1] :], own, node, activations)
        step = {"RNN": layer.rnn, "GRU": layer.gru, "LSTM": layer.lstm}[name]
        of_x = x @ layer.w.T + layer.bias_w
        now = [x.new_zeros(batch, size) if s is None else s[d] for s in starts[:count]]
        hidden: list[Tensor] = []
        forward = node["direction"] != "reverse" and d == 0
        for t in range(steps) if forward else reversed(range(steps)):
            new = step(of_x[t], *now)
            if lengths is None:
                now = list(new)
                hidden.append(now[0])
                continue
            goes_on = (lengths > t).unsqueeze(-1)
            now = [torch.where(goes_on, a, b) for a, b in zip(new, now, strict=True)]
            hidden.append(torch.where(goes_on, now[0], torch.zeros_like(now[0])))
        all_states.append(torch.stack(hidden if forward else hidden[::-1]))
        if lengths is not None:
            now = [torch.where((lengths > 0).unsqueeze(-1), s, torch.zeros_like(s)) for s in now]
        last.append(now)
    y = torch.stack(all_states, 1)
    states = [torch.stack([of_one[i] for of_one in last]) for i in range(count)]
    if by_batch:
        return y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in states)
    return y, *states


@operator("RNN")
def rnn(node: Node, *operands: Tensor) -> Results:
    return _layer("RNN", node, *operands)


@operator("GRU")
def gru(node: Node, *operands: Tensor) -> Results:
    return _layer("GRU", node, *operands)


@operator("LSTM")
def lstm(node: Node, *operands: Tensor) -> Results:
    return _layer("LSTM", node, *operands)
