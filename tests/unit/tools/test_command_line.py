"""The command line as a whole: completion, `--json` everywhere, `--set`, exit codes, tables of 80 columns."""

import json
import subprocess
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from shutil import which
from typing import Any

import pytest

from distir.interpreters.machines import load_machine
from distir.tools.command_reference import reference
from distir.tools.commands.help import broken, joined
from distir.tools.commands.main import make_parser, options_of, subcommands
from distir.tools.commands.report import table_text
from distir.tools.distir import main

FILECHECK = Path(__file__).parents[2] / "filecheck"
PROGRAM = str(FILECHECK / "tools" / "simulate.mlir")
WRITES = {"completion"}
"""Commands whose output is a script."""


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def completed(script: str, *words: str, last: str = "") -> list[str]:
    """What bash offers for the last word."""
    line = f"COMP_WORDS=({' '.join(map(quote, (*words, last)))}); COMP_CWORD={len(words)}"
    script = f"{script}\n{line}; _{words[0].replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
def test_bash_completes(capsys: pytest.CaptureFixture[str]):
    script = output(capsys, "completion", "bash")
    assert set(completed(script, "distir")) == {"--help", "--version", *subcommands(make_parser())}
    assert "dgx-2" in completed(script, "distir", "simulate", "--machine")
    assert {"--machine", "--set", "--json"} <= set(completed(script, "distir", "simulate", "x.mlir"))
    assert completed(script, "distir", "run", "--backend") == ["gloo", "nccl"]
    assert set(completed(script, "distir", "cache")) >= {"show", "clear"}


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
def test_bash_completes_passes(capsys: pytest.CaptureFixture[str]):
    """A pass after a comma, its options inside its braces; what was typed stays."""
    script = output(capsys, "completion", "bash")
    assert {"--passes", "--target", "--split-input-file"} <= set(completed(script, "distir-opt"))
    assert {"check-module", "ilp-shard", "canonicalize"} <= set(completed(script, "distir-opt", "-p"))
    assert completed(script, "distir-opt", "-p", last="'ilp-sh") == ["ilp-shard"]
    after = "'shardcombine-annotate,microbatch{count=2},pipeline-sch"
    assert completed(script, "distir-opt", "--passes", last=after) == [f"{after[1:]}edule"]
    inside = "'dtp-parallelize{dp=2 t"
    assert completed(script, "distir-opt", "-p", last=inside) == [f"{inside[1:]}p=", f"{inside[1:]}ime-limit="]
    assert "mlir" in completed(script, "distir-opt", "-t")


def test_other_shells(capsys: pytest.CaptureFixture[str]):
    assert output(capsys, "completion", "zsh").startswith("autoload -U +X bashcompinit")
    fish = output(capsys, "completion", "fish")
    (machines,) = (
        line for line in fish.splitlines() if "__fish_seen_subcommand_from search" in line and "-l machine " in line
    )
    assert "dgx-1 " in machines.partition(" -x -a ")[2]
    lines = [line.strip() for line in fish.splitlines()]
    assert {"check-module", "ilp-shard", "canonicalize"} <= set(lines[lines.index("case ''") + 1].split())
    assert lines[lines.index("case pipeline-schedule") + 1] == "set words schedule="


def test_every_command_that_prints_has_json():
    for name, parser in subcommands(make_parser()).items():
        assert name in WRITES or "--json" in options_of(parser), name


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]):
    sequential = str(FILECHECK / "paper" / "figure_sequential.mlir")
    assert json.loads(output(capsys, "machines", "dgx-2", "--json"))[0]["name"] == "dgx-2"
    assert json.loads(output(capsys, "cache", "show", "--json"))["directory"]
    assert isinstance(json.loads(output(capsys, "plugins", "--json")), list)
    assert json.loads(output(capsys, "verify", sequential, sequential, "--json"))["agrees"]
    assert json.loads(output(capsys, "verify", "--proof", sequential, sequential, "--json"))["proven"]
    found = json.loads(output(capsys, "run", sequential, "--check", sequential, "--json"))
    assert all(each["agrees"] for each in found["check"])
    assert found["outputs"]


def test_what_an_import_found_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sequential, made = str(FILECHECK / "paper" / "figure_sequential.mlir"), str(tmp_path / "model.mlir")
    found = json.loads(output(capsys, "import", sequential, "-o", made, "--json"))
    assert found["program"] == made
    assert {"name", "role", "type"} == found["arguments"][0].keys() == found["results"][0].keys()
    assert main(["import", sequential, "--json"]) == 1
    assert "--json: give -o OUT.mlir" in capsys.readouterr().err


def test_a_number_of_a_machine_is_set(capsys: pytest.CaptureFixture[str]):
    machine = load_machine("dgx-2", ["device.memory_capacity_bytes=80GB", "levels.node.hop_seconds=1e-6"])
    assert machine.device.memory_capacity_bytes == 80 * 10**9
    assert machine.levels[0].hop_seconds == 1e-6
    assert machine.figures["levels.node.hop_seconds"].source == "--set levels.node.hop_seconds=1e-6"
    latency = "levels.node.latency_seconds"
    plain, slow = (json.loads(output(capsys, "simulate", PROGRAM, "--machine", "dgx-2", "--json", *more)) for more in ([], ["--set", f"{latency}=1"]))  # fmt: skip
    known = load_machine("dgx-2").levels[0].latency_seconds
    assert slow["makespan_seconds"] - plain["makespan_seconds"] == pytest.approx(1 - known)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("device.memory_capacity_bytes", "expected KEY=VALUE"),
        ("device.memory_capacity_bytes=much", "expected a size such as 28GB"),
        ("levels.node.hop_seconds=nan", "expected a number, got 'nan'"),
        ("levels.moon.hop_seconds=1", "the machine has no moon"),
        ("device.memory_size=1", "device.memory_size: expected one of"),
    ],
)
def test_what_is_wrong_with_a_setting(setting: str, said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", PROGRAM, "--machine", "dgx-2", "--set", setting]) == 1
    assert said in capsys.readouterr().err


def test_help_has_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    text = output(capsys, "--help")
    assert "exit status:" in text
    assert "130" in text


def test_cells_break_between_words():
    rows = [("1", "communication 43%, compute 32%, waiting 25%", "distributed-program.mlir")] * 2
    text = table_text(rows, ("rank", "time goes to", "program"), 60)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    words = {word for line in lines for word in line.split()}
    assert words == {
        word for row in [("rank", "time goes to", "program"), *rows] for cell in row for word in cell.split()
    }


def parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for command in subcommands(parser).values():
        yield from parsers(command)


@pytest.mark.parametrize("columns", [200, 80])
def test_help_is_as_wide_as_it_may_be(columns: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for parser in parsers(make_parser()):
        lines = parser.format_help().splitlines()
        assert max(map(len, lines)) <= min(columns, 80) - 2, parser.prog


def test_help_has_examples_and_defaults():
    for parser in parsers(make_parser()):
        text = parser.epilog or ""
        assert "examples:\n" in text or parser.prog.startswith("distir plan "), parser.prog
        options: list[Any] = [each for each in parser._actions if each.option_strings and each.nargs != 0]  # pyright: ignore[reportPrivateUsage]
        silent = [each.option_strings for each in options if each.default and "default" not in each.help]
        assert silent == [], parser.prog


def test_examples_are_whole_when_they_break():
    line = "  distir search gpt2.onnx --shape input1=64,1,128 --machine dgx-2 --devices 16 --csv plans.csv"
    parts = broken(line, 60)
    assert [part.endswith(" \\") for part in parts] == [True, False]
    assert " ".join(part.removesuffix("\\").strip() for part in parts) == line.strip()
    assert joined(["a  b", "   c"]) == ["a  b c"]


def test_the_reference_is_made_of_the_commands():
    """If this fails: `python -m distir.tools.command_reference > docs/commands.md`."""
    document = Path(__file__).parents[3] / "docs" / "commands.md"
    assert document.read_text("utf-8") == reference()
