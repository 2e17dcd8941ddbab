"""Files by which the launcher and its workers exchange programs, arrays, times and errors. One side's data go in,
the other side's copy comes out, through one temporary folder:

    job.json              what all ranks share
    3.mlir                the program of rank 3
    3.inputs.safetensors  its arguments, in order, but for
    3.mapped.json         those that are parts of weight files: where, and which part
    3.next.json           which arguments are not the same in the next step: updated by which results, or given,
    3.next.1.safetensors  and those that are given for it
    3.step.0.safetensors  of several steps, the numbers that this one gave (its loss)
    3.outputs.safetensors its results, in order, and the seconds of each timed run
    3.error.json          or why it failed, and when
    3.log                 what it printed

Nothing is pickled: arrays are safetensors, the rest is text."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.registry import program_context
from distir.frontends.program_parser import ProgramParser
from distir.interpreters.weights import FilePart

Array = np.ndarray[Any, np.dtype[Any]]


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether numpy itself has this type (and torch and safetensors read it); if not, it is one of ml_dtypes."""
    return dtype.kind in "biufc" and hasattr(np, dtype.name)


def with_native_type(array: Array) -> Array:
    """The array, or its bits as integers of the same width."""
    return array if is_native(array.dtype) else array.view(np.dtype(f"i{array.dtype.itemsize}"))


def _as_written(array: Array) -> Array:
    """The array in a type that safetensors has; complex numbers of two doubles have a further dim, of two."""
    if array.dtype == np.complex128:
        return array[..., None].view(np.float64)
    return with_native_type(array)


def _as_it_was(array: Array, name: str) -> Array:
    import ml_dtypes

    if name == "complex128":
        return array.view(np.complex128)[..., 0]
    return array if array.dtype.name == name else array.view(np.dtype(getattr(ml_dtypes, name)))


@dataclass(frozen=True)
class Job:
    """What all ranks share. Groups are of ascending ranks, in the order in which every rank creates them."""

    backend: str
    world: int
    entry: str
    groups: list[list[int]]
    measure: int
    """Timed runs, after one that is not; 0 runs once."""
    in_float64: bool
    following: int = 0
    """Steps after the first."""

    def save(self, folder: Path) -> None:
        _write_text(folder / "job.json", json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Job:
        return cls(**json.loads((folder / "job.json").read_text("utf-8")))


@dataclass(frozen=True)
class Failure:
    """Why a rank failed; of several, the earliest is the cause. `moment` is on the clock that all processes share."""

    reason: str
    moment: float

    def save(self, folder: Path, rank: int) -> None:
        _write_text(folder / f"{rank}.error.json", json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path, rank: int) -> Failure | None:
        path = folder / f"{rank}.error.json"
        return cls(**json.loads(path.read_text("utf-8"))) if path.exists() else None


def program_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.mlir"


def parse(text: str) -> ModuleOp:
    """The module of this text, in the dialects of rank programs."""
    gc.disable()
    try:
        return ProgramParser(program_context(), text).parse_module()
    finally:
        gc.enable()


def save_mapped(folder: Path, rank: int, parts: Mapping[int, FilePart]) -> None:
    """Says which arguments of a rank are parts of files, which the rank maps itself."""
    _write_text(folder / f"{rank}.mapped.json", json.dumps({str(i): list(part) for i, part in parts.items()}))


def load_arguments(folder: Path, rank: int) -> Iterator[Array]:
    """The arguments of a rank, in order, each read when its turn comes."""
    parts = {
        int(i): FilePart(*part) for i, part in json.loads((folder / f"{rank}.mapped.json").read_text("utf-8")).items()
    }
    given = iter(load_arrays(inputs_path(folder, rank))[0])
    for i in count():
        if (part := parts.get(i)) is not None:
            yield part.read()
        elif (array := next(given, None)) is not None:
            yield array
        else:
            return


@dataclass(frozen=True)
class Next:
    """What becomes of a rank's results from one step to the next."""

    updates: Sequence[tuple[int, int]] = ()
    """Arguments that are results in the next step: (argument, result)."""
    given: Sequence[int] = ()
    """Arguments that are given for it."""
    told: Sequence[int] = ()
    """Results that the launcher hears of after every step."""

    def save(self, folder: Path, rank: int) -> None:
        _write_text(folder / f"{rank}.next.json", json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path, rank: int) -> Next:
        path = folder / f"{rank}.next.json"
        return cls(**json.loads(path.read_text("utf-8"))) if path.exists() else cls()


def next_path(folder: Path, rank: int, step: int) -> Path:
    return folder / f"{rank}.next.{step}.safetensors"


def step_path(folder: Path, rank: int, step: int) -> Path:
    return folder / f"{rank}.step.{step}.safetensors"


def inputs_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.inputs.safetensors"


def outputs_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.outputs.safetensors"


def probe_path(folder: Path, number: int, rank: int) -> Path:
    return folder / f"{number}.{rank}.probe.mlir"


def times_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.times"


def log_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.log"


def save_arrays(path: Path, arrays: Sequence[Array], seconds: Sequence[float] = ()) -> None:
    """Writes the arrays in order; the file appears when it is complete."""
    from safetensors.numpy import save_file

    names = [array.dtype.name for array in arrays]
    metadata = {"types": json.dumps(names), "seconds": json.dumps(list(seconds))}
    unfinished = path.with_suffix(".unfinished")
    # Copied where not contiguous; 0-d arrays keep their shape.
    plain = {str(i): _as_written(np.asarray(array, order="C")) for i, array in enumerate(arrays)}
    save_file(plain, unfinished, metadata)
    os.replace(unfinished, path)


def load_arrays(path: Path) -> tuple[list[Array], list[float]]:
    """The arrays in order, and the seconds that were written with them."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        metadata: dict[str, str] = file.metadata()
        names: list[str] = json.loads(metadata["types"])
        arrays: list[Any] = [_as_it_was(file.get_tensor(str(i)), name) for i, name in enumerate(names)]
    return arrays, json.loads(metadata["seconds"])


def _write_text(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, "utf-8")
    os.replace(unfinished, path)
