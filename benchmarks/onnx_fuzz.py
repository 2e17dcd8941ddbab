"""Damaged inputs: truncated and bit-flipped ONNX files, and mutated program text, all from seeds.

    python benchmarks/onnx_fuzz.py [--cases 10000] [--first 0]

Every case must be a valid import or a clear error (`DistirError`, or a diagnostic of xDSL): never another exception, the
end of the process, more than 10 seconds, or more than 2 GB. Cases run in a process of their own, whose memory is
limited; what fails is printed with its seed.
"""

import argparse
import faulthandler
import gc
import multiprocessing
import random
import resource
import runpy
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import onnx.parser

LIMIT_BYTES = 2 << 30
LIMIT_SECONDS = 10.0
EXAMPLES = Path(__file__).parents[1] / "examples"

CONTROL_FLOW = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
main (float[N,3] x, int64 n, bool c) => (float[N,3] y, float[N,3] z)
<float[3] w = {1.0, 2.0, 3.0}, int64[2] target = {-1, 3}> {
  h = local.twice (x)
  s = Loop (n, c, h) <body = step (int64 i, bool go, float[N,3] a) => (bool on, float[N,3] b) {
    on = Identity (go)
    b = Add (a, w)
  }>
  y = If (c) <then_branch = yes () => (float[N,3] p) { p = Softmax <axis = 1> (s) },
              else_branch = no () => (float[N,3] q) { q = Reshape (x, target) }>
  z = Clip (y)
}
<opset_import: ["" : 17], domain: "local">
twice (v) => (r) { r = Add (v, v) }
"""


def models() -> list[onnx.ModelProto]:
    """Small models with what files hold: weights, shape arithmetic, old opsets, functions, graphs inside, metadata."""
    gpt2 = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    mlp = runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]
    return [
        gpt2(n_layer=1, d_model=8, n_head=2, vocab=16, n_ctx=8),
        mlp([4, 8, 2], batch="batch"),
        onnx.parser.parse_model(CONTROL_FLOW),
    ]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes cut short, or with up to 8 of them changed."""
    if dice.random() < 0.2:
        return data[: dice.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


FRAGMENTS = (
    "-1",
    "0",
    "?",
    "99999999999999999999",
    '"',
    "<",
    ">",
    "[",
    "}",
    "(",
    "%x",
    "tensor<",
    "dense<",
    "none",
    "i1",
)


def mutated(text: str, dice: random.Random) -> str:
    """The text cut short, or with up to 4 places changed: a character, a piece moved or doubled, a token put in."""
    if dice.random() < 0.1:
        return text[: dice.randrange(len(text))]
    for _ in range(dice.randint(1, 4)):
        at, size = dice.randrange(len(text)), dice.randint(1, 12)
        match dice.randrange(5):
            case 0:
                text = text[:at] + chr(dice.randrange(32, 127)) + text[at + 1 :]
            case 1:
                text = text[:at] + text[at + size :]
            case 2:
                text = text[:at] + text[at : at + size] + text[at:]
            case 3:
                text = text[:at] + dice.choice(FRAGMENTS) + text[at:]
            case _:
                other = dice.randrange(len(text))
                text = text[:at] + text[other : other + size] + text[at + size :]
    return text


def attempt(number: int, files: list[bytes], texts: list[str], folder: Path) -> str:
    """`imported` or `refused`; anything else is raised."""
    from xdsl.utils.exceptions import DiagnosticException, ParseError

    from distir.dialects.errors import DistirError
    from distir.frontends.onnx import import_model
    from distir.frontends.weights import load

    dice = random.Random(number)
    try:
        if number % 2:
            path = folder / "case.onnx"
            path.write_bytes(damaged(dice.choice(files), dice))
            module = import_model(path)
            module.verify()
        else:
            path = folder / "case.mlir"
            path.write_text(mutated(dice.choice(texts), dice))
            module = load(path)
        str(module)
    except (DiagnosticException, DistirError, ParseError):
        return "refused"
    return "imported"


def work(first: int, last: int, connection: Connection) -> None:
    """Run the cases and report each; the process that started this one watches the clock."""
    faulthandler.disable()
    from distir.frontends.onnx import import_model

    warnings.simplefilter("ignore")
    gc.set_threshold(200_000, 50, 50)
    bases = models()
    files, texts = [model.SerializeToString() for model in bases], [str(import_model(model)) for model in bases]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, used + LIMIT_BYTES))
    with TemporaryDirectory() as name:
        for number in range(first, last):
            connection.send((number, None))
            try:
                result = attempt(number, files, texts, Path(name))
            except BaseException as error:
                result = f"{type(error).__module__}.{type(error).__name__}: {str(error).strip()[:150]}"
            connection.send((number, result))


def outcomes(first: int, count: int) -> Iterator[tuple[int, str]]:
    """(case, what became of it), in order; a process that dies or hangs is replaced after the case that it failed."""
    context = multiprocessing.get_context("spawn")
    last = first + count
    while first < last:
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(first, last, theirs), daemon=True)
        process.start()
        theirs.close()
        started = False
        while first < last:
            try:
                if not ours.poll(LIMIT_SECONDS if started else 120):
                    result: Any = f"more than {LIMIT_SECONDS:g} seconds"
                else:
                    number, result = ours.recv()
                    started = True
                    if result is None:
                        continue
                    yield number, result
                    first = number + 1
                    continue
            except EOFError:
                process.join()
                result = f"the process ended with status {process.exitcode}"
            yield first, result
            first += 1
            break
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="damaged ONNX files and program text")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    options = parser.parse_args()
    start = time.perf_counter()
    found = Counter[str]()
    for number, result in outcomes(options.first, options.cases):
        bad = result not in ("imported", "refused")
        found["failed" if bad else result] += 1
        if bad:
            print(f"case {number} ({'ONNX file' if number % 2 else 'text'}): {result}", flush=True)
    print(
        f"{options.cases} cases in {time.perf_counter() - start:.0f} s: {found['refused']} refused with a clear error, "
        f"{found['imported']} imported, {found['failed']} failed"
    )


if __name__ == "__main__":
    main()
