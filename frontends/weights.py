"""The values of parameters: beside the program, never in it.

In a file they are `PROGRAM.safetensors` next to `PROGRAM.mlir`, named by the module attribute `dist.weights`. In memory
they are attached to the ModuleOp *object*: a table with weak keys holds them, so they go when the module goes, and stay
through passes, which change a module in place. A clone of a module has none.

A program without values can have them drawn from a seed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.printer import Printer

from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME
from distir.frontends.text import parse_program

Array = np.ndarray[Any, Any]

WEIGHTS = "dist.weights"

_SAFETENSORS_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64".split()
)
"""What safetensors 0.8 reads back as numpy arrays; it writes float8, but does not read it."""

_attached: WeakKeyDictionary[ModuleOp, Mapping[str, Array]] = WeakKeyDictionary()
_folder_of: WeakKeyDictionary[ModuleOp, Path] = WeakKeyDictionary()


def attach(module: ModuleOp, weights: Mapping[str, Array]) -> None:
    """Give the module's parameters these values, by `dist.name`; nothing is copied."""
    _attached[module] = weights


def weights_of(module: ModuleOp, base_dir: str | os.PathLike[str] | None = None) -> Mapping[str, Array]:
    """The values of the module's parameters by `dist.name`; empty when it has none.

    Those attached in memory, or else those of the file that `dist.weights` names, relative to `base_dir` (by default
    the folder that the module was loaded from) and inside it. A file's tensors are mapped, not read.
    """
    if module in _attached:
        return _attached[module]
    name = module.attributes.get(WEIGHTS)
    if not isinstance(name, StringAttr):
        return {}
    folder = Path(base_dir) if base_dir is not None else _folder_of.get(module, Path())
    path = (folder / name.data).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DistirError(f"{WEIGHTS} '{name.data}' lies outside the program's folder: put the file beside the program")
    weights = WeightFile(path)
    _attached[module] = weights
    return weights


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
        self._path = path
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self._header: dict[str, Any] = json.loads(file.read(length))
        self._start = 8 + length

    def __getitem__(self, name: str) -> Array:
        entry = self._header[name]
        code, shape = str(entry["dtype"]), tuple(entry["shape"])
        dtype = _MAPPED_DTYPES.get(code)
        if dtype is None:
            raise DistirError(f"{self._path}: parameter '{name}' has elements of type {code}, which are not supported")
        return map_array(
            self._path, numpy_dtype(ELEMENT_OF_NUMPY_NAME[dtype].type), shape, self._start + entry["data_offsets"][0]
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_MAPPED_DTYPES = {
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    **{"BOOL": "bool", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"},
}
"""numpy's names of safetensors' element types."""


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


def save(module: ModuleOp, path: str | os.PathLike[str]) -> None:
    """Write the program to `path` and its values beside it; each file appears whole or not at all."""
    path = Path(path)
    weights = weights_of(module)
    if weights:
        weights_path = path.with_suffix(".safetensors")
        _write_weights(weights, weights_path)
        module.attributes[WEIGHTS] = StringAttr(weights_path.name)
    text = StringIO()
    Printer(text).print_op(module)
    write_atomically(path, lambda temporary: temporary.write_text(f"{text.getvalue()}\n"))


def _write_weights(weights: Mapping[str, Array], path: Path) -> None:
    import safetensors
    from safetensors.numpy import save_file

    arrays: dict[str, Array] = {}
    for name, array in weights.items():
        if array.dtype.name not in _SAFETENSORS_DTYPES:
            raise DistirError(
                f"parameter '{name}' is {array.dtype}, which safetensors cannot read back: cast it to bfloat16"
            )
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)

    try:
        write_atomically(path, lambda temporary: save_file(arrays, temporary))
    except safetensors.SafetensorError as error:
        raise DistirError(f"{path}: weights cannot be written: {error}") from error


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise DistirError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> ModuleOp:
    """Parse and verify a program; its weights file is looked for in the same folder when values are asked for."""
    from xdsl.universe import Universe

    from distir.tools.universe import DISTIR_UNIVERSE

    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DistirError(f"{path}: cannot be read: {reason}") from error
    if not text.strip():
        raise DistirError(f"{path}: the file is empty: expected a program")
    context = Context()
    for name, factory in (Universe.get_multiverse().all_dialects | DISTIR_UNIVERSE.all_dialects).items():
        context.register_dialect(name, factory)
    module = parse_program(context, text, str(path))
    _folder_of[module] = path.parent
    return module


def draw(module: ModuleOp, seed: int) -> dict[str, Array]:
    """Values for the arguments of @main that hold a model's memory: parameters and buffers normal with standard
    deviation 0.02 (deep networks stay finite), state and whatever is not floating-point zero.

    Each value depends on the seed and its name only. At level 3, where an argument is a part of a global array
    (`dist.part`), the global array is drawn.
    """
    drawn: dict[str, Array] = {}
    for function in module.ops:
        if isinstance(function, FuncOp) and function.sym_name.data == "main" and function.arg_attrs is not None:
            for argument, attributes in zip(function.args, function.arg_attrs, strict=True):
                name, role = attributes.data.get("dist.name"), attributes.data.get("dist.role")
                if not isinstance(name, StringAttr) or not isinstance(role, StringAttr):
                    continue
                if role.data in ("parameter", "state", "buffer") and isinstance(argument.type, TensorType):
                    type = cast(TensorType[Attribute], argument.type)
                    shape = _global_shape(type, attributes.data.get("dist.part"))
                    drawn[name.data] = _draw(name.data, role.data, shape, numpy_dtype(type.element_type), seed)
    return drawn


def _global_shape(type: TensorType[Attribute], part: Attribute | None) -> tuple[int, ...]:
    from distir.dialects.dist import PartAttr

    return part.global_shape if isinstance(part, PartAttr) else type.get_shape()


def _draw(name: str, role: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    floating = dtype.kind == "f" or "float" in dtype.name
    if role == "state" or not floating:
        return np.zeros(shape, dtype)
    generator = np.random.default_rng([seed, crc32(name.encode())])
    values = generator.standard_normal(shape, dtype=np.float64 if dtype == np.float64 else np.float32)
    values *= 0.02
    return np.asarray(values).astype(dtype, copy=False)
