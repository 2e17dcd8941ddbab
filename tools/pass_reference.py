"""What each pass does and which options it takes, as `distir-opt --help` and `docs/passes.md` say it. In go the registered passes; out
come their summaries, requirements and options, all from their source: a pass describes itself once.

    python -m distir.tools.pass_reference > docs/passes.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from xdsl.passes import ModulePass


class Option(NamedTuple):
    """A field of a pass."""

    name: str
    type: str
    default: str | None
    """None: it has to be given."""
    help: str


class Described(NamedTuple):
    """A pass."""

    name: str
    summary: str
    description: str
    options: tuple[Option, ...]


def described(pass_: type[ModulePass]) -> Described:
    """The summary is the first sentence of the module that is the pass's own, or of its class; an option's help is the text after its field."""
    source = next(c for c in pass_.__mro__ if "__dataclass_fields__" in c.__dict__ and _has_source(c))
    own = inspect.getdoc(source) or ""
    module = inspect.getdoc(inspect.getmodule(source)) or ""
    match = re.match(rf"`{re.escape(pass_.name)}[^`]*`: (.*?)\.(?:\s|$)", " ".join(module.split()))
    summary = match[1] if match else _sentence(own)
    helps = dict(field_texts(source))
    options = tuple(
        Option(
            field.name.replace("_", "-"),
            _type_text(field.type),
            None if field.default is dataclasses.MISSING else _default_text(field.default),
            helps.get(field.name, ""),
        )
        for field in dataclasses.fields(pass_)
    )
    return Described(pass_.name, summary, own, options)


def _has_source(cls: type) -> bool:
    try:
        return bool(inspect.getsource(cls))
    except (OSError, TypeError):
        return False


def _sentence(text: str) -> str:
    return re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def _type_text(hint: object) -> str:
    words = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    return " or ".join(words.get(part, part) for part in text.split(" | ") if part != "None")


def _default_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == "" else str(value)


def field_texts(cls: type) -> Iterator[tuple[str, str]]:
    """The text that follows each field of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                yield field.target.id, " ".join(after.value.value.split())


def help_text(passes: list[type[ModulePass]], width: int) -> str:
    """The passes as `--help` lists them."""
    lines: list[str] = []
    for each in map(described, passes):
        lines += textwrap.wrap(f"{each.name}: {each.summary}", width, initial_indent="  ", subsequent_indent="    ")
        for option in each.options:
            default = "required" if option.default is None else f"default: {option.default}"
            text = f"{option.name}={option.type} ({default})" + (f": {option.help}" if option.help else "")
            lines += textwrap.wrap(text, width, initial_indent="      ", subsequent_indent="          ")
    return "\n".join(lines)


def reference(passes: list[type[ModulePass]]) -> str:
    """The passes as a page."""
    parts = [
        "# Passes",
        "Made from the passes' source by `python -m distir.tools.pass_reference`; a test holds it to them. `distir-opt --help` lists the same. "
        "Options are written `-p 'name{option=value other=value}'`; values with `=`, `,`, `.` or `/` are quoted.",
    ]
    for each in map(described, passes):
        parts += [f"## `{each.name}`", each.description]
        if each.options:
            rows = [
                f"| `{o.name}` | {o.type} | {'required' if o.default is None else f'`{o.default}`'} | {o.help} |"
                for o in each.options
            ]
            parts.append("\n".join(["| option | takes | default | |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def own_passes(with_plugins: bool = True) -> list[type[ModulePass]]:
    """Those of distir, and of plug-ins, by name."""
    from distir.passes.registry import PASSES

    own = __name__.partition(".")[0] if __name__ != "__main__" else "distir"
    passes = [PASSES[name] for name in sorted(PASSES)]
    return [each for each in passes if with_plugins or each.__module__.partition(".")[0] == own]


if __name__ == "__main__":
    sys.stdout.write(reference(own_passes(with_plugins=False)))
