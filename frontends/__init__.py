"""How models come in, as level 1 programs: ONNX files (`distir.frontends.onnx`), PyTorch steps (`distir.frontends.pytorch`), JAX
functions (`distir.frontends.jax`), and the kinds of files that plug-ins read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from distir.dialects.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xdsl.dialects.builtin import ModuleOp


class Importer(Protocol):
    """A model file as a sequential program, its inputs bound to these shapes, by name."""

    def __call__(self, path: str, shapes: Mapping[str, Sequence[int]] | None = None) -> ModuleOp: ...


FRONTENDS: Registry[Importer] = Registry("frontend", {".onnx": "distir.frontends.onnx:import_model"})
"""Who reads model files, by how their names end."""


def extension_of(path: str) -> str | None:
    """The longest end of a file's name, such as `.onnx` or `.acme.json`, that someone reads; None if nobody does."""
    return max((each for each in FRONTENDS if path.endswith(each)), key=len, default=None)
