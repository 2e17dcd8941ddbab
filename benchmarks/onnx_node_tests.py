"""The node tests that the onnx package ships, through distir: how many give what onnx expects.

    python benchmarks/onnx_node_tests.py [--failures] [NAME ...]

Each model is imported, verified, printed, parsed and inferred; then the parsed program is run by the reference executor
and by the torch backend (its table, and the reference where the table has no entry), and compared with the outputs that
onnx ships. Beside it, what onnx's own reference evaluator gives. NAME keeps the tests whose name contains it.
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func, FuncOp
from xdsl.parser import Parser
from xdsl.printer import Printer

from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.interpreters.mixed import infer
from distir.interpreters.onnx.reference import run_onnx
from distir.interpreters.walk import Walk
from distir.interpreters.weights import attach, weights_of

BY_TEXT, REFERENCE, TORCH, ONNX = "text and types", "reference", "torch with fallback", "onnx.reference"


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def through_text(module: ModuleOp) -> ModuleOp:
    """The module, printed and parsed; equal to it, and valid."""
    context = Context()
    for dialect in (Builtin, Func, Onnx):
        context.load_dialect(dialect)
    stream = StringIO()
    Printer(stream).print_op(module)
    copy = Parser(context, stream.getvalue()).parse_module()
    copy.verify()
    assert copy.is_structurally_equivalent(module), "the text does not give the same program"
    attach(copy, weights_of(module))
    return copy


def arguments(case: Any, module: ModuleOp, data_set: int) -> list[Any]:
    """The values of the arguments of @main."""
    (function,) = module.ops
    assert isinstance(function, FuncOp)
    inputs = map(array, case.data_sets[data_set][0])
    values = {v.name: x for v, x in zip(case.model.graph.input, inputs, strict=False)} | dict(weights_of(module))
    return [values[str(a.data["dist.name"].data)] for a in function.arg_attrs or ()]


def by_reference(module: ModuleOp, values: Sequence[Any]) -> Sequence[Any]:
    return Walk(module, default=lambda op, operands: tuple(run_onnx(op, operands))).call("main", tuple(values))


def by_torch(module: ModuleOp, values: Sequence[Any]) -> list[Any]:
    import torch

    from distir.backends.torch.elements import ElementTypes, plain_array
    from distir.backends.torch.program import Program

    types, device = ElementTypes(), torch.device("cpu")
    results = Program(module, types, device).function("main")([types.value(value, device) for value in values])

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return plain_array(value) if isinstance(value, torch.Tensor) else value

    return [plain(result) for result in results]


def assert_equal(actual: Any, expected: Any, rtol: float) -> None:
    """Within onnx's tolerance (1e-3 unless the test says more), or 2 % for bfloat16."""
    if isinstance(expected, list):
        assert len(actual) == len(expected), f"{len(actual)} elements, expected {len(expected)}"
        for one, other in zip(actual, expected, strict=True):
            assert_equal(one, other, rtol)
        return
    if expected is None:
        assert actual is None
        return
    expected, actual = np.asarray(expected), np.asarray(actual)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if expected.dtype.kind in "OSU":
        assert actual.astype(str).tolist() == expected.astype(str).tolist()
        return
    assert actual.dtype == expected.dtype, f"{actual.dtype}, expected {expected.dtype}"
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    rtol = 2e-2 if expected.dtype.name == "bfloat16" else max(rtol, 1e-3)
    np.testing.assert_allclose(actual.astype(kind), expected.astype(kind), rtol=rtol, atol=max(1e-6, rtol / 1000))


def check(case: Any, module: ModuleOp, run: Callable[[ModuleOp, list[Any]], Sequence[Any]]) -> None:
    """Run every data set of a test and compare."""
    for number, (_, outputs) in enumerate(case.data_sets):
        results = run(module, arguments(case, module, number))
        for actual, expected in zip(results, map(array, outputs), strict=True):
            assert_equal(actual, expected, case.rtol)


def by_onnx(case: Any) -> None:
    for inputs, outputs in case.data_sets:
        feeds = {v.name: array(x) for v, x in zip(case.model.graph.input, inputs, strict=False)}
        for actual, expected in zip(ReferenceEvaluator(case.model).run(None, feeds), map(array, outputs), strict=True):
            assert_equal(actual, expected, case.rtol)


def measure(
    select: Callable[[str], bool] = lambda name: True, compare_onnx: bool = False
) -> tuple[int, Counter[str], list[tuple[str, str, str]]]:
    """How many tests there are, how many pass each way, and (test, way, reason) of those that do not."""
    passed, failures = Counter[str](), list[tuple[str, str, str]]()

    def attempt(way: str, name: str, action: Callable[[], Any]) -> Any:
        try:
            result = action()
        except Exception as error:
            lines = (str(error).strip() or type(error).__name__).splitlines()
            failures.append((name, way, " ".join(lines)[:200]))
            return None
        passed[way] += 1
        return result

    def prepare(case: Any) -> ModuleOp:
        module = import_model(case.model)
        module.verify()
        copy = through_text(module)
        infer(copy)
        return copy

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if select(case.name)]
        for case in cases:
            module = attempt(BY_TEXT, case.name, lambda case=case: prepare(case))
            if module is not None:
                attempt(REFERENCE, case.name, lambda case=case, module=module: check(case, module, by_reference))
                attempt(TORCH, case.name, lambda case=case, module=module: check(case, module, by_torch))
            if compare_onnx:
                attempt(ONNX, case.name, lambda case=case: by_onnx(case))
    return len(cases), passed, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="node tests of onnx through distir")
    parser.add_argument("names", nargs="*", help="keep the tests whose name contains one of these")
    parser.add_argument("--failures", action="store_true", help="say what failed, and why")
    options = parser.parse_args()
    start = time.perf_counter()
    count, passed, failures = measure(
        lambda name: not options.names or any(part in name for part in options.names), compare_onnx=True
    )
    print(f"{count} node tests of onnx, {time.perf_counter() - start:.0f} s")
    for way in (BY_TEXT, REFERENCE, TORCH, ONNX):
        print(f"  {way:22} {passed[way]:5} pass  {count - passed[way]:4} do not")
    for name, way, reason in failures if options.failures else ():
        print(f"{way}: {name}: {reason}")


if __name__ == "__main__":
    main()
