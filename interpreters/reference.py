"""The reference executor. In go a program of any level and global input arrays by name; out come global output
arrays by name.

An argument without an input gets the value that the module carries (its weights). `run` takes levels 1 to 3,
`run_ranks` the programs of all ranks (level 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, TensorType
from xdsl.interpreter import InterpreterFunctions, PythonValues
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.dialects.plugins import implementations
from distir.interpreters.comparison import disturbed
from distir.interpreters.entry import arguments_of, entry_function, machine_devices, rank_of, results_of
from distir.interpreters.global_arrays import Array, Piece, Site, array_dtype, assemble, distribute, pieces
from distir.interpreters.operator_dialects import MEANINGS, function_of
from distir.interpreters.ranks import explicit
from distir.interpreters.reference_dist import CallFunctions, CommunicationFunctions, LocalFunctions
from distir.interpreters.reference_rank import RankFunctions, run_together
from distir.interpreters.walk import Suspended, Walk, single_operations

Extra = Sequence[InterpreterFunctions]

NOISE_ULPS = 2
"""How much other a value with noise is, at most, in units of rounding: kernels add in orders of their own."""

SUMMED_PER_ULP = 2048
"""A number that is made of more than so many is off by a unit for each: kernels that add one by one round a long sum away (torch's f32 norm
of 4 million numbers is off by 9e-5, of 67 million by 5e-3)."""


def run(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    entry: str = "main",
    dtype: DTypeLike | None = None,
    extra: Extra = (),
    noise: np.random.Generator | None = None,
) -> dict[str, Array]:
    """The outputs of a program, by name, as global arrays.

    With `dtype` (`np.float64`) all floating values are computed in it. `extra` gives or overrides implementations of
    ops (`@impl`). With `noise`, the last digit of everything that is computed is another. Raises DistirError for a missing or
    misshapen input, for replicas that disagree, and for one rank's program of several."""
    return assemble(*_execute(module, inputs, entry, dtype, extra, noise=noise))


def run_ranks(
    modules: Sequence[ModuleOp],
    inputs: Mapping[str, Array],
    entry: str = "main",
    dtype: DTypeLike | None = None,
    extra: Extra = (),
) -> dict[str, Array]:
    """The same, from the programs of all ranks, in order of ranks, run together in this process.

    Raises DistirError as `run` does, and for a deadlock, which says what each rank waits for."""
    return assemble(*_execute_ranks(modules, inputs, entry, dtype, extra))


def run_pieces(
    program: ModuleOp | Sequence[ModuleOp],
    inputs: Mapping[str, Array],
    entry: str = "main",
    dtype: DTypeLike | None = None,
    spread: np.random.Generator | None = None,
) -> dict[str, list[Piece]]:
    """What each device has of each output, replicas and all: of one program of level 1 to 3, or of those of all ranks.

    `spread` draws the addends of partial arguments (`distribute`). Raises DistirError as `run` and `run_ranks` do, but not
    for replicas that disagree."""
    execute = _execute if isinstance(program, ModuleOp) else _execute_ranks
    return pieces(*execute(cast(Any, program), inputs, entry, dtype, (), spread))


def _execute(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    entry: str,
    dtype: DTypeLike | None,
    extra: Extra,
    spread: np.random.Generator | None = None,
    noise: np.random.Generator | None = None,
) -> tuple[list[Site], Sequence[Any]]:
    """The results' sites and values."""
    values, module = _Values(inputs, [module]), explicit(module)
    function = entry_function(module, entry)
    rank, devices = rank_of(module), machine_devices(module, function)
    if rank is not None and devices > 1:
        raise DistirError(f"this is rank {rank}'s program of {devices}: run them all together, with run_ranks")
    floating = None if dtype is None else np.dtype(dtype)
    sites = [Site(p.on.device if p.on is not None else 0, p) for p in arguments_of(function)]
    arguments = distribute(sites, values, floating, spread)
    functions = [*extra] if rank is None else [RankFunctions(rank), *extra]
    with np.errstate(all="ignore"):  # an overflow is what the program computes, not an accident here
        walk = Reference.of(module, floating, functions)
        walk.noise = noise
        results = walk.call(entry, tuple(arguments))
    return [Site(p.on.device if p.on is not None else 0, p) for p in results_of(function)], results


def _execute_ranks(
    modules: Sequence[ModuleOp],
    inputs: Mapping[str, Array],
    entry: str,
    dtype: DTypeLike | None,
    extra: Extra,
    spread: np.random.Generator | None = None,
) -> tuple[list[Site], Sequence[Any]]:
    """The same of the programs of all ranks."""
    functions = [entry_function(module, entry) for module in modules]
    for number, module in enumerate(modules):
        if (count := machine_devices(module, functions[number])) > len(modules):
            raise DistirError(f"expected the programs of {count} ranks, got {len(modules)}")
        if rank_of(module) not in (number, None):
            raise DistirError(f"expected the program of rank {number} at place {number}, got rank {rank_of(module)}'s")
    floating = None if dtype is None else np.dtype(dtype)
    sites = [Site(r, p) for r, f in enumerate(functions) for p in arguments_of(f)]
    values = iter(distribute(sites, _Values(inputs, modules), floating, spread))
    programs = [
        Reference.of(module, floating, [RankFunctions(r), *extra]).steps(entry, tuple(next(values) for _ in f.args))
        for r, (module, f) in enumerate(zip(modules, functions, strict=True))
    ]
    with np.errstate(all="ignore"):
        results = run_together(programs)
    results_sites = [Site(r, p) for r, f in enumerate(functions) for p in results_of(f)]
    return results_sites, [value for of_rank in results for value in of_rank]


def run_operator(op: Operation, operands: Sequence[Any], floats: np.dtype[Any] | None = None) -> tuple[Any, ...]:
    """One operator op (`onnx`, `aten`, `grad`) on concrete arrays, by its dialect's own definition, or an operation by a plug-in's
    `@impl`; with `floats`, floating values (constants and casts too) are of that type."""
    if (meaning := MEANINGS.get(op.dialect_name())) is None:
        return single_operations("reference").run(op, tuple(operands))
    return tuple(function_of(meaning.reference)(op, operands, floats))


def has_reference(op: Operation) -> bool:
    """Whether `run_operator` knows what the operation computes."""
    return op.dialect_name() in MEANINGS or single_operations("reference").has(op)


@dataclass
class Reference(Walk):
    """The walk over concrete arrays; every result has the shape and element type that the program says."""

    dtype: np.dtype[Any] | None = None
    noise: np.random.Generator | None = None
    """Draws another last digit of what is computed; none: all as it is."""

    @classmethod
    def of(cls, module: ModuleOp, dtype: np.dtype[Any] | None, extra: Extra = ()) -> Reference:
        walk = cls(module, default=lambda op, operands: run_operator(op, operands, dtype), dtype=dtype)
        walk.register([CommunicationFunctions(), LocalFunctions(), CallFunctions()])
        walk.register([*implementations("reference"), *extra])
        return walk

    def run(self, op: Operation, operands: PythonValues) -> PythonValues:
        results = super().run(op, operands)
        if len(results) == 1 and isinstance(results[0], Suspended):
            return results
        if len(results) != len(op.results):
            raise DistirError(f"{op.name}: expected {len(op.results)} results, got {len(results)}")
        conformed = self.received(op, results)
        return conformed if self.noise is None else tuple(self._disturbed(value, operands) for value in conformed)

    def _disturbed(self, value: Any, operands: PythonValues) -> Any:
        """A value with other last digits, if it is computed and not moved. What is chosen among the operands (a maximum, a gather) is moved: it is
        equal to what it was chosen from, and a gradient may look for that."""
        is_floating = isinstance(value, np.ndarray) and (value.dtype.kind == "f" or "float" in value.dtype.name)
        arrays = [each for each in operands if isinstance(each, np.ndarray)]
        if not is_floating or not arrays or _is_moved(value, arrays):  # a constant is stated
            return value
        assert self.noise is not None
        summed = max((each.size for each in arrays), default=0) / max(1, value.size)
        return disturbed(value, max(NOISE_ULPS, summed / SUMMED_PER_ULP), value.dtype, self.noise)

    def received(self, op: Operation, results: PythonValues) -> PythonValues:
        return tuple(self._conform(op, i, value) for i, value in enumerate(results))

    def _conform(self, op: Operation, index: int, value: Any) -> Any:
        type_ = op.results[index].type
        if not isinstance(type_, TensorType):
            return value
        array, tensor = np.asarray(value), cast(TensorType[Any], type_)
        shape = tensor.get_shape()
        if len(shape) != array.ndim or any(
            e not in (DYNAMIC_INDEX, n) for e, n in zip(shape, array.shape, strict=True)
        ):
            raise DistirError(f"{op.name}: expected result {index} of shape {list(shape)}, got {list(array.shape)}")
        return array if array.dtype == object else array.astype(array_dtype(tensor, self.dtype), copy=False)


_FEW = 8
"""Numbers that tell of most values that they are computed, so that not all are looked for."""


def _is_moved(value: Array, operands: Sequence[Array]) -> bool:
    """Whether a value is a view of an operand, or has numbers of theirs only."""
    if any(np.may_share_memory(value, each) for each in operands):
        return True
    numbers = [each.reshape(-1) for each in operands if each.dtype == value.dtype]
    if not numbers:
        return False
    own = value.reshape(-1)
    few = own[:: max(1, own.size // _FEW)]  # from all over it, each beside all of theirs: nothing is sorted
    if not all(any(bool((each == number).any()) for each in numbers) for number in few):
        return False
    if value.dtype.kind != "f" or value.dtype.itemsize < 4:
        own, numbers = own.astype(np.float32), [each.astype(np.float32) for each in numbers]
    theirs = np.unique(np.concatenate(numbers))  # `isin` is five times as slow
    return len(np.unique(np.concatenate((theirs, own)))) == len(theirs)


class _Values(Mapping[str, Array]):
    """The inputs, then the weights that the modules carry."""

    def __init__(self, inputs: Mapping[str, Array], modules: Sequence[ModuleOp]) -> None:
        from distir.interpreters.weights import weights_of

        self._layers = [inputs, *(weights_of(module) for module in modules)]

    def __getitem__(self, name: str) -> Array:
        for layer in self._layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter(dict.fromkeys(name for layer in self._layers for name in layer))

    def __len__(self) -> int:
        return len(list(iter(self)))
