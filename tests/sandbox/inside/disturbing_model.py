"""A model that answers in one scenario, and disturbs what is needed for the next one.

An observation names the disturbance and whether to disturb (1) or to answer (2); each docstring says what is tried.
"""

import contextlib
import os
import re
import select
import signal
import socket
import threading

KEPT = []


def sockets():
    """Return the open sockets."""
    found = []
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            found.append(socket.socket(fileno=descriptor))
    KEPT.extend(found)
    return found


def at_the_end(action):
    """Call a function in a thread once the evaluator has said that the scenario is over."""

    def wait():
        poller = select.poll()
        for connected in sockets():
            poller.register(connected, select.POLLIN)
        poller.poll()
        action()

    threading.Thread(target=wait, daemon=True).start()


def stop_zygote():
    """stop the zygote"""
    os.kill(os.getppid(), signal.SIGSTOP)


def stop_group():
    """stop the process group of the zygote"""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.killpg(0, signal.SIGTSTP)


def stop_everything():
    """stop every process that it may signal"""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.kill(-1, signal.SIGTSTP)


def read_ahead():
    """read what is meant for the next scenario's process"""

    def read():
        for connected in sockets():
            with contextlib.suppress(OSError):
                connected.recv(1 << 16)

    at_the_end(read)


def shut_socket():
    """shut its socket down for everyone who has it"""

    def shut():
        for connected in sockets():
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    at_the_end(shut)


def exit_at_the_end():
    """exit with a code of failure, after its last answer"""
    at_the_end(lambda: os._exit(3))


def crash_at_the_end():
    """crash, after its last answer"""
    at_the_end(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def stop_at_the_end():
    """stop itself, after its last answer"""
    at_the_end(lambda: os.kill(os.getpid(), signal.SIGSTOP))


def hang_at_the_end():
    """hold the interpreter's lock for ever, after its last answer"""
    at_the_end(lambda: re.fullmatch("(a*)*b", "a" * 64))


DISTURBANCES = (
    stop_zygote,
    stop_group,
    stop_everything,
    read_ahead,
    shut_socket,
    exit_at_the_end,
    crash_at_the_end,
    stop_at_the_end,
    hang_at_the_end,
)


class Model:
    def act(self, observation):
        if observation[1] == 2:
            raise RuntimeError("undisturbed")
        with contextlib.suppress(OSError):
            DISTURBANCES[int(observation[0])]()
        return [0.0] * 4
