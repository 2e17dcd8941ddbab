"""Checkpoints. In go all ranks' arrays; out comes a folder with whole arrays by the model's names. Any plan, any
number of ranks and plain PyTorch go on from it.

    step_00000077/model.safetensors       parameters and buffers: what `load_state_dict` takes
    step_00000077/optimizer.safetensors   the optimizer's state
    step_00000077/dcp/                    in place of both, if asked for: all of it in parts, as torch.distributed.checkpoint has it (`distir_parts`)
    step_00000077/checkpoint.json         the step, the seed, and of each file its size and SHA-256

A checkpoint is written into a folder of another name, with fsync, and renamed: it is there whole or not at all. A
checkpoint with changed files is left out, and the one before is taken.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distir_arrays
import distir_runtime
import torch.distributed as dist
from torch import Tensor

MODEL, OPTIMIZER, SUMMARY = "model.safetensors", "optimizer.safetensors", "checkpoint.json"
_STEP = re.compile(r"step_([0-9]{8,})")
_PART = re.compile(r"dcp/(\.metadata|__[0-9]+_[0-9]+\.distcp)")


def _name(step: int) -> str:
    return f"step_{step:08}"


def folders(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    found = [path for path in folder.iterdir() if _STEP.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")), reverse=True)


def newest(folder: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """The newest whole checkpoint and its summary, and a line for each that is not whole."""
    notes: list[str] = []
    for path in folders(folder):
        if (reason := damage(path)) is None:
            return path, json.loads((path / SUMMARY).read_text("utf-8")), notes
        notes.append(f"checkpoint {path.name} is damaged ({reason})")
    return None, {}, notes


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is whole."""
    try:
        if not (path / SUMMARY).is_file():  # a pipe would be read for ever
            return f"{SUMMARY} is no file" if (path / SUMMARY).exists() else f"{SUMMARY} is missing"
        summary = json.loads((path / SUMMARY).read_text("utf-8"))
        if "parts" not in summary and summary["files"].keys() != {MODEL, OPTIMIZER}:
            return f"{SUMMARY} names {', '.join(map(repr, summary['files'])) or 'no file'}"
        for name, told in summary["files"].items():
            if name not in (MODEL, OPTIMIZER) and not _PART.fullmatch(name):
                return f"{SUMMARY} names {name!r}"
            if (path / name).exists() and not (path / name).is_file():
                return f"{name} is no file"
            size = (path / name).stat().st_size
            if size != told["bytes"]:
                return f"{name} has {size} bytes of {told['bytes']}"
            if _hash(path / name) != told["sha256"]:
                return f"{name} is not what was written"
        for name in ("step", "seed"):
            if type(summary[name]) is not int or summary[name] < 0:
                return f"{SUMMARY} has {name} {summary[name]!r}"
        if path.name != _name(summary["step"]):
            return f"{SUMMARY} is of step {summary['step']}"
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{SUMMARY} cannot be read"
    return None


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Path, summary: dict[str, Any], ports: Sequence[Any]) -> dict[int, Tensor]:
    """By argument, its part of its value in a whole checkpoint. Raises ValueError for another shape, and for one that is not there."""
    if "parts" in summary:
        import distir_parts

        found = distir_parts.read(path / "dcp", summary["parts"], ports)
    else:
        found = distir_arrays.read([path / MODEL, path / OPTIMIZER], ports)
    for i, port in enumerate(ports):
        if port["role"] in ("parameter", "buffer", "state") and i not in found:
            raise ValueError(f"checkpoint {path} has no '{port['name']}': it is of another model or optimizer")
    return found


def save(
    folder: Path,
    summary: dict[str, Any],
    ports: Sequence[Sequence[Any]],
    values: Sequence[Tensor],
    keep: int,
    in_parts: bool = False,
) -> str | None:
    """Writes the checkpoint of a step, by all ranks together, and removes all but the last `keep`. Returns, on every rank, why it could not be written;
    then the others are as they were."""
    names: dict[str, list[str]] = {MODEL: [], OPTIMIZER: []}
    for port in (port for here in ports for port in here):
        file = {"parameter": MODEL, "buffer": MODEL, "state": OPTIMIZER}.get(port["role"])
        if file is not None and port["name"] not in names[file]:
            names[file].append(port["name"])
    name = _name(summary["step"])
    unfinished = folder / f".{name}.{os.getpid()}.tmp"
    failure: str | None = None
    if distir_runtime.RANK == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(".step_*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            unfinished.mkdir()
        except OSError as error:
            failure = error.strerror or str(error)
    files = list(names)
    if in_parts:
        told: list[Any] = [str(unfinished), failure]
        dist.broadcast_object_list(told, 0)
        if told[1] is None:  # the folder is there
            import distir_parts

            index, failure = distir_parts.write(
                Path(told[0]) / "dcp", ports, values, [n for each in names.values() for n in each]
            )
            summary = {**summary, "parts": index}
            files = sorted({"dcp/.metadata", *(f"dcp/{part[1]}" for part in index)})
    else:
        for file, listed in names.items():
            failed = distir_arrays.write(unfinished / file, ports, values, listed)
            failure = failure or failed
    if distir_runtime.RANK == 0:
        try:
            if failure is None:
                _finish(folder, unfinished, name, summary, files)
                for old in folders(folder)[keep:]:
                    shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            failure = error.strerror or str(error)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    outcome: list[Any] = [failure]
    dist.broadcast_object_list(outcome, 0)
    return outcome[0]


def _finish(folder: Path, unfinished: Path, name: str, summary: dict[str, Any], files: Sequence[str]) -> None:
    told = {file: {"bytes": (unfinished / file).stat().st_size, "sha256": _hash(unfinished / file)} for file in files}
    with (unfinished / SUMMARY).open("w", encoding="utf-8") as file:
        json.dump({**summary, "files": told}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(unfinished)
    if (folder / name).exists():  # damaged, or of a run that went on from an earlier one
        shutil.rmtree(folder / name)
    os.rename(unfinished, folder / name)
    _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
