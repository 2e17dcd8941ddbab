"""`distir completion SHELL`: a script by which a shell completes commands, options and their values, those of `distir-opt` too. In go the parsers of
the commands, and the passes; out comes the script, on standard output."""

from __future__ import annotations

from argparse import PARSER, Action, ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, cast

from distir.tools.commands.help import HelpFormatter

EXAMPLES = """\
examples:
  source <(distir completion bash)                                   in this shell; in ~/.bashrc for all
  source <(distir completion zsh)
  distir completion fish > ~/.config/fish/completions/distir.fish
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="a script that makes a shell complete commands and options",
        description="Prints a script for bash, zsh or fish that completes commands, options and names of machines, models, schedules, and passes "
        "of distir-opt.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.tools.commands.main import make_parser, subcommands

    commands = {name: options_of(parser) for name, parser in subcommands(make_parser()).items()}
    optimizer, passes = _optimizer()
    if args.shell == "fish":
        print(_fish(commands), _fish_of_optimizer(optimizer, passes), sep="\n")
    else:
        print(_bash(commands, args.shell == "zsh"), _bash_of_optimizer(optimizer, passes), sep="\n")
    return 0


def _optimizer() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The options of `distir-opt`, with the values that are known; and its passes, each with its options."""
    from distir.tools.opt_driver import DistirOptMain
    from distir.tools.pass_reference import described, own_passes

    driver = DistirOptMain("", ())
    passes = {name: list[str]() for name in sorted(driver.available_passes)}
    passes |= {each.name: [option.name for option in described(each).options] for each in own_passes()}
    names, targets = [*passes], [*driver.available_targets]
    named = {"-p": names, "--passes": names, "-t": targets, "--target": targets}
    return options_of(driver.parser) | named, passes


def options_of(parser: ArgumentParser) -> dict[str, list[str]]:
    """The options of a command, and of those below it, each with the values that are known; the empty name has those of the positional arguments."""
    known = _names()
    found: dict[str, list[str]] = {"": []}
    actions: list[Action] = parser._actions  # pyright: ignore[reportPrivateUsage]
    for action in actions:
        values = [str(choice) for choice in action.choices or ()] or (
            known[action.dest]() if action.dest in known else []
        )
        for option in action.option_strings:
            found[option] = values
        if not action.option_strings:
            found[""] += values
        for inner in cast(dict[str, ArgumentParser], action.choices).values() if action.nargs == PARSER else ():
            found = {**options_of(inner), **found}
    return found


def _names() -> dict[str, Callable[[], list[str]]]:
    """The names that options of these destinations take."""
    from distir.interpreters.cost_models import cost_model_names
    from distir.interpreters.machines import machine_names
    from distir.passes.distribution.pipeline.tasks import SCHEDULES

    return {
        "machine": machine_names,
        "name": machine_names,
        "cost_model": cost_model_names,
        "schedules": lambda: sorted(SCHEDULES),
    }


def _bash(commands: dict[str, dict[str, list[str]]], is_zsh: bool) -> str:
    cases: list[str] = []
    for command, options in commands.items():
        for option, values in options.items():
            if option and values:
                cases.append(f'    "{command} {option}") words="{" ".join(values)}" ;;')
        words = [*(option for option in options if option.startswith("--")), *options[""]]
        cases.append(f'    "{command} "*) words="{" ".join(words)}" ;;')
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if is_zsh else []),
        "_distir() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    words="--help --version {" ".join(commands)}"',
        "  else",
        '    case "${COMP_WORDS[1]} $previous" in',
        *cases,
        "    esac",
        "  fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _distir distir",
    ]
    return "\n".join(lines)


def _fish(commands: dict[str, dict[str, list[str]]]) -> str:
    lines = [f'complete -c distir -n __fish_use_subcommand -a "{" ".join(commands)}"']
    for command, options in commands.items():
        where = f'complete -c distir -n "__fish_seen_subcommand_from {command}"'
        for option, values in options.items():
            if option.startswith("--"):
                lines.append(f"{where} -l {option[2:]}" + (f' -x -a "{" ".join(values)}"' if values else ""))
            elif not option and values:
                lines.append(f'{where} -a "{" ".join(values)}"')
    return "\n".join(lines)


def _bash_of_optimizer(options: dict[str, list[str]], passes: dict[str, list[str]]) -> str:
    """In a pipeline, a pass is offered after a comma, and its options inside its braces; what stands before stays."""
    names = [option for option in options if option.startswith("--")]
    lines = [
        "_distir_opt() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words="" before="" inside pass',
        '  case "$previous" in',
        "    -p|--passes)",
        '      current="${current#[\\"\\\']}"',
        '      before="${current%"${current##*[ ,{]}"}" inside="${current##*\\}}" pass="${current%\\{*}"',
        '      pass="${pass##*,}" words="@passes"',
        '      case "$inside" in *"{"*) case "$pass" in',
        *(f'        {name}) words="{" ".join(f"{each}=" for each in own)}" ;;' for name, own in passes.items() if own),
        '        *) words="" ;;',
        "      esac ;; esac",
        "      compopt -o nospace 2> /dev/null ;;",
        *(
            f'    {option}) words="{" ".join(values)}" ;;'
            for option, values in options.items()
            if values and option not in ("", "-p", "--passes")
        ),
        f'    *) words="{" ".join([*names, *options[""]])}" ;;',
        "  esac",
        "  COMPREPLY=()",
        '  while IFS= read -r pass; do COMPREPLY+=("$pass"); done \\',
        '    < <(compgen -P "$before" -W "$words" -- "${current#"$before"}")',
        "}",
        "complete -o default -F _distir_opt distir-opt",
    ]
    return "\n".join(lines).replace("@passes", " ".join(passes))


def _fish_of_optimizer(options: dict[str, list[str]], passes: dict[str, list[str]]) -> str:
    """In a pipeline as bash's."""
    offered = {"''": [*passes]} | {name: [f"{each}=" for each in own] for name, own in passes.items() if own}
    lines = [
        "function __distir_opt_passes",
        """  set -l current (commandline -ct | string trim --left --chars "'\\"")""",
        """  set -l before (string match --regex '^.*[ ,{]' -- "$current")""",
        """  set -l pass (string match --regex --groups-only '([^,{}]*)\\{[^{}]*$' -- "$current")""",
        "  set -l words",
        '  switch "$pass"',
        *(f"    case {name}\n      set words {' '.join(words)}" for name, words in offered.items()),
        "  end",
        """  printf '%s\\n' "$before"$words""",
        "end",
        'complete -c distir-opt -s p -l passes -x -a "(__distir_opt_passes)"',
    ]
    for option, values in options.items():
        if option.startswith("--") and option != "--passes":
            lines.append(f"complete -c distir-opt -l {option[2:]}" + (f' -x -a "{" ".join(values)}"' if values else ""))
    return "\n".join(lines)
