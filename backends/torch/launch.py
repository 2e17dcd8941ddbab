"""Runs a program on this machine: one process per rank (`forks`), watched until all are done. In go a program and
global input arrays; out come global output arrays and the time of each run.

The workers get files, a folder to meet in (no port is chosen: torch.distributed meets through a file) and one thread
each. The first failure ends all of them and becomes one DistirError; so does a worker that dies without a word, and
Ctrl-C leaves none behind.
"""

from __future__ import annotations

import importlib.util
import signal
import statistics
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.backends.torch.exchange import (
    Failure,
    Job,
    Next,
    inputs_path,
    load_arrays,
    log_path,
    next_path,
    outputs_path,
    program_path,
    save_arrays,
    save_mapped,
    step_path,
)
from distir.backends.torch.fetches import begun_by_callers
from distir.backends.torch.forks import POLL_SECONDS, Process, environment
from distir.backends.torch.heartbeat import Watch
from distir.dialects.errors import DistirError
from distir.dialects.onnx import numpy_dtype
from distir.dialects.rank import GroupOp
from distir.interpreters.entry import Port, arguments_of, entry_function, machine_devices, results_of
from distir.interpreters.global_arrays import Array, Site, assemble, distribute
from distir.interpreters.ranks import explicit
from distir.interpreters.weights import FilePart, file_part

BACKENDS = ("gloo", "nccl")
LOOK_SECONDS = 0.5
"""How often the launcher looks where the ranks are."""
STALL_SECONDS = 300.0
"""How long no rank may begin an operation, unless a caller says otherwise."""


@dataclass(frozen=True)
class Execution:
    """What came out of a run."""

    outputs: dict[str, Array]
    """Global arrays by name."""
    seconds: float
    """Wall time from when all ranks have their arguments until the slowest is done; the median of the timed runs."""
    runs: tuple[float, ...] = ()
    """The same of each timed run."""
    steps: tuple[dict[str, Array], ...] = ()
    """Of several steps, the outputs of one element that each gave, by name: the loss."""


def execute(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    backend: str = "gloo",
    *,
    entry: str = "main",
    dtype: DTypeLike | None = None,
    following: Sequence[Mapping[str, Array]] = (),
    measure: int = 0,
    timeout_seconds: float | None = STALL_SECONDS,
    debug: bool = False,
) -> Execution:
    """Runs a program of level 1 (on one process) or 3 (one process per device) on global arrays.

    An argument without an input gets the value that the module carries. With `dtype=np.float64` floating point is
    computed in double. `following` are inputs of further steps, by the same names each: what a step updates (results with the
    name of an argument) goes into the next, other arguments stay; outputs are those of the last. `measure` repeats the last
    run that many times, after one that is not timed. Raises DistirError for
    an input that is missing or does not fit, for a rank that fails or dies, and where no rank begins an operation for
    `timeout_seconds` (None: for ever). With `debug`, torch.distributed checks before each collective that all its ranks are at the
    same one, of the same shape."""
    from distir.interpreters.weights import weights_of
    from distir.passes.project_to_rank import project

    _check(backend, dtype)
    weights, module = weights_of(module), begun_by_callers(explicit(module), entry)
    world = machine_devices(module, entry_function(module, entry))
    programs = [project(module, rank, entry) for rank in range(world)]
    functions = [entry_function(program, entry) for program in programs]
    arguments = [Site(rank, port) for rank, function in enumerate(functions) for port in arguments_of(function)]
    values = ChainMap(dict(inputs), cast(dict[str, Array], weights))
    floating = None if dtype is None else np.dtype(dtype)
    mapped = _mapped(arguments, inputs, weights)
    results = [Site(rank, port) for rank, function in enumerate(functions) for port in results_of(function)]
    sites = [site for i, site in enumerate(arguments) if i not in mapped]
    parts = distribute(sites, values, floating)
    with TemporaryDirectory(prefix="distir-") as name:
        folder = Path(name)
        Job(backend, world, entry, communication_groups(programs), measure, floating is not None, len(following)).save(
            folder
        )
        _save_following(folder, arguments, results, following, floating)
        for rank, program in enumerate(programs):
            program_path(folder, rank).write_text(str(program), "utf-8")
            own = [part for site, part in zip(sites, parts, strict=True) if site.device == rank]
            save_arrays(inputs_path(folder, rank), own)
            places = [i for i, site in enumerate(arguments) if site.device == rank]
            save_mapped(folder, rank, {place: mapped[i] for place, i in enumerate(places) if i in mapped})
        del parts
        with Workers(folder, world, debug=debug) as workers:
            workers.wait(timeout_seconds)
        answers = [load_arrays(outputs_path(folder, rank)) for rank in range(world)]
        steps = _told(folder, results, len(following) + 1 if following else 0)
    outputs = assemble(results, [array for arrays, _ in answers for array in arrays])
    slowest = [max(seconds) for seconds in zip(*(seconds for _, seconds in answers), strict=True)]
    return Execution(outputs, statistics.median(slowest), tuple(slowest), steps)


def _save_following(
    folder: Path,
    arguments: Sequence[Site],
    results: Sequence[Site],
    following: Sequence[Mapping[str, Array]],
    dtype: np.dtype[Any] | None,
) -> None:
    """Writes what every rank's arguments are in the steps after the first."""
    if not following:
        return
    names = following[0].keys()
    updated = {site.port.name for site in results} - names
    given = [site for site in arguments if site.port.name in names]
    parts = [distribute(given, inputs, dtype) for inputs in following]
    ranks = sorted({site.device for site in arguments})
    taken, made = ([[s.port for s in sites if s.device == rank] for rank in ranks] for sites in (arguments, results))
    indices = [{(port.name, port.part): i for i, port in enumerate(ports)} for ports in made]
    wanted = [[(i, (p.name, p.part)) for i, p in enumerate(own) if p.name in updated] for own in taken]
    for rank, own, here in zip(ranks, wanted, indices, strict=True):
        for _, key in own:
            if key not in here:
                raise DistirError(f"the update of {key[0]} is not on rank {rank}, where its next step needs it")
    for rank, own, here, entering, leaving in zip(ranks, wanted, indices, taken, made, strict=True):
        places = [i for i, port in enumerate(entering) if port.name in names]
        told = [i for i, port in enumerate(leaving) if _is_number(port)]
        Next([(i, here[key]) for i, key in own], places, told).save(folder, rank)
        for step, values in enumerate(parts, 1):
            own_parts = [value for site, value in zip(given, values, strict=True) if site.device == rank]
            save_arrays(next_path(folder, rank, step), own_parts)


def _is_number(port: Port) -> bool:
    """Whether an output has one element."""
    if port.role not in (None, "output") or not isinstance(port.type, TensorType):
        return False
    return prod(port.part.global_shape if port.part is not None else cast(TensorType[Any], port.type).get_shape()) == 1


def _told(folder: Path, results: Sequence[Site], steps: int) -> tuple[dict[str, Array], ...]:
    """The outputs of one element, step by step."""
    sites = [site for site in results if _is_number(site.port)]
    ranks = list(dict.fromkeys(site.device for site in sites))
    found: list[dict[str, Array]] = []
    for step in range(steps):
        values = {rank: iter(load_arrays(step_path(folder, rank, step))[0]) for rank in ranks}
        found.append(assemble(sites, [next(values[site.device]) for site in sites]))
    return tuple(found)


def _mapped(sites: Sequence[Site], inputs: Mapping[str, Array], weights: Mapping[str, Array]) -> dict[int, FilePart]:
    """By argument, the parts of weight files that ranks map themselves: they never pass through this process."""
    found: dict[int, FilePart] = {}
    for i, (_, port) in enumerate((site.device, site.port) for site in sites):
        if port.name in inputs or port.name not in weights or not isinstance(port.type, TensorType):
            continue
        array, part = weights[port.name], port.part
        type_ = cast(TensorType[Any], port.type)
        shape = type_.get_shape() if part is None else part.global_shape
        if shape != array.shape or array.dtype != numpy_dtype(type_.element_type):
            continue  # refused, with the reason, where the others are cut
        where = file_part(array, None if part is None else part.dims)
        if where is not None and (part is None or part.reduction is None):
            found[i] = where
    return found


def _check(backend: str, dtype: DTypeLike | None) -> None:
    if importlib.util.find_spec("torch") is None:
        raise DistirError("running a program needs torch, which is not installed: pip install 'distir[torch]'")
    if backend not in BACKENDS:
        raise DistirError(f"expected the backend gloo or nccl, got {backend}")
    if dtype is not None and np.dtype(dtype) != np.float64:
        raise DistirError(f"a program runs in its own element types or in float64, not in {np.dtype(dtype)}")


def communication_groups(programs: Sequence[ModuleOp]) -> list[list[int]]:
    """The groups of all ranks' collectives, in one order for all."""
    found = {tuple(sorted(op.ranks)) for program in programs for op in program.walk() if isinstance(op, GroupOp)}
    return [list(group) for group in sorted(found)]


class Workers:
    """The processes of all ranks; leaving the context ends those that still run."""

    def __init__(
        self, folder: Path, world: int, module: str = "distir.backends.torch.worker", debug: bool = False
    ) -> None:
        self.folder, self.world, self.module, self.debug = folder, world, module, debug
        self.processes: list[Process] = []

    def __enter__(self) -> Workers:
        try:
            for rank in range(self.world):
                self.processes.append(self._start(rank))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait(self, timeout_seconds: float | None, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Returns when all ranks are done; calls `meanwhile` now and then. Raises DistirError when one fails, or when no rank
        has made progress for that long."""
        watch, looked = Watch(self.folder, self.world), time.monotonic()
        while True:
            statuses = [process.poll() for process in self.processes]
            if any(statuses):
                raise DistirError(self._failure())
            if all(status == 0 for status in statuses):
                return
            if timeout_seconds is not None and time.monotonic() - looked > min(LOOK_SECONDS, timeout_seconds):
                if watch.silence_seconds() > timeout_seconds:
                    running = [rank for rank, status in enumerate(statuses) if status is None]
                    where = watch.stalled(running, [process.pid for process in self.processes])
                    raise DistirError(f"no progress for {timeout_seconds:g} seconds: {where}")
                looked = time.monotonic()
            meanwhile()
            time.sleep(POLL_SECONDS)

    def _start(self, rank: int) -> Process:
        variables = environment() | ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if self.debug else {})
        return Process([self.module, self.folder, str(rank)], variables, log_path(self.folder, rank))

    def _failure(self) -> str:
        """Which rank failed first, and why. A peer's death makes others fail, so one that says nothing comes first."""
        failures: list[tuple[float, str]] = []
        for rank, process in enumerate(self.processes):
            status, failure = process.poll(), Failure.load(self.folder, rank)
            if failure is not None:
                failures.append((failure.moment, f"rank {rank} failed: {failure.reason}"))
            elif status is not None and status < 0:
                name = signal.Signals(-status).name
                why = "the system does that when memory runs out" if name == "SIGKILL" else self._last_line(rank)
                failures.append((0, f"rank {rank} was killed by {name}: {why}"))
            elif status:
                failures.append((0, f"rank {rank} ended with status {status}: {self._last_line(rank)}"))
        return min(failures)[1]

    def _last_line(self, rank: int) -> str:
        lines = log_path(self.folder, rank).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _end(self) -> None:
        for process in self.processes:
            process.end()
