"""Configurations of other tools as plans, and back. In goes the text of one; out come the settings of a plan (`plan_files`), with what a plan cannot say by
name; and for a plan the text, with what the tool cannot say by name. A file for each tool; what does not concern plans is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from distir.dialects.errors import DistirError
from distir.tools.plan_files import MOST_BYTES, SETTINGS, PlanFile

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""distir's names, and those of torch.distributed.pipelining."""


@dataclass
class Imported:
    """What a configuration says."""

    settings: dict[str, Any]
    unsaid: list[str] = field(default_factory=list[str])
    """What it says that a plan cannot."""


class Exported(NamedTuple):
    """A configuration."""

    text: str
    unsaid: list[str]
    """Settings of the plan that it cannot say."""


class Format(NamedTuple):
    """A tool's configuration."""

    read: Callable[[str, int | None], Imported]
    """From its text, and how many devices there are if the user says so."""
    write: Callable[[PlanFile], Exported]


def load_format(name: str) -> Format:
    """The format of a tool. Raises DistirError."""
    from importlib import import_module

    if name not in NAMES:
        near = get_close_matches(name, NAMES, 1, 0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DistirError(f"no tool '{name}'{hint}: {', '.join(NAMES)}")
    return import_module(f"distir.tools.plan_formats.{name}").FORMAT


def read_config(tool: str, source: str, devices: int | None) -> Imported:
    """The settings of a tool's configuration: a file, or the text itself (an argument line). Raises DistirError, which names it."""
    form, path, text = load_format(tool), Path(source), source
    where = source if len(source) < 80 and source.isprintable() else f"the {tool} configuration"
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # longer than a name can be, or with characters that names have not
        is_file = False
    if is_file:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DistirError(f"{where}: is no text: {error.reason} at byte {error.start}") from error
        if len(content) > MOST_BYTES:
            raise DistirError(f"{where}: has more than {MOST_BYTES:,} bytes")
    elif "--" not in source:
        raise DistirError(f"{where}: no such file" + (", and no argument line" if tool == "megatron" else ""))
    try:
        return form.read(text, devices)
    except DistirError as error:
        raise DistirError(f"{where}: {error}") from error


NAMES = ("megatron", "torchtitan", "deepspeed", "accelerate")


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with what follows from them: one device that holds all state has nothing to store in parts, and where nothing is, groups of replicas say nothing.
    What is as usual is left out, but for degrees."""
    alone = settings.get("dp", 1) * settings.get("context_parallel", 1) == settings.get("dp_replicate", 1)
    found = settings | ({"zero": 0} if alone else {})
    found |= {"dp_replicate": 1} if found.get("zero") == 0 else {}
    if found.get("pp", 1) == 1:
        found["schedule"] = None
    shown = ("dp", "tp", "pp", "microbatches", "batch_size", "schedule", "zero", "recompute")
    return {
        n: found.get(n, SETTINGS[n].default)
        for n in SETTINGS
        if n in shown or found.get(n, SETTINGS[n].default) != SETTINGS[n].default
    }


def share(total: int, part: int, what: str) -> int:
    """How many parts a whole has. Raises DistirError where they do not divide it."""
    if part < 1 or total < 1 or total % part:
        raise DistirError(f"{what}: {total} is no multiple of {part}")
    return total // part


def whole(value: object, name: str, least: int = 1) -> int:
    """A number of a configuration. Raises DistirError."""
    text = str(value)
    number = (
        int(text) if text.removeprefix("-").isdecimal() and len(text) < 16 and not isinstance(value, bool) else None
    )
    if number is None or number < least:
        raise DistirError(f"{name}: expected a whole number of at least {least}, got '{text[:60]}'")
    return number


def unsaid(plan: PlanFile, known: set[str]) -> list[str]:
    """The settings that are other than usual and that a tool does not know; what is distir's own choice is none. Where devices share a sequence, and one that
    knows of none has one replica, nothing is stored in parts."""
    if plan.setting("dp") == 1 and "context_parallel" not in known:
        known = known - {"zero"}
    known = known | {"divide", "memory_limit_bytes"} | ({"zero"} if not plan.setting("zero") else set())
    return [f"{n} {plan.setting(n)}" for n in SETTINGS if n not in known and plan.setting(n) != SETTINGS[n].default]


def batch_of(plan: PlanFile) -> int:
    """The samples of a step. Raises DistirError where the plan does not say."""
    if (batch := plan.setting("batch_size")) is None:
        raise DistirError("the plan does not say its batch_size")
    return batch


def microbatch_of(plan: PlanFile) -> int:
    """The samples of a microbatch of one replica."""
    dp, microbatches = plan.setting("dp"), plan.setting("microbatches")
    return share(batch_of(plan), dp * microbatches, "batch_size of dp x microbatches")
