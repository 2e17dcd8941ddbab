"""Takes a program and asks whether plans cut it: distributed by `dtp-parallelize` as each plan says, executed, compared with the program itself.
Gives per plan a row: what came of it, the share of the parameters on the device that has most, and CPU seconds.

    python -m benchmarks.models.measure [--seconds 60] [--plans "dp=2 tp=2" ...] [--json OUT] FILE.onnx|FILE.mlir|MODULE:FUNCTION ...

prints a line per model and plan and counts at the end. A program in which nothing is cut is no plan: every device would do everything.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from distir.dialects.errors import DistirError
from distir.interpreters.equivalence import verify
from distir.interpreters.shares import parameter_share, role_share, work_share
from distir.interpreters.weights import attach, weights_of
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.ilp_shard import IlpShardPass

PLANS = ("dp=2 tp=2", "dp=2 pp=2")
VERIFIED, DIFFERS, REFUSED, WHOLE, LATE, CRASHED = (
    "verified",
    "differs",
    "refused",
    "nothing cut",
    "out of time",
    "crashed",
)


@dataclass(frozen=True)
class Row:
    """What came of one plan of one program."""

    state: str
    """`verified`, `differs`, `refused`, `nothing cut`, `out of time` or `crashed`."""
    why: str = ""
    share: float = 1.0
    """Parameters on the device that has most, of all."""
    inputs: float = 1.0
    """The same of inputs, labels and outputs."""
    work: float = 1.0
    """Flops of the device that does most, of those of the program."""
    note: str = ""
    """What the pass wrote."""
    seconds: float = 0.0
    """CPU seconds of planning."""
    verify_seconds: float = 0.0


def passes_of(plan: str) -> tuple[ModulePass, ...]:
    """`dp=2 tp=2 sharding=ilp` is options of `dtp-parallelize`; `ilp-shard mesh=dp=2,tp=2` of `ilp-shard`, which is then applied."""
    name, _, options = plan.partition(" ")
    if name == IlpShardPass.name:
        return IlpShardPass(**options_of(options)), ApplyShardingPass()
    return (DtpParallelizePass(**options_of(plan)),)


def options_of(plan: str) -> dict[str, Any]:
    """Options of a pass by name."""
    pairs = (item.partition("=") for item in plan.split())
    return {
        name.replace("-", "_"): (int(v) if v.isdecimal() else v) if is_given else True for name, is_given, v in pairs
    }


def measure(module: ModuleOp, plan: str, seconds: float = 60.0) -> Row:
    """Distributes a copy of a program as a plan says, and executes both. Takes CPU seconds of this process, by a timer of it."""
    began = time.process_time()
    note = io.StringIO()
    try:
        with within(seconds), contextlib.redirect_stderr(note):
            copy = module.clone()
            attach(copy, weights_of(module))
            for each in passes_of(plan):
                each.apply(Context(), copy)
            copy.verify()
    except DistirError as error:
        return Row(REFUSED, str(error), seconds=_since(began), note=note.getvalue())
    except TimeoutError:
        return Row(LATE, "planning", seconds=_since(began), note=note.getvalue())
    except Exception as error:
        return Row(CRASHED, f"{type(error).__name__}: {error}", seconds=_since(began), note=note.getvalue())
    planned, began = _since(began), time.process_time()
    share, inputs = parameter_share(module, copy), role_share(module, copy, ("input", "label", "output"))
    work = work_share(module, copy)
    state, why = VERIFIED, ""
    if share == inputs == 1.0:
        state = WHOLE
    try:
        with within(seconds):
            found = verify(module, copy, count=1, budget_seconds=1.0)
        if not found.holds:
            worst = next(each for each in found.comparisons if not each.holds)
            state, why = DIFFERS, str(worst)
    except TimeoutError:
        state, why = LATE, "executing"
    except Exception as error:
        state, why = CRASHED, f"executing: {type(error).__name__}: {error}"
    return Row(state, why, share, inputs, work, note.getvalue(), planned, _since(began))


def _since(began: float) -> float:
    return round(time.process_time() - began, 2)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after so many CPU seconds of this process."""

    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def in_fork(compute: Callable[[], Mapping[str, Row]], seconds: float) -> Mapping[str, Row]:
    """Rows that a fork of this process finds, which ends after so many CPU seconds, or when it crashes."""
    import resource

    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        status = 1
        try:
            rows = compute()
            with os.fdopen(write, "w") as out:
                json.dump({name: asdict(row) for name, row in rows.items()}, out)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return {"": Row(CRASHED, f"ended with status {os.waitstatus_to_exitcode(status)}")}
    return {name: Row(**row) for name, row in json.loads(text).items()}


def rows_of(path: str, plans: Sequence[str], seconds: float) -> Mapping[str, Row]:
    """A row for each plan of a model that is read from a file or made by a function; one row called "" if it is not read."""
    from distir.passes.dtp_parallelize import prepare
    from distir.tools.commands.model import load_model

    began = time.process_time()
    note = io.StringIO()
    try:
        with within(seconds), contextlib.redirect_stderr(note):
            module = load_model(path)
            prepared = module.clone()
            prepare(Context(), prepared)  # so that rules are in the cache of classes: plans are timed without
    except DistirError as error:
        return {"": Row(REFUSED, str(error), seconds=_since(began))}
    except TimeoutError:
        return {"": Row(LATE, "reading and finding rules", seconds=_since(began))}
    except Exception as error:
        return {"": Row(CRASHED, f"{type(error).__name__}: {error}", seconds=_since(began))}
    rows = {"": Row("read", note=note.getvalue(), seconds=_since(began))}
    return {**rows, **{plan: measure(module, plan, seconds) for plan in plans}}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--plans", nargs="+", default=list(PLANS))
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of each step")
    parser.add_argument("--json", type=Path, help="keeps the rows; models in it already are left out")
    args = parser.parse_args(arguments)
    known: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for path in args.models:
        name = Path(path).stem
        if name in known and set(known[name]) >= set(args.plans):
            continue
        rows = in_fork(
            lambda path=path: rows_of(path, args.plans, args.seconds), args.seconds * (1 + 2 * len(args.plans))
        )
        known[name] = {**known.get(name, {}), **{plan: asdict(row) for plan, row in rows.items()}}
        for plan, row in rows.items():
            print(
                f"{name} {plan or 'read'}: {row.state} {row.share:.3f} {row.seconds:.1f}s {row.why[:220]}", flush=True
            )
        if args.json:
            args.json.write_text(json.dumps(known, indent=1))
    print(summary(known, args.plans))
    return 0


def summary(known: Mapping[str, Mapping[str, Mapping[str, Any]]], plans: Sequence[str]) -> str:
    """How many models end in each state, per plan."""
    lines: list[str] = []
    for plan in plans:
        rows = [row[plan] for row in known.values() if plan in row]
        states = Counter(row["state"] for row in rows)
        halved = sum(row["state"] == VERIFIED and row["share"] <= 0.6 for row in rows)
        lines.append(
            f"{plan}: {states[VERIFIED]} of {len(known)} verified, {halved} with at most 0.6 of the parameters; "
            + ", ".join(f"{count} {state}" for state, count in states.items() if state != VERIFIED)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
