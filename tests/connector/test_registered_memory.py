"""Registering the ring's memory with the GPU: every return code is looked at, and it is undone once."""

from __future__ import annotations

import mmap

import pytest
import torch

from drillcore_server.connector.registered_memory import RegisteredMemory, register_for
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

NUM_BYTES = 1 << 20


@pytest.fixture
def buffer():
    return memoryview(mmap.mmap(-1, NUM_BYTES))


@pytest.fixture
def driver(monkeypatch):
    """A CUDA runtime that only notes its calls, and answers with `codes`."""

    class Driver:
        def __init__(self):
            self.codes = {"register": 0, "unregister": 0}
            self.calls = []

        def cudaHostRegister(self, address, num_bytes, flags):
            self.calls.append(("register", address % mmap.PAGESIZE, num_bytes, flags))
            return self.codes["register"]

        def cudaHostUnregister(self, address):
            self.calls.append(("unregister",))
            return self.codes["unregister"]

    fake = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: fake)
    return fake


def test_a_cpu_needs_no_registration(buffer, driver):
    assert register_for(torch.device("cpu"), buffer) is None
    assert driver.calls == []


def test_the_whole_buffer_is_registered_and_unregistered_once(buffer, driver):
    memory = RegisteredMemory(buffer)
    memory.release()
    memory.release()
    assert driver.calls == [("register", 0, NUM_BYTES, 0), ("unregister",)]


@pytest.mark.parametrize(("code", "reason"), [(2, Reason.OUT_OF_MEMORY), (1, Reason.INTERNAL)])
def test_a_refusal_of_the_driver_ends_the_shard_with_the_numbers(buffer, driver, code, reason):
    driver.codes["register"] = code
    with pytest.raises(ShardError, match=rf"1,048,576 bytes.*error {code}") as raised:
        RegisteredMemory(buffer)
    assert raised.value.reason is reason
    assert len(driver.calls) == 1


def test_an_error_of_unregistering_is_not_lost(buffer, driver):
    memory = RegisteredMemory(buffer)
    driver.codes["unregister"] = 1
    with pytest.raises(ShardError, match="cudaHostUnregister gave error 1"):
        memory.release()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_registered_memory_is_pinned_for_torch(buffer):
    memory = RegisteredMemory(buffer)
    target = torch.frombuffer(buffer, dtype=torch.uint8)
    assert target.is_pinned()
    source = torch.arange(256, device="cuda").to(torch.uint8)
    target[:256].copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    assert target[:256].tolist() == list(range(256))
    memory.release()
    assert not target.is_pinned()
