"""`distir calibrate --fit`: a few numbers of a machine from step times. In go programs and the measured times of
their steps; out comes the machine's file with these numbers changed so that simulated times are close to the
measured ones, and the error of each row when left out."""

from __future__ import annotations

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distir.dialects.errors import DistirError
from distir.tools.commands.report import check_output, print_table, progress, say, seconds_text, write_whole

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.interpreters.machines import Machine

MOST_SCALARS = 3
COLUMNS = ("program", "seconds", "name", "settings")
"""Of the file: a program that `distir simulate` takes, by its path from the file's folder, and what a step took; optional: what to call the row, and other numbers
of the machine in that run, as `--set` has them, separated by blanks."""
WIDEST = 16.0
"""Times, at most, that a number is changed by, up or down."""
ROUNDS, STEP = 12, 0.02
CLOSE = 1e-5
"""Steps of the logarithms of factors that end the search, and by which slopes are measured."""


@dataclass(frozen=True)
class Row:
    """One measured step."""

    name: str
    program: ModuleOp
    seconds: float
    settings: tuple[str, ...]


@dataclass
class Fit:
    """Factors of numbers of a machine, chosen so that the sum of squares of log(simulated / measured) is least."""

    machine: str
    scalars: Sequence[str]
    rows: Sequence[Row]
    cost_model: str = "analytic"
    base: Sequence[str] = ()
    """Settings of all rows."""
    _known: dict[tuple[int, tuple[float, ...]], float] = field(
        default_factory=dict[tuple[int, tuple[float, ...]], float]
    )

    def settings(self, logs: Any) -> list[str]:
        """The factors as `--set` has them."""
        return [f"{key}={np.exp(each):.9g}x" for key, each in zip(self.scalars, logs, strict=True)]

    def seconds(self, row: int, logs: Any) -> float:
        """What the simulator says of a row."""
        from distir.interpreters.machines import load_machine
        from distir.interpreters.simulate import summarize

        key = row, tuple(round(float(each), 9) for each in logs)
        if key not in self._known:
            own = self.rows[row]
            machine = load_machine(self.machine, (*self.base, *own.settings, *self.settings(key[1])))
            self._known[key] = summarize(own.program, machine, self.cost_model).makespan_seconds
        return self._known[key]

    def errors(self, logs: Any, rows: Sequence[int]) -> Any:
        """log(simulated / measured) of each."""
        return np.array([np.log(self.seconds(i, logs) / self.rows[i].seconds) for i in rows])

    @cached_property
    def changed(self) -> list[str]:
        """The full keys of the scalars. Raises DistirError for a key that the machine has not."""
        from distir.interpreters.machines import load_machine

        found: list[str] = []
        for key in self.scalars:
            setting = f"{key}=1x"
            figures = load_machine(self.machine, (*self.base, setting)).figures
            found += [name for name, figure in figures.items() if figure.source == f"--set {setting}"][:1]
        return found

    @cached_property
    def _most(self) -> Any:
        """The logarithm of each factor at most: shares are at most 1."""
        from distir.interpreters.machines import load_machine

        figures = load_machine(self.machine, self.base).figures
        shares = [
            1 / figures[key].value if "efficiency" in key or "fraction" in key else WIDEST for key in self.changed
        ]
        return np.log(np.minimum(shares, WIDEST))

    def search(self, rows: Sequence[int], start: Any = None) -> Any:
        """Logarithms of the factors, by Gauss and Newton's steps, halved where they lead nowhere."""
        logs = np.minimum(np.zeros(len(self.scalars)) if start is None else start, self._most)
        errors = self.errors(logs, rows)
        for _ in range(ROUNDS):
            slopes = self._slopes(logs, rows, errors)
            if start is None and (dead := [k for k, s in zip(self.scalars, slopes.T, strict=True) if not s.any()]):
                raise DistirError(f"--scalars {dead[0]}: the time of no row depends on it")
            step = np.linalg.lstsq(slopes, -errors, rcond=None)[0]
            for _ in range(8):
                then = np.clip(logs + step, -np.log(WIDEST), self._most)
                new = self.errors(then, rows)
                if new @ new < errors @ errors:
                    break
                step = step / 2
            else:
                break
            moved, logs, errors = np.abs(then - logs).max(), then, new
            if moved < CLOSE:
                break
        return logs

    def _slopes(self, logs: Any, rows: Sequence[int], errors: Any) -> Any:
        """Of the errors by each logarithm, downwards: shares cannot grow past 1."""
        columns: list[Any] = []
        for i in range(len(logs)):
            below = logs.copy()
            below[i] -= STEP
            columns.append((errors - self.errors(below, rows)) / STEP)
        return np.stack(columns, axis=1)

    def left_out(self, logs: Any) -> list[float]:
        """Of each row, simulated / measured - 1 with the factors that fit the others."""
        found: list[float] = []
        for i in range(len(self.rows)):
            others = [j for j in range(len(self.rows)) if j != i]
            found.append(float(np.exp(self.errors(self.search(others, logs), [i])[0]) - 1))
        return found

    def result(self, logs: Any, name: str, source: str) -> Machine:
        """The machine with these factors, and where its numbers are from."""
        from distir.interpreters.machines import load_machine

        old = load_machine(self.machine, self.base)
        new = load_machine(self.machine, (*self.base, *self.settings(logs)))
        if not new.is_uniform:
            raise DistirError(f"--machine {self.machine}: expected one kind of device, to write its file")
        figures = dict(new.figures)
        for key, figure in new.figures.items():
            if figure != old.figures[key]:
                text = f"{source}; before: {old.figures[key].value:g}, {old.figures[key].source}"
                figures[key] = figure._replace(source=text)
        return replace(new, name=name, figures=figures, provenance={**new.provenance, "fitted": source})


def read_rows(path: str) -> list[Row]:
    """The rows of a file. Raises DistirError, which names the line."""
    from distir.tools.commands.model import load_executable

    if path.endswith(".json"):
        from distir.tools.execute_top import measurements

        return [
            Row(row["name"], load_executable(str(Path(path).parent / row["program"])), row["seconds"], ())
            for row in measurements(path).values()
        ]
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            names = [name for name in reader.fieldnames or () if name]
            table = list(reader)
    except UnicodeDecodeError as error:
        raise DistirError(f"--fit {path}: it is not text (byte {error.start})") from error
    except (OSError, csv.Error) as error:
        raise DistirError(f"--fit {path}: {getattr(error, 'strerror', None) or error}") from error
    if missing := [name for name in COLUMNS[:2] if name not in names]:
        raise DistirError(f"--fit {path}: expected columns {', '.join(COLUMNS[:2])}, got no {missing[0]}")
    programs: dict[str, ModuleOp] = {}
    rows: list[Row] = []
    for line, entry in enumerate(table, 2):
        program, text = entry["program"] or "", entry["seconds"] or ""
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not isfinite(seconds) or seconds <= 0:
            raise DistirError(f"--fit {path}: line {line}: seconds: expected a positive number, got '{text}'")
        if not program:
            raise DistirError(f"--fit {path}: line {line}: program: expected a file, got nothing")
        file = str(Path(path).parent / program)
        if file not in programs:
            programs[file] = load_executable(file)
        rows.append(
            Row(entry.get("name") or program, programs[file], seconds, tuple((entry.get("settings") or "").split()))
        )
    return rows


def fitted_settings(path: str, machine: str, base: Sequence[str], cost_model: str) -> list[str]:
    """What a machine changes by, as `--set` has it, so that simulated times of the steps in a file are close to the measured ones: the efficiency of
    matmuls, and with three rows of memory too. Raises DistirError."""
    rows = read_rows(path)
    scalars = ("device.matmul_efficiency", "device.memory_efficiency")[: len(rows) - 1]
    if not scalars:
        raise DistirError(f"--calibrate-from {path}: expected at least 2 measured plans, got {len(rows)}")
    fit = Fit(machine, scalars, rows, cost_model, base)
    every = range(len(rows))
    before, logs = np.abs(np.exp(fit.errors([0.0] * len(scalars), every)) - 1).mean(), fit.search(every)
    after = np.abs(np.exp(fit.errors(logs, every)) - 1).mean()
    say(
        f"{machine} fitted to {len(rows)} plans of {path}: {' '.join(fit.settings(logs))}; mean error {after:.0%}, {before:.0%} before",
        sys.stderr,
    )
    return fit.settings(logs)


def run_fit(args: Namespace) -> int:
    """Fits, prints what came out, and writes the machine."""
    from distir.interpreters.machines.writing import machine_text

    check_output(args.output)
    scalars = [key.strip() for key in args.scalars.split(",") if key.strip()]
    if not 1 <= len(scalars) <= MOST_SCALARS or len(set(scalars)) < len(scalars):
        raise DistirError(f"--scalars {args.scalars}: expected 1 to {MOST_SCALARS} different keys")
    if args.machine is None:
        raise DistirError("--fit: give the machine to begin with: --machine M")
    rows = read_rows(args.fit)
    fit = Fit(args.machine, scalars, rows, args.cost_model, args.settings)
    if len(set(fit.changed)) < len(scalars):
        raise DistirError(f"--scalars {args.scalars}: expected different numbers of the machine")
    if len(rows) < len(scalars) + 1:
        raise DistirError(
            f"--fit {args.fit}: expected at least {len(scalars) + 1} rows for {len(scalars)} numbers, got {len(rows)}"
        )
    every = range(len(rows))
    with progress(f"fitting {len(scalars)} numbers to {len(rows)} rows"):
        before = np.exp(fit.errors([0.0] * len(scalars), every)) - 1
        logs = fit.search(every)
        after = np.exp(fit.errors(logs, every)) - 1
        left_out = fit.left_out(logs)
    source = f"distir calibrate --fit {Path(args.fit).name}, {len(rows)} rows, mean error {np.abs(after).mean():.1%}, of rows left out {np.abs(left_out).mean():.1%}"
    machine = fit.result(logs, args.output.rpartition("/")[2].removesuffix(".toml"), source)
    write_whole(args.output, lambda stream: stream.write(machine_text(machine).encode()))
    means = {
        what: float(np.abs(errors).mean())
        for what, errors in (("before", before), ("fitted", after), ("left_out", np.array(left_out)))
    }
    if args.json:
        runs = [
            {"name": row.name, "seconds": row.seconds, "before": was, "fitted": now, "left_out": out}
            for row, was, now, out in zip(rows, before.tolist(), after.tolist(), left_out, strict=True)
        ]
        numbers = [
            {"key": key, "value": machine.figures[key].value, "factor": float(np.exp(each))}
            for key, each in zip(fit.changed, logs, strict=True)
        ]
        print(json.dumps({"machine": args.output, "scalars": numbers, "runs": runs, "mean_error": means}, indent=2))
        return 0
    print_table(
        [
            (row.name, seconds_text(row.seconds), f"{was:+.1%}", f"{now:+.1%}", f"{out:+.1%}")
            for row, was, now, out in zip(rows, before, after, left_out, strict=True)
        ],
        ("run", "measured", "simulated before", "fitted", "left out"),
    )
    text = f"before {means['before']:.1%}, fitted {means['fitted']:.1%}, of rows left out {means['left_out']:.1%}"
    say(f"mean error: {text}")
    for key, each in zip(fit.changed, logs, strict=True):
        say(f"{key} = {machine.figures[key].value:g}, {np.exp(each):.4g} of what it was")
    say(f"wrote {args.output}: distir machines {args.output} shows it")
    return 0
