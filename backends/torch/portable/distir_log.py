"""The log of a run. In go a step's numbers; out comes a line of JSON in a file, and TensorBoard's file where that
package is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distir_faults import end_here, no_output


class Log:
    """Lines of steps before the first stay. A log that cannot be written any more is said once, and the run goes on."""

    def __init__(self, path: Path | None, first: int) -> None:
        self.path, self.file, self.board = path, None, None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if (reason := no_output(path)) is not None:
                end_here(f"--log {path}: {reason}")
            text = path.read_text("utf-8", errors="replace") if path.exists() else ""
            unfinished = path.with_name(f".{path.name}.tmp")
            unfinished.write_text("".join(f"{x}\n" for x in text.splitlines() if _step_of(x) < first), "utf-8")
            unfinished.replace(path)
            self.file: Any = path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            end_here(f"--log {path}: {error.strerror or error}")
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board: Any = SummaryWriter(str(path.parent / "tensorboard"), purge_step=first)

    def write(self, step: int, numbers: Mapping[str, float], speed: Mapping[str, float]) -> None:
        try:
            if self.file is not None:
                self.file.write(json.dumps({"step": step, **numbers, **speed}) + "\n")
            if self.board is not None:
                for name, value in {**numbers, **speed}.items():
                    self.board.add_scalar(name, value, step)
                self.board.flush()
        except OSError as error:
            reason = error.strerror or error
            print(f"the log {self.path} ends before step {step}: {reason}", file=sys.stderr, flush=True)
            self.file = self.board = None


def _step_of(line: str) -> int:
    """The step of a line of a log; one that was cut short is of none that is kept."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 1 << 62
