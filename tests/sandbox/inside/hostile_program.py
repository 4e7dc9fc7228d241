"""A program that tries what a program could do beyond its scenario; each attempt's outcome is a word of its error.

An attempt fails with the name of the exception that it has met, or is "escaped".
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, SIGCHLD = 1, 36, 17
CLONE, SECCOMP = {"x86_64": (56, 317), "aarch64": (220, 277)}[os.uname().machine]


def checked(result):
    """Raise the error of a call of the C library."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def fork():
    """fork"""
    if os.fork() == 0:
        os._exit(0)


def clone():
    """clone without a thread"""
    child = LIBC.syscall(CLONE, SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    checked(child)


def spawn():
    """start another program"""
    subprocess.run([sys.executable, "-c", ""], check=True)


def stop_parent():
    """stop the scenario's process"""
    os.kill(os.getppid(), signal.SIGSTOP)


def stop_everything():
    """stop every process that it may signal"""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.kill(-1, signal.SIGTSTP)


def stop_group():
    """stop the process group of the zygote"""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.killpg(0, signal.SIGTSTP)


def outlive():
    """take the parent-death signal off"""
    checked(LIBC.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0))


def replace_death_signal():
    """replace the parent-death signal by a harmless signal"""
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGURG, 0, 0, 0))


def adopt():
    """adopt orphans"""
    checked(LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def leave_session():
    """leave the session"""
    os.setsid()


def connect():
    """a socket"""
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def read_accounts():
    """open /etc/passwd"""
    open("/etc/passwd").close()


def memory_of_parent():
    """open the memory of the scenario's process"""
    open(f"/proc/{os.getppid()}/mem", "rb").close()


def change_model():
    """a new file beside the program"""
    open("note", "w").close()


def filter_again():
    """a filter of its own"""
    checked(LIBC.syscall(SECCOMP, 0, 0, 0))


ATTEMPTS = (
    fork,
    clone,
    spawn,
    stop_parent,
    stop_everything,
    stop_group,
    outlive,
    replace_death_signal,
    adopt,
    leave_session,
    connect,
    read_accounts,
    memory_of_parent,
    change_model,
    filter_again,
)


def outcome(attempt):
    """Return the name of the exception that an attempt meets."""
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "escaped"


def left():
    """Return the names of files in the writable folder, if there is one."""
    try:
        return sorted(name for name in os.listdir("/tmp") if name.isdigit())
    except OSError:
        return []


def write_until_killed():
    """Write into the folder that the next scenario uses, also after the end of the scenario."""
    number = 0
    while True:
        try:
            with open(f"/tmp/{number % 50}", "w") as file:
                file.write("note")
        except OSError:
            time.sleep(0.001)
        number += 1


def main():
    """Answer lines; from an attack on, write files until killed."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        if "act" in request and request["act"][1] == 1:
            threading.Thread(target=write_until_killed).start()
            answer = {"action": [0, 0, 0, 0]}
        elif "act" in request:
            outcomes = {attempt.__name__: outcome(attempt) for attempt in ATTEMPTS}
            answer = {"error": json.dumps([left(), outcomes])}
        print(json.dumps(answer), flush=True)


main()
