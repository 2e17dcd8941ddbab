"""The timeline of a run as spans. In go spans of streams and levels of memory; out come Chrome trace events for
Perfetto and for Holistic Trace Analysis, which takes slices of `cat` "kernel" named `nccl*` for communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Stream = tuple[int, str]
"""A machine device, and the name of one of its streams (`""` is the main one)."""

CALL = "call"
PER_MICROSECOND = 1_000_000
MAIN_THREAD = 7
"""The stream id of PyTorch's default stream in the traces that analysis tools know; further streams follow, by name."""

NCCL_NAMES = {
    "send": "SendRecv",
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "alltoall": "AllToAll",
    "broadcast": "Broadcast",
    "scatter": "Scatter",
    "gather": "Gather",
    "reduce": "Reduce",
    "exchange": "SendRecv",
}


class Span(NamedTuple):
    """Time of one stream: an operation's, or a call's from its first operation on the stream to its last. What takes no
    time has none. Clocks are in picoseconds."""

    stream: Stream
    start: int
    end: int
    path: tuple[str, ...]
    """The calls around it, from the entry's."""
    label: str
    """The name of its first result in the text, else `name`."""
    name: str
    """The operation (`onnx.MatMul`), or the function that is called."""
    function: str
    """Where it stands; of a call, the callee."""
    kind: str
    """`call`, or the kind of the cost (`matmul`, `allreduce`)."""
    communicates: bool
    module: str = ""
    """What the model calls the operation (`model_name`)."""

    def meets(self, window: Window | None, devices: frozenset[int] | None) -> bool:
        """Whether any of it is in the window and on the devices; None is everything."""
        return (window is None or (self.start < window[1] and self.end > window[0])) and (
            devices is None or self.stream[0] in devices
        )


class Level(NamedTuple):
    """Live memory of a device from a time on."""

    device: int
    at: int
    bytes: int


Window = tuple[int, int]
"""From, to, in picoseconds."""


def trace_events(
    records: Iterable[Span | Level], devices: Iterable[int], streams: Iterable[Stream], places: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Chrome trace events: a process per device, which is named with its place where `places` has that, a thread per stream, a slice per span, a
    counter of live memory."""
    threads = stream_threads(streams)
    for device in devices:
        place = places[device] if places else ""
        yield _named("process_name", device, None, f"device {device} ({place})" if place else f"device {device}")
        yield {"ph": "M", "name": "process_sort_index", "pid": device, "args": {"sort_index": device}}
    for (device, stream), thread in threads.items():
        yield _named("thread_name", device, thread, stream or "main")
    for number, record in enumerate(records):
        if isinstance(record, Level):
            at = record.at / PER_MICROSECOND
            yield {"ph": "C", "name": "live memory", "pid": record.device, "ts": at, "args": {"bytes": record.bytes}}
        else:
            yield _slice(record, threads[record.stream], number)


def stream_threads(streams: Iterable[Stream]) -> dict[Stream, int]:
    """A thread id per stream: 7 for the main one, as PyTorch's, then 8, 9, ... by name."""
    names = {name: MAIN_THREAD + i for i, name in enumerate(sorted({"", *[name for _, name in streams]}))}
    return {stream: names[stream[1]] for stream in sorted(streams)}


def _named(what: str, device: int, thread: int | None, name: str) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "M", "name": what, "pid": device, "args": {"name": name}}
    return event if thread is None else {**event, "tid": thread}


def _slice(span: Span, thread: int, number: int) -> dict[str, Any]:
    device = span.stream[0]
    args: dict[str, Any] = {"op": span.name, "function": span.function, "kind": span.kind, "value": span.label}
    if span.module:
        args["module"] = span.module
    if span.path:
        args["path"] = "/".join(span.path)
    name, category = span.name, "gpu_user_annotation"
    if span.kind != CALL:
        category = "kernel"
        args |= {"device": device, "stream": thread, "correlation": number, "External id": number}
        if span.communicates:
            name = f"ncclDevKernel_{NCCL_NAMES.get(span.kind, span.kind)}"
            args["Collective name"] = span.kind
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": device,
        "tid": thread,
        "ts": span.start / PER_MICROSECOND,
        "dur": (span.end - span.start) / PER_MICROSECOND,
        "args": args,
    }
