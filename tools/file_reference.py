"""What machine files and plan files may say, as `docs/files.md` has it. In go the classes that these files are read into; out comes a page with every
key, what it takes and its default.

    python -m distir.tools.file_reference > docs/files.md
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from distir.interpreters.machines.description import (
    AttentionEfficiency,
    Device,
    FittedCollective,
    Level,
    Machine,
    Memory,
    Overlap,
    Tiles,
)
from distir.interpreters.machines.reading import COLLECTIVES, KEYS
from distir.tools.pass_reference import field_texts
from distir.tools.plan_files import SETTINGS, VERSION, MachineReference, ModelReference, PlanFile

HEAD = """\
# Machine and plan files

Made from the classes that files are read into by `python -m distir.tools.file_reference`; a test holds it to them."""

MACHINE_FILES = """\
## Machine files

A TOML file for `--machine`. Each number is `{ value = 1.0, source = "where it comes from" }`. `distir machines NAME` shows those of a built-in
machine, [extending](extending.md#schedules-cost-models-machines) has a whole file, `distir calibrate` and `--fit` write one."""

MACHINE_TABLES: tuple[tuple[str, type], ...] = (
    ("[device]", Device),
    ("[device.tiles]", Tiles),
    ("[device.attention.TYPE.SIZE]", AttentionEfficiency),
    ("[[levels]]", Level),
    ("[levels.fitted.KIND]", FittedCollective),
    ("[memory]", Memory),
    ("[overlap]", Overlap),
)
SEVERAL_DEVICES = "Where devices differ: several `[[devices]]` instead, each with these keys and the `count` of consecutive devices that are so."
FITS = f"""\
KIND is one of {", ".join(COLLECTIVES)}. The table has a `source` for all its numbers,
and for each group size a table of plain numbers with these keys: `8 = {{ latency_seconds = 1e-5, bus_bandwidth_bytes_per_second = 1e11 }}`."""
NOTES = {"[device]": SEVERAL_DEVICES, "[levels.fitted.KIND]": FITS}

PLAN_FILES = f"""\
## Plan files

JSON. Only `distir_plan`, the version of this schema ({VERSION}), is required. Unknown and repeated fields, values of another type, files over 1 MiB
and models of another hash are refused. Nothing in a file is executed: a model that is code must be named on the command line (`--model`)."""

TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "Mapping[str, float]": "a table of numbers",
    "Mapping[str, str]": "a table of texts",
    "Mapping[str, float | None]": "numbers, or null",
    "Mapping[str, Sequence[int]]": "lists of sizes",
    "Sequence[str]": "texts",
}


def reference() -> str:
    """The page."""
    return "\n\n".join([HEAD, *_machine_files(), *_plan_files()]) + "\n"


def _machine_files() -> Iterator[str]:
    yield MACHINE_FILES
    yield _of_class(Machine, [name for name in KEYS if name in ("name", "max_devices", "provenance")])
    for title, read_into in MACHINE_TABLES:
        yield f"### `{title}`"
        yield inspect.getdoc(read_into) or ""
        if title in NOTES:
            yield NOTES[title]
        yield _of_class(read_into)


def _plan_files() -> Iterator[str]:
    yield PLAN_FILES
    yield _of_class(PlanFile)
    for title, read_into in (("model", ModelReference), ("machine", MachineReference)):
        yield f"### `{title}`"
        yield inspect.getdoc(read_into) or ""
        yield _of_class(read_into)
    yield "### `settings`"
    yield "Settings without an option of `distir search` are kept, and a note says that they are not simulated."
    rows = [
        (f"`{name}`", str(each.check(...)), f"`{json.dumps(each.default)}`", each.meaning)
        for name, each in SETTINGS.items()
    ]
    yield _table(rows)


def _of_class(cls: type[Any], names: Iterable[str] = ()) -> str:
    """A row for each field, or for those of these names."""
    texts = dict(field_texts(cls))
    rows: list[tuple[str, str, str, str]] = []
    for field in dataclasses.fields(cls):
        if names and field.name not in names:
            continue
        plain = str(field.type).removesuffix(" | None").replace('"', "")
        is_required = field.default is field.default_factory is dataclasses.MISSING
        default = "required" if is_required and cls is not PlanFile else _default(field.default)
        rows.append(
            (f"`{field.name}`", TYPES.get(plain, "a table"), default, texts[field.name].replace("None", "absent"))
        )
    return _table(rows)


def _default(value: object) -> str:
    return f"`{json.dumps(value)}`" if isinstance(value, int | float | str) and value != "" else ""


def _table(rows: Iterable[tuple[str, str, str, str]]) -> str:
    cells = [" | ".join(row).replace("\n", " ") for row in rows]
    return "\n".join(["| | takes | default | |", "|---|---|---|---|", *(f"| {each} |" for each in cells)])


if __name__ == "__main__":
    sys.stdout.write(reference())
