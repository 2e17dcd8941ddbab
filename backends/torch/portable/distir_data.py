"""Batches from files. In go data, a seed and the number of a step; out comes this rank's part of the batch. The
batch depends on these alone, so it is the same for every plan.

    text.txt                      its bytes are tokens
    tokens.bin, tokens.npy        one row of tokens (uint16; .npy also uint32 and others). A sample is as many as the step's input is long, from a place
                                  that is drawn; its label the same, one further on
    data.npz, data.safetensors    arrays by the names of inputs and labels, a sample each index of dim 0; every epoch in an order of its own
    a folder                      what `datasets.Dataset.save_to_disk` wrote: columns by name, as above
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Port = Mapping[str, Any]


class DataError(Exception):
    """The data does not fit the program."""


class Tokens:
    """A row of tokens. `ports` are one input of indices [samples, length] and a label of the same shape."""

    def __init__(self, path: Path, ports: Sequence[Port], dtype: str, shifted: bool) -> None:
        if path.suffix == ".npy":
            self.tokens: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            size = np.dtype(dtype).itemsize
            if path.stat().st_size % size:
                raise DataError(f"{path}: {path.stat().st_size} bytes are no whole number of {dtype} tokens")
            self.tokens = (
                np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r") if path.stat().st_size else np.zeros(0, dtype)
            )
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise DataError(
                f"{path}: expected one row of whole numbers, got {self.tokens.dtype} {list(self.tokens.shape)}"
            )
        indices = [port for port in ports if port["dtype"] in ("int64", "int32") and len(port["shape"]) == 2]
        names = dict.fromkeys((port["role"], port["name"]) for port in indices)
        inputs, labels = ([n for r, n in names if (r == "label") is label] for label in (False, True))
        if len(inputs) == 2 and not labels:  # of a step that does not say which is the label: the last
            inputs, labels = inputs[:1], inputs[1:]
        if len(inputs) != 1 or len(labels) > 1 or len(names) != len({port["name"] for port in ports}):
            given = ", ".join(sorted({f"{port['name']} {port['shape']}" for port in ports}))
            raise DataError(
                f"{path}: tokens are for a step of one input [samples, length] and a label like it, this one takes {given}"
            )
        self.samples, self.length = indices[0]["shape"]
        self.input, self.label, self.shifted = inputs[0], labels, shifted
        self.per_step = self.samples * self.length
        self.unit = "tokens"
        if len(self.tokens) < self.length + 1:
            raise DataError(
                f"{path}: {len(self.tokens)} tokens are fewer than one sample of {self.length} and its label"
            )

    def batch(self, seed: int, step: int) -> dict[str, Array]:
        draw = np.random.default_rng([seed, step])
        starts = draw.integers(0, len(self.tokens) - self.length, self.samples)
        rows = np.stack([self.tokens[start : start + self.length + 1] for start in starts]).astype(np.int64)
        labels = rows[:, 1:] if self.shifted else rows[:, :-1]
        return {self.input: rows[:, :-1], **dict.fromkeys(self.label, labels)}


class Samples:
    """Arrays by name, a sample each index of dim 0."""

    def __init__(self, path: Path, arrays: Mapping[str, Any], ports: Sequence[Port]) -> None:
        shapes = {port["name"]: port["shape"] for port in ports}
        if missing := sorted(shapes.keys() - arrays.keys()):
            raise DataError(f"{path}: no '{missing[0]}'; it has {', '.join(sorted(arrays)) or 'nothing'}")
        for name, shape in shapes.items():
            if arrays[name].dtype.kind == "O":
                raise DataError(f"{path}: samples of {name} are of different lengths, expected {list(shape[1:])}")
            if not shape or list(arrays[name].shape[1:]) != list(shape[1:]):
                raise DataError(
                    f"{path}: a sample of {name} has shape {list(arrays[name].shape[1:])}, expected {list(shape[1:])}"
                )
            whole = next(port.get("dtype") for port in ports if port["name"] == name) in ("int64", "int32", "bool")
            if arrays[name].dtype.kind not in ("biu" if whole else "biuf"):
                raise DataError(
                    f"{path}: {name} is of {arrays[name].dtype}, expected {'whole numbers' if whole else 'numbers'}"
                )
        counts, sizes = {len(arrays[name]) for name in shapes}, {shape[0] for shape in shapes.values()}
        if len(counts) != 1 or len(sizes) != 1:
            raise DataError(f"{path}: expected as many samples of each of {', '.join(sorted(shapes))}")
        self.arrays = {name: arrays[name] for name in shapes}
        (self.count,), (self.samples,) = counts, sizes
        self.per_step, self.unit = self.samples, "samples"
        if self.count < self.samples:
            raise DataError(f"{path}: {self.count} samples are fewer than a batch of {self.samples}")
        self._order: tuple[tuple[int, int], Array] | None = None

    def batch(self, seed: int, step: int) -> dict[str, Array]:
        steps = self.count // self.samples
        epoch, place = divmod(step - 1, steps)
        if self._order is None or self._order[0] != (seed, epoch):
            self._order = (seed, epoch), np.random.default_rng([seed, epoch]).permutation(self.count)
        rows = np.sort(self._order[1][place * self.samples : (place + 1) * self.samples])
        return {name: np.asarray(array[rows]) for name, array in self.arrays.items()}


def open_data(path: Path, ports: Sequence[Port], dtype: str = "uint16", shifted: bool = True) -> Tokens | Samples:
    """The data of a file or folder for the inputs and labels of a program. Raises DataError, one line."""
    try:
        if path.is_dir():
            return Samples(path, _dataset(path, ports), ports)
        if not path.is_file():  # a pipe would be read for ever
            raise DataError(
                f"{path}: {'is neither a file nor a folder' if path.exists() else 'No such file or folder'}"
            )
        if path.suffix in (".txt", ".bin", ".npy"):
            return Tokens(path, ports, "uint8" if path.suffix == ".txt" else dtype, shifted)
        if path.suffix == ".npz":
            loaded = np.load(path, allow_pickle=False)
            return Samples(path, {name: loaded[name] for name in loaded.files}, ports)
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return Samples(path, load_file(path), ports)
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"{path}: cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    raise DataError(
        f"{path}: expected .txt, .bin or .npy (tokens), .npz or .safetensors (samples), or a folder of Hugging Face datasets"
    )


def _dataset(path: Path, ports: Sequence[Port]) -> dict[str, Array]:
    try:
        from datasets import load_from_disk  # pyright: ignore
    except ImportError:
        raise DataError(f"{path}: a folder needs the package datasets, which is not installed") from None
    found: Any = load_from_disk(str(path)).with_format("numpy")
    if isinstance(found, dict):
        raise DataError(f"{path}: expected one split, it has {', '.join(sorted(found))}: give {path / min(found)}")
    names = {port["name"] for port in ports} & set(found.column_names)
    return {name: np.asarray(found[name][:]) for name in names}
