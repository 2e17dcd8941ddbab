"""In go the sources of ranks with alike programs, out comes the text of the one Python module that they share.

Differences between the ranks (groups, peers, positions) are kept apart from the text (`Source.differences`), and
become a table at the module's head. `Names` gives identifiers that are none of Python's, torch's or the module's;
`comment` and `literal` write a model's texts and values safely.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from xdsl.ir import Operation

_IMPORTED = {
    "distir_collectives": "AllGather AllReduce AllToAll Broadcast Exchange Gather Reduce ReduceScatter Scatter".split(),
    "distir_runtime": (
        "DEVICE RANK accumulate after any_layout constant elements flat here inside kernel local_index "
        "matmul_grad receive receive_beside reusing scale send send_beside wait"
    ).split(),
}
"""What the text imports of the modules in `portable`."""
_TOKEN = re.compile("\x00([0-9]+)\x00")


class Difference(NamedTuple):
    """A literal of the text that may not be the same on another rank: as it stands in the text, and as a value."""

    kind: str
    text: str
    value: str


class Line(NamedTuple):
    text: str
    site: str = ""
    """The operation that the line is, as people are told where a rank is: `aten.mm in @main`."""
    path: str = ""
    """What the model calls the operation."""


@dataclass
class Source:
    """The text of one rank's program; places of differences are marked."""

    head: list[str] = field(default_factory=list[str])
    """Operators, constants, collectives: one of each, made once."""
    body: list[Line] = field(default_factory=list[Line])
    differences: list[Difference] = field(default_factory=list[Difference])
    kernels: list[Operation] = field(default_factory=list[Operation])
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """Symbol of the program to name in the text."""

    @property
    def likeness(self) -> str:
        """Equal for ranks that share a module."""
        return "\n".join([*self.head, *(line.text for line in self.body)])

    def render(self, ranks: Mapping[int, Source], title: Sequence[str] = ()) -> tuple[str, dict[int, Line]]:
        """The module for these ranks, which are alike, and the lines of it that are operations, by number."""
        replaced: dict[int, str] = {}
        named: list[str] = []
        for i, difference in enumerate(self.differences):
            values = dict.fromkeys(source.differences[i].value for source in ranks.values())
            if len(values) > 1 and not difference.kind:
                replaced[i] = " or ".join(values)
            elif len(values) > 1:
                replaced[i] = f"{difference.kind}_{i}"
                named.append(replaced[i])
            else:
                replaced[i] = difference.text

        def filled(text: str) -> str:
            return _TOKEN.sub(lambda match: replaced[int(match[1])], text)

        body = [line._replace(text=filled(line.text)) for line in self.body]
        head = [filled(text) for text in self.head]
        words = set(re.findall(r"\w+", "\n".join([*head, *(line.text for line in body)])))
        lines = [Line(text) for text in [*title, "import torch"]]
        for module, names in _IMPORTED.items():
            used = [name for name in names if name in words or (named and name == "RANK")]
            if used:
                lines.append(Line(f"from {module} import {', '.join(used)}"))
        lines += [Line(""), Line("aten = torch.ops.aten")]
        if named:
            lines += [Line(""), Line("# What differs between the ranks of this module.")]
            lines.append(Line(f"({', '.join(named)},) = {{"))
            for number, source in ranks.items():
                values = ", ".join(
                    f"{source.differences[i].value}" for i, name in replaced.items() if name in set(named)
                )
                lines.append(Line(f"    {number}: ({values},),"))
            lines.append(Line("}[RANK]"))
        lines += [Line(text) for text in ["", *head]]
        lines += body
        lines = [line._replace(text=text) for line in lines for text in line.text.split("\n")]
        text = "\n".join(line.text for line in lines) + "\n"
        return text, {number: line for number, line in enumerate(lines, 1) if line.site}


_RESERVED = frozenset(
    {
        *keyword.kwlist,
        *(name for names in _IMPORTED.values() for name in names),
        "torch",
        "aten",
        "given",
        "float",
        "slice",
    }
)
_COLLECTIVES = "allreduce|allgather|reducescatter|alltoall|exchange|broadcast|scatter|gather|reduce"
_OF_THE_MODULE = re.compile(
    rf"(aten|kernel|constant)_|({_COLLECTIVES})(_[0-9]+)?$|(part|peer|group|root|start|stop|first|extent|receivers|contributors)_[0-9]+$"
)
"""Names that only the module itself gives: to operators, collectives, and what differs between ranks."""


class Names:
    """Identifiers: each given once, none of those that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def of(self, wanted: str, fallback: str) -> str:
        """A name after the model's, none of the module's own."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", wanted).strip("_")[:60] or fallback
        return self.own(f"v{name}" if name[0].isdigit() or _OF_THE_MODULE.match(name) else name)

    def own(self, name: str) -> str:
        """This name, with a number if it is taken."""
        found = name
        while found in self._taken or found in _RESERVED:
            self._next[name] = self._next.get(name, 0) + 1
            found = f"{name}_{self._next[name]}"
        self._taken.add(found)
        return found


def comment(text: str) -> str:
    """Text of a model as part of one line."""
    return ascii(text)[1:-1][:200]


def literal(value: Any) -> str:
    """A Python value as text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in cast(list[Any], value))}]"
    return str(value) if isinstance(value, torch.dtype) else repr(value)
