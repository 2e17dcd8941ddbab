"""How long it takes from a clone to the first ranked table of a PyTorch model, with nothing installed: a clone of this repository, a virtual environment,
the packages, `distir import` and `distir search`, as README has them. Seconds of each part, by the clock and of the CPU.

    python -m benchmarks.clean_start [--extras torch]        # packages come from where pip finds them
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 300


def timed(what: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, str]:
    """Runs a command; its seconds and what it printed."""
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{what}: {done.stderr[-2000:]}")
    seconds, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{what:32} {seconds:7.1f} s  {cpu:7.1f} CPU-s", flush=True)
    return seconds, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="From a clone to the first ranked table.")
    parser.add_argument("--extras", default="torch", help="of distir, as in torch,onnx (default: torch)")
    arguments = parser.parse_args()
    constraint = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder, "distir"), Path(folder, "home")
        home.mkdir()
        paths = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment = {**paths, "HOME": str(home), "OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        tools, search = clone / ".venv" / "bin", ["search", "step.mlir", "--machine", "dgx-a100", "--devices", "8"]
        steps: list[tuple[str, list[str], Path]] = [
            ("git clone", ["git", "clone", "--quiet", str(ROOT), str(clone)], Path(folder)),
            ("python -m venv", [sys.executable, "-m", "venv", ".venv"], clone),
            ("pip install torch", [str(tools / "pip"), "install", "--quiet", *constraint], clone),
            ("pip install distir", [str(tools / "pip"), "install", "--quiet", f".[{arguments.extras}]"], clone),
            (
                "distir import",
                [str(tools / "distir"), "import", "examples.gpt2_pytorch:step", "-o", "step.mlir"],
                clone,
            ),
            ("distir search", [str(tools / "distir"), *search], clone),
        ]
        total, said = 0.0, ""
        for what, command, where in steps:
            seconds, said = timed(what, command, where, environment)
            total += seconds
        print(f"\n{said}", flush=True)
    print(f"{total:.1f} s in all, {'under' if total < LIMIT_SECONDS else 'over'} {LIMIT_SECONDS} s")
    sys.exit(total >= LIMIT_SECONDS or not said.startswith("rank"))


if __name__ == "__main__":
    main()
