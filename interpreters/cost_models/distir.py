"""`distir`: the cost model of the original DistIR (github.com/microsoft/dist-ir, `executor/cost_model.py` at
7cfa1b0), formula by formula, so that its published simulations can be reproduced. In go sizes; out come seconds, by
a regression: with f flops per second, w bytes per second, s bytes per element, 1 / f, 1 / w and the launch constant
are its coefficients.

Odd formulas are the original's and are kept: see `docs/cost_models.md` for the list. On the machine whose
calibration was recovered (`distir_dgx2.toml`) the constants are the authors'; on any other they are the machine
file's (matmul peak and memory bandwidth as reached, link bandwidth), with the original's uncalibrated formulas for
collectives.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Operation, SSAValue

from distir.dialects.dist.attributes import placement
from distir.interpreters.cost_models import CostModel
from distir.interpreters.machines import Machine
from distir.interpreters.work import Work, element_bytes, type_bytes

BYTES_IN_GIGABIT = 1.25e8
LAUNCH_SECONDS = 1.0e-5
"""Added to whatever runs a kernel: a constant of the original's, which ignores what its device descriptions say."""
CALIBRATION = Path(__file__).with_name("distir_dgx2.toml")


@dataclass(frozen=True)
class Device:
    """The regression's coefficients for local operations, inverted."""

    flops_per_second: float
    bytes_per_second: float

    def kernel(self, bytes: float, flops: float) -> float:
        """Seconds of one kernel."""
        return LAUNCH_SECONDS + bytes / self.bytes_per_second + flops / self.flops_per_second

    def elementwise(self, x: SSAValue, operands: int) -> float:
        """n flops and as many bytes as `operands` tensors like x; what is written is not counted."""
        elements = prod(_shape(x))
        return self.kernel(_element_bytes(x) * elements * operands, elements)

    def matmul(self, element: int, rows: int, inner: int, others: int, columns: int) -> float:
        """(rows, inner) times (others, columns), where `others` is `inner` unless there are more dims than two."""
        return self.kernel(element * (rows * inner + others * columns), 2 * rows * inner * columns)


Formula = Callable[[Device, Operation], float]


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Any], value.type).get_shape()


def _element_bytes(value: SSAValue) -> int:
    return element_bytes(cast(TensorType[Any], value.type).element_type)


def _matrix(value: SSAValue) -> tuple[int, int]:
    """Dims 0 and 1: all that the original looks at, whatever the rank."""
    return cast(tuple[int, int], (*_shape(value), 1, 1)[:2])


def _matmul(device: Device, op: Operation) -> float:
    return device.matmul(_element_bytes(op.operands[0]), *_matrix(op.operands[0]), *_matrix(op.operands[1]))


def _gemm(device: Device, op: Operation) -> float:
    """A matmul and, as a kernel of its own, the addition of the bias."""
    x, y = _matrix(op.operands[0]), _matrix(op.operands[1])
    added = x[0] * y[1]
    element = _element_bytes(op.operands[0])
    return device.matmul(element, *x, *y) + device.kernel(2 * element * added, added)


def _matmul_grad(device: Device, op: Operation) -> float:
    """Two matmuls: `dy @ w.T` and `x.T @ dy`."""
    (rows, inner), (_, columns) = _matrix(op.operands[0]), _matrix(op.operands[1])
    dy = _matrix(op.operands[2])
    element = _element_bytes(op.operands[0])
    return device.matmul(element, *dy, columns, inner) + device.matmul(element, inner, rows, *dy)


def _elementwise(device: Device, op: Operation) -> float:
    """By the first operand; several operands count as two. On scalars nothing runs."""
    if not any(_shape(operand) for operand in op.operands):
        return 0.0
    return device.elementwise(op.operands[0], min(len(op.operands), 2))


def _unary(device: Device, op: Operation) -> float:
    """By the first operand, whatever other operands there are: those that are attributes in opset 10."""
    return device.elementwise(op.operands[0], 1) if _shape(op.operands[0]) else 0.0


def _cast(device: Device, op: Operation) -> float:
    """Free of integers."""
    element = cast(TensorType[Any], op.operands[0].type).element_type
    return 0.0 if isinstance(element, IntegerType) else _unary(device, op)


def _subtract(device: Device, op: Operation) -> float:
    """A constant minus a tensor is free."""
    return _elementwise(device, op) if _shape(op.operands[0]) else 0.0


def _loss(device: Device, op: Operation) -> float:
    """By the label alone: the original passes its arguments on one place too far."""
    return device.elementwise(op.operands[1], 1)


def _update(device: Device, op: Operation) -> float:
    """The original updates all parameters of a device in one operation and charges the last one: an update that says
    `fused` is part of one that follows."""
    return 0.0 if "fused" in op.attributes else _elementwise(device, op)


def _launch(device: Device, op: Operation) -> float:
    return LAUNCH_SECONDS


def _nothing(device: Device, op: Operation) -> float:
    return 0.0


def _named(formula: Formula, *names: str) -> dict[str, Formula]:
    return dict.fromkeys(names, formula)


def _onnx(formula: Formula, names: str) -> dict[str, Formula]:
    return _named(formula, *(f"onnx.{name}" for name in names.split()))


FORMULAS: dict[str, Formula] = {
    **_onnx(_matmul, "MatMul"),
    **_onnx(_gemm, "Gemm"),
    **_onnx(_elementwise, "Add Div Mul Pow Relu Sqrt Tanh"),
    **_onnx(_unary, "ReduceMean Softmax Transpose"),
    **_onnx(_cast, "Cast"),
    **_onnx(_subtract, "Sub"),
    **_onnx(_launch, "Concat ConstantOfShape Gather NonZero Reshape Shape Slice Split Squeeze Unsqueeze"),
    **_onnx(_nothing, "Constant Identity"),
    **_named(_matmul_grad, "grad.matmul_grad"),
    **_named(_elementwise, "grad.relu_grad", "dist.accumulate"),
    **_named(_loss, "grad.loss", "grad.loss_grad"),
    **_named(_update, "grad.sgd"),
    **_named(_launch, "dist.concat", "dist.slice"),
    **_named(_nothing, "dist.pack", "dist.unpack", "dist.move"),
}
"""The original's table, by our names for its operators."""


class DistirCostModel(CostModel):
    """Seconds by the original's regression."""

    def __init__(self, machine: Machine):
        super().__init__(machine)
        self.calibration = _calibration() if machine.name == _calibration()["machine"] else None
        self._devices: dict[str, Device] = {}

    @property
    def is_by_levels(self) -> bool:
        """Not where every pair of devices has a bandwidth of its own."""
        return self.calibration is None

    @property
    def has_kernels(self) -> bool:
        """The original's backend runs operation by operation."""
        return False

    def operation_seconds(self, op: Operation, devices: Sequence[int]) -> float | None:
        if op.name in ("dist.gather", "dist.reduce"):
            places = dict.fromkeys(placement(value.type) for value in (*op.operands, *op.results))
            root = devices[list(places).index(placement(op.results[0].type))]
            bytes = type_bytes(op.operands[0].type) * _element_bytes(op.operands[0])
            return self._gathered_seconds(bytes, root, devices)
        if op.name == "dist.send":
            type_ = cast(TensorType[Any], op.operands[0].type)
            is_integer = isinstance(type_.element_type, IntegerType)
            return 0.0 if is_integer and not type_.get_shape() else None
        formula = FORMULAS.get(op.name)
        return None if formula is None else formula(self._device(_dtype(op)), op)

    def matmul_seconds(self, work: Work, dtype: str) -> float:
        """Contractions that the original does not know: its fallback, one launch."""
        return LAUNCH_SECONDS

    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        """Operators that the original does not know: its fallback, one launch."""
        return LAUNCH_SECONDS

    def data_movement_seconds(self, work: Work) -> float:
        """Operators that the original does not know: its fallback, one launch."""
        return LAUNCH_SECONDS

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        """Bytes over the bandwidth of the pair: no latency."""
        return bytes / BYTES_IN_GIGABIT / self._gigabits_per_second(source, target)

    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        """An allgather is an allreduce of one operand's size; `reducescatter` and `alltoall`, which the original lacks,
        are taken as an allgather. Broadcast and scatter are free. A group size without calibration is a ring over the
        mean bandwidth of all pairs. Gather and reduce go to the first device; `operation_seconds` knows better."""
        count = len(devices)
        if count < 2 or kind in ("broadcast", "scatter"):
            return 0.0
        if kind in ("gather", "reduce"):
            return self._gathered_seconds(bytes / count if kind == "gather" else bytes, devices[0], devices)
        gigabits = (bytes if kind == "allreduce" else bytes / count) / BYTES_IN_GIGABIT
        fit = None if self.calibration is None else self.calibration["allreduce"].get(str(count))
        if fit is not None:
            return fit["seconds_per_gigabit"] * gigabits + fit["seconds"]
        pairs = [self._gigabits_per_second(*pair) for pair in combinations(devices, 2)]
        return 2 * (count - 1) / count * gigabits / (sum(pairs) / len(pairs))

    def _gathered_seconds(self, bytes: float, root: int, devices: Sequence[int]) -> float:
        """The slowest of the messages to the root."""
        rates = [self._gigabits_per_second(device, root) for device in devices if device != root]
        return bytes / BYTES_IN_GIGABIT / min(rates) if rates else 0.0

    def _gigabits_per_second(self, source: int, target: int) -> float:
        if self.calibration is not None:
            pairs = self.calibration["pairs"]
            first, second = sorted((source, target))
            return pairs["neighbours"][first] if second == first + 1 else pairs["gigabits_per_second"]
        level = self.machine.levels[self.machine.spanned_level((source, target))]
        return level.bandwidth_bytes_per_second / BYTES_IN_GIGABIT

    def _device(self, dtype: str) -> Device:
        if (device := self._devices.get(dtype)) is None:
            device = self._devices[dtype] = self._make_device(dtype)
        return device

    def _make_device(self, dtype: str) -> Device:
        """The calibration's rates hold for every element type, as in the original."""
        if self.calibration is not None:
            table = self.calibration["device"]
            return Device(table["flops_per_second"], table["bytes_per_second"])
        described = self.machine.device
        return Device(
            described.matmul_rate(dtype),
            described.memory_bandwidth_bytes_per_second * described.memory_efficiency,
        )


def _dtype(op: Operation) -> str:
    types = [v.type for v in (*op.operands, *op.results)]
    return next((str(cast(TensorType[Any], t).element_type) for t in types if isinstance(t, TensorType)), "f32")


@cache
def _calibration() -> Mapping[str, Any]:
    return tomllib.loads(CALIBRATION.read_text(encoding="utf-8"))
