"""In goes a program of level 1 or 3 with values for its arguments, out comes a folder that runs by `torchrun`: what `distir run --emit` writes.

train.py                what torchrun starts, the same for every program (`portable`); distir_runtime.py, which it and the programs import
ranks_0_1.py            the program of ranks 0 and 1, which are alike (`source`)
program.json            what each rank takes and gives, and the process groups
weights.safetensors     parameters, state and buffers, whole; inputs.safetensors: one batch
ranks_2.kernels.mlir    operations that torch has no name for; where there are any, the program needs distir
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.fetches import begun_by_callers
from distir.backends.torch.kernels import text_of
from distir.backends.torch.launch import communication_groups
from distir.backends.torch.module_text import Source
from distir.backends.torch.portable import distir_runtime
from distir.backends.torch.source import source_of
from distir.dialects.errors import DistirError
from distir.interpreters.entry import Port, arguments_of, entry_function, machine_devices, results_of
from distir.interpreters.global_arrays import Array
from distir.interpreters.ranks import explicit
from distir.interpreters.weights import write_weights

PROGRAM = "program.json"
BATCH = (None, "input", "label")
"""Roles of what each step is given anew."""


def emit(module: ModuleOp, values: Mapping[str, Array], folder: Path, entry: str = "main") -> list[Path]:
    """Writes the folder, whole or not at all, and returns its files. `values` are whole arrays by name. Raises DistirError where
    something else is in its place, and for a program that takes what is no tensor."""
    from distir.passes.project_to_rank import project

    module = begun_by_callers(explicit(module), entry)
    world = machine_devices(module, entry_function(module, entry))
    programs = [project(module, rank, entry) for rank in range(world)]
    sources = [source_of(program, ElementTypes(), entry) for program in programs]
    modules = _modules(sources, entry)
    written = _described(programs, modules, sources, entry)
    with _replaced(folder) as unfinished:
        for name, ranks in modules.items():
            text, _ = sources[ranks[0]].render({rank: sources[rank] for rank in ranks}, _title(ranks, world, sources))
            (unfinished / f"{name}.py").write_text(text, "utf-8")
        for rank, source in enumerate(sources):
            if source.kernels:
                (unfinished / _kernels_file(rank)).write_text(text_of(source.kernels), "utf-8")
        (unfinished / PROGRAM).write_text(json.dumps(written, indent=1), "utf-8")
        portable = Path(distir_runtime.__file__).parent
        for path in portable.glob("*.py"):
            if path.name != "__init__.py":
                shutil.copyfile(path, unfinished / path.name)
        _write_values(programs[0] if world == 1 else module, values, unfinished, entry)
    return sorted(folder.iterdir())


def _modules(sources: Sequence[Source], entry: str) -> dict[str, list[int]]:
    """The ranks that share each module, by its name."""
    alike: dict[str, list[int]] = {}
    for rank, source in enumerate(sources):
        alike.setdefault(source.likeness, []).append(rank)
    names = ["_".join(map(str, ranks if len(ranks) <= 4 else [ranks[0], "to", ranks[-1]])) for ranks in alike.values()]
    return {f"ranks_{name}": ranks for name, ranks in zip(names, alike.values(), strict=True)}


def _title(ranks: Sequence[int], world: int, sources: Sequence[Source]) -> list[str]:
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    needs = (
        "\n\nIts kernels are operations that torch has no name for: they need distir."
        if sources[ranks[0]].kernels
        else ""
    )
    return [
        f'"""What {who} of {world} run, written by `distir run --emit`. Start train.py, with torchrun.{needs}"""',
        "",
    ]


def _kernels_file(rank: int) -> str:
    return f"rank_{rank}.kernels.mlir"


def _described(
    programs: Sequence[ModuleOp], modules: Mapping[str, Sequence[int]], sources: Sequence[Source], entry: str
) -> dict[str, Any]:
    """What `train.py` reads of the program."""
    module_of = {rank: name for name, ranks in modules.items() for rank in ranks}
    ranks = [
        {
            "module": module_of[rank],
            "entry": source.functions[entry],
            "kernels": _kernels_file(rank) if source.kernels else None,
            **told,
        }
        for rank, (source, told) in enumerate(zip(sources, ports(programs, entry), strict=True))
    ]
    groups = communication_groups(programs)
    return {"world": len(programs), "groups": groups, "float64": False, "ranks": ranks}


def ports(programs: Sequence[ModuleOp], entry: str = "main") -> list[dict[str, list[dict[str, Any]]]]:
    """The arguments and results of every rank, as `portable` has them."""
    given: set[Any] = set()
    ranks: list[dict[str, Any]] = []
    for program in programs:
        function = entry_function(program, entry)
        arguments = [_port(port) for port in arguments_of(function)]
        for port, told in zip(arguments_of(function), arguments, strict=True):
            if port.part is not None and port.part.reduction is not None:
                told["fill"] = _identity(port) if (port.name, port.part) in given else None
                given.add((port.name, port.part))
        ranks.append({"arguments": arguments, "results": [_port(port) for port in results_of(function)]})
    return ranks


def _port(port: Port) -> dict[str, Any]:
    if not isinstance(port.type, TensorType):
        raise DistirError(
            f"{port.name} is {port.type}, which is no tensor: such a program cannot be written for torchrun"
        )
    type_ = cast(TensorType[Any], port.type)
    part = port.part
    return {
        "name": port.name,
        "role": port.role or "output",
        "dtype": str(ElementTypes().of(type_.element_type)).removeprefix("torch."),
        "shape": list(type_.get_shape() if part is None else part.global_shape),
        "dims": None if part is None else [[list(r) for r in dim] for dim in part.dims],
        "reduction": None if part is None or part.reduction is None else part.reduction.value,
        "fill": None,
    }


def _identity(port: Port) -> int | None:
    """What the addends after the first are filled with (`interpreters.global_arrays`)."""
    assert port.part is not None
    return {"sum": 0, "prod": 1}.get(str(port.part.reduction and port.part.reduction.value))


def _write_values(module: ModuleOp, values: Mapping[str, Array], folder: Path, entry: str) -> None:
    roles = {port.name: port.role for port in arguments_of(entry_function(module, entry))}
    for name, batch in (("inputs", True), ("weights", False)):
        kept = {n: np.asarray(values[n]) for n, role in roles.items() if n in values and (role in BATCH) is batch}
        write_weights(kept, folder / f"{name}.safetensors")


class _replaced:
    """A folder beside the one that is asked for, which takes its place when all is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Path:
        folder = self.folder
        if folder.exists() and not (folder.is_dir() and ((folder / PROGRAM).is_file() or not any(folder.iterdir()))):
            raise DistirError(f"{folder}: is there already, and no program that distir wrote: give another folder")
        if not folder.absolute().parent.is_dir():
            raise DistirError(f"{folder}: cannot be written: no folder {folder.absolute().parent}")
        try:
            self.unfinished = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
            self.unfinished.chmod(0o755)
        except OSError as error:
            raise DistirError(f"{folder}: cannot be written: {error.strerror or error}") from error
        return self.unfinished

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            if kind is None:
                old = self.unfinished.with_name(f"{self.unfinished.name}.old")
                if self.folder.exists():
                    os.rename(self.folder, old)
                os.rename(self.unfinished, self.folder)
                shutil.rmtree(old, ignore_errors=True)
        except OSError as failed:
            raise DistirError(f"{self.folder}: cannot be written: {failed.strerror or failed}") from failed
        finally:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        if isinstance(error, OSError):
            raise DistirError(f"{self.folder}: cannot be written: {error.strerror or error}") from error
