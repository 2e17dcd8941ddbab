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
    (tmp_path / "broken.py").write_text(source)
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[distir.plugins]\nbroken = broken:register\n")
    program = tmp_path / "program.mlir"
    program.write_text("func.func @main() {\n  func.return\n}\n")
    for command in (["distir", "simulate", str(program), "--machine", "dgx-2"], ["distir_opt", str(program)]):
        done = run("-m", f"distir.tools.{command[0]}", *command[1:], site=tmp_path)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1


def lines_of(text: str) -> str:
    """A text without indents and empty lines, which a formatter sets by what stands around."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_documents_quote_the_extension():
    """Each snippet of `docs/extending.md` is lines of a file of the extension."""
    text = (ROOT / "docs" / "extending.md").read_text("utf-8")
    files = [path for path in EXTENSION.rglob("*") if path.suffix in (".py", ".toml", ".mlir")]
    sources = [lines_of(path.read_text("utf-8")) for path in files]
    snippets = re.findall(r"^```(?:python|toml|mlir)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) > 8
    for snippet in snippets:
        assert any(lines_of(snippet) in source for source in sources), snippet
