"""The main job from end to end, as a user would type it (`make demo`): the commands of README's examples, one after the other.

A small GPT-2's training step in PyTorch: its plans for four processes, ranked; the best one proved, run and trained by. Then a GPT-2 of 12 layers
as an ONNX file with dynamic shapes, over the 16 GPUs of a DGX-2 that nobody has to own, and a small one by a plan of one's own choice.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def examples(text: str) -> list[tuple[str, str]]:
    """The commands of README's console blocks, each with what README says that it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    typed = [part.split("\n", 1) for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, output) for command, output in typed]


def words(command: str) -> list[str]:
    """A command with this interpreter for `python`, and examples where they are."""
    found = [str(README.parent / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    return [sys.executable, *found[1:]] if found[0] == "python" else found


def main() -> None:
    Path("out").mkdir(exist_ok=True)
    for command, _ in examples(README.read_text("utf-8")):
        print(f"\n$ {command}", flush=True)
        status = subprocess.run(words(command)).returncode
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
