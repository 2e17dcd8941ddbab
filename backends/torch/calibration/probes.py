"""The probe programs of a calibration. In go the number of processes and element types; out come level 3 programs.
Each repeats one kind of operation, on every process at once. They run on the same backend as any program, so a fit
includes the backend's overhead. None is a model or a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

REPEATS = 4
"""Operations of a probe, one after the other: few, so that some runs are not interrupted on a busy machine."""
ROWS = 48
"""Of a message's tensor: divisible by 2, 3, 4, 6, 8 and 12 processes."""

MATMULS = (
    *((16, 64, 64), (16, 256, 256), (64, 256, 256), (256, 256, 256), (256, 64, 512)),
    *((64, 512, 256), (32, 512, 512), (256, 1024, 64), (128, 512, 512), (64, 1024, 1024)),
)
"""m, n, k: squares, and the long, flat and deep ones of sharded layers."""
ELEMENTS = (1 << 8, 1 << 13, 1 << 15, 1 << 17, 1 << 18, 1 << 20)
BYTES = (1 << 12, 1 << 15, 1 << 17, 1 << 19, 1 << 21)
COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "scatter", "gather", "reduce")
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


@dataclass(frozen=True)
class Probe:
    """A program, and what each of its operations asks for."""

    kind: str
    dtype: str
    text: str
    devices: int
    """How many take part in one operation."""
    bytes: int
    flops: int = 0


def probes(processes: int, dtypes: tuple[str, ...], is_quick: bool) -> list[Probe]:
    """All of them; `is_quick` leaves out sizes, not kinds."""
    step = 2 if is_quick else 1
    found: list[Probe] = []
    for dtype in dtypes:
        found += [_matmul(processes, dtype, *shape) for shape in MATMULS[::step]]
    found += [_elementwise(processes, name, n) for n in ELEMENTS[::step] for name in ("Relu", "Add")]
    found += [_copy(processes, n) for n in ELEMENTS[::step]]
    for size in BYTES[::step]:
        for count in sorted({2, processes}) if processes > 1 else ():
            found += [_collective(kind, count, processes, size) for kind in COLLECTIVES]
        if processes > 1:
            found.append(_send(processes, size))
    return found


def _tensor(shape: tuple[int, ...], dtype: str, device: int) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{dtype}, #dist.on<{device}>>"


def _program(arguments: list[str], lines: Iterator[str] | list[str], processes: int) -> str:
    given = ", ".join(f"%a{i}: {type_}" for i, type_ in enumerate(arguments))
    body = "\n".join(lines)
    head = f"builtin.module attributes {{dist.devices = {processes} : i64}} {{\nfunc.func @main({given}) {{\n"
    return f"{head}{body}\nfunc.return\n}}\n}}\n"


def _local(
    processes: int,
    name: str,
    operands: list[tuple[int, ...]],
    result: tuple[int, ...],
    dtype: str,
    properties: str = "",
) -> str:
    """The operator on every device, repeated."""
    arguments = [_tensor(shape, dtype, d) for d in range(processes) for shape in operands]
    count = len(operands)
    lines: list[str] = []
    for repeat in range(REPEATS):
        for d in range(processes):
            values = ", ".join(f"%a{d * count + i}" for i in range(count))
            types = ", ".join(_tensor(shape, dtype, d) for shape in operands)
            lines.append(
                f'%r{repeat}_{d} = "onnx.{name}"({values}){properties} : ({types}) -> {_tensor(result, dtype, d)}'
            )
    return _program(arguments, lines, processes)


def _matmul(processes: int, dtype: str, m: int, n: int, k: int) -> Probe:
    text = _local(processes, "MatMul", [(m, k), (k, n)], (m, n), dtype)
    return Probe("matmul", dtype, text, 1, (m * k + k * n + m * n) * BITS[dtype] // 8, 2 * m * n * k)


def _elementwise(processes: int, name: str, elements: int) -> Probe:
    operands = [(elements,)] * (2 if name == "Add" else 1)
    text = _local(processes, name, operands, (elements,), "f32")
    return Probe("elementwise", "f32", text, 1, 4 * elements * (len(operands) + 1))


def _copy(processes: int, elements: int) -> Probe:
    text = _local(processes, "Concat", [(elements // 2,)] * 2, (elements,), "f32", " <{axis = 0 : si64}>")
    return Probe("data_movement", "f32", text, 1, 8 * elements)


def _send(processes: int, size: int) -> Probe:
    """There and back."""
    shape = (ROWS, size // 4 // ROWS)
    lines = [
        f"%r{i} = dist.send %{f'r{i - 1}' if i else 'a0'} to {1 - i % 2} : "
        f"{_tensor(shape, 'f32', i % 2)} -> {_tensor(shape, 'f32', 1 - i % 2)}"
        for i in range(REPEATS)
    ]
    return Probe("send", "f32", _program([_tensor(shape, "f32", 0)], lines, processes), 2, 4 * shape[0] * shape[1])


def _collective(kind: str, count: int, processes: int, size: int) -> Probe:
    columns = max(1, size // 4 // ROWS)
    whole, part = (ROWS, columns), (ROWS // count, columns)
    devices = range(count)
    listed = list(devices)
    operands, results, attributes = {
        "allreduce": ([whole] * count, [whole] * count, ""),
        "allgather": ([part] * count, [whole] * count, " dim 0"),
        "reducescatter": ([whole] * count, [part] * count, " dim 0"),
        "alltoall": ([whole] * count, [(part[0], columns * count)] * count, " split 0 concat 1"),
        "broadcast": ([whole], [whole] * count, f" to {listed}"),
        "scatter": ([whole], [part] * count, f" dim 0 to {listed}"),
        "gather": ([part] * count, [whole], " dim 0 to 0"),
        "reduce": ([whole] * count, [whole], " to 0"),
    }[kind]
    reduction = " sum" if kind in ("allreduce", "reducescatter", "reduce") else ""
    values = ", ".join(f"%a{i}" for i in range(len(operands)))
    types = [", ".join(_tensor(s, "f32", d) for s, d in zip(shapes, devices)) for shapes in (operands, results)]
    right = f"({types[1]})" if len(results) > 1 or kind not in ("gather", "reduce") else types[1]
    lines = [
        f"{', '.join(f'%r{i}_{d}' for d in islice(devices, len(results)))} = dist.{kind}{reduction} {values}{attributes} : "
        f"({types[0]}) -> {right}"
        for i in range(REPEATS)
    ]
    arguments = [_tensor(shape, "f32", d) for d, shape in enumerate(operands)]
    return Probe(kind, "f32", _program(arguments, lines, processes), count, 4 * ROWS * columns)
