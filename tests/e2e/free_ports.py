# SPDX-License-Identifier: Apache-2.0
"""Port numbers for servers that must be told one before they start."""

from __future__ import annotations

import pathlib
import random
import socket

_FIRST = 10_000


def free_ports(count: int) -> list[int]:
    """`count` different loopback ports that were free a moment ago.

    They lie below the range from which the kernel gives ports to connections and to servers that ask for any: such a one
    could be taken by another process before the server starts, or while it is stopped.
    """
    end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = _FIRST if end > 2 * _FIRST else 1024
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(first, end), min(end - first, 200 + 20 * count)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports between {first} and {end}")


def free_port() -> int:
    return free_ports(1)[0]
