"""Posts as the runner sees them: processes in other containers, started on demand, each on a leash of its own.

A post introduces itself on the runner's socket; who it is, the kernel says (its user). An order carries the
descriptors that a process gets, and one end of its leash: the post writes there how the process ended, keeps it on the
core whose number it reads there, and ends it when the other end is let go of. So nothing has a number, and whoever dies
takes along what hung on it.
"""

import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from .framed_socket import receive_with_rights
from .process_spec import Birth
from .processes import Kit, Process

#: The runner's socket in the folder that all containers see.
SOCKET = "runner.sock"
#: Seconds a post may take to hear an order, and to tell of the end of what it was told to end.
PATIENCE, DEAF = 10.0, 1.0
_CREDENTIALS = struct.Struct("3i")


class Ward(Process):
    """A process that a post started. ``bereaved`` is called first if it ended because its post did."""

    def __init__(self, name: str, output: int, leash: socket.socket, bereaved: Callable[[], None]) -> None:
        super().__init__(name, output, leash.fileno())
        leash.settimeout(DEAF)
        self._leash = leash
        self._bereaved = bereaved

    def pin(self, core: int) -> None:
        """Have the post keep it, and what it has started, on one core."""
        with contextlib.suppress(OSError):  # it has ended
            self._leash.send(f"{core}\n".encode())

    def _kill(self) -> None:
        with contextlib.suppress(OSError):  # it has ended, and so has nobody at the other end any more
            self._leash.shutdown(socket.SHUT_WR)

    def _await(self) -> str:
        try:
            words = self._leash.recv(1 << 10).decode(errors="replace")
        except OSError:
            words = ""
        if not words:
            self._bereaved()
        return words or "its container ended"

    def _let_go(self) -> None:
        self._leash.close()


class Posts:
    """Starts processes through posts, one for evaluators and one for model servers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._modules: Mapping[int, str] = {}
        self._confined = True
        self._seen: set[str] = set()
        self._posts: dict[str, socket.socket] = {}
        self._selector: selectors.BaseSelector
        self._lost: Callable[[str], None]

    @classmethod
    def open(cls, folder: Path) -> "Posts":
        """Listen where posts look; connections wait until we know whom to expect."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        draft = folder / f".{SOCKET}"
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o666)  # who connects is told by the kernel
        listener.listen(8)
        # It has its name once it answers: a post that is refused knows that the runner is gone.
        draft.rename(folder / SOCKET)
        return cls(listener)

    def expect(self, modules: Mapping[int, str], kit: Kit) -> None:
        """Say which user starts processes of which module, and whether they are to be confined."""
        self._modules = modules
        self._confined = kit.sandbox is not None

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Hear posts that come and that go."""
        self._selector, self._lost = selector, lost
        selector.register(self._listener, selectors.EVENT_READ, self._arrived)

    def ready(self, module: str) -> bool:
        """Tell whether this module's post has introduced itself."""
        return module in self._posts

    def spawn(self, birth: Birth, descriptors: Mapping[str, int]) -> Process:
        """Send an order."""
        output, theirs = os.pipe()
        leash, far = socket.socketpair()
        order = json.dumps({"birth": asdict(birth), "descriptors": list(descriptors)}).encode()
        rights = [theirs, far.fileno(), *descriptors.values()]
        try:
            socket.send_fds(self._posts[birth.module], [order], rights)
        except OSError as error:
            self._lost(f"the {birth.module}'s container takes no orders: {error}")
        finally:
            os.close(theirs)
            far.close()
        os.set_blocking(output, False)
        return Ward(birth.name, output, leash, lambda: self._lost(f"the {birth.module}'s container ended"))

    def close(self) -> None:
        """Hang up on everybody."""
        for one in (self._listener, *self._posts.values()):
            one.close()

    def _arrived(self) -> None:
        """Let in the first of each user that is expected, and nobody else, ever."""
        connection, _ = self._listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        module = self._modules.get(_CREDENTIALS.unpack(peer)[1])
        if module is None or module in self._seen:
            connection.close()
            return
        self._seen.add(module)
        connection.settimeout(PATIENCE)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._heard(module, connection))

    def _heard(self, module: str, connection: socket.socket) -> None:
        """Take a post's introduction; it says nothing else until it ends."""
        try:
            data, descriptors = receive_with_rights(connection, 1)
            said = json.loads(data) if data and not descriptors and module not in self._posts else None
        except (OSError, ValueError):
            said = None
        if said is None:
            self._selector.unregister(connection)
            self._lost(f"the {module}'s container ended")
        elif self._confined and said["refusal"]:
            self._lost(f"in the {module}'s container: {said['refusal']}")
        else:
            print(f"the {module}'s post is there; it confines at level {said['level']}", flush=True)
            self._posts[module] = connection
