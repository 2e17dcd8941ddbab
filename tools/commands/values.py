"""Values for `distir run`. In go a program, a seed and files of arrays; out come an array for each argument, files
of results, and printed comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np

from distir.dialects.errors import DistirError
from distir.tools.commands.report import print_table, say, write_whole

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.interpreters.comparison import Comparison
    from distir.interpreters.global_arrays import Array


def values_for(
    module: ModuleOp, seed: int, path: str | None, others: Sequence[ModuleOp] = (), stream: TextIO | None = None
) -> dict[str, Array]:
    """A global array for every argument of the program: given in the file, or the program's weights, or those of
    `others`, or drawn. Prints what was drawn."""
    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.inputs import draw_inputs
    from distir.interpreters.weights import weights_of

    ports = {port.name: port for port in arguments_of(entry_function(module, "main"))}
    given = {} if path is None else read_arrays(path, list(ports))
    values = dict(given)
    for weights in map(weights_of, (module, *others)):
        values |= {name: weights[name] for name in ports if name in weights and name not in values}
    missing = [name for name in ports if name not in values]
    if missing:
        values |= draw_inputs(module, seed, names=missing)
    memory = [name for name in missing if ports[name].role in ("parameter", "state", "buffer")]
    if memory:
        print(f"weights drawn with seed {seed}", file=stream)
    if len(memory) < len(missing):
        names = ", ".join(name for name in missing if name not in memory)
        say(f"inputs drawn with seed {seed}: {names}", stream)
    return values


def memory_for(module: ModuleOp, seed: int, stream: TextIO | None = None) -> dict[str, Array]:
    """The values that a training step begins with: its weights, else drawn; what each step is given is left out. Prints what was drawn."""
    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.inputs import draw_inputs
    from distir.interpreters.weights import weights_of

    names = [p.name for p in arguments_of(entry_function(module)) if p.role not in (None, "input", "label")]
    weights = weights_of(module)
    values = {name: weights[name] for name in names if name in weights}
    if missing := [name for name in dict.fromkeys(names) if name not in values]:
        say(f"drawn with seed {seed}: {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}", stream)
        values |= draw_inputs(module, seed, names=missing)
    return values


def batches_for(module: ModuleOp, seed: int, paths: Sequence[str], steps: int) -> list[dict[str, Array]]:
    """Inputs and labels of each step after the first: those of the files in turn; what they leave out is drawn anew, with
    the next seed. Raises DistirError for files that do not all have the same ones."""
    from distir.interpreters.entry import arguments_of, entry_function, results_of
    from distir.interpreters.inputs import draw_inputs

    if steps == 1:
        return []
    entry = entry_function(module, "main")
    updated = {port.name for port in results_of(entry)}
    ports = (port for port in arguments_of(entry) if port.name not in updated)
    names = [port.name for port in ports if port.role in (None, "input", "label")]
    files = [{n: a for n, a in read_arrays(paths[0], None).items() if n in names}] if paths else [{}]
    files += [read_arrays(path, names) for path in paths[1:]]
    for path, arrays in zip(paths, files, strict=False):
        if lost := set(files[0]) - set(arrays):
            raise DistirError(f"{path}: has no '{min(lost)}', which {paths[0]} has: give every batch the same inputs")
    drawn = [name for name in names if name not in files[0]]
    return [
        {n: a for n, a in files[step % len(files)].items() if n in files[0]}
        | draw_inputs(module, seed + step, names=drawn)
        for step in range(1, steps)
    ]


def read_arrays(path: str, names: Sequence[str] | None) -> dict[str, Array]:
    """The arrays of an .npz file, which are inputs of these names (None: of any). Raises DistirError."""
    try:
        with open(path, "rb") as stream:
            loaded: Any = np.load(stream, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise DistirError(f"{path}: holds one array, expected an .npz file of named arrays (numpy.savez)")
            arrays = {name: loaded[name] for name in cast(Sequence[str], loaded.files)}
    except OSError as error:
        raise DistirError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DistirError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds
        raise DistirError(f"{path}: not an .npz file of plain arrays, or cut short ({error})") from error
    if names is not None and (unknown := [name for name in arrays if name not in names]):
        raise DistirError(f"{path}: no input '{unknown[0]}'; the inputs are {', '.join(names)}")
    return arrays


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """A .safetensors file if it is called so, which is a checkpoint; else an .npz file, in which types that numpy cannot
    read back (bfloat16) become float32. Whole or not at all."""
    if path.endswith(".safetensors"):
        from distir.frontends import checkpoints

        checkpoints.save(path, arrays)
        return
    plain: dict[str, Any] = {
        name: array.astype(np.float32) if array.dtype.kind == "V" else array for name, array in arrays.items()
    }
    write_whole(path, lambda stream: np.savez(stream, **plain))


def print_comparison(compared: Sequence[Comparison]) -> bool:
    """One row per output; whether all hold."""
    rows = [(c.name, "agrees" if c.holds else "DIFFERS", c.says) for c in compared]
    if rows:
        print_table(rows, ("output", "", "largest error"))
    failed = sum(not c.holds for c in compared)
    print(f"{failed} of {len(rows)} outputs differ" if failed else f"every output agrees ({len(rows)})")
    return not failed
