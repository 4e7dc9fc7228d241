"""A fork by the C library: a process of one thread goes on in the child, without Python's handlers."""

import os
import random
import threading

from runtimes.harness.sandbox import kernel


def test_a_child_works_on_from_the_state_of_its_parent() -> None:
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
    os.close(reading)
