"""ELF headers (System V ABI, chapters 4 and 5): whether a file is a library or a program, and for which machine."""

import struct
from dataclasses import dataclass

MAGIC = b"\x7fELF"
#: e_type of a program with fixed addresses and of a shared object; p_type of the program interpreter.
ET_EXEC, ET_DYN, PT_INTERP = 2, 3, 3
#: Names of machines (e_machine), as `uname -m` has those that the platform runs on.
MACHINES = {3: "x86", 40: "Arm", 62: "x86_64", 183: "aarch64", 243: "RISC-V"}


@dataclass(frozen=True, slots=True)
class ElfHeader:
    """Type, machine and, as far as the first bytes of the file reveal it, whether it names a program interpreter."""

    kind: int
    machine: int
    has_interpreter: bool

    @property
    def machine_name(self) -> str:
        """The machine, as `uname -m` has it."""
        return MACHINES.get(self.machine, f"machine {self.machine}")

    @property
    def is_library(self) -> bool:
        """Whether it is a shared library; a position-independent program has the same type, and an interpreter."""
        return self.kind == ET_DYN and not self.has_interpreter

    @property
    def is_program(self) -> bool:
        """Whether it is surely a program. A static position-independent program looks like a library."""
        return self.kind == ET_EXEC or (self.kind == ET_DYN and self.has_interpreter)

    @classmethod
    def of(cls, head: bytes) -> "ElfHeader | None":
        """Read the first bytes of a file; None if it is not an ELF file."""
        if not head.startswith(MAGIC) or len(head) < 20:
            return None
        order = ">" if head[5] == 2 else "<"
        kind, machine = struct.unpack_from(f"{order}HH", head, 16)
        return cls(kind, machine, _has_interpreter(head, order))


def _has_interpreter(head: bytes, order: str) -> bool:
    try:
        if head[4] == 2:  # 64 bits
            (start,), (size, count) = (
                struct.unpack_from(f"{order}Q", head, 32),
                struct.unpack_from(f"{order}HH", head, 54),
            )
        else:
            (start,), (size, count) = (
                struct.unpack_from(f"{order}I", head, 28),
                struct.unpack_from(f"{order}HH", head, 42),
            )
        offsets = range(start, min(start + size * count, len(head) - 3), size) if size else ()
        return any(struct.unpack_from(f"{order}I", head, offset)[0] == PT_INTERP for offset in offsets)
    except struct.error:  # shorter than a header
        return False
