"""Programs on MPI that tests run as gangs on each executor."""

MPI = ["python", "-m", "mpi4py", "model.py"]

SUM = b"""
import json, os, signal
from mpi4py import MPI
world = MPI.COMM_WORLD
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
if task["params"].get("fault") and world.rank == 3:
    print("the mesh is too coarse", flush=True)
    os.kill(os.getpid(), getattr(signal, task["params"]["fault"]))
open(os.environ["WINDTUNNEL_OUTPUT"] + f"/rank-{world.rank}.txt", "w").write(str(world.rank))
total = world.allreduce(world.rank + task["index"])
if world.rank == 0:
    print(json.dumps({"total": total, "ranks": world.size}))
"""

# The ranks wait at the half until their gang is lost once; then all go on from the checkpoint.
HALVES = b"""
import json, os, pathlib, time
from mpi4py import MPI
world = MPI.COMM_WORLD
restored = pathlib.Path(os.environ.get("WINDTUNNEL_RESTORE", "none"), str(world.rank), "half")
half = json.loads(restored.read_text()) if restored.exists() else None
if half is None:
    folder = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
    (folder / ".half").write_text(json.dumps(world.allreduce(world.rank)))
    (folder / ".half").rename(folder / "half")
    while (folder / "half").exists():
        time.sleep(0.01)
    world.barrier()
    print("waits to be lost", flush=True)
    time.sleep(600)
total = world.allreduce(half)
if world.rank == 0:
    print(json.dumps({"total": total}))
"""
