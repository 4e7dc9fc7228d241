"""Attacks on files: the platform's database and key, shared environments, stored models, devices, /tmp."""

import ctypes
import fcntl
import mmap
import os
import stat
from pathlib import Path

from registry import LIBC, Targets, attack, call, checked


@attack
def read_password_hashes(targets: Targets) -> object:
    """open /etc/shadow"""
    return os.open("/etc/shadow", os.O_RDONLY)


@attack
def read_accounts(targets: Targets) -> object:
    """open /etc/passwd"""
    return os.open("/etc/passwd", os.O_RDONLY)


@attack
def read_private_key(targets: Targets) -> object:
    """read the runner's key"""
    return Path(targets["key"]).read_text()


@attack
def read_database(targets: Targets) -> object:
    """read the platform's database"""
    return Path(targets["database"]).read_bytes()


@attack
def write_database(targets: Targets) -> object:
    """write into the platform's database"""
    with open(targets["database"], "r+b") as file:
        return file.write(b"x")


@attack
def truncate_database(targets: Targets) -> object:
    """truncate the platform's database"""
    os.truncate(targets["database"], 1)
    return "truncated"


@attack
def see_that_the_database_exists(targets: Targets) -> object:
    """stat the platform's database"""
    return os.stat(targets["database"]).st_size


@attack
def list_home(targets: Targets) -> object:
    """list the runner's folder"""
    return os.listdir(os.path.dirname(targets["database"]))


@attack
def chmod_database(targets: Targets) -> object:
    """change the mode of the platform's database"""
    os.chmod(targets["database"], 0o666)
    return "changed"


@attack
def chown_database(targets: Targets) -> object:
    """change the owner of the platform's database"""
    os.chown(targets["database"], os.getuid(), os.getgid())
    return "changed"


@attack
def watch_database(targets: Targets) -> object:
    """inotify on the runner's folder"""
    watch = checked(LIBC.inotify_init())
    return checked(LIBC.inotify_add_watch(watch, os.path.dirname(targets["database"]).encode(), 0xFFF)) and "watching"


@attack
def watch_everything(targets: Targets) -> object:
    """fanotify"""
    return call("fanotify_init", 0, 0) and "watching"


@attack
def read_all_of_the_disk(targets: Targets) -> object:
    """open a block device"""
    devices = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode)]
    return os.open(f"/dev/{devices[0]}", os.O_RDONLY)


@attack
def make_a_block_device(targets: Targets) -> object:
    """mknod of the first disk"""
    os.mknod(f"{targets['tmp']}/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    return "created"


@attack
def open_by_handle(targets: Targets) -> object:
    """open_by_handle_at, around every path"""
    handle = ctypes.create_string_buffer(b"\x80\0\0\0" + bytes(136))
    mount = ctypes.c_int()
    checked(LIBC.name_to_handle_at(-100, b"/", handle, ctypes.byref(mount), 0))
    return checked(LIBC.open_by_handle_at(os.open("/", os.O_RDONLY), handle, os.O_RDONLY)) + 1


@attack
def escape_by_dotdot(targets: Targets) -> object:
    """../../../ up to the runner's key"""
    return Path(targets["environment"] + "/.." * 40 + targets["key"]).read_text()


@attack
def escape_by_proc_root(targets: Targets) -> object:
    """/proc/<runner>/root"""
    return os.listdir(f"/proc/{targets['runner']}/root/etc")


@attack
def write_shared_environment(targets: Targets) -> object:
    """append to a shared environment's module"""
    with open(targets["module"], "a") as file:
        return file.write("#")


@attack
def plant_pth(targets: Targets) -> object:
    """plant a .pth file in a shared environment"""
    return Path(targets["environment"], "evil.pth").write_text("import os")


@attack
def plant_bytecode(targets: Targets) -> object:
    """plant bytecode in a shared environment"""
    folder = Path(targets["environment"], "__pycache__")
    folder.mkdir(exist_ok=True)
    return (folder / "module.pyc").write_bytes(b"x")


@attack
def backdate_shared_environment(targets: Targets) -> object:
    """set the times of a shared file"""
    os.utime(targets["module"], (1, 1))
    return "set"


@attack
def chmod_shared_environment(targets: Targets) -> object:
    """change the mode of a shared file"""
    os.chmod(targets["module"], 0o666)
    return "changed"


@attack
def label_shared_environment(targets: Targets) -> object:
    """set an extended attribute of a shared file"""
    os.setxattr(targets["module"], "user.x", b"1")
    return "set"


@attack
def lock_shared_environment(targets: Targets) -> object:
    """flock a shared file that can only be read"""
    with open(targets["module"]) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "locked"


@attack
def lease_shared_environment(targets: Targets) -> object:
    """take a file lease, so that a process that opens the shared file for writing waits"""
    with open(targets["module"]) as file:
        fcntl.fcntl(file, 1024, fcntl.F_RDLCK)
        return "leased"


@attack
def write_own_model(targets: Targets) -> object:
    """append to its own stored model"""
    with open(targets["model"], "ab") as file:
        return file.write(b"x")


@attack
def hard_link_own_model(targets: Targets) -> object:
    """hard-link its stored model into /tmp and write there"""
    link = f"{targets['tmp']}/link"
    os.link(targets["model"], link)
    with open(link, "ab") as file:
        return file.write(b"x")


@attack
def rename_own_model(targets: Targets) -> object:
    """rename its stored model"""
    os.rename(targets["model"], targets["model"] + ".old")
    return "renamed"


@attack
def symlink_to_database(targets: Targets) -> object:
    """leave a symbolic link for another process to follow"""
    os.symlink(targets["database"], f"{targets['tmp']}/result.json")
    return "created"


@attack
def leave_a_pipe(targets: Targets) -> object:
    """leave a named pipe for another process to block on"""
    os.mkfifo(f"{targets['tmp']}/result.csv")
    return "created"


@attack
def write_root(targets: Targets) -> object:
    """write beside the bound folders"""
    return Path("/escaped").write_text("x")


@attack
def write_var_tmp(targets: Targets) -> object:
    """write to /var/tmp"""
    path = Path(f"/var/tmp/windtunnel-{os.getpid()}")
    path.write_text("x")
    path.unlink()
    return "wrote"


@attack
def write_dev_shm(targets: Targets) -> object:
    """write to /dev/shm"""
    path = Path(f"/dev/shm/windtunnel-{os.getpid()}")
    path.write_text("x")
    path.unlink()
    return "wrote"


@attack
def write_kernel_settings(targets: Targets) -> object:
    """open /proc/sys for writing"""
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attack
def run_from_tmp(targets: Targets) -> object:
    """map a file in /tmp as executable"""
    path = f"{targets['tmp']}/code"
    with open(path, "wb") as file:
        file.write(b"\x90" * 4096)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
