"""Where the decoder leaves hidden states on its way: the hidden-state drafter behind an interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drillcore_kernels import Capture


class CaptureSink(Protocol):
    """The capture plan of one step, as the decoder sees it.

    `r_i` is the residual stream that enters block i, 0 <= i <= L (`r_0`: the embedding, `r_L`: the output of
    the last block before the final norm); `n_L = final_norm(r_L)`.
    """

    @property
    def last_layer(self) -> int:
        """The highest id that is needed: blocks from this one on are not run unless `n_L` is needed."""
        ...

    def residual(self, i: int) -> Capture | None:
        """Where `r_i` goes; None: nobody asked for it. Asked once a forward pass for each i that it reaches."""
        ...

    def final_norm(self) -> Capture | None:
        """Where `n_L` goes; None: nobody asked for it."""
        ...


class NoCapture:
    """Keeps nothing: for logits only, and for the yardsticks of benchmarks."""

    def __init__(self, last_layer: int) -> None:
        self.last_layer = last_layer

    def residual(self, i: int) -> None:
        """No `r_i` is kept."""

    def final_norm(self) -> None:
        """`n_L` is not kept."""
