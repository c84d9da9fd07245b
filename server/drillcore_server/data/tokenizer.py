"""The model's tokenizer: many texts at once, on all threads of the Rust tokenizers library."""

from __future__ import annotations

import copy
import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drillcore_server.data.chat_template import Span
from drillcore_server.data.text_stream import TextStream
from drillcore_server.data.tokenizer_class import load_tokenizer
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


class Tokenizer:
    """A model folder's tokenizer as transformers loads it. It can be pickled: another process need not load it."""

    def __init__(self, folder: Path) -> None:
        """Load the tokenizer; nothing is fetched, and no code of the folder is run.

        Raises:
            ShardError: MODEL_BROKEN when it cannot be loaded; MODEL_UNSUPPORTED when it is no fast tokenizer.
        """
        try:
            loaded = load_tokenizer(folder)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise ShardError(Reason.MODEL_BROKEN, f"the tokenizer in {folder} cannot be loaded: {error}") from error
        if not loaded.is_fast:
            raise ShardError(
                Reason.MODEL_UNSUPPORTED,
                f"the tokenizer in {folder} has no tokenizer.json and cannot be turned into one; got"
                f" {type(loaded).__name__}: save it as a fast tokenizer",
            )
        self._backend = loaded.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self.vocab_size = _vocab_size(folder) or len(loaded)
        """Ids below this one have an embedding."""
        self.special_tokens: dict[str, str] = dict(loaded.special_tokens_map)
        """The special tokens by name (`bos_token`), as chat templates know them."""
        self.special_token_ids: tuple[int, ...] = tuple(sorted(loaded.all_special_ids))
        """The ids of all special tokens, ascending."""
        self.chat_template = _default_template(loaded.chat_template)
        """The model's own chat template; of several named ones, the default."""
        self._bos: tuple[str | None, int | None] = (loaded.bos_token, loaded.bos_token_id)
        self._eos_id: int | None = loaded.eos_token_id

    def encode_texts(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Token ids of plain texts, with the special tokens that the tokenizer adds; BOS never twice."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=True)
        return [self._with_one_bos(text, _ids(e)) for text, e in zip(texts, encodings, strict=True)]

    def encode_plain(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Token ids of plain texts and no others."""
        return [_ids(e) for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def text_stream(self, context: Sequence[int] = (), *, skip_special_tokens: bool = True) -> TextStream:
        """Makes text of ids that come one at a time.

        Args:
            context: ids that come before; some tokenizers write a token otherwise when it is the first.
            skip_special_tokens: give no text for special tokens.
        """
        return TextStream(self._backend, context, skip_special_tokens=skip_special_tokens)

    def separator_id(self) -> int:
        """The token that stands before each of several joined texts: BOS, or EOS where there is no BOS.

        Raises:
            ShardError: BAD_DATASET when the tokenizer has neither.
        """
        for token_id in (self._bos[1], self._eos_id):
            if token_id is not None:
                return int(token_id)
        raise ShardError(
            Reason.BAD_DATASET, "`spec.dataset.contextSize` joins texts by BOS or EOS; the tokenizer has neither"
        )

    def encode_rendered(self, texts: Sequence[str]) -> list[Encoded]:
        """Token ids of texts that a chat template wrote, special tokens included: none is added."""
        return [Encoded(encoding) for encoding in self._rendered_backend.encode_batch(list(texts))]

    @cached_property
    def _rendered_backend(self) -> Any:
        """The same tokenizer without its post-processor, which adds special tokens and trims spaces off offsets."""
        backend = copy.deepcopy(self._backend)
        backend.post_processor = None
        return backend

    def _with_one_bos(self, text: str, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        bos, bos_id = self._bos
        is_doubled = bos is not None and text.startswith(bos) and len(ids) > 1 and ids[0] == ids[1] == bos_id
        return ids[1:] if is_doubled else ids


class Encoded:
    """The tokens of one rendered text, and their places in it."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.token_ids = _ids(encoding)
        """[S]."""

    def mask(self, spans: Sequence[Span]) -> NDArray[np.uint8]:
        """[S]: 1 for each token that has a character in one of the spans.

        Offsets ascend, so that a border is found by bisection: the list of all offsets would cost more to build
        than the tokens themselves.
        """
        tokens = range(len(self.token_ids))
        mask = np.zeros(len(tokens), dtype=np.uint8)
        for start, end in spans:
            first = bisect_right(tokens, start, key=lambda token: self._encoding.token_to_chars(token)[1])
            stop = bisect_left(tokens, end, key=lambda token: self._encoding.token_to_chars(token)[0])
            mask[first:stop] = 1
        return mask


def _ids(encoding: Any) -> NDArray[np.int64]:
    return np.array(encoding.ids, dtype=np.int64)


def _default_template(templates: Any) -> str | None:
    template: str | None = templates.get("default") if isinstance(templates, dict) else templates
    return template


def _vocab_size(folder: Path) -> int | None:
    """Rows of the model's embedding, of the text part where a model has several; None when not known."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    size = config.get("text_config", config).get("vocab_size")
    return size if isinstance(size, int) else None
