"""Loads the programs that commands take. In goes MODEL (what a user has) or PROGRAM (what distir wrote); out comes
the module, verified and checked.

MODEL is FILE.onnx, FILE.mlir (level 1 or 2), or MODULE:FUNCTION, a Python function that makes one. Every mistake in
any of them is a DistirError that says which file or function."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import DiagnosticException, UnregisteredConstructException

from distir.dialects.errors import DistirError
from distir.tools.plans import Plan

MODEL_HELP = (
    "FILE.onnx, FILE.mlir (level 1 or 2), or MODULE:FUNCTION that returns a module, an ONNX model, a PyTorch training step, "
    "or a PyTorch module or function with its example arguments"
)


Program = str | PathLike[str] | ModuleOp | Plan
"""A file, or what is in this process."""

LEVELS = {
    1: "a sequential program",
    2: "an annotated program",
    3: "a distributed program",
    4: "the program of one rank",
}


def add_model_arguments(parser: ArgumentParser) -> None:
    """MODEL and `--shape`."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=SIZES",
        help="bind the open dimensions of an input, as in x=8,128, or bring a program to other sizes than it fixes; may repeat",
    )


def add_value_argument(parser: ArgumentParser) -> None:
    """`--value`."""
    parser.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="INPUT=NUMBER",
        help="an input of an ONNX file that always has this value, such as sr=16000; it is no input of the program; may repeat",
    )


def load_model(model: Any, shapes: Sequence[str] = (), names: Mapping[str, Sequence[str]] | None = None) -> ModuleOp:
    """The model, a file, MODULE:FUNCTION or an object that such a function returns, as a level 1 or 2 program, with the given shapes
    (`x=8,128`) and its weights attached. `names` are what `import_model` takes for an ONNX model: tensors that are `parameters` and `constants`, values that it ends with (`until`), inputs of
    which the value is fixed (`values`, as `sr=16000`)."""
    from distir.frontends import FRONTENDS, extension_of
    from distir.frontends.shapes import OtherSize, parse_shape

    bound: dict[str, tuple[int, ...]] = {}
    for name, shape in map(parse_shape, shapes):
        if bound.setdefault(name, shape) != shape:
            raise DistirError(f"--shape gives input '{name}' twice, as {list(bound[name])} and {list(shape)}")
    chosen: dict[str, Any] = {option: given for option, given in (names or {}).items() if given}
    if "values" in chosen:
        from distir.frontends.onnx.fixed_inputs import parse_value

        chosen["values"] = dict(map(parse_value, chosen["values"]))
    if not isinstance(model, str):
        module = _module_of(model, "the model", bound, chosen)
        require_level(module, "the model", (1, 2), "expected a model, which is of level 1 or 2")
        return _bind(module, "the model", bound)
    if (extension := extension_of(model)) is not None and not (chosen and extension != ".onnx"):
        try:
            module = FRONTENDS[extension](model, bound, **chosen)
        except OtherSize:
            module = _bind(FRONTENDS[extension](model, None, **chosen), model, bound)
        if extension != ".onnx":
            check(module, model)
        return module
    if model.endswith(".mlir") or Path(model).is_file():
        module = load_program(model)
    elif ":" in model:
        module = _call(model, bound, chosen)
    elif Path(model).is_dir():
        raise DistirError(f"{model}: is a folder: expected {MODEL_HELP}")
    else:
        raise DistirError(f"{model}: no such model: expected {MODEL_HELP}")
    if chosen:
        raise DistirError(f"--{next(iter(chosen))} is for ONNX models: {model} says itself what it consists of")
    require_level(module, model, (1, 2), "expected a model, which is of level 1 or 2")
    return _bind(module, model, bound)


def _call(model: str, shapes: dict[str, tuple[int, ...]], roles: dict[str, Any]) -> ModuleOp:
    """What a user's function returns, as a module; it is imported as `python -m` would, from the current folder too."""
    module_name, _, function_name = model.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
        if not hasattr(module, function_name):
            near = get_close_matches(function_name, vars(module), 1, 0.6)
            hint = f" (did you mean {module_name}:{near[0]}?)" if near else ""
            raise DistirError(f"{model}: {module_name} has no {function_name}{hint}")
        made = getattr(module, function_name)()
    except DistirError:
        raise
    except (Exception, SystemExit) as error:
        raise DistirError(f"{model} raised {type(error).__name__}: {error}") from error
    return _module_of(made, f"{model} returned {type(made).__name__}", shapes, roles)


def _module_of(made: Any, what: str, shapes: dict[str, tuple[int, ...]], roles: dict[str, Any]) -> ModuleOp:
    """A model that exists in this process, as a module; shapes and roles that are used are taken out."""
    if isinstance(made, ModuleOp):
        from distir.frontends.eager import copied
        from distir.frontends.jax.rows import attach_rows, rows_of
        from distir.interpreters.weights import attach, weights_of
        from distir.passes.staging.layers import split_layers_of

        check(made, what)
        values = dict[SSAValue, SSAValue]()
        attach(module := copied(made, values), weights_of(made))
        if (rows := rows_of(made)) is not None and (own := rows.of_copy(values)) is not None:
            attach_rows(module, own)
            split_layers_of(module)
        return module
    if type(made).__module__.startswith("onnx") and type(made).__name__ == "ModelProto":
        from distir.frontends.onnx import import_model

        module = import_model(made, shapes, **roles)
        shapes.clear()
        roles.clear()
        return module
    if "torch" in sys.modules and (arguments := _torch_arguments(made)) is not None:
        from distir.frontends.pytorch import import_step

        return import_step(*arguments)
    raise DistirError(
        f"{what}: expected an xDSL ModuleOp, an onnx ModelProto, a training_step or written_step of distir.frontends.pytorch, or a tuple "
        "of a torch.nn.Module or function and its example arguments"
    )


def _torch_arguments(made: object) -> tuple[Any, ...] | None:
    """The arguments of `import_step` for what a user's function returned; None if it is nothing of PyTorch."""
    from distir.frontends.pytorch import TrainingStep, WrittenStep

    if isinstance(made, TrainingStep | WrittenStep):
        return (made,)
    pair = cast(tuple[Any, ...], made) if isinstance(made, tuple) else ()
    return pair if len(pair) == 2 and callable(pair[0]) else None


def _bind(module: ModuleOp, model: str, shapes: dict[str, tuple[int, ...]]) -> ModuleOp:
    """Shapes put into a program; when none is open any more, the types of the body follow."""
    if shapes:
        from distir.frontends.shapes import OtherSize, bind_arguments
        from distir.interpreters.entry import entry_function
        from distir.passes.onnx_fold_shapes import fold_shapes

        try:
            bind_arguments(entry_function(module, "main"), shapes)
        except OtherSize as error:
            try:
                fold_shapes(module, shapes)
            except DistirError as reason:
                raise DistirError(f"{model}: {error}, and it cannot be brought to that: {reason}") from reason
        if not open_dimensions(module):
            make_static(module, model)
    return module


def load_executable(program: Program) -> ModuleOp:
    """A program of level 1 to 3, with static types: that of a file, or a copy of one in this process."""
    name = name_of(program, "the program")
    made = program.program if isinstance(program, Plan) else program
    if isinstance(made, ModuleOp):
        module = _module_of(made, name, {}, {})
    elif isinstance(cast(object, made), str | PathLike):
        module = load_program(name)
    else:
        raise DistirError(f"expected a program, which is a file, an xDSL ModuleOp or a plan, got {made!r}")
    require_level(module, name, (1, 2, 3), "expected the distributed program that it comes from")
    if level_of(module) < 3:
        make_static(module, name)
    return module


def name_of(program: Program, otherwise: str) -> str:
    """The file of a program that is one."""
    return fspath(program) if isinstance(program, str | PathLike) else otherwise


def require_same_weights(sequential: ModuleOp, distributed: ModuleOp, paths: Sequence[str]) -> None:
    """Raises DistirError where the second program would run on other weights than the first, which no run on drawn values shows."""
    from distir.interpreters.weights import other_weights

    if others := other_weights(sequential, distributed):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise DistirError(
            f"{paths[1]}: the value of '{others[0]}'{more} beside it is not that beside {paths[0]}: it is of another import"
        )


def load_program(path: str) -> ModuleOp:
    """A program of any level, verified and checked, with its weights beside it."""
    from distir.frontends import weights

    if path.endswith(".onnx"):
        raise DistirError(f"{path} is an ONNX model, expected a program: write one with distir import {path} -o ...")
    try:
        module = weights.load(path)
    except (DiagnosticException, UnregisteredConstructException) as error:
        raise DistirError(f"{path}: {_first_line(error)}") from error
    except RecursionError as error:
        raise DistirError(f"{path}: is nested too deeply to be a program") from error
    check(module, path, is_file=True)
    return module


def save_program(module: ModuleOp, path: str) -> None:
    """Writes a program and its values beside it."""
    from distir.frontends import weights

    weights.save(module, path)
    with suppress(DistirError):  # who reads it is told
        check(module, path, is_file=True)


def check(module: ModuleOp, where: str, is_file: bool = False) -> None:
    """Raises DistirError if the module does not hold together, or an operator has other types than it infers. A file in which these were right once is
    remembered."""
    from distir.interpreters.module_check import check_operators, check_structure
    from distir.tools.checked_programs import is_known, remember

    try:
        check_structure(module)
        if not (is_file and is_known(module, where)):
            check_operators(module)
            if is_file:
                remember(module, where)
    except DiagnosticException as error:
        raise DistirError(f"{where}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """What a diagnostic says, and the operation that it marks in the module that it carries."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    notes = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    for line, mark in pairwise(notes):
        if mark.lstrip().startswith("^^^"):
            text = line.strip()
            return f"{said}, in: {text[:117]}..." if len(text) > 120 else f"{said}, in: {text}"
    return said


def level_of(module: ModuleOp) -> int:
    """Which of `LEVELS` the program is."""
    from xdsl.dialects.func import FuncOp

    from distir.dialects.dist.calls import is_placed
    from distir.interpreters.entry import rank_of

    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    bodies = [op for f in functions for block in f.body.blocks for op in block.ops]
    if rank_of(module) is not None or any(op.dialect_name() == "rank" for op in bodies):
        return 4
    if any(map(is_placed, functions)):
        return 3
    return 2 if any(op.name == "dist.mesh" for op in module.ops) else 1


def require_level(module: ModuleOp, where: str, levels: Sequence[int], why: str) -> None:
    """Raises DistirError, which says why, if the program is at another level."""
    if (level := level_of(module)) not in levels:
        raise DistirError(f"{where} is {LEVELS[level]} (level {level}): {why}")


def open_dimensions(module: ModuleOp) -> list[tuple[str, str]]:
    """For each argument of @main with open dimensions: which they are, and the option that binds them."""
    from distir.frontends.shapes import argument_dims, argument_name
    from distir.interpreters.entry import entry_function

    function = entry_function(module, "main")
    found: list[tuple[str, str]] = []
    for i in range(len(function.args)):
        dims = argument_dims(function, i) or []
        if unbound := [d for d, dim in enumerate(dims) if not isinstance(dim, int)]:
            named = [f"'{dims[d]}' (dim {d})" if dims[d] else f"{d}" for d in unbound]
            sizes = ",".join(str(dim or "N").upper() for dim in dims)
            name = argument_name(function, i)
            plural = "s" if len(named) > 1 else ""
            found.append(
                (f"input '{name}' has unbound dimension{plural} {' and '.join(named)}", f"--shape {name}={sizes}")
            )
    return found


def require_bound(module: ModuleOp, where: str) -> None:
    """Raises DistirError, which names the option that binds it, if an argument of @main has an open dimension."""
    if found := open_dimensions(module):
        what, option = found[0]
        raise DistirError(f"{where}: {what}: bind with distir import ... {option}")


def make_static(module: ModuleOp, where: str) -> None:
    """Gives a level 1 or 2 program static types in place, which keeps the weights; DistirError if they stay open. Loops of a known length are
    unrolled."""
    from xdsl.context import Context
    from xdsl.dialects.builtin import TensorType, UnrankedTensorType

    from distir.interpreters.onnx.bodies import has_bodies
    from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

    require_bound(module, where)
    types = (value.type for op in module.walk() for value in op.results)
    is_open = any(
        isinstance(each, UnrankedTensorType) or (isinstance(each, TensorType) and not each.has_static_shape())
        for each in types
    )
    if is_open or any(has_bodies(op) for op in module.walk()):
        OnnxFoldShapesPass().apply(Context(), module)
