"""A machine on which computing is slow beside sending, so that small models are worth cutting everywhere."""

from pathlib import Path

MACHINE = """
name = "slow-processors"
[device]
name = "slow"
memory_capacity_bytes = { value = 1000000000, source = "test" }
memory_bandwidth_bytes_per_second = { value = 1.0e8, source = "test" }
memory_efficiency = { value = 1.0, source = "test" }
matmul_efficiency = { value = 1.0, source = "test" }
matmul_half_efficiency_flops = { value = 1.0, source = "test" }
kernel_floor_seconds = { value = 1.0e-7, source = "test" }
[device.peak_flops_per_second]
f32 = { value = 1.0e8, source = "test" }
[[levels]]
name = "node"
devices = { value = 64, source = "test" }
latency_seconds = { value = 1.0e-6, source = "test" }
hop_seconds = { value = 1.0e-6, source = "test" }
bandwidth_bytes_per_second = { value = 3.0e7, source = "test" }
"""


def written(folder: Path) -> str:
    """The path of its file, written into a folder."""
    path = folder / "machine.toml"
    path.write_text(MACHINE)
    return str(path)
