"""Whole arrays and each rank's parts of them. In go files of whole arrays; out come this rank's parts, and on rank 0
whole arrays again.

A port is an argument or result of the program, as `program.json` has it: name, role, dtype, shape of the whole
array, and the ranges of each dim that this rank has (`dims`). A port with a partial sum has its reduction
(`reduction`) and the start value of all partial sums but the first (`fill`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import distir_runtime
import torch
import torch.distributed as dist
from torch import Tensor

Port = Mapping[str, Any]
_CODES = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3"},
    **{
        "float8_e5m2": "F8_E5M2",
        "int64": "I64",
        "int32": "I32",
        "int16": "I16",
        "int8": "I8",
        "uint8": "U8",
        "bool": "BOOL",
    },
    **{"uint16": "U16", "uint32": "U32", "uint64": "U64"},
}
"""Element types of safetensors."""


def key(port: Port) -> str:
    """Equal for ports that are the same part of the same array."""
    return json.dumps([port["name"], port["dims"], port["reduction"]])


def lost(arguments: Sequence[Sequence[Port]], results: Sequence[Sequence[Port]]) -> list[str]:
    """In go the ports of all ranks, out come the names of what is updated, but not in the parts that a rank takes: after these no step can follow."""
    updated = {port["name"] for here in results for port in here}
    own = [{key(port) for port in here} for here in results]
    taken = ((port, here) for ports, here in zip(arguments, own, strict=True) for port in ports)
    return [port["name"] for port, here in taken if port["name"] in updated and key(port) not in here]


def local_shape(port: Port) -> list[int]:
    if port["dims"] is None:
        return port["shape"]
    return [sum(stop - start for start, stop in dim) for dim in port["dims"]]


def combined(reduction: str, a: Any, b: Any) -> Any:
    """Two addends."""
    if reduction in ("sum", "mean"):
        return a + b
    if reduction == "prod":
        return a * b
    if isinstance(a, Tensor):
        return torch.maximum(a, b) if reduction == "max" else torch.minimum(a, b)
    return max(a, b) if reduction == "max" else min(a, b)


def cut(whole: Any, port: Port) -> Tensor:
    """This rank's part of a whole array: a tensor, or a slice of a file."""
    ranges = port["dims"] or []
    part: Tensor = whole[tuple(slice(r[0][0], r[-1][1]) for r in ranges)] if ranges else whole
    for dim, pieces in enumerate(ranges):
        if len(pieces) > 1:
            first = pieces[0][0]
            part = torch.cat([part.narrow(dim, start - first, stop - start) for start, stop in pieces], dim)
    return part


def placed(value: Any, port: Port) -> Tensor:
    """The part as the program takes it, in memory of its own."""
    part = (
        cut(value, port).to(device=distir_runtime.DEVICE, dtype=getattr(torch, port["dtype"]), copy=True).contiguous()
    )
    return part if port["fill"] is None else torch.full_like(part, port["fill"])


def read(files: Sequence[Path], ports: Sequence[Port]) -> dict[int, Tensor]:
    """By argument, its part of its value in the files; a later file's counts. Raises ValueError for another shape."""
    found: dict[int, Tensor] = {}
    for path in files:
        if path.suffix == ".npz" or path.exists():
            try:
                found |= _read(path, ports)
            except ValueError:
                raise
            except Exception as error:  # of a file that is cut short or damaged
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ValueError(f"{path}: cannot be read: {reason}") from error
    return found


def _read(path: Path, ports: Sequence[Port]) -> dict[int, Tensor]:
    """The same from one file."""
    found: dict[int, Tensor] = {}
    if path.suffix == ".npz":
        import numpy as np

        arrays = np.load(path, allow_pickle=False)
        there = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        for i, port in enumerate(ports):
            if port["name"] in there:
                check_shape(path, port, list(there[port["name"]].shape))
                found[i] = placed(there[port["name"]], port)
        return found
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        names = set(file.keys())
        for i, port in enumerate(ports):
            if port["name"] in names:
                part = file.get_slice(port["name"])
                check_shape(path, port, part.get_shape())
                found[i] = placed(part if port["dims"] else file.get_tensor(port["name"]), port)
    return found


def check_shape(path: Path, port: Port, shape: Sequence[int]) -> None:
    if list(shape) != port["shape"]:
        raise ValueError(f"{path}: {port['name']} has shape {list(shape)}, expected {port['shape']}")


def collected(
    ports: Sequence[Sequence[Port]], values: Sequence[Tensor], names: Sequence[str]
) -> Iterator[tuple[str, Tensor | None]]:
    """Array by array, whole, on rank 0 (None on the others). `ports` are those of all ranks, `values` this rank's. Addends are combined; of replicas the
    first counts."""
    own = distir_runtime.RANK
    for name in names:
        parts: dict[str, list[tuple[int, int]]] = {}
        for rank, here in enumerate(ports):
            for i, port in enumerate(here):
                if port["name"] == name and (key(port) not in parts or port["reduction"]):
                    parts.setdefault(key(port), []).append((rank, i))
        whole: Tensor | None = None
        for holders in parts.values():
            total: Any = None
            for rank, i in holders:
                value = _on_rank_0(rank, ports[rank][i], values[i] if rank == own else None)
                if value is not None:
                    total = value if total is None else combined(ports[rank][i]["reduction"], total, value)
            if total is None:
                continue
            port = ports[holders[0][0]][holders[0][1]]
            total = total / len(holders) if port["reduction"] == "mean" else total
            if not port["dims"] or list(total.shape) == port["shape"]:
                whole = total
                continue
            whole = torch.zeros(port["shape"], dtype=total.dtype) if whole is None else whole
            places = [torch.cat([torch.arange(a, b) for a, b in dim]) for dim in port["dims"]]
            whole[torch.meshgrid(*places, indexing="ij")] = total
        yield name, whole


def _on_rank_0(rank: int, port: Port, value: Tensor | None) -> Tensor | None:
    """Rank 0 gets the value, which this rank has."""
    if distir_runtime.RANK == 0:
        if rank == 0:
            return None if value is None else value.cpu()
        received = distir_runtime.empty(local_shape(port), getattr(torch, port["dtype"]))
        if received.numel():
            dist.recv(distir_runtime.as_bytes(received), rank)
        return received.cpu()
    if value is not None and value.numel():
        dist.send(distir_runtime.as_bytes(value), 0)
    return None


def write(path: Path, ports: Sequence[Sequence[Port]], values: Sequence[Tensor], names: Sequence[str]) -> str | None:
    """A safetensors file of these arrays, whole, written by rank 0 one array at a time. Returns why it could not be written, on rank 0; the other
    ranks take part to the end whatever happens there."""
    first = {port["name"]: port for here in reversed(ports) for port in here}
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        dtype = getattr(torch, first[name]["dtype"])
        size = math.prod(first[name]["shape"]) * dtype.itemsize
        code = _CODES[first[name]["dtype"]]
        header[name] = {"dtype": code, "shape": first[name]["shape"], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    failure: str | None = None
    file: Any = None
    try:
        if distir_runtime.RANK == 0:
            try:
                file = path.open("wb")
                file.write(len(text).to_bytes(8, "little") + text)
            except OSError as error:
                failure = error.strerror or str(error)
        for _, whole in collected(ports, values, names):
            if whole is None or failure is not None:
                continue
            try:
                file.write(distir_runtime.as_bytes(whole).numpy().data)
            except OSError as error:
                failure = error.strerror or str(error)
        if file is not None and failure is None:
            try:
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                failure = error.strerror or str(error)
    finally:
        if file is not None:
            try:
                file.close()
            except OSError as error:
                failure = failure or error.strerror or str(error)
    return failure
