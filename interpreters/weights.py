"""The values of parameters: beside the program, never in it. In go arrays by name; out come a file or an attached
table, and the arrays again.

In a file they are `PROGRAM.safetensors` next to `PROGRAM.mlir`, named by the module attribute `dist.weights`. In memory
they are attached to the ModuleOp *object*: a table with weak keys holds them, so they go when the module goes, and stay
through passes, which change a module in place. A clone of a module has none.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr

from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME

Array = np.ndarray[Any, Any]

WEIGHTS = "dist.weights"

ELEMENT_TYPES = "dist.element_types"
"""The entry of a file's metadata that names the element types that safetensors has no code for, by parameter. Such a
tensor lies in the file as U8, one byte an element, as numpy holds it."""

_attached: WeakKeyDictionary[ModuleOp, Mapping[str, Array]] = WeakKeyDictionary()
_folder_of: WeakKeyDictionary[ModuleOp, Path] = WeakKeyDictionary()


def attach(module: ModuleOp, weights: Mapping[str, Array]) -> None:
    """Give the module's parameters these values, by `dist.name`; nothing is copied."""
    _attached[module] = weights


def lies_in(module: ModuleOp, folder: Path) -> None:
    """Says in which folder the file of a module is, beside which its values are."""
    _folder_of[module] = folder


def weights_of(module: ModuleOp, base_dir: str | os.PathLike[str] | None = None) -> Mapping[str, Array]:
    """The values of the module's parameters by `dist.name`; empty when it has none.

    Those attached in memory, or else those of the file that `dist.weights` names, relative to `base_dir` (by default
    the folder that the module was loaded from) and inside it. A file's tensors are mapped, not read.
    """
    if module in _attached:
        return _attached[module]
    if (path := _file_of(module, base_dir)) is None:
        return {}
    weights = WeightFile(path)
    _attached[module] = weights
    return weights


def _file_of(module: ModuleOp, base_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The file that `dist.weights` names, if it names one. Raises DistirError where it may not."""
    name = module.attributes.get(WEIGHTS)
    if not isinstance(name, StringAttr):
        return None
    folder = Path(base_dir) if base_dir is not None else _folder_of.get(module, Path())
    if "\0" in name.data:
        raise DistirError(f"{WEIGHTS} {name.data!r} names no file")
    path = (folder / name.data).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DistirError(f"{WEIGHTS} '{name.data}' lies outside the program's folder: put the file beside the program")
    return path


def _has_weights(module: ModuleOp) -> bool:
    """Whether the values of its parameters are there: a program of any size is looked at without them."""
    return module in _attached or ((path := _file_of(module)) is not None and path.is_file())


def other_weights(module: ModuleOp, other: ModuleOp) -> list[str]:
    """Names of which both modules have a value that is there, and not the same."""
    if not (_has_weights(module) and _has_weights(other)):
        return []
    first, second = weights_of(module), weights_of(other)
    if isinstance(first, WeightFile) and isinstance(second, WeightFile) and first.path.samefile(second.path):
        return []
    return [name for name in first if name in second and not _same(np.asarray(first[name]), np.asarray(second[name]))]


def _same(a: Array, b: Array) -> bool:
    """Whether arrays have the same bits."""
    return a is b or (
        a.dtype == b.dtype
        and a.shape == b.shape
        and np.array_equal(
            np.ascontiguousarray(a).reshape(-1).view(np.uint8), np.ascontiguousarray(b).reshape(-1).view(np.uint8)
        )
    )


class WeightFile(Mapping[str, Array]):
    """The tensors of a safetensors file, each mapped into memory when it is asked for: who takes a part of one reads
    that part of the file."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise DistirError(f"weights are missing: no file {path}: keep it beside the program")
        try:
            with safe_open(path, framework="numpy") as file:  # checks the header and the length of the file
                self._names: list[str] = list(file.keys())
        except SafetensorError as error:
            raise DistirError(f"{path}: not a safetensors file, or cut short ({error})") from error
        self.path = path
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self._header: dict[str, Any] = json.loads(file.read(length))
        self._unusual = _element_types(path, self._header.get("__metadata__", {}).get(ELEMENT_TYPES, "{}"))
        self._start = 8 + length

    def __getitem__(self, name: str) -> Array:
        entry = self._header[name]
        code, shape = str(entry["dtype"]), tuple(entry["shape"])
        dtype = self._unusual.get(name, _MAPPED_DTYPES.get(code))
        if dtype not in ELEMENT_OF_NUMPY_NAME:
            raise DistirError(
                f"{self.path}: parameter '{name}' has elements of type {dtype or code}, which are not supported"
            )
        return map_array(
            self.path, numpy_dtype(ELEMENT_OF_NUMPY_NAME[dtype].type), shape, self._start + entry["data_offsets"][0]
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _element_types(path: Path, text: str) -> dict[str, str]:
    """Names of element types by parameter, as `dist.element_types` says them. Raises DistirError for another form."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in cast(dict[str, Any], found).values()):
        raise DistirError(f"{path}: expected {ELEMENT_TYPES} to name an element type for each of some parameters")
    return cast(dict[str, str], found)


_MAPPED_DTYPES = {
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    **{"BOOL": "bool", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"},
}
"""numpy's names of safetensors' element types."""

_CODES = {name: code for code, name in _MAPPED_DTYPES.items()}


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
    """An array that is this part of a file; the system reads what is touched."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


class FilePart(NamedTuple):
    """Part of an array that lies in a file: what another process needs to map it. Per dim, the ranges that are taken."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    ranges: tuple[tuple[tuple[int, int], ...], ...]

    def read(self) -> Array:
        """The part; only its bytes (and their pages) are read."""
        dtype = numpy_dtype(ELEMENT_OF_NUMPY_NAME[self.dtype].type)
        whole = map_array(Path(self.path), dtype, tuple(self.shape), self.offset)
        pieces = whole
        for dim, ranges in enumerate(self.ranges):
            before = (slice(None),) * dim
            taken = [pieces[(*before, slice(start, stop))] for start, stop in ranges]
            pieces = taken[0] if len(taken) == 1 else np.concatenate(taken, dim)
        return np.asarray(pieces)


def file_part(array: Array, ranges: Sequence[Sequence[tuple[int, int]]] | None = None) -> FilePart | None:
    """Where a part of a mapped array lies (all of it without `ranges`); None for an array in memory."""
    if not isinstance(array, np.memmap) or isinstance(array.base, np.ndarray) or array.filename is None:
        return None
    parts = [[(0, size)] for size in array.shape] if ranges is None else ranges
    path, offset = str(Path(array.filename).resolve()), int(cast(Any, array).offset)
    return FilePart(path, array.dtype.name, array.shape, offset, tuple(tuple(dim) for dim in parts))


def write_weights(weights: Mapping[str, Array], path: Path) -> None:
    """A safetensors file, whole or not at all."""
    write_atomically({path: safetensors_writer(weights)})


def safetensors_writer(weights: Mapping[str, Array]) -> Callable[[Path], None]:
    """What writes them to a path, one tensor at a time: weights that are mapped from other files need not fit in memory."""
    header: dict[str, Any] = {}
    unusual: dict[str, str] = {}
    end = 0
    for name, array in weights.items():
        code = _CODES.get(array.dtype.name)
        if code is None:
            if array.dtype.itemsize != 1:
                raise DistirError(f"parameter '{name}' is {array.dtype}, which no weights file can hold: cast it")
            code, unusual[name] = "U8", array.dtype.name
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    if "__metadata__" in header:
        raise DistirError("a parameter is named '__metadata__', as safetensors names its own entry: rename it")
    if unusual:
        header["__metadata__"] = {ELEMENT_TYPES: json.dumps(unusual)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # safetensors aligns the data so

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in weights.values():
                # Not `tofile`, whose error on a full disk has no reason.
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    return write


def write_atomically(files: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write temporary files in the same folders, then rename all. Raises DistirError if one cannot be written; then none is."""
    temporaries = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files}
    path = Path()
    try:
        for path, write in files.items():
            write(temporaries[path])
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
    except OSError as error:
        raise DistirError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
