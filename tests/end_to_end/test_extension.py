"""`examples/extension` as an installed package: its wheel is built and unpacked as an installer does, and its tests run beside this checkout.
What goes wrong with a plug-in is one line."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from distir.dialects.errors import DistirError
from distir.dialects.plugins import register_frontend

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "examples" / "extension"
BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def run(*command: str, site: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (ROOT / ".ns", site)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "DISTIR_NO_CACHE": "1"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the extension installed in it."""
    folder = tmp_path_factory.mktemp("extension")
    copytree(EXTENSION, folder / "source", ignore=ignore_patterns("__pycache__", "build", "*.egg-info"))
    built = run("-c", BUILD, str(folder), site=folder, cwd=folder / "source")
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(folder / built.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def test_its_python_tests(site: Path):
    done = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXTENSION / "tests"), "--rootdir", str(EXTENSION), site=site
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_text_tests(site: Path):
    done = run("-m", "lit.main", "-v", "-j1", str(EXTENSION / "tests" / "filecheck"), site=site)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_listed_and_another_driver_knows_it(site: Path):
    listed = run("-m", "distir.tools.distir", "plugins", site=site)
    assert re.search(r"^example +distir-example 0.1.0 +schedule +eager-1f1b$", listed.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "def register():\n    1 / 0",
            "the plug-in broken (broken 1) cannot be loaded: ZeroDivisionError: division by zero",
        ),
        (
            "import distir\ndef register():\n    distir.register_dialect('onnx', 'a:b')",
            "the dialect onnx, which the plug-in broken registers, is there already: choose another name",
        ),
        (
            "import distir\ndef register():\n    distir.register_implementations('referenc', 'a:b')",
            "unknown domain referenc: expected costs, mixed, placement, proof, reference or work (did you mean reference?)",
        ),
    ],
)
def test_a_plug_in_that_fails_is_named(tmp_path: Path, source: str, said: str):
    program = broken_plug_in(tmp_path, source)
    for command in (["distir", "simulate", program, "--machine", "dgx-2"], ["distir_opt", program]):
        check_named(command, tmp_path, said)


FAILS = """
import distir
from xdsl.passes import ModulePass

class Fails(ModulePass):
    name = "fails"
    def apply(self, ctx, op):
        {}["gone"]

def read(path, shapes):
    {}["gone"]

def register():
    distir.register_pass("fails", Fails)
    distir.register_frontend(".broken", read)
"""


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["distir_opt", "-p", "fails", "program.mlir"], 8),
        (["distir", "import", "model.broken"], 11),
    ],
)
def test_what_a_plug_in_adds_and_fails_is_named(tmp_path: Path, command: list[str], line: int):
    broken_plug_in(tmp_path, FAILS)
    (tmp_path / "model.broken").touch()
    *words, file = command
    said = f"error: the plug-in broken (broken 1) failed: KeyError: 'gone' (broken.py:{line})"
    check_named([*words, str(tmp_path / file)], tmp_path, said)


def broken_plug_in(site: Path, source: str) -> str:
    """The path of a program, beside an installed plug-in of this source."""
    (site / "broken.py").write_text(source)
    info = site / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[distir.plugins]\nbroken = broken:register\n")
    program = site / "program.mlir"
    program.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '  %y = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "  func.return %y : tensor<4xf32>\n}\n"
    )
    return str(program)


def check_named(command: list[str], site: Path, said: str) -> None:
    done = run("-m", f"distir.tools.{command[0]}", *command[1:], site=site)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


MEANING = """
import distir
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

@irdl_op_definition
class TwiceOp(IRDLOperation):
    name = "broken.twice"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    traits = traits_def(Pure())

Broken = Dialect("broken", [TwiceOp])

def infer(op, types):
    return types

{}

def register():
    distir.register_dialect("broken", Broken)
    distir.register_meaning("broken", distir.Meaning(reference="broken:run", types="broken:infer"))
"""


def twice(folder: Path, shape: str, result: str = "") -> str:
    """The path of a program of one operation, whose result may be said to be of another type."""
    x, y = f"tensor<{shape}>", f"tensor<{result or shape}>"
    (program := folder / "twice.mlir").write_text(
        f'func.func @main(%x: {x} {{dist.name = "x", dist.role = "input"}}) -> {y} {{\n'
        f'  %y = "broken.twice"(%x) : ({x}) -> {y}\n  func.return %y : {y}\n}}\n'
    )
    return str(program)


@pytest.mark.parametrize(
    ("run_", "said"),
    [
        (
            "def run(op, operands): return (2 * operands[0],)",
            "every trial of it fails: reference: TypeError: run() takes 2 positional arguments but 3 were given",
        ),
        (
            "def run(op, operands, floats=None): return ({}['gone'],)",
            "every trial of it fails: reference: KeyError: 'gone' (broken.py:20)",
        ),
        (
            "def run(op, operands, floats=None): return (operands[0].sum(0),)",
            "every trial of it fails: reference: results of shapes [5], and types say [4, 5]",
        ),
        (
            "def run(op, operands, floats=None): raise distir.DistirError('small ones only')",
            "every trial of it fails: reference: small ones only",
        ),
    ],
)
def test_a_meaning_that_fails_says_why_there_is_no_rule(tmp_path: Path, run_: str, said: str):
    """Unless it refuses its operands, which kernels do, by a note too."""
    broken_plug_in(tmp_path, MEANING.replace("{}\n\n", run_ + "\n\n", 1))
    said += " (the meaning of the plug-in broken)"
    program = twice(tmp_path, "6x3xf32")
    annotated = run("-m", "distir.tools.distir_opt", "-p", "shardcombine-annotate", program, site=tmp_path)
    assert "found = unknown" in annotated.stdout
    note = f"distir: note: broken.twice on tensor<6x3xf32> is cut nowhere: {said}\n"
    assert annotated.stderr == ("" if "DistirError" in run_ else note)
    doctor = run("-m", "distir.tools.distir", "doctor", program, site=tmp_path)
    assert f"  broken.twice: {said}\n" in doctor.stdout


COSTS = """
import os
from distir.interpreters.cost_models import CostModel

def run(op, operands, floats=None): return (2 * operands[0],)
def pair(op): return ("matmul", 3)
def fails(op): return op.gone

class Nothing(CostModel):
    def matmul_seconds(self, work, dtype): ...
    def elementwise_seconds(self, work, dtype): ...
    def data_movement_seconds(self, work): return 0.0
    def collective_seconds(self, kind, bytes, devices): return 0.0
    def send_seconds(self, bytes, source, target): return 0.0

class Fails(Nothing):
    def elementwise_seconds(self, work, dtype): return work.gone
"""


@pytest.mark.parametrize(
    ("work", "model", "said"),
    [
        ("pair", "", "broken:pair of the plug-in broken gives ('matmul', 3): expected a Work, or None"),
        ("fails", "", "the plug-in broken (broken 1) failed: AttributeError: 'TwiceOp' object has no attribute 'gone'"),
        ("", "Nothing", "the cost model Nothing of the plug-in broken says None seconds"),
        ("", "Fails", "the plug-in broken (broken 1) failed: AttributeError: 'Work' object has no attribute 'gone'"),
    ],
)
def test_work_and_cost_models_that_fail_are_named(tmp_path: Path, work: str, model: str, said: str):
    source = MEANING.replace("{}\n\n", f"{COSTS}\n\n", 1)
    if work:
        source = source.replace('types="broken:infer"', f'types="broken:infer", work="broken:{work}"')
    if model:
        source += f'    distir.register_cost_model("analytic-2", {model})\n'
    broken_plug_in(tmp_path, source)
    words = [twice(tmp_path, "4x2xf32"), "--machine", "dgx-2", *(["--cost-model", "analytic-2"] if model else [])]
    check_named(["distir", "simulate", *words], tmp_path, f"broken.twice: {said}")
    searched = run("-m", "distir.tools.distir", "search", *words, "--devices", "2", site=tmp_path)
    assert f"broken.twice: {said}" in searched.stderr + searched.stdout
    assert "Traceback" not in searched.stderr


def test_a_machine_file_that_is_wrong_is_left_out_of_the_list(tmp_path: Path):
    (tmp_path / "wrong.toml").write_text('name = "wrong"\n')
    broken_plug_in(
        tmp_path, f"import distir\ndef register(): distir.register_machine('wrong', {str(tmp_path / 'wrong.toml')!r})"
    )
    listed = run("-m", "distir.tools.distir", "machines", site=tmp_path)
    assert listed.returncode == 0
    assert {"dgx-2", "tpu-v5p"} <= {line.split()[0] for line in listed.stdout.splitlines()}
    path = tmp_path / "wrong.toml"
    assert listed.stderr.startswith(f"distir: note: wrong is left out: machine file {path}: device: expected either")
    check_named(["distir", "machines", "wrong"], tmp_path, f"machine file {path}: device: expected either")


def test_results_that_types_do_not_give_are_an_error(tmp_path: Path):
    broken_plug_in(tmp_path, MEANING.replace("{}\n\n", "", 1))
    for got in ("4x2xf32", "4x3xf16"):
        program = twice(tmp_path, "4x3xf32", got)
        said = f"broken.twice: result 0: expected tensor<4x3xf32>, got tensor<{got}>"
        done = run("-m", "distir.tools.distir_opt", "-p", "check-module", program, site=tmp_path)
        assert f"{program}:2: error: {said}\n" in done.stderr
        assert done.returncode == 1


THINGS = """
from xdsl.dialects.builtin import Builtin
from xdsl.passes import ModulePass
from distir.interpreters.cost_models import CostModel

class Renamed(ModulePass):
    name = "other"
    def apply(self, ctx, op): ...

class Free(CostModel):
    def matmul_seconds(self, work, dtype): return float("nan")
    def elementwise_seconds(self, work, dtype): return -1.0
    def data_movement_seconds(self, work): return 0.0
    def collective_seconds(self, kind, bytes, devices): return 0.0
    def send_seconds(self, bytes, source, target): return 0.0
"""


@pytest.mark.parametrize(
    ("kind", "place", "said"),
    [
        ("dialect", "things:Builtin", "the dialect mine is registered as things:Builtin, whose name is builtin"),
        ("dialect", "things:Free", "which is no Dialect"),
        ("pass", "things:Renamed", "the pass mine is registered as things:Renamed, whose name is other"),
        ("pass", "things:Builtin", "which is no subclass of ModulePass"),
        ("cost model", "broken:Free", "which cannot be imported: ZeroDivisionError: division by zero (broken.py:2)"),
        ("cost model", "things:CostModel", "which lacks collective_seconds, data_movement_seconds, "),
    ],
)
def test_a_thing_of_another_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, place: str, said: str
):
    """When it is first used."""
    from distir.dialects.registry import DIALECTS
    from distir.interpreters.cost_models import COST_MODELS
    from distir.passes.registry import PASSES

    (tmp_path / "things.py").write_text(THINGS)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "things", raising=False)
    registry = {"dialect": DIALECTS, "pass": PASSES, "cost model": COST_MODELS}[kind]
    monkeypatch.setitem(registry, "mine", place)  # pyright: ignore
    with pytest.raises(DistirError, match=re.escape(said)):
        registry.find("mine")


def test_an_extension_has_a_dot():
    with pytest.raises(
        DistirError, match=re.escape("the frontend mine: expected the end of a file's name with its dot")
    ):
        register_frontend("mine", "things:Free")


def test_the_longest_end_of_a_name_says_who_reads_it(monkeypatch: pytest.MonkeyPatch):
    from distir.frontends import FRONTENDS, extension_of

    for extension in (".json", ".net.json"):
        monkeypatch.setitem(FRONTENDS, extension, "things:read")  # pyright: ignore
    assert [extension_of(name) for name in ("a.net.json", "net.json", "a.onnx", "a.mlir")] == [
        ".net.json",
        ".json",
        ".onnx",
        None,
    ]


def test_a_time_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from distir.dialects.registry import program_context
    from distir.frontends.text import parse_program
    from distir.interpreters.machines import load_machine
    from distir.interpreters.simulate import simulate

    (tmp_path / "things.py").write_text(THINGS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "things", raising=False)
    import things  # pyright: ignore

    text = """func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>> {
      %y = "aten.relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
      func.return %y : tensor<4xf32, #dist.on<0>>
    }"""
    with pytest.raises(DistirError, match=re.escape("aten.relu: the cost model Free says -1.0 seconds")):
        simulate(parse_program(program_context(), text, "text"), load_machine("dgx-2"), cost_model=things.Free)


def test_a_schedule_of_something_else_is_named(monkeypatch: pytest.MonkeyPatch):
    from distir.passes.distribution.pipeline import tasks

    monkeypatch.setitem(tasks.SCHEDULES, "mine", lambda stage, stages, microbatches: [("F", 0)])  # pyright: ignore
    with pytest.raises(DistirError, match=re.escape("has ('F', 0): expected a Task")):
        tasks.table_of("mine", 2, 1)


def lines_of(text: str) -> str:
    """A text without indents and empty lines, which a formatter sets by what stands around."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize(("page", "least"), [("extending.md", 20), ("write_a_pass.md", 6)])
def test_documents_quote_the_extension(page: str, least: int):
    """Each snippet of these pages is lines of a file of the extension."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    files = [path for path in EXTENSION.rglob("*") if path.suffix in (".py", ".toml", ".mlir")]
    sources = [lines_of(path.read_text("utf-8")) for path in files]
    snippets = re.findall(r"^```(?:python|toml|mlir)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) >= least
    for snippet in snippets:
        assert any(lines_of(snippet) in source for source in sources), snippet
