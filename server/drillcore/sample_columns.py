"""The small data of a part's samples, kept in memory until the part closes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.records import SampleEnd

_FIRST_CAPACITY = 256


class GrowingArray:
    """An array that grows at its end in amortised constant time."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._row_shape = () if width is None else (width,)
        self._data: npt.NDArray[Any] = np.empty((_FIRST_CAPACITY, *self._row_shape), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def extend(self, count: int) -> npt.NDArray[Any]:
        """A writable view of `count` new rows at the end, valid until the next call."""
        start = self._length
        self._length = start + count
        if self._length > len(self._data):
            grown = np.empty((max(self._length, 2 * len(self._data)), *self._row_shape), self._data.dtype)
            grown[:start] = self._data[:start]
            self._data = grown
        return self._data[start : self._length]

    def view(self) -> npt.NDArray[Any]:
        """All rows, without a copy."""
        return self._data[: self._length]


class SampleColumns:
    """Everything that `SampleEnd`s say, as columns. Costs microseconds a sample."""

    def __init__(self, num_columns: int, *, every_token: bool, has_positions: bool) -> None:
        self._every_token = every_token
        self._has_positions = has_positions
        self._num_columns = num_columns
        self._samples = GrowingArray(np.int64, width=8)
        self._stats = GrowingArray(np.float64, width=2 * num_columns)
        self._token_ids = GrowingArray(np.int64)
        self._positions = GrowingArray(np.int32)
        self._loss_mask = GrowingArray(np.uint8)
        self._ids = GrowingArray(np.uint8)
        self._has_loss_mask: bool | None = None

    def add(self, end: SampleEnd) -> None:
        """Take one sample.

        Raises:
            ValueError: when the arrays do not fit each other or the part's earlier samples.
        """
        self._check(end)
        num_tokens = len(end.token_ids)
        id_bytes = b"" if end.id is None else end.id.encode("utf-8", "surrogatepass")
        self._samples.extend(1)[0] = (
            end.row,
            num_tokens,
            end.num_prompt_tokens,
            end.original_tokens,
            -1 if end.last_token is None else end.last_token,
            end.num_states,
            len(id_bytes),
            end.id is not None,
        )
        stats = self._stats.extend(1)[0]
        stats[: self._num_columns] = end.norm_sums
        stats[self._num_columns :] = end.max_abs
        self._token_ids.extend(num_tokens)[:] = end.token_ids
        if end.positions is not None:
            self._positions.extend(end.num_states)[:] = end.positions
        if end.loss_mask is not None:
            self._loss_mask.extend(num_tokens)[:] = end.loss_mask
        if id_bytes:
            self._ids.extend(len(id_bytes))[:] = np.frombuffer(id_bytes, np.uint8)
        self._has_loss_mask = end.loss_mask is not None

    @property
    def num_samples(self) -> int:
        """Samples taken."""
        return len(self._samples)

    @property
    def num_tokens(self) -> int:
        """Tokens of all samples."""
        return len(self._token_ids)

    @property
    def num_id_bytes(self) -> int:
        """Bytes of all ids."""
        return len(self._ids)

    @property
    def has_loss_mask(self) -> bool:
        """Whether the samples have loss masks."""
        return bool(self._has_loss_mask)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """[samples]: the row of each sample."""
        return self._samples.view()[:, 0]

    @property
    def norm_sums(self) -> npt.NDArray[np.float64]:
        """[samples, C]."""
        return self._stats.view()[:, : self._num_columns]

    @property
    def max_abs(self) -> npt.NDArray[np.float64]:
        """[samples, C]."""
        return self._stats.view()[:, self._num_columns :]

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """The columns as contiguous tensors, in the order in which a part holds them: wide elements first."""
        samples = self._samples.view()
        tensors: dict[str, npt.NDArray[Any]] = {
            "token_ids": self._token_ids.view(),
            "cu_seqlens": cumulated(samples[:, 1]),
        }
        if not self._every_token:
            tensors["cu_states"] = cumulated(samples[:, 5])
        tensors |= {
            "rows": samples[:, 0],
            "num_prompt_tokens": samples[:, 2],
            "original_tokens": samples[:, 3],
            "last_token": samples[:, 4],
            "cu_ids": cumulated(samples[:, 6]),
            "norm_sums": self.norm_sums,
            "max_abs": self.max_abs,
        }
        if self._has_positions:
            tensors["positions"] = self._positions.view()
        if self.has_loss_mask:
            tensors["loss_mask"] = self._loss_mask.view()
        tensors |= {"has_id": samples[:, 7].astype(np.uint8), "ids": self._ids.view()}
        return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}

    def _check(self, end: SampleEnd) -> None:
        num_tokens = len(end.token_ids)
        if self._every_token and end.num_states != num_tokens:
            raise ValueError(f"row {end.row}: {num_tokens} tokens need {num_tokens} states; got {end.num_states}")
        if (end.positions is not None) != self._has_positions:
            raise ValueError(f"row {end.row}: positions must be given exactly when the job selects tokens")
        if end.positions is not None and len(end.positions) != end.num_states:
            raise ValueError(f"row {end.row}: {end.num_states} states, but {len(end.positions)} positions")
        if end.loss_mask is not None and len(end.loss_mask) != num_tokens:
            raise ValueError(f"row {end.row}: {num_tokens} tokens, but a loss mask of {len(end.loss_mask)}")
        if self._has_loss_mask not in (None, end.loss_mask is not None):
            raise ValueError(f"row {end.row}: all samples of a part have a loss mask, or none has")


def cumulated(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[n + 1]: where each of n pieces of the given lengths begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
