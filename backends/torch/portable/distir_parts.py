"""Checkpoints in parts, in the format of `torch.distributed.checkpoint` (DCP). In go each rank's parts of arrays;
out come files of parts (the first replica's) and an index, and back. `torch.distributed.checkpoint.load` reads the
files. Here they are read by the index, since DCP's own is a pickle, which would execute a file's content."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import distir_arrays
import distir_runtime
import torch
from distir_arrays import Port
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

Index = list[tuple[str, str, int, int, list[int]]]
"""Of each part: the array, the file, where in it and how many bytes, where in the array."""


def write(
    folder: Path, ports: Sequence[Sequence[Port]], values: Sequence[Tensor], names: Sequence[str]
) -> tuple[Index, str | None]:
    """Writes these arrays, by all ranks together; the index, and why it could not be written."""
    items: dict[tuple[str, tuple[int, ...]], Tensor] = {}
    sizes: dict[str, torch.Size] = {}
    for name in names:
        for i, port in _written_here(ports, name):
            sizes[name] = torch.Size(port["shape"])
            items |= {(name, offsets): part for offsets, part in _pieces(port, values[i])}
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # DCP says pages of what is one line here
    try:
        writer = FileSystemWriter(folder)
        metadata: Any = save({}, storage_writer=writer, planner=_Planner(items, sizes))
    except (Exception, CheckpointException) as error:  # which is none of the former
        failures: Any = getattr(error, "failures", {})  # by rank: what was raised, and where
        cause = next((raised for raised, _ in failures.values()), error)
        return [], (getattr(cause, "strerror", None) or " ".join(str(cause).split())) or type(cause).__name__
    finally:
        logging.disable(before)
    found: Index = [
        (k.fqn, v.relative_path, v.offset, v.length, list(k.offset or ())) for k, v in metadata.storage_data.items()
    ]
    return found, None


def read(folder: Path, index: Index, ports: Sequence[Port]) -> dict[int, Tensor]:
    """By argument, its part of its value. Raises ValueError for another shape."""
    parts: dict[str, Index] = {}
    for part in index:
        parts.setdefault(part[0], []).append(part)
    found: dict[int, Tensor] = {}
    for i, port in enumerate(ports):
        if port["name"] not in parts:
            continue
        whole = torch.empty(port["shape"], dtype=getattr(torch, port["dtype"]))
        for name, file, start, length, offsets in parts[port["name"]]:
            with (folder / file).open("rb") as stream:
                stream.seek(start)
                part = torch.load(io.BytesIO(stream.read(length)), weights_only=True)
            place = tuple(slice(a, a + n) for a, n in zip(offsets, part.shape, strict=True))
            if whole[place].shape != part.shape:
                raise ValueError(
                    f"{folder}: {name} has a part {list(part.shape)} at {offsets}, expected an array {port['shape']}"
                )
            whole[place] = part
        found[i] = distir_arrays.placed(whole, port)
    return found


class _Planner(DefaultSavePlanner):
    """Writes parts that are told, which are of arrays of these sizes."""

    def __init__(self, parts: dict[tuple[str, tuple[int, ...]], Tensor], sizes: dict[str, torch.Size]) -> None:
        super().__init__(flatten_state_dict=False)
        self._parts, self._sizes = parts, sizes

    def create_local_plan(self) -> SavePlan:
        items: list[WriteItem] = []
        for (name, offsets), part in self._parts.items():
            chunk = ChunkStorageMetadata(torch.Size(offsets), part.shape)
            told = TensorWriteData(chunk, TensorProperties(dtype=part.dtype), self._sizes[name])
            index = MetadataIndex(name, torch.Size(offsets))
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=told))
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._parts[write_item.index.fqn, tuple(write_item.index.offset or ())]


def _written_here(ports: Sequence[Sequence[Port]], name: str) -> Iterator[tuple[int, Port]]:
    """Which parts of an array this rank writes: those that no rank before it has, and none where one has the whole array."""
    holders: dict[str, tuple[int, int, Port]] = {}
    for rank, here in enumerate(ports):
        for i, port in enumerate(here):
            if port["name"] == name:
                holders.setdefault(distir_arrays.key(port), (rank, i, port))
    whole = [each for each in holders.values() if distir_arrays.local_shape(each[2]) == each[2]["shape"]]
    for rank, i, port in whole[:1] or holders.values():
        if rank == distir_runtime.RANK:
            yield i, port


def _pieces(port: Port, value: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """A part of an array as blocks of it: where each begins, and its values."""
    dims: Any = port["dims"] if port["dims"] is not None else [[(0, n)] for n in port["shape"]]
    for ranges in itertools.product(*dims):
        block = value
        for dim, ((start, stop), pieces) in enumerate(zip(ranges, dims, strict=True)):
            before = sum(b - a for a, b in pieces if b <= start)
            block = block.narrow(dim, before, stop - start)
        yield tuple(start for start, _ in ranges), block.contiguous()
