"""Programs in files, their values beside them: `save` takes a module and writes `PROGRAM.mlir` and `PROGRAM.safetensors`, whole or not at
all; `load` takes the path and gives the module, whose values are mapped when they are asked for (`distir.interpreters.weights`)."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.printer import Printer

from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.frontends.text import parse_program
from distir.interpreters.weights import WEIGHTS, lies_in, safetensors_writer, weights_of, write_atomically


def save(module: ModuleOp, path: str | os.PathLike[str]) -> None:
    """Write the program to `path` and its values beside it: both appear, whole, or neither."""
    path = Path(path)
    weights, files = weights_of(module), dict[Path, Callable[[Path], object]]()
    if weights:
        weights_path = path.with_suffix(".safetensors")
        files[weights_path] = safetensors_writer(weights)
        module.attributes[WEIGHTS] = StringAttr(weights_path.name)
    text = StringIO()
    Printer(text).print_op(module)
    files[path] = lambda temporary: temporary.write_text(f"{text.getvalue()}\n", "utf-8")
    write_atomically(files)


def load(path: str | os.PathLike[str]) -> ModuleOp:
    """Parse and verify a program; its weights file is looked for in the same folder when values are asked for."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DistirError(f"{path}: cannot be read: {reason}") from error
    if not text.strip():
        raise DistirError(f"{path}: the file is empty: expected a program")
    module = parse_program(program_context(), text, str(path))
    lies_in(module, path.parent)
    return module
