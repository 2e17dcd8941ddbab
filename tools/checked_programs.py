"""Remembers programs whose types were found right. In goes a program and its file; out comes whether this version has checked this very text
before: types are inferred by the operators' library, and to import torch takes longer than to simulate a small program.

A line of one file beside the cache of rules is a digest of a program's text and of what its dialects mean."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from distir.passes.shardcombine.cache import NO_CACHE, cache_directory, meaning_digest, version_digest

PREFIX = "checked-"


def files() -> list[Path]:
    """The files of checked programs in the user's cache, of whatever version."""
    return sorted(cache_directory().glob(f"{PREFIX}*.txt"))


def is_known(module: ModuleOp, path: str | os.PathLike[str]) -> bool:
    """Whether the program was remembered as it is."""
    if not _can_keep(path):
        return False
    try:
        return _line(module, path) in _file().read_text("ascii").split()
    except (OSError, ValueError):
        return False


def remember(module: ModuleOp, path: str | os.PathLike[str]) -> None:
    """Keeps that the types of the program, which the file has, are right. A directory that cannot be written costs only the time saved."""
    if not _can_keep(path):
        return
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open("a", encoding="ascii") as file:
            file.write(f"{_line(module, path)}\n")
    except OSError:
        return


def _can_keep(path: str | os.PathLike[str]) -> bool:
    """Not if the user wants no cache, and not what comes through a pipe, which cannot be read again."""
    return not os.environ.get(NO_CACHE) and Path(path).is_file()


def _file() -> Path:
    return cache_directory() / f"{PREFIX}{version_digest()}.txt"


def _line(module: ModuleOp, path: str | os.PathLike[str]) -> str:
    """A digest of the file, and of what each dialect in it means."""
    one_of_each = {op.dialect_name(): op for op in module.walk()}
    meanings = [f"{name} {meaning_digest(op)}" for name, op in sorted(one_of_each.items())]
    return hashlib.sha256("\n".join(meanings).encode() + Path(path).read_bytes()).hexdigest()
