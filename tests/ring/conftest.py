"""Real rings in a temporary folder, and the sidecar's end of the doorbell played by hand."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from drillcore.records import SampleEnd
from drillcore_server.ring.connection import listen_at
from drillcore_server.ring.doorbell import Doorbell, Hello, Message, Ready


class PlayedSidecar:
    """Accepts one server and says what the test tells it to."""

    def __init__(self, ring_dir: Path) -> None:
        self._listener = listen_at(ring_dir)
        self.doorbell: Doorbell | None = None

    def accept(self) -> Hello:
        connection, _ = self._listener.accept()
        self.doorbell = Doorbell(connection)
        hello = self.next_message()
        assert isinstance(hello, Hello)
        return hello

    def greet(self, attempt: str = "00000007") -> Hello:
        hello = self.accept()
        self.say(Ready(attempt, committed_rows=0, committed=False))
        return hello

    def say(self, message: Message) -> None:
        assert self.doorbell is not None
        self.doorbell.post(message)

    def next_message(self) -> Message:
        assert self.doorbell is not None
        while (message := self.doorbell.receive()) is None:
            self.doorbell.wait(10)
        return message

    def hang_up(self) -> None:
        if self.doorbell is not None:
            self.doorbell.close()

    def close(self) -> None:
        self.hang_up()
        self._listener.close()


@pytest.fixture
def played_sidecar(tmp_path: Path) -> Iterator[PlayedSidecar]:
    sidecar = PlayedSidecar(tmp_path)
    yield sidecar
    sidecar.close()


@pytest.fixture
def doorbell_pair() -> Iterator[tuple[Doorbell, Doorbell]]:
    ends = [Doorbell(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    yield ends[0], ends[1]
    for end in ends:
        end.close()


@pytest.fixture
def sample_end() -> Callable[..., SampleEnd]:
    """Makes the end of a sample of `num_tokens` tokens with a state each."""

    def make(row: int, num_tokens: int, columns: int = 1) -> SampleEnd:
        return SampleEnd(
            row=row,
            id=f"row-{row}",
            token_ids=np.arange(num_tokens, dtype=np.int64),
            num_prompt_tokens=num_tokens,
            original_tokens=num_tokens,
            last_token=None,
            num_states=num_tokens,
            positions=None,
            loss_mask=None,
            norm_sums=np.ones(columns),
            max_abs=np.ones(columns),
        )

    return make
