"""Writes a simulation's timeline for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import json
import os
from pathlib import Path

from distir.dialects.errors import DistirError
from distir.interpreters.simulate import Simulation


def write_trace(simulation: Simulation, path: str | Path) -> None:
    """Writes the trace as JSON: the whole file or nothing. Raises DistirError if it cannot be written."""
    path = Path(path)
    text = json.dumps(simulation.trace(), separators=(",", ":"))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise DistirError(f"trace {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
