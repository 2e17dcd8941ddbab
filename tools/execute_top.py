"""`distir search --execute-top N`: in go the plans that a search found, out come the fastest of them as they run on processes of this machine, simulated
beside measured.

Measurements are kept in a file as they are made, by what was run (a hash of the program, the runs, and this machine), so that a search that
was stopped goes on where it stopped. The programs are beside it (`measured.programs/` of `measured.json`), so that a machine can be fitted to
what was measured (`fit_runs`)."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from distir.dialects.errors import DistirError
from distir.tools.agreement import Agreement
from distir.tools.commands.report import print_table, seconds_text, write_whole

if TYPE_CHECKING:
    from distir.tools.plans import Plan


@dataclass(frozen=True)
class Executed:
    """A plan that was run."""

    plan: Plan
    seconds: float
    """The median of the runs."""

    @property
    def simulated_seconds(self) -> float:
        return self.plan.figures.latency_seconds

    def as_dict(self) -> dict[str, Any]:
        names = ("rank", "batch_size", "dp", "dp_replicate", "cp", "tp", "pp", "microbatches", "schedule")
        figures = self.plan.as_dict()
        return {
            **{name: figures[name] for name in names},
            "measured_seconds": self.seconds,
            "simulated_seconds": self.simulated_seconds,
        }


@dataclass(frozen=True)
class Executions:
    """All of them, fastest first as measured."""

    rows: tuple[Executed, ...]

    def as_dict(self) -> dict[str, Any]:
        found = {"plans": [row.as_dict() for row in self.rows]}
        if (agreement := self.agreement) is None:
            return found
        rank = None if len(self.rows) < 3 else agreement.spearman
        return found | {"spearman": rank, "mape": agreement.mape}

    @property
    def agreement(self) -> Agreement | None:
        if not self.rows:
            return None
        return Agreement.of([row.simulated_seconds for row in self.rows], [row.seconds for row in self.rows])

    def report(self) -> None:
        """Prints a table, and how well the simulation said it."""
        from distir.tools.plans import PLAN_COLUMNS, Table, plan_cells, without_usual

        rows: list[tuple[str, ...]] = []
        for place, row in enumerate(self.rows, 1):
            c = row.plan.configuration
            error = f"{row.simulated_seconds / row.seconds - 1:+.0%}"
            times = seconds_text(row.seconds), seconds_text(row.simulated_seconds)
            rows.append((str(place), str(row.plan.rank), *plan_cells(c), *times, error))
        columns = ("measured", "simulated", *PLAN_COLUMNS, "runs in", "simulated in", "error")
        table = without_usual(Table(columns, tuple(rows)), [row.plan.configuration for row in self.rows])
        print_table(table.rows, table.columns)
        if (agreement := self.agreement) is not None:
            rank = "" if len(rows) < 3 else f"Spearman {agreement.spearman:.2f}, "
            print(f"{len(rows)} plans run here: {rank}MAPE {agreement.mape:.0%}")


def execute_top(plans: Sequence[Plan], count: int, runs: int, kept: str | None, backend: str = "gloo") -> Executions:
    """Runs the `count` best plans, those measured before (in the file `kept`) not again. Raises DistirError for a plan that needs more memory than there is
    here, and what a run raises; what was measured until then is kept."""
    known = _read(kept)
    found: list[Executed] = []
    for plan in plans[:count]:
        key = _key(plan, runs, backend)
        if key not in known:
            c = plan.configuration
            text = f"plan {plan.rank} ({c.degrees_text})"
            print(f"running {text}", file=sys.stderr)
            known[key] = {"name": text.partition(" ")[2], "seconds": _measure(plan, text, runs, backend)}
            if kept is not None:
                known[key]["program"] = _keep_program(plan, kept, key)
                write_whole(kept, _writer(json.dumps(known, indent=1)))
        found.append(Executed(plan, known[key]["seconds"]))
    return Executions(tuple(sorted(found, key=lambda row: row.seconds)))


def _writer(text: str) -> Callable[[Any], object]:
    return lambda stream: stream.write(text.encode())


def _keep_program(plan: Plan, kept: str, key: str) -> str:
    """Writes what was run; where, from the folder of the file of measurements."""
    folder = Path(kept).with_suffix(".programs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise DistirError(f"{folder}: cannot be written: {error.strerror or error}") from error
    path = folder / f"{key[:16]}.mlir"
    write_whole(str(path), _writer(str(plan.program) + "\n"))
    return f"{folder.name}/{path.name}"


def _measure(plan: Plan, name: str, runs: int, backend: str) -> float:
    from distir.backends.torch import execute
    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.inputs import draw_inputs
    from distir.interpreters.weights import weights_of
    from distir.tools.commands.capacity import check_memory

    program = plan.program
    check_memory(program, name)
    names = list(dict.fromkeys(port.name for port in arguments_of(entry_function(program))))
    missing = [each for each in names if each not in weights_of(program)]
    return execute(program, draw_inputs(program, 0, names=missing), backend, measure=runs).seconds


def _key(plan: Plan, runs: int, backend: str) -> str:
    """What decides how long it takes: the program, how it is run, and where."""
    text = "\n".join([str(plan.program), str(runs), backend, platform.node(), platform.processor()])
    return hashlib.sha256(text.encode()).hexdigest()


def _read(kept: str | None) -> dict[str, dict[str, Any]]:
    """What was measured before."""
    return {} if kept is None or not Path(kept).exists() else measurements(kept)


def measurements(kept: str) -> dict[str, dict[str, Any]]:
    """What a file of measurements has: of each run its `name`, `seconds` and `program`, a path from the file's folder. Raises DistirError."""
    try:
        found = cast(dict[str, dict[str, Any]], json.loads(Path(kept).read_text("utf-8")))
        return {
            str(key): {"name": str(row["name"]), "seconds": float(row["seconds"]), "program": str(row["program"])}
            for key, row in found.items()
        }
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise DistirError(
            f"{kept}: holds no measurements of search --execute-top ({error}): give another file"
        ) from error
