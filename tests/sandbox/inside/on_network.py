"""Attacks over sockets of every family, on the platform's own and on the world."""

import ctypes
import socket
import struct
from typing import Any

from registry import Stage, attack


def connected(family: int, kind: int, address: Any, protocol: int = 0) -> bytes:
    """Connect and read a greeting."""
    with socket.socket(family, kind, protocol) as connection:
        connection.settimeout(1)
        connection.connect(address)
        if kind == socket.SOCK_DGRAM:
            connection.send(b"hello")
        return connection.recv(20)


@attack
def tcp_to_the_api(stage: Stage) -> object:
    """TCP to the loopback interface"""
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", stage["tcp"]))


@attack
def tcp_over_ipv6(stage: Stage) -> object:
    """TCP over IPv6"""
    return connected(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", stage["tcp"]))


@attack
def multipath_tcp(stage: Stage) -> object:
    """MPTCP, which Landlock does not know"""
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", stage["tcp"]), 262)


@attack
def tcp_listen(stage: Stage) -> object:
    """listen for others"""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        return listening.getsockname()


@attack
def udp_to_the_machine(stage: Stage) -> object:
    """UDP to the loopback interface"""
    return connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", stage["udp"]))


@attack
def udp_to_the_world(stage: Stage) -> object:
    """a UDP socket for anywhere, as DNS uses"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        return out.fileno()


@attack
def ping(stage: Stage) -> object:
    """an ICMP socket"""
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).close() or "opened"


@attack
def raw_ip(stage: Stage) -> object:
    """a raw IP socket"""
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close() or "opened"


@attack
def raw_packets(stage: Stage) -> object:
    """a packet socket"""
    return socket.socket(17, socket.SOCK_RAW, 0x300).close() or "opened"


@attack
def netlink(stage: Stage) -> object:
    """a netlink socket"""
    return socket.socket(16, socket.SOCK_RAW, 0).close() or "opened"


@attack
def vsock(stage: Stage) -> object:
    """VSOCK to the hypervisor, which no network namespace holds"""
    return socket.socket(40, socket.SOCK_STREAM, 0).close() or "opened"


@attack
def kernel_crypto(stage: Stage) -> object:
    """an AF_ALG socket"""
    return socket.socket(38, socket.SOCK_SEQPACKET, 0).close() or "opened"


@attack
def shared_memory_sockets(stage: Stage) -> object:
    """an SMC socket"""
    return socket.socket(43, socket.SOCK_STREAM, 0).close() or "opened"


@attack
def bluetooth(stage: Stage) -> object:
    """a Bluetooth socket"""
    return socket.socket(31, socket.SOCK_RAW, 1).close() or "opened"


@attack
def express_data_path(stage: Stage) -> object:
    """an AF_XDP socket"""
    return socket.socket(44, socket.SOCK_RAW, 0).close() or "opened"


@attack
def agent_by_path(stage: Stage) -> object:
    """the agent's socket by its path"""
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, stage["path_socket"])


@attack
def agent_by_abstract_name(stage: Stage) -> object:
    """the agent's abstract socket"""
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + stage["abstract_socket"])


@attack
def datagram_to_a_path(stage: Stage) -> object:
    """a datagram to the system log's kind of socket"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        return out.sendto(b"hello", stage["datagram_socket"])


@attack
def datagram_from_a_pair(stage: Stage) -> object:
    """the same from half of a socketpair, which needs no socket()"""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        return ours.sendto(b"hello", stage["datagram_socket"])


@attack
def filter_on_a_socket(stage: Stage) -> object:
    """attach a packet filter to an allowed socketpair"""
    ours, theirs = socket.socketpair()
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        return "attached"
