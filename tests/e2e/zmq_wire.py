# SPDX-License-Identifier: Apache-2.0
"""Just enough ZeroMQ (over the system's libzmq) and MessagePack for tests: the Python packages are not needed."""

from __future__ import annotations

import ctypes
import struct
import time

SUB, DEALER = 2, 5
_SUBSCRIBE, _RCVTIMEO, _LINGER, _SNDMORE, _RCVMORE = 6, 27, 17, 2, 13


class Socket:
    """One connected socket with its own context."""

    def __init__(self, kind: int, endpoint: str, timeout_s: float = 120.0):
        self.lib = ctypes.CDLL("libzmq.so.5")
        for name in ("zmq_ctx_new", "zmq_socket"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.zmq_ctx_new())
        self.socket = ctypes.c_void_p(self.lib.zmq_socket(self.context, kind))
        self._set(_LINGER, 0)
        self.timeout(timeout_s)
        if kind == SUB:
            self.lib.zmq_setsockopt(self.socket, _SUBSCRIBE, b"", 0)
        if self.lib.zmq_connect(self.socket, endpoint.encode()) != 0:
            raise OSError(f"cannot connect to {endpoint}")

    def _set(self, option: int, value: int) -> None:
        number = ctypes.c_int(value)
        self.lib.zmq_setsockopt(self.socket, option, ctypes.byref(number), ctypes.sizeof(number))

    def timeout(self, seconds: float) -> None:
        self._set(_RCVTIMEO, int(seconds * 1000))

    def send(self, *frames: bytes) -> None:
        for i, frame in enumerate(frames):
            flags = _SNDMORE if i + 1 < len(frames) else 0
            if self.lib.zmq_send(self.socket, frame, len(frame), flags) < 0:
                raise OSError("zmq_send")

    def receive(self) -> list[bytes] | None:
        """All frames of one message; None when the time is over."""
        frames = []
        while True:
            buffer = ctypes.create_string_buffer(1 << 20)
            size = self.lib.zmq_recv(self.socket, buffer, len(buffer), 0)
            if size < 0:
                return None
            frames.append(buffer.raw[:size])
            more, length = ctypes.c_int(0), ctypes.c_size_t(4)
            self.lib.zmq_getsockopt(self.socket, _RCVMORE, ctypes.byref(more), ctypes.byref(length))
            if not more.value:
                return frames

    def close(self) -> None:
        self.lib.zmq_close(self.socket)
        self.lib.zmq_ctx_term(self.context)


def unpack(data: bytes) -> object:
    """One MessagePack value."""
    value, end = _unpack(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes behind the value")
    return value


def _unpack(data: bytes, at: int) -> tuple[object, int]:
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag < 0x90:
        return _pairs(data, at, tag & 0x0F)
    if tag < 0xA0:
        return _items(data, at, tag & 0x0F)
    if tag < 0xC0:
        return _bytes(data, at, tag & 0x1F, True)
    constants = {0xC0: None, 0xC2: False, 0xC3: True}
    if tag in constants:
        return constants[tag], at
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
               0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if tag in numbers:
        size = struct.calcsize(numbers[tag])
        return struct.unpack(numbers[tag], data[at:at + size])[0], at + size
    sized = {0xC4: (1, "b"), 0xC5: (2, "b"), 0xC6: (4, "b"), 0xD9: (1, "s"), 0xDA: (2, "s"), 0xDB: (4, "s"),
             0xDC: (2, "a"), 0xDD: (4, "a"), 0xDE: (2, "m"), 0xDF: (4, "m")}
    width, kind = sized[tag]
    count = int.from_bytes(data[at:at + width], "big")
    at += width
    if kind == "a":
        return _items(data, at, count)
    if kind == "m":
        return _pairs(data, at, count)
    return _bytes(data, at, count, kind == "s")


def _bytes(data: bytes, at: int, count: int, is_text: bool) -> tuple[object, int]:
    raw = data[at:at + count]
    return (raw.decode() if is_text else raw), at + count


def _items(data: bytes, at: int, count: int) -> tuple[list, int]:
    out = []
    for _ in range(count):
        value, at = _unpack(data, at)
        out.append(value)
    return out, at


def _pairs(data: bytes, at: int, count: int) -> tuple[dict, int]:
    out = {}
    for _ in range(count):
        key, at = _unpack(data, at)
        out[key], at = _unpack(data, at)
    return out, at


def _mentions(value: object, token: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(_mentions(item, token) for item in value)
    return value == token


class Events:
    """A subscriber of one rank's KV events that has been heard before the test begins."""

    def __init__(self, source: dict):
        self.source = source
        self.socket = Socket(SUB, source["endpoint"])

    def next(self, timeout_s: float = 120.0) -> tuple[str, int, list] | None:
        """(topic, sequence number, batch), or None."""
        self.socket.timeout(timeout_s)
        frames = self.socket.receive()
        if frames is None:
            return None
        topic, sequence, payload = frames
        return topic.decode(), int.from_bytes(sequence, "big"), unpack(payload)

    def replay(self, start: int) -> list[list[bytes]]:
        """The messages of a replay with its end marker, without their empty first frame."""
        socket = Socket(DEALER, self.source["replay_endpoint"])
        socket.send(b"", start.to_bytes(8, "big"))
        out = []
        while not out or out[-1][-2] != b"\xff" * 8:
            frames = socket.receive()
            if frames is None:
                raise AssertionError("no answer to a replay request")
            out.append(frames[1:])
        socket.close()
        return out

    def wait_until_heard(self, provoke) -> None:
        """Subscriptions take a moment: `provoke()` has a prompt computed and returns it, until the blocks of the latest one arrive.

        Events come in order, so nothing that was provoked can arrive later. Tokens of a prompt, but for its first, are its own.
        """
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            token = provoke()[1]
            while (message := self.next(0.2)) is not None:
                if _mentions(message[2], token):
                    return
        raise AssertionError("nothing heard from " + self.source["endpoint"])

    def close(self) -> None:
        self.socket.close()
