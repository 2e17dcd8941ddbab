"""Random plans of random programs, checked in every way there is: numbers of cases go in; how many hold, what was refused and what could not
be proven come out, and for each fault the command that shows it again.

    python -m benchmarks.random_plans [--layers] [--count 2000] [--seed 0] [--cpu-seconds S] [--keep DIR]
"""

import argparse
import re
import time
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.random_plans import Fault, Found, check, draw, draw_layers


def alike(message: str) -> str:
    """The message without what is of one case: names and numbers."""
    return re.sub(r"'[^']*'|@\w+|%\w+|\d[\d.x]*", "_", message)


def main() -> None:
    parser = argparse.ArgumentParser(description="random plans of random programs")
    parser.add_argument("--layers", action="store_true", help="steps of equal layers, of which messages have streams")
    parser.add_argument("--count", type=int, default=2000, help="cases")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cpu-seconds", type=float, default=float("inf"), help="ends after so many")
    parser.add_argument("--keep", type=Path, help="writes the sequential program of each case into this folder")
    options = parser.parse_args()
    counts, refused, unproven = Counter[str](), Counter[str](), Counter[str]()
    with TemporaryDirectory() as folder:
        for number in range(options.seed, options.seed + options.count):
            if time.process_time() > options.cpu_seconds:
                break
            began, case = time.process_time(), (draw_layers if options.layers else draw)(number, Path(folder))
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{number}.mlir").write_text(str(case.sequential))
                print(f"{number}: {case.what}: {case.passes()}", flush=True)
            counts["cases"] += 1
            found = Found()
            try:
                found = check(case)
            except Exception as fault:
                counts["faults"] += 1
                if not isinstance(fault, Fault) or options.count == 1:
                    traceback.print_exc()
                words = " --layers" * options.layers
                again = f"python -m benchmarks.random_plans{words} --count 1 --seed {number}"
                print(f"FAULT: {case.what}: {fault}\n  {case.passes()}\n  {again}", flush=True)
            counts.update(found.counts)
            refused[alike(found.refused)] += bool(found.refused)
            unproven[alike(found.unproven)] += bool(found.unproven)
            if (seconds := time.process_time() - began) > 20:
                print(f"{number} took {seconds:.0f} CPU seconds: {case.what}: {case.passes()}", flush=True)
    for title, found_ in (("refused", refused), ("not proven", unproven)):
        for message, count in (+found_).most_common():
            print(f"{title}, {count}: {message}")
    counts["distributed"] = counts["cases"] - counts["faults"] - refused.total()
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"; {time.process_time():.0f} CPU seconds")


if __name__ == "__main__":
    main()
