"""Memory of the machine and of processes, as /proc and the control group tell it."""

from pathlib import Path

from workers.machine_memory import RESERVED, machine_memory, memory_by_name

GIB = 1 << 30


def machine(root: Path, *, total: int, available: int, pressure: str | None = None) -> Path:
    """Write a /proc with these bytes of memory."""
    proc = root / "proc"
    (proc / "pressure").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n")
    if pressure is not None:
        (proc / "pressure" / "memory").write_text(f"some avg10={pressure} avg60=0.00 avg300=0.00 total=1\n")
    return proc


def group(root: Path, *, limit: str, current: int, inactive: int) -> Path:
    """Write a control group with this limit."""
    folder = root / "cgroup"
    folder.mkdir()
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")
    return folder


def process(proc: Path, pid: int, parent: int, name: str, pss: int | None) -> None:
    """Write a process with this proportional set size in KiB; None: it may not be read."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1")
    (folder / "comm").write_text(f"{name}\n")
    (folder / "statm").write_text("900 300 100 1 0 200 0\n")
    if pss is not None:
        (folder / "smaps_rollup").write_text(f"Rss: 999 kB\nPss: {pss} kB\n")


def test_a_part_of_the_machines_memory_is_left_to_others(tmp_path: Path) -> None:
    memory = machine_memory(machine(tmp_path, total=2 * GIB, available=GIB), tmp_path / "none")
    assert memory.spare == GIB - RESERVED and not memory.stalled


def test_memory_below_the_reserve_is_lacking(tmp_path: Path) -> None:
    assert machine_memory(machine(tmp_path, total=2 * GIB, available=0), tmp_path / "none").spare == -RESERVED


def test_the_limit_of_a_control_group_counts_if_it_is_lower(tmp_path: Path) -> None:
    proc = machine(tmp_path, total=64 * GIB, available=60 * GIB)
    memory = machine_memory(proc, group(tmp_path, limit=str(GIB), current=GIB, inactive=GIB // 2))
    assert memory.spare == GIB // 2 - RESERVED // 4


def test_a_control_group_without_a_limit_does_not_count(tmp_path: Path) -> None:
    proc = machine(tmp_path, total=2 * GIB, available=GIB)
    assert machine_memory(proc, group(tmp_path, limit="max", current=GIB, inactive=0)).spare == GIB - RESERVED


def test_processes_that_wait_for_memory_are_a_stall(tmp_path: Path) -> None:
    assert machine_memory(machine(tmp_path, total=GIB, available=GIB, pressure="12.50"), tmp_path / "none").stalled


def test_memory_counts_for_the_name_of_a_given_process_or_of_the_nearest_ancestor_with_a_name(
    tmp_path: Path,
) -> None:
    process(tmp_path, 10, 1, "agent", 1)
    process(tmp_path, 11, 10, "runner-1", 100)
    process(tmp_path, 12, 11, "python3", 50)
    process(tmp_path, 13, 10, "fork_server", 20)
    process(tmp_path, 14, 13, "runner-2", 7)
    process(tmp_path, 15, 10, "other", 1000)
    process(tmp_path, 16, 2, "runner-1", 1000)
    process(tmp_path, 17, 10, "fork_server", 1000)
    used = memory_by_name({11: "runner-1", 13: "forks"}, ("runner-1", "runner-2"), tmp_path)
    assert used == {"runner-1": 150 << 10, "runner-2": 7 << 10, "forks": 20 << 10}


def test_what_is_not_shared_with_files_counts_where_proportional_sizes_may_not_be_read(tmp_path: Path) -> None:
    process(tmp_path, 11, 10, "runner-1", None)
    assert memory_by_name({11: "runner-1"}, (), tmp_path) == {"runner-1": 200 * 4096}
