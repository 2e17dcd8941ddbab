"""Plan files: one way to distribute a model, as a small JSON file (docs/files.md has the schema). In goes such a file, which may come from anywhere; out
comes a checked `PlanFile`, or one line that says what is wrong where. Nothing in it is executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from distir.dialects.errors import DistirError
from distir.dialects.version import distir_version
from distir.tools.commands.report import check_output, shown, write_whole

VERSION = 1
MOST_BYTES = 1 << 20
"""Of a plan file."""
LARGEST = (1 << 53) - 1
"""Of a number: what every JSON reader has exactly."""

Check = Callable[[object], str | None]
"""What was expected instead of a value, if it is not right."""


def _number(least: int) -> Check:
    def check(value: object) -> str | None:
        is_right = isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST
        return None if is_right else f"a whole number of at least {least}"

    return check


def _one_of(*choices: object) -> Check:
    """Compared with their types: 1 is not true."""

    def check(value: object) -> str | None:
        is_right = any(type(value) is type(choice) and value == choice for choice in choices)
        return None if is_right else f"one of {', '.join(map(json.dumps, choices))}"

    return check


def _text(value: object) -> str | None:
    is_right = isinstance(value, str) and 0 < len(value) < 4096 and value.isprintable()
    return None if is_right else "a text"


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None or (said := check(value)) is None else f"{said}, or null"


FLAG = _one_of(False, True)


class Setting(NamedTuple):
    """One of the settings of a plan."""

    default: Any
    check: Check
    meaning: str


SETTINGS: Mapping[str, Setting] = {
    "batch_size": Setting(None, _or_null(_number(1)), "of all replicas; null: the model's"),
    "dp": Setting(1, _number(1), "replicas"),
    "dp_replicate": Setting(
        1, _number(1), "groups of replicas that each hold all state: 4 of 32 is hybrid sharding over 8"
    ),
    "tp": Setting(1, _number(1), "tensor ranks"),
    "pp": Setting(1, _number(1), "devices of a pipeline"),
    "microbatches": Setting(1, _number(1), "of a replica's batch"),
    "schedule": Setting(None, _or_null(_text), "as `--schedules`; null: no pipeline"),
    "virtual_stages": Setting(1, _number(1), "stages of a device; 1: as many as the schedule has"),
    "divide": Setting(False, FLAG, "as `--divide`"),
    "zero": Setting(None, _or_null(_one_of(0, 1, 2, 3)), "as `--zero`; null: what is fastest"),
    "recompute": Setting("none", _text, "as `--recompute`"),
    "overlap": Setting(False, FLAG, "as `--overlap`"),
    "sequence_parallel": Setting(False, FLAG, "as other tools use this name"),
    "context_parallel": Setting(1, _number(1), "as `--cp`: parts of a sequence"),
    "expert_parallel": Setting(1, _number(1), "as other tools use this name"),
    "gradient_type": Setting(None, _or_null(_one_of("bf16", "f32")), "as `--gradient-type`; null: the program's"),
    "matmul_type": Setting(
        None, _or_null(_one_of("f8E4M3FN", "f8E5M2", "bf16", "f16")), "as `--matmul-type`; null: the program's"
    ),
    "matmul_keep": Setting(None, _or_null(_text), "as `--matmul-keep`"),
    "memory_limit_bytes": Setting(None, _or_null(_number(1)), "of a device; null: the machine's"),
}
"""What a plan says."""


@dataclass(frozen=True)
class ModelReference:
    """Which model a plan is for."""

    path: str | None = None
    """As it was named on the command line; None: not known."""
    sha256: str | None = None
    """Of the file, if it was one."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Sizes of inputs by name, as `--shape`."""
    batch_dims: str = ""
    """As `--batch`."""


@dataclass(frozen=True)
class MachineReference:
    """What its figures hold for."""

    name: str | None = None
    """Of a built-in machine, or its file."""
    settings: Sequence[str] = ()
    """As `--set`."""
    cost_model: str = "analytic"
    """As `--cost-model`."""


@dataclass(frozen=True)
class PlanFile:
    """One plan. Settings that are not given have no value here: `setting` gives their defaults."""

    settings: Mapping[str, Any]
    """Below: what the plan is, by the values of the options of `distir search`."""
    model: ModelReference = ModelReference()
    """Below."""
    machine: MachineReference = MachineReference()
    """Below."""
    figures: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    """Predictions, named as in `distir search --json`."""
    distir: str = field(default_factory=distir_version)
    """The version that wrote it."""

    def setting(self, name: str) -> Any:
        """The value of a setting, or its default."""
        return self.settings.get(name, SETTINGS[name].default)

    @property
    def devices(self) -> int:
        return prod(self.setting(name) for name in ("dp", "context_parallel", "tp", "pp"))

    def text(self) -> str:
        """The file. Settings that are the default are there too: a plan says everything that it fixes."""
        known = asdict(self)
        model, machine = known.pop("model"), known.pop("machine")
        order = {"distir_plan": VERSION, "distir": self.distir, "model": model, "machine": machine}
        return json.dumps({**order, "settings": known["settings"], "figures": known["figures"]}, indent=2) + "\n"

    def save(self, path: str) -> None:
        """Writes it, whole or not at all."""
        check_output(path)
        write_whole(path, lambda stream: stream.write(self.text().encode()))


def hash_of(path: str) -> str | None:
    """The SHA-256 of a model that is a file."""
    if not Path(path).is_file():
        return None
    digest = sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_plan(path: str) -> PlanFile:
    """The plan that a file has. Raises DistirError, one line, for a file that is none."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise DistirError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DistirError(f"{shown(path)}: {error}") from error
    if len(content) > MOST_BYTES:
        raise DistirError(f"{path}: is no plan: it has more than {MOST_BYTES:,} bytes")
    return _Reader(path).plan(_parsed(path, content))


def _parsed(path: str, content: bytes) -> object:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise DistirError(f"{path}: is no plan: '{shown(twice[0])}' is there twice")
        return dict(pairs)

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise DistirError(f"{path}: is no plan: it is not text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise DistirError(f"{path}: is no plan: {error}") from error


@dataclass(frozen=True)
class _Reader:
    """Checks what a file says."""

    path: str

    def plan(self, data: object) -> PlanFile:
        top = self.table(data, "", ("distir_plan", "distir", "model", "machine", "settings", "figures"))
        if "distir_plan" not in top:
            self.fail("distir_plan", f"{VERSION}, which makes it a plan", "nothing")
        self.check("distir_plan", top["distir_plan"], _one_of(VERSION))
        settings = dict(self.table(top.get("settings", {}), "settings", (*SETTINGS, "sharding")))
        if (
            "sharding" in settings
        ):  # of files from when there were two planners: by one, 0 was what is fastest, by the other nothing was stored in parts
            self.check("settings.sharding", planner := settings.pop("sharding"), _one_of("dtp", "ilp"))
            self.check("settings.zero", zero := settings.get("zero"), SETTINGS["zero"].check)
            settings["zero"] = 0 if planner == "dtp" else zero or None
        for name, value in settings.items():
            self.check(f"settings.{name}", value, SETTINGS[name].check)
        dp, groups = (settings.get(name, SETTINGS[name].default) for name in ("dp", "dp_replicate"))
        if dp % groups:
            self.fail("settings.dp_replicate", f"a number that divides dp, {dp}", groups)
        figures = self.table(top.get("figures", {}), "figures")
        for name, value in figures.items():
            if value is not None and (
                not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value)
            ):
                self.fail(f"figures.{name}", "a number, or null", value)
        self.check("distir", version := top.get("distir", "unknown"), _text)
        return PlanFile(
            settings, self.model(top.get("model", {})), self.machine(top.get("machine", {})), figures, version
        )

    def model(self, data: object) -> ModelReference:
        table = self.table(data, "model", ("path", "sha256", "shapes", "batch_dims"))
        for name in ("path", "sha256"):
            self.check(f"model.{name}", table.get(name), _or_null(_text))
        self.check("model.batch_dims", table.get("batch_dims", ""), lambda v: None if v == "" else _text(v))
        shapes = self.table(table.get("shapes", {}), "model.shapes")
        for name, shape in shapes.items():
            sizes = cast(list[object], shape) if isinstance(shape, list) else [None]
            if any(_number(1)(size) for size in sizes):
                self.fail(f"model.shapes.{name}", "a list of sizes", shape)
        return ModelReference(table.get("path"), table.get("sha256"), shapes, table.get("batch_dims", ""))

    def machine(self, data: object) -> MachineReference:
        table = self.table(data, "machine", ("name", "settings", "cost_model"))
        self.check("machine.name", table.get("name"), _or_null(_text))
        self.check("machine.cost_model", table.get("cost_model", "analytic"), _text)
        settings = table.get("settings", [])
        if not isinstance(settings, list) or any(_text(text) for text in cast(list[object], settings)):
            self.fail("machine.settings", "a list of texts KEY=VALUE", settings)
        names = cast(list[str], settings)
        return MachineReference(table.get("name"), names, table.get("cost_model", "analytic"))

    def table(self, data: object, name: str, fields: Sequence[str] | None = None) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail(name or "the file", "an object", data)
        table = cast(dict[str, Any], data)
        for unknown in (key for key in table if fields is not None and key not in fields):
            near = get_close_matches(unknown, fields or (), 1, 0.5)
            where = f"{name}.{unknown}" if name else unknown
            hint = f" (did you mean {near[0]}?)" if near else f": the fields are {', '.join(fields or ())}"
            raise DistirError(f"{self.path}: no field '{shown(where)[:80]}' in a plan{hint}")
        return table

    def check(self, name: str, value: object, check: Check) -> None:
        if (expected := check(value)) is not None:
            self.fail(name, expected, value)

    def fail(self, name: str, expected: str, got: object) -> NoReturn:
        text = got if got == "nothing" else json.dumps(got)
        raise DistirError(f"{self.path}: {shown(name)[:80]}: expected {expected}, got {shown(str(text))[:80]}")
