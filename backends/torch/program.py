"""In goes the program of one rank (level 4) or of one device, out come its functions as Python functions on torch: its text (`source`), compiled.

A call consumes the list of its arguments, so that each is freed at its last use; `distir run --emit` writes the same
text."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.operators import compile_operator
from distir.backends.torch.portable import distir_runtime
from distir.backends.torch.source import source_of
from distir.dialects.errors import DistirError
from distir.dialects.plugins import told
from distir.dialects.rank import GroupOp, RankOp

Function = Callable[[list[Any]], list[Any]]


class LocatedError(DistirError):
    """An error of one operation, with its place."""


class Program:
    """All functions of a module. The process is the rank that `distir_runtime.start` said, on this device."""

    def __init__(self, module: ModuleOp, types: ElementTypes, device: torch.device) -> None:
        if distir_runtime.DEVICE != device:
            distir_runtime.start(distir_runtime.RANK, device)
        if alone := next((op for op in module.walk() if isinstance(op, RankOp) and not _has_peers(op)), None):
            raise DistirError(f"{alone.name} needs the other ranks: run the program of all devices")
        source = source_of(module, types)
        self.text, self._lines = source.render({distir_runtime.RANK: source})
        self.sites = {number: line.site for number, line in self._lines.items()}
        self.file = f"<program {id(self)}>"
        linecache.cache[self.file] = (len(self.text), None, self.text.splitlines(True), self.file)
        distir_runtime.KERNELS = [kernel(op, types, device) for op in source.kernels]
        self._namespace: dict[str, Any] = {"__name__": "program"}
        exec(compile(self.text, self.file, "exec"), self._namespace)
        self._names = source.functions

    def __del__(self) -> None:
        linecache.cache.pop(self.file, None)

    def function(self, name: str) -> Function:
        """The function of this symbol; DistirError if the module has none of this name."""
        if name not in self._names:
            raise DistirError(f"no function @{name} in the module")
        function: Function = self._namespace[self._names[name]]

        def located(arguments: list[Any]) -> list[Any]:
            try:
                return function(arguments)
            except Exception as error:
                raise self._located(error) from error

        return located

    def line(self, frame: Any) -> int:
        """Which line of the text a frame is in, or was called from; 0 if none."""
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno

    def path(self) -> str:
        """What the model calls the operation that runs; empty if it has no name there."""
        line = self._lines.get(self.line(sys._getframe()))  # pyright: ignore[reportPrivateUsage]
        return "" if line is None else line.path

    def _located(self, error: Exception) -> Exception:
        site, trace = "", error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                site = self.sites.get(trace.tb_lineno, site)
            trace = trace.tb_next
        return LocatedError(f"{site}: {told(error) or type(error).__name__}") if site else error


def kernel(op: Operation, types: ElementTypes, device: torch.device) -> Callable[[list[Any]], list[Any]]:
    """An operation that torch has no name for, as a function of its operands."""
    compute, count = compile_operator(op, types, device), len(op.results)

    def run(operands: list[Any]) -> list[Any]:
        results = list(compute(operands))[:count]
        return results + [None] * (count - len(results))  # trailing results that nobody wants

    return run


def _has_peers(op: RankOp) -> bool:
    return torch.distributed.is_initialized() or (isinstance(op, GroupOp) and len(op.ranks) == 1)
