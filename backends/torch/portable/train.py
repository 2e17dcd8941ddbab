"""Runs the program in this folder, one process per rank:

    torchrun --nproc-per-node=RANKS train.py [--steps N] [--data F] [--checkpoint DIR] [-o OUT.safetensors]

In go `weights.safetensors` and `inputs.safetensors`, whole arrays by name, or batches of `--data`; each rank takes
its part, as `program.json` says. Out come the numbers of each step (its loss), checkpoints, and, with -o, the last
step's results, whole. Updated arrays go into the next step. Begun again with the same `--checkpoint`, it goes on
from the last one. A SIGTERM or Ctrl-C ends it after the step, with a checkpoint.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import distir_arrays
import distir_checkpoints
import distir_runtime
import torch
import torch.distributed as dist
from distir_arrays import Port, key
from distir_data import DataError, open_data
from distir_faults import FOLDER, end, end_here, failed, hold, no_output
from distir_log import Log
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import rendezvous

RENDEZVOUS_SECONDS = 120
"""How long ranks look for each other; torchrun starts them together."""
MEMORY = ("parameter", "buffer", "state")
BATCH = ("input", "label", "output")


class Program:
    """This process's part of the program."""

    def __init__(self, backend: str, compiler: str | None = None) -> None:
        try:
            self.described: dict[str, Any] = json.loads((FOLDER / "program.json").read_text("utf-8"))
            needed = len(self.described["ranks"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            end(f"{FOLDER / 'program.json'} is not what distir run --emit wrote: emit the program anew")
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        if self.world != needed:
            end(f"the program is of {needed} ranks, got {self.world}: torchrun --nproc-per-node={needed}")
        if not 0 <= self.rank < self.world:
            end_here(f"RANK is {self.rank}, of {self.world} ranks")
        if backend == "nccl" and torch.cuda.device_count() <= int(os.environ.get("LOCAL_RANK", self.rank)):
            end(f"nccl needs a GPU for each rank, torch finds {torch.cuda.device_count()} here: --backend gloo")
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
        device = torch.device("cpu")
        if backend == "nccl":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)))
            torch.cuda.set_device(device)
        self._meet(backend)
        distir_runtime.start(self.rank, device, self.described["groups"])
        own = self.described["ranks"][self.rank]
        self.arguments: list[Port] = own["arguments"]
        self.results: list[Port] = own["results"]
        if own["kernels"] is not None:
            from distir.backends.torch.kernels import load  # operators that torch has none for are distir's

            distir_runtime.KERNELS = load(FOLDER / own["kernels"], device, self.described["float64"])
        distir_runtime.COMPILE = compiler
        program = importlib.import_module(own["module"])
        self.main: Callable[[list[Any]], list[Any]] = getattr(program, own["entry"])
        if compiler is not None:
            self.main = distir_runtime.compiled(program, own["entry"])
        made = {key(port): i for i, port in enumerate(self.results)}
        self.updates = {i: made[key(port)] for i, port in enumerate(self.arguments) if key(port) in made}
        """Which result each argument is in the next step."""
        self.ends = distir_arrays.lost(self.ports("arguments"), self.ports("results"))
        """What leaves a step in other parts, or on another rank, than it enters: no step can follow."""

    def _meet(self, backend: str) -> None:
        """Meets the other ranks: as torchrun says, through a file that a launcher names, or alone."""
        wait = timedelta(days=1000) if "DISTIR_MEETING" in os.environ else timedelta(minutes=30)
        try:
            if (init_file := os.environ.get("DISTIR_MEETING")) is not None:
                method = Path(init_file).as_uri()
                dist.init_process_group(
                    backend, init_method=method, rank=self.rank, world_size=self.world, timeout=wait
                )
            elif "MASTER_ADDR" in os.environ:
                store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=RENDEZVOUS_SECONDS)))
                if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
                    # torchrun's store outlives a restart, and has the addresses of ranks that have ended
                    store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
                dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=wait)
            else:
                dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        except (dist.DistNetworkError, dist.DistStoreError) as error:
            address = os.environ.get("MASTER_ADDR")
            place = f"at port {os.environ.get('MASTER_PORT')}" + ("" if _is_here(address) else f" of {address}")
            end_here(f"the ranks cannot meet {place}: {str(error).splitlines()[0]}")

    def ports(self, kind: str) -> list[list[Port]]:
        return [rank[kind] for rank in self.described["ranks"]]

    def together(self, mine: Any) -> list[Any]:
        """What every rank has."""
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, mine)
        return told

    def numbers(self, results: Sequence[Tensor], stop: bool) -> tuple[dict[str, float], bool]:
        """The results of one element (the loss) by name, and whether any rank is to stop; every rank has them."""
        mine = [
            (port["name"], port["reduction"], results[i].double().item())
            for i, port in enumerate(self.results)
            if port["role"] == "output" and all(n == 1 for n in port["shape"])
        ]
        told = self.together((mine, stop))
        found: dict[str, float] = {}
        for name, reduction, value in (each for one, _ in told for each in one):
            found[name] = (
                distir_arrays.combined(reduction, found[name], value) if name in found and reduction else value
            )
        return found, any(stops for _, stops in told)


class Stop:
    """Whether a signal has asked for the end; a second one ends at once."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked and number == signal.SIGINT:
            os._exit(130)
        self.asked = True


def _is_here(address: str | None) -> bool:
    return address in (None, "localhost", "127.0.0.1", "::1")


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2147483647, got {text!r}")
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        end(message)


def options() -> argparse.Namespace:
    parser = Parser(description="Runs the program in this folder; start it with torchrun.")
    parser.add_argument("--steps", type=positive, default=1, help="what a step updates goes into the next (default: 1)")
    parser.add_argument(
        "--data", type=Path, help="batches: tokens (.txt, .bin, .npy), samples (.npz, .safetensors), a folder"
    )
    parser.add_argument(
        "--tokens", default="uint16", choices=("uint8", "uint16", "uint32"), help="what a .bin file is of"
    )
    parser.add_argument(
        "--same", action="store_true", help="labels are the input's tokens, the model itself shifts them"
    )
    parser.add_argument("--inputs", type=Path, help="an .npz file in place of inputs.safetensors")
    parser.add_argument("--seed", type=seed, help="of the order of the data (default: 0, or the checkpoint's)")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="go on from the last one in this folder, and write there"
    )
    parser.add_argument(
        "--checkpoint-every", type=positive, default=0, metavar="N", help="steps (default: only at the end)"
    )
    parser.add_argument("--keep", type=positive, default=2, metavar="N", help="checkpoints to keep (default: 2)")
    parser.add_argument("--format", choices=("safetensors", "dcp"), default="safetensors", help="of checkpoints")
    parser.add_argument("--log", type=Path, metavar="F.jsonl", help="default: log.jsonl beside the checkpoints")
    parser.add_argument(
        "--log-every", type=positive, default=1, metavar="N", help="steps between printed lines (default: 1)"
    )
    parser.add_argument("--predicted", type=float, metavar="S", help="seconds that a step was simulated to take")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="nccl" if torch.cuda.is_available() else "gloo")
    parser.add_argument(
        "--compile",
        nargs="?",
        const="inductor",
        metavar="BACKEND",
        help="compile each stage by torch.compile, communication apart (inductor)",
    )
    parser.add_argument("-o", dest="output", type=Path, help="what the last step returns, as .safetensors")
    return parser.parse_args()


class Training:
    """The steps of a program, with their data and checkpoints."""

    def __init__(self, given: argparse.Namespace, program: Program) -> None:
        self.given, self.program = given, program
        if given.steps > 1 and program.ends:
            end(
                f"{program.ends[0]} leaves the step in other parts than it enters, so no step can follow: distribute it anew"
            )
        if given.output is not None and (reason := no_output(given.output)) is not None:
            end(f"-o {given.output}: {reason}")
        if given.log is not None and given.log.exists() and (reason := no_output(given.log)) is not None:
            end(f"--log {given.log}: {reason}")
        if given.checkpoint is not None:
            told = [hold(given.checkpoint) if program.rank == 0 else None]
            dist.broadcast_object_list(told, 0)
            if told[0] is not None:
                end(f"--checkpoint {given.checkpoint}: {told[0]}")
        self.data = None
        ports = [port for here in program.ports("arguments") for port in here if port["role"] in BATCH]
        if given.data is not None:
            try:
                self.data = open_data(given.data, ports, given.tokens, not given.same)
            except DataError as error:
                end(str(error))
        self.step, self.seed, files = 0, given.seed or 0, [FOLDER / "weights.safetensors"]
        found = self._resume(given.checkpoint) if given.checkpoint is not None else {}
        files += (
            [] if self.data is not None else [FOLDER / "inputs.safetensors", *([given.inputs] if given.inputs else [])]
        )
        values = self._read(files) | found
        if missing := [p["name"] for i, p in enumerate(program.arguments) if i not in values and not self._is_given(p)]:
            end(f"no value for {', '.join(missing)}: give --inputs F.npz or --data F")
        self.arguments: list[Any] = [values.get(i) for i in range(len(program.arguments))]

    def _is_given(self, port: Port) -> bool:
        """Whether a step gets the argument from the data."""
        return self.data is not None and port["role"] in BATCH

    def _read(self, files: Sequence[Path]) -> dict[int, Tensor]:
        try:
            return distir_arrays.read(files, self.program.arguments)
        except (OSError, ValueError) as error:
            end(str(error))

    def _resume(self, folder: Path) -> dict[int, Tensor]:
        """The arguments of the last whole checkpoint, which rank 0 finds."""
        told: list[Any] = [distir_checkpoints.newest(folder) if self.program.rank == 0 else None]
        dist.broadcast_object_list(told, 0)
        found, summary, notes = told[0]
        taken = f"going on from {found.name}" if found else "beginning anew"
        for note in notes:
            self.say(f"{note}: {taken}")
        if found is None:
            return {}
        if not notes:
            self.say(taken)
        self.step = int(summary["step"])
        self.seed = int(summary["seed"]) if self.given.seed is None else self.given.seed
        try:
            return distir_checkpoints.read(found, summary, self.program.arguments)
        except (OSError, ValueError) as error:
            end(str(error))

    def say(self, text: str) -> None:
        if self.program.rank == 0:
            print(text, flush=True)

    def batch(self, step: int) -> None:
        """What this step is given: of the data, and of seeds."""
        arrays = {} if self.data is None else self.data.batch(self.seed, step)
        for i, port in enumerate(self.program.arguments):
            if port["name"] in arrays:
                self.arguments[i] = distir_arrays.placed(torch.from_numpy(arrays[port["name"]]), port)
            elif port["role"] == "seed" and step > 1:
                own = torch.Generator().manual_seed((self.seed << 32) + step)
                drawn = torch.randint(0, 1 << 31, port["shape"], generator=own)
                self.arguments[i] = distir_arrays.placed(drawn, port)

    def run(self) -> list[Any]:
        """All steps; what the last one returned."""
        given, program, stop = self.given, self.program, Stop()
        log_path = given.log or (given.checkpoint / "log.jsonl" if given.checkpoint is not None else None)
        log = Log(log_path if program.rank == 0 else None, self.step + 1)
        results: list[Any] = []
        saved = self.step
        if self.step >= given.steps:
            self.say(f"step {self.step} is done, of {given.steps} in all: nothing to do")
        while self.step < given.steps:
            begun = time.perf_counter()
            self.step += 1
            beat(self.step)
            self.batch(self.step)
            results = []  # updates are in the memory of what the last step returned
            results = distir_runtime.step(program.main, self.arguments, program.updates)
            numbers, stopped = program.numbers(results, stop.asked)
            seconds = time.perf_counter() - begun
            speed = {"seconds": seconds}
            if self.data is not None:
                speed[f"{self.data.unit}_per_second"] = self.data.per_step / seconds
            log.write(self.step, numbers, speed)
            if self.step % given.log_every == 0 or self.step == given.steps or stopped:
                self._tell(numbers, seconds)
            due = given.checkpoint_every and self.step % given.checkpoint_every == 0
            if given.checkpoint is not None and (due or stopped or self.step == given.steps):
                self._save(saved)
                saved = self.step
            if stopped:
                kept = f"; checkpoint at step {self.step}: begin again to go on" if given.checkpoint is not None else ""
                self.say(f"stopped at step {self.step} of {given.steps}{kept}")
                break
        return results

    def _save(self, before: int) -> None:
        summary = {"step": self.step, "seed": self.seed, "data": self.given.data and self.given.data.name}
        arguments = self.program.ports("arguments")
        given = self.given
        in_parts = given.format == "dcp"
        failure = distir_checkpoints.save(given.checkpoint, summary, arguments, self.arguments, given.keep, in_parts)
        if failure is not None:
            last = f"the last one, of step {before}, is whole" if before else "there is none before it"
            end(f"the checkpoint of step {self.step} cannot be written to {self.given.checkpoint}: {failure}; {last}")

    def _tell(self, numbers: Mapping[str, float], seconds: float) -> None:
        """A line: the step, its numbers, its speed, and what was simulated."""
        words = [f"step {self.step}", *(f"{name} {value:.6g}" for name, value in numbers.items())]
        if self.data is not None:
            words.append(f"{self.data.per_step / seconds:,.0f} {self.data.unit}/s")
        if self.data is not None or self.given.predicted is not None:
            simulated = f" (simulated {self.given.predicted:.3g} s)" if self.given.predicted is not None else ""
            words.append(f"{seconds:.3g} s{simulated}")
        self.say("  ".join(words))


def beat(step: int) -> None:
    """Tells a launcher that watches where this rank is (`distir.backends.torch.heartbeat`)."""
    if (init_file := os.environ.get("DISTIR_MEETING")) is not None:
        path = Path(init_file).with_name(f"{os.environ['RANK']}.beat")
        if not path.exists():
            path.with_suffix(".sites").write_text("start of the process\na step\n", "utf-8")
        path.write_bytes(min(step, 1).to_bytes(8, "little") + step.to_bytes(8, "little") + bytes(8))


def _write(path: Path | None, program: Program, results: Sequence[Any]) -> None:
    """What the last step returned, whole, by name."""
    if path is None or not results:
        return
    ports = program.ports("results")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    failure = distir_arrays.write(
        unfinished, ports, results, list(dict.fromkeys(p["name"] for own in ports for p in own))
    )
    if program.rank == 0:
        if failure is not None:
            unfinished.unlink(missing_ok=True)
            end(f"{path}: cannot be written: {failure}")
        unfinished.replace(path)


def main() -> None:
    beat(0)
    given = options()
    training: Training | None = None
    try:
        program = Program(given.backend, given.compile)
        with torch.inference_mode():
            training = Training(given, program)
            _write(given.output, program, training.run())
    except Exception as error:
        failed(error, 0 if training is None else training.step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        0
    )  # all is written: gloo's threads may still let go of tensors, which aborts an interpreter that is being taken down
