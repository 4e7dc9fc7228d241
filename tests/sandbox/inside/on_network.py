"""Attacks over sockets of every family: on the platform's sockets, the machine and other networks."""

import ctypes
import socket
import struct
from typing import Any

from registry import Targets, attack


def connected(family: int, kind: int, address: Any, protocol: int = 0) -> bytes:
    """Connect and read a greeting."""
    with socket.socket(family, kind, protocol) as connection:
        connection.settimeout(1)
        connection.connect(address)
        if kind == socket.SOCK_DGRAM:
            connection.send(b"hello")
        return connection.recv(20)


@attack
def tcp_to_the_api(targets: Targets) -> object:
    """TCP to the loopback interface"""
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", targets["tcp"]))


@attack
def tcp_over_ipv6(targets: Targets) -> object:
    """TCP over IPv6"""
    return connected(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", targets["tcp"]))


@attack
def multipath_tcp(targets: Targets) -> object:
    """MPTCP, which Landlock does not know"""
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", targets["tcp"]), 262)


@attack
def tcp_listen(targets: Targets) -> object:
    """listen for connections"""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        return listening.getsockname()


@attack
def udp_to_the_machine(targets: Targets) -> object:
    """UDP to the loopback interface"""
    return connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", targets["udp"]))


@attack
def udp_to_any_address(targets: Targets) -> object:
    """a UDP socket for any address, as DNS uses"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        return client.fileno()


@attack
def ping(targets: Targets) -> object:
    """an ICMP socket"""
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).close() or "opened"


@attack
def raw_ip(targets: Targets) -> object:
    """a raw IP socket"""
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close() or "opened"


@attack
def raw_packets(targets: Targets) -> object:
    """a packet socket"""
    return socket.socket(17, socket.SOCK_RAW, 0x300).close() or "opened"


@attack
def netlink(targets: Targets) -> object:
    """a netlink socket"""
    return socket.socket(16, socket.SOCK_RAW, 0).close() or "opened"


@attack
def vsock(targets: Targets) -> object:
    """VSOCK to the hypervisor, which no network namespace contains"""
    return socket.socket(40, socket.SOCK_STREAM, 0).close() or "opened"


@attack
def kernel_crypto(targets: Targets) -> object:
    """an AF_ALG socket"""
    return socket.socket(38, socket.SOCK_SEQPACKET, 0).close() or "opened"


@attack
def shared_memory_sockets(targets: Targets) -> object:
    """an SMC socket"""
    return socket.socket(43, socket.SOCK_STREAM, 0).close() or "opened"


@attack
def bluetooth(targets: Targets) -> object:
    """a Bluetooth socket"""
    return socket.socket(31, socket.SOCK_RAW, 1).close() or "opened"


@attack
def express_data_path(targets: Targets) -> object:
    """an AF_XDP socket"""
    return socket.socket(44, socket.SOCK_RAW, 0).close() or "opened"


@attack
def agent_by_path(targets: Targets) -> object:
    """the agent's socket by its path"""
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, targets["path_socket"])


@attack
def agent_by_abstract_name(targets: Targets) -> object:
    """the agent's abstract socket"""
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + targets["abstract_socket"])


@attack
def datagram_to_a_path(targets: Targets) -> object:
    """a datagram to a socket like the system log's"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        return client.sendto(b"hello", targets["datagram_socket"])


@attack
def datagram_from_a_pair(targets: Targets) -> object:
    """the same from half of a socketpair, which needs no socket()"""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        return near.sendto(b"hello", targets["datagram_socket"])


@attack
def filter_on_a_socket(targets: Targets) -> object:
    """attach a packet filter to an allowed socketpair"""
    near, far = socket.socketpair()
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        return "attached"
