"""What becomes of one architecture, step by step: a line of the table goes in, the state of each step comes out, as soon as it is known.

A model is exported (or found in a package), imported, made static, compared with PyTorch or ONNX Runtime, given rules, and distributed by
each plan. A step that is not reached has no state."""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.models.measure import LATE, Row, measure, within
from benchmarks.models.sources import NotInstalled, file_of, made
from distir.dialects.errors import DistirError

PLANS = {"dp=2 tp=2": "dp=2 tp=2", "dp=2 pp=2": "dp=2 pp=2 microbatches=2", "ilp-shard": "ilp-shard mesh=dp=2,tp=2"}
"""By column, the plan. A batch of 4 is cut into rows of one."""

TOLERANCE = 1e-4
"""To PyTorch or ONNX Runtime in single precision, relative to the largest element."""

SMALLEST = 1e-2
"""As large the largest element is taken to be at least: a probability near zero has an error of its own."""

OK, REFUSED, CRASHED, MISSING = "ok", "refused", "crashed", "missing"


@dataclass(frozen=True)
class Architecture:
    """A line of the table: what kind of model it is (`onnx`, `step` or `file`), where it comes from, and options of it."""

    kind: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        return f"{self.kind} {self.source}"


State = dict[str, Any]
"""Of a step: `state`, `why`, `seconds` of the CPU, and shares of plans."""


@dataclass
class Examination:
    """The steps of one architecture, in order; `tell` hears each as it ends."""

    architecture: Architecture
    folder: Path
    seconds: float
    """Of the CPU, for each step."""
    tell: Callable[[str, State], None]

    def run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            {"onnx": self._exported, "step": self._step, "file": self._file}[self.architecture.kind]()

    # --- the three kinds ---

    def _exported(self) -> None:
        path = self.folder / f"{self.architecture.source.replace(':', '-').replace('/', '-')}.onnx"
        values = path.with_suffix(".npz")
        if path.exists() and values.exists():
            self.tell("export", {"state": OK, "seconds": 0.0})
        elif self._do("export", lambda: self._export(path, values)) is None:
            return
        given = np.load(values)
        self._of_file(path, [given[f"arr_{i}"] for i in range(len(given.files) - 1)], given["out"])

    def _file(self) -> None:
        if (path := self._do("export", lambda: file_of(self.architecture.source))) is not None:
            self._of_file(path, None, None)

    def _step(self) -> None:
        from distir.frontends.eager import verify_against_eager
        from distir.frontends.pytorch import import_step

        if (step := self._do("export", self._training_step)) is None:
            return
        if (module := self._do("import", lambda: import_step(*step))) is None:
            return
        self.tell("static", {"state": OK})

        def equal() -> bool:
            found = verify_against_eager(module, steps=1)
            if not found.holds:
                raise Differs("; ".join(f"{c.name}: {c.says}" for c in found.comparisons if not c.holds))
            return True

        self._do("equal", equal)
        self._plans(module)

    # --- what they have in common ---

    def _of_file(self, path: Path, inputs: list[Any] | None, expected: Any) -> None:
        from distir.interpreters.entry import arguments_of, entry_function
        from distir.interpreters.reference import run
        from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
        from distir.tools.commands.model import load_model

        shapes = [f"{name}={','.join(map(str, s))}" for name, s in self.architecture.options.get("shapes", {}).items()]
        values = self.architecture.options.get("values", {})
        named = {"values": [f"{name}={value}" for name, value in values.items()]}
        module = self._do("import", lambda: load_model(str(path), shapes, named))
        if module is None or self._do("static", lambda: OnnxFoldShapesPass().apply(Context(), module) or True) is None:
            return
        names = [port.name for port in arguments_of(entry_function(module)) if port.role in ("input", "label", "seed")]

        def equal() -> bool:
            feeds = self._drawn(module, names) if inputs is None else dict(zip(names, inputs, strict=True))
            wanted = _by_onnxruntime(path, feeds, values) if expected is None else expected
            found = np.asarray(next(iter(run(module, feeds).values())))
            if apart := _apart(found, wanted):
                of_export = expected is not None and not _apart(found, _by_onnxruntime(path, feeds, values))
                raise Differs(
                    apart + ("; ONNX Runtime gives what distir gives: the export differs" if of_export else "")
                )
            return True

        self._do("equal", equal)
        self._plans(module)

    def _drawn(self, module: ModuleOp, names: Sequence[str]) -> dict[str, Any]:
        """Inputs; integers below `integers` of the options, if they say so."""
        from distir.interpreters.inputs import draw_inputs

        feeds = draw_inputs(module, 0, names=names)
        random, most = np.random.default_rng(0), self.architecture.options.get("integers")
        for name, value in feeds.items():
            if most is not None and value.dtype.kind in "iu":
                feeds[name] = random.integers(0, most, value.shape).astype(value.dtype)
        return feeds

    def _plans(self, module: ModuleOp) -> None:
        from distir.passes.dtp_parallelize import prepare

        if self._do("rules", lambda: prepare(Context(), module) or True) is None:
            return
        batch = f" batch={self.architecture.options['batch']}" if "batch" in self.architecture.options else ""
        for column, plan in PLANS.items():
            row = measure(module, plan + batch, self.seconds)
            shares = {"parameters": round(row.share, 3), "work": round(row.work, 3)}
            self.tell(
                column,
                {"state": row.state, "why": row.why, "seconds": row.seconds} | (shares if _ran(row) else {}),
            )

    def _training_step(self) -> Any:
        """A step and its example arguments, none where it has its own."""
        import torch

        from benchmarks.models.written import WRITTEN
        from distir.frontends.pytorch import training_step

        library, _, name = self.architecture.source.partition(":")
        if library == "written":
            torch.manual_seed(0)
            return WRITTEN[name](), ()
        model, inputs = made(self.architecture.source, self.architecture.options)
        with torch.no_grad():
            output = model(*inputs)
        classes = output.dim() > 1 and self.architecture.options.get("loss", "cross_entropy") == "cross_entropy"
        if classes:
            label, loss = torch.randint(0, output.shape[-1], output.shape[:-1]), _per_row
        else:
            label, loss = torch.randn_like(output), torch.nn.functional.mse_loss
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        return training_step(model, loss, optimizer), (*inputs, label)

    def _export(self, path: Path, values: Path) -> Path:
        import torch

        experts = {"experts_implementation": "batched_mm"} if ":causal:" in self.architecture.source else {}
        model, inputs = made(self.architecture.source, experts | self.architecture.options)
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            expected = model(*inputs).numpy()
            temporary = path.with_suffix(".tmp")
            torch.onnx.export(model, tuple(inputs), str(temporary), dynamo=True, external_data=False, verbose=False)
        np.savez(values, *[value.numpy() for value in inputs], out=expected)
        os.replace(temporary, path)
        return path

    def _do(self, step: str, compute: Callable[[], Any]) -> Any:
        """What it computes; None where it fails, which is told."""
        began = time.process_time()
        state, why, found = OK, "", None
        try:
            with within(self.seconds), contextlib.redirect_stderr(io.StringIO()):
                found = compute()
        except NotInstalled as error:
            state, why = MISSING, f"package {error}"
        except Differs as error:
            state, why = "differs", str(error)
        except DistirError as error:
            state, why = REFUSED, re.sub(r"(?<!\S)/\S+/", "", str(error))  # a file without its folder
        except TimeoutError:
            state = LATE
        except Exception as error:
            state, why = CRASHED, f"{type(error).__name__}: {_told(error)}"
        self.tell(step, {"state": state, "why": why, "seconds": round(time.process_time() - began, 1)})
        return found


def _told(error: Exception) -> str:
    """What an error says; of an exporter, which says much, what it says of its cause."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    summary = text.partition("## Exception summary")[2].strip() or text
    return " ".join(summary.split())[:300]


def _apart(found: Any, wanted: Any) -> str:
    """By how much two arrays differ; empty where they are equal within `TOLERANCE`."""
    if found.shape != wanted.shape:
        return f"shapes {found.shape} and {wanted.shape}"
    largest = max(float(np.abs(wanted).max(initial=0)), SMALLEST)
    difference = float(np.abs(found - wanted).max(initial=0)) / largest
    return "" if difference <= TOLERANCE else f"{difference:.1e} of the largest element"


class Differs(Exception):
    """From what it should be equal to."""


def _ran(row: Row) -> bool:
    return row.state in ("verified", "nothing cut", "differs")


def _per_row(output: Any, label: Any) -> Any:
    """Cross-entropy of every row of the last dim."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(output.flatten(0, -2), label.flatten())


def _by_onnxruntime(path: Path, feeds: Mapping[str, Any], values: Mapping[str, float]) -> Any:
    """The first output of a file; its inputs have the sizes that they are given. `values` are of scalars."""
    if find_spec("onnxruntime") is None:
        raise NotInstalled("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options)
    scalars = {
        name: np.array(value, np.float32 if isinstance(value, float) else np.int64) for name, value in values.items()
    }
    return session.run(None, dict(feeds) | scalars)[0]
