"""A fork by the C library: a process of one thread goes on in the child, without Python's handlers."""

import subprocess
import sys

#: In a process of its own, which has one thread.
PROGRAM = """
import os, random, threading
from runtimes.harness.sandbox import kernel
random.seed(7)
expected = random.random()
random.seed(7)
reading, writing = os.pipe()
pid = kernel.fork()
if pid == 0:
    code = 1
    try:
        thread = threading.Thread(target=os.write, args=(writing, b"%r" % random.random()))
        thread.start()
        thread.join()
        code = 0
    finally:
        os._exit(code)
os.close(writing)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert float(os.read(reading, 100)) == expected
print("equal")
"""


def test_a_child_works_on_from_the_state_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "equal\n", done.stderr
