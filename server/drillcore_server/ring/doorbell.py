"""The socket beside the ring: it wakes the other side, carries the cursors and the few messages of a session.

`sidecar.sock` is a Unix-domain socket of type SEQPACKET: one send is one message. A session:

    server                                  sidecar
      Hello (epoch, first sequence)  ──►      attaches the ring, reads job.json, recovers
                                     ◄──      Ready (attempt, whether the shard is already committed)
      Sealed (cursor, ended)         ──►      at most one for many records
                                     ◄──      Released (released, durable), likewise
                                     ◄──      Committed, after END
                                     ◄──      Failed (reason, message), at any time, then it hangs up

Cursors are cumulative: a newer one replaces one that is still waiting to be sent, so a peer that does not read
costs no memory and is never waited for.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from drillcore_server.ring.errors import RingCorruptError
from drillcore_spec.reasons import Reason

MAX_MESSAGE_BYTES: Final = 64 * 1024
_MAX_TEXT_CHARACTERS: Final = 4096


@dataclass(frozen=True)
class Hello:
    """The server is there; its ring and job file are ready."""

    server_epoch: int
    """What the ring's header must show."""
    first_sequence: int
    """The first record that this sidecar will get."""


@dataclass(frozen=True)
class Ready:
    """The sidecar has recovered the shard and drains."""

    attempt: str
    """Eight hexadecimal digits; as a number, the sidecar's epoch."""
    committed_rows: int
    """Rows in committed.npy."""
    committed: bool
    """The shard was committed before, by the same identity: there is nothing to do, Committed follows."""


@dataclass(frozen=True)
class Sealed:
    """Records below `sealed` may be read; with `ended` there will be no more."""

    sealed: int
    ended: bool


@dataclass(frozen=True)
class Released:
    """Records below `released` are written, those below `durable` journaled."""

    released: int
    durable: int


@dataclass(frozen=True)
class Committed:
    """commit.json is published: this attempt's, or an equal one of another attempt."""

    attempt: str
    """The attempt that commit.json names."""


@dataclass(frozen=True)
class Failed:
    """The sidecar cannot go on; the shard ends with this reason."""

    reason: Reason
    message: str


Message: TypeAlias = Hello | Ready | Sealed | Released | Committed | Failed

_SEALED = struct.Struct("<BQ?")
_RELEASED = struct.Struct("<BQQ")
_KIND_SEALED: Final = 1
_KIND_RELEASED: Final = 2
_JSON_KINDS: Final = {3: Hello, 4: Ready, 5: Committed, 6: Failed}
_KIND_OF: Final = {cls: kind for kind, cls in _JSON_KINDS.items()}


def encode_message(message: Message) -> bytes:
    """The bytes of one send: a kind, then a cursor pair or JSON."""
    match message:
        case Sealed(sealed, ended):
            return _SEALED.pack(_KIND_SEALED, sealed, ended)
        case Released(released, durable):
            return _RELEASED.pack(_KIND_RELEASED, released, durable)
        case Failed(reason, text):
            message = Failed(reason, text[:_MAX_TEXT_CHARACTERS])
    return bytes([_KIND_OF[type(message)]]) + json.dumps(asdict(message)).encode()


def decode_message(data: bytes) -> Message:
    """The message of one receive.

    Raises:
        RingCorruptError: when it is none of ours.
    """
    try:
        if data[0] == _KIND_SEALED:
            return Sealed(*_SEALED.unpack(data)[1:])
        if data[0] == _KIND_RELEASED:
            return Released(*_RELEASED.unpack(data)[1:])
        fields = json.loads(data[1:])
        if "reason" in fields:
            fields["reason"] = Reason(fields["reason"])
        message: Message = _JSON_KINDS[data[0]](**fields)
    except (struct.error, ValueError, TypeError, KeyError) as error:
        raise RingCorruptError(f"unreadable message of {len(data)} bytes at the doorbell: {error}") from None
    return message


class DoorbellClosedError(Exception):
    """The other side hung up, or died."""


class Doorbell:
    """One end of a connected doorbell socket. Not thread-safe."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._outbox: deque[Message] = deque()

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether the socket's buffer was full: `flush` again when it is writable."""
        return bool(self._outbox)

    def post(self, message: Message) -> None:
        """Sends a message now, or as soon as a later `flush` can; of waiting cursors only the newest is kept."""
        if self._outbox and type(self._outbox[-1]) is type(message) and isinstance(message, Sealed | Released):
            self._outbox.pop()
        self._outbox.append(message)
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes without blocking. That the other side is gone shows in `receive`."""
        while self._outbox:
            try:
                self._socket.send(encode_message(self._outbox[0]), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                # What the other side sent before it hung up is still to be read, its Failed above all.
                self._outbox.clear()
                return
            self._outbox.popleft()

    def receive(self) -> Message | None:
        """The next message, or `None` if none is there now.

        Raises:
            DoorbellClosedError: when the other side is gone and everything it sent is read.
        """
        try:
            data = self._socket.recv(MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # Told once, before what is still in the queue: the other side did not read our last messages.
            return self.receive()
        if not data:
            raise DoorbellClosedError("the other side of the doorbell hung up")
        return decode_message(data)

    def wait(self, timeout_s: float | None) -> None:
        """Blocks until there is something to receive (or room to send what waits), or the time is over."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        with selectors.PollSelector() as selector:
            selector.register(self._socket, events)
            selector.select(timeout_s)

    def flush_within(self, timeout_s: float) -> None:
        """Blocks until everything is sent, the other side is gone, or the time is over."""
        deadline = time.monotonic() + timeout_s
        with selectors.PollSelector() as selector:
            selector.register(self._socket, selectors.EVENT_WRITE)
            while self._outbox and (rest_s := deadline - time.monotonic()) > 0:
                selector.select(rest_s)
                self.flush()

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()
