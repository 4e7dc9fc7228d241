"""Attacks on what other parts of the machine keep in files."""

import ctypes
import fcntl
import mmap
import os
import stat
from pathlib import Path

from registry import LIBC, Stage, attack, call, checked


@attack
def read_password_hashes(stage: Stage) -> object:
    """open /etc/shadow"""
    return os.open("/etc/shadow", os.O_RDONLY)


@attack
def read_accounts(stage: Stage) -> object:
    """open /etc/passwd"""
    return os.open("/etc/passwd", os.O_RDONLY)


@attack
def read_private_key(stage: Stage) -> object:
    """read the driver's key"""
    return Path(stage["key"]).read_text()


@attack
def read_database(stage: Stage) -> object:
    """read the platform's database"""
    return Path(stage["database"]).read_bytes()


@attack
def write_database(stage: Stage) -> object:
    """write into the platform's database"""
    with open(stage["database"], "r+b") as file:
        return file.write(b"x")


@attack
def truncate_database(stage: Stage) -> object:
    """truncate the platform's database"""
    os.truncate(stage["database"], 1)
    return "truncated"


@attack
def see_that_the_database_exists(stage: Stage) -> object:
    """stat the platform's database"""
    return os.stat(stage["database"]).st_size


@attack
def list_home(stage: Stage) -> object:
    """list the driver's folder"""
    return os.listdir(os.path.dirname(stage["database"]))


@attack
def chmod_database(stage: Stage) -> object:
    """change the mode of the platform's database"""
    os.chmod(stage["database"], 0o666)
    return "changed"


@attack
def chown_database(stage: Stage) -> object:
    """change the owner of the platform's database"""
    os.chown(stage["database"], os.getuid(), os.getgid())
    return "changed"


@attack
def watch_database(stage: Stage) -> object:
    """inotify on the driver's folder"""
    watch = checked(LIBC.inotify_init())
    return checked(LIBC.inotify_add_watch(watch, os.path.dirname(stage["database"]).encode(), 0xFFF)) and "watching"


@attack
def watch_everything(stage: Stage) -> object:
    """fanotify"""
    return call("fanotify_init", 0, 0) and "watching"


@attack
def read_all_of_the_disk(stage: Stage) -> object:
    """open a block device"""
    devices = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode)]
    return os.open(f"/dev/{devices[0]}", os.O_RDONLY)


@attack
def make_a_block_device(stage: Stage) -> object:
    """mknod of the first disk"""
    os.mknod(f"{stage['tmp']}/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    return "made"


@attack
def open_by_handle(stage: Stage) -> object:
    """open_by_handle_at, around every path"""
    handle = ctypes.create_string_buffer(b"\x80\0\0\0" + bytes(136))
    mount = ctypes.c_int()
    checked(LIBC.name_to_handle_at(-100, b"/", handle, ctypes.byref(mount), 0))
    return checked(LIBC.open_by_handle_at(os.open("/", os.O_RDONLY), handle, os.O_RDONLY)) + 1


@attack
def escape_by_dotdot(stage: Stage) -> object:
    """../../../ up to the driver's key"""
    return Path(stage["environment"] + "/.." * 40 + stage["key"]).read_text()


@attack
def escape_by_proc_root(stage: Stage) -> object:
    """/proc/<driver>/root"""
    return os.listdir(f"/proc/{stage['driver']}/root/etc")


@attack
def write_shared_environment(stage: Stage) -> object:
    """append to a shared environment's module"""
    with open(stage["module"], "a") as file:
        return file.write("#")


@attack
def plant_pth(stage: Stage) -> object:
    """plant a .pth file in a shared environment"""
    return Path(stage["environment"], "evil.pth").write_text("import os")


@attack
def plant_bytecode(stage: Stage) -> object:
    """plant bytecode in a shared environment"""
    folder = Path(stage["environment"], "__pycache__")
    folder.mkdir(exist_ok=True)
    return (folder / "module.pyc").write_bytes(b"x")


@attack
def backdate_shared_environment(stage: Stage) -> object:
    """set the times of a shared file"""
    os.utime(stage["module"], (1, 1))
    return "set"


@attack
def chmod_shared_environment(stage: Stage) -> object:
    """change the mode of a shared file"""
    os.chmod(stage["module"], 0o666)
    return "changed"


@attack
def label_shared_environment(stage: Stage) -> object:
    """set an extended attribute of a shared file"""
    os.setxattr(stage["module"], "user.x", b"1")
    return "set"


@attack
def lock_shared_environment(stage: Stage) -> object:
    """flock a shared file that can only be read"""
    with open(stage["module"]) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "locked"


@attack
def lease_shared_environment(stage: Stage) -> object:
    """lease a shared file, so that a process that opens it for writing waits"""
    with open(stage["module"]) as file:
        fcntl.fcntl(file, 1024, fcntl.F_RDLCK)
        return "leased"


@attack
def write_own_model(stage: Stage) -> object:
    """append to its own stored model"""
    with open(stage["model"], "ab") as file:
        return file.write(b"x")


@attack
def hard_link_own_model(stage: Stage) -> object:
    """hard-link its stored model into /tmp and write there"""
    link = f"{stage['tmp']}/link"
    os.link(stage["model"], link)
    with open(link, "ab") as file:
        return file.write(b"x")


@attack
def rename_own_model(stage: Stage) -> object:
    """rename its stored model"""
    os.rename(stage["model"], stage["model"] + ".old")
    return "renamed"


@attack
def symlink_to_database(stage: Stage) -> object:
    """leave a symbolic link for another process to follow"""
    os.symlink(stage["database"], f"{stage['tmp']}/result.json")
    return "made"


@attack
def leave_a_pipe(stage: Stage) -> object:
    """leave a named pipe for another process to block on"""
    os.mkfifo(f"{stage['tmp']}/result.csv")
    return "made"


@attack
def write_root(stage: Stage) -> object:
    """write beside the bound folders"""
    return Path("/escaped").write_text("x")


@attack
def write_var_tmp(stage: Stage) -> object:
    """write to /var/tmp"""
    path = Path(f"/var/tmp/windtunnel-{os.getpid()}")
    path.write_text("x")
    path.unlink()
    return "wrote"


@attack
def write_dev_shm(stage: Stage) -> object:
    """write to /dev/shm"""
    path = Path(f"/dev/shm/windtunnel-{os.getpid()}")
    path.write_text("x")
    path.unlink()
    return "wrote"


@attack
def write_kernel_settings(stage: Stage) -> object:
    """open /proc/sys for writing"""
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attack
def run_from_tmp(stage: Stage) -> object:
    """map a file in /tmp as executable"""
    path = f"{stage['tmp']}/code"
    with open(path, "wb") as file:
        file.write(b"\x90" * 4096)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
