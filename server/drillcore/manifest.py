"""manifest.json: which job an output belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drillcore.dtypes import StoreDType
from drillcore.errors import UnsupportedVersionError
from drillcore.json_fields import Fields, JsonValue, canonical_json, parse_json, pretty_json, read_file
from drillcore.layout import FORMAT_VERSION
from drillcore.token_ranges import TokenStride, TokenWindow

FINAL_NORM = "finalNorm"
"""Name of the column that holds the state after the final norm."""

_FIELDS = frozenset(
    {
        *("formatVersion", "engineVersion", "model", "dataset", "layers", "finalNorm", "hiddenSize"),
        *("positions", "window", "stride", "dtype", "storeDtype", "generation", "maxModelLen"),
        *("shards", "layout", "specialTokenIds"),
    }
)
_POSITIONS = ("All", "Last", "LossMask", "Mean", "Window", "Stride")


@dataclass(frozen=True)
class ModelIdentity:
    """Which weights and which tokenizer."""

    uri: str
    revision: str | None
    """The resolved commit of a hub model."""
    config_sha256: str
    tokenizer_sha256: str
    """Of the tokenizer's files, the chat template included."""
    weights_fingerprint: str
    """Of the checkpoint's names, sizes, headers, and the first and last 4 KiB of each tensor."""

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        return {
            "uri": self.uri,
            "revision": self.revision,
            "configSha256": self.config_sha256,
            "tokenizerSha256": self.tokenizer_sha256,
            "weightsFingerprint": self.weights_fingerprint,
        }

    @classmethod
    def from_fields(cls, model: Fields) -> ModelIdentity:
        """The identity that a JSON object holds."""
        return cls(
            uri=model.text("uri"),
            revision=model.optional_text("revision"),
            config_sha256=model.text("configSha256"),
            tokenizer_sha256=model.text("tokenizerSha256"),
            weights_fingerprint=model.text("weightsFingerprint"),
        )


@dataclass(frozen=True)
class Manifest:
    """What a job extracts, from what, and how it is stored."""

    engine_version: str
    """Recorded, not part of the identity."""
    model: ModelIdentity
    dataset: Mapping[str, JsonValue]
    """JSON object with `uri`, `files` [{path, bytes, sha256 or mtimeNs}] and every setting that changes rows."""
    layers: tuple[int, ...]
    """Ids of the captured layers in the order of the columns: id i is the residual stream that enters block i."""
    final_norm: bool
    """Whether the last column is the state after the final norm."""
    hidden_size: int
    positions: str
    """Which tokens have a state: All, Last, LossMask, Mean, Window or Stride."""
    dtype: StoreDType
    """Element type of the forward pass."""
    store_dtype: StoreDType
    """Element type of the stored states."""
    generation: Mapping[str, JsonValue] | None
    """Sampling settings; None when nothing is generated."""
    max_model_len: int
    shard_count: int
    special_token_ids: tuple[int, ...]
    """The tokenizer's special tokens, ascending."""
    window: TokenWindow | None = None
    """With positions Window only."""
    stride: TokenStride | None = None
    """With positions Stride only."""
    layout: str = "Packed"
    """Packed: many rows a file. PerSample: a file a row; only with positions All."""

    @property
    def columns(self) -> tuple[int | str, ...]:
        """Names of the stored columns: layer ids, then `finalNorm`."""
        return (*self.layers, FINAL_NORM) if self.final_norm else self.layers

    @property
    def max_samples(self) -> int | None:
        """`dataset.maxSamples`: rows of the dataset that the job takes; None for all."""
        value = self.dataset.get("maxSamples")
        return value if isinstance(value, int) else None

    @property
    def rows_are_contexts(self) -> bool:
        """Whether a row is a packed context, so that rows are no rows of the dataset."""
        return bool(self.dataset.get("contextSize"))

    @property
    def identity_sha256(self) -> str:
        """sha256 of the identity as canonical JSON."""
        return hashlib.sha256(canonical_json(self.identity())).hexdigest()

    def identity(self) -> dict[str, JsonValue]:
        """All that must be equal for two runs to share one output.

        With one shard `dataset.maxSamples` is no part of it: a longer run goes on where a shorter one ended.
        """
        identity = self.to_json()
        del identity["engineVersion"]
        if self.shard_count == 1:
            identity["dataset"] = {k: v for k, v in self.dataset.items() if k != "maxSamples"}
        return identity

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object of manifest.json."""
        return {
            "formatVersion": FORMAT_VERSION,
            "engineVersion": self.engine_version,
            "model": self.model.to_json(),
            "dataset": dict(self.dataset),
            "layers": list(self.layers),
            "finalNorm": self.final_norm,
            "hiddenSize": self.hidden_size,
            "positions": self.positions,
            "window": None if self.window is None else self.window.to_json(),
            "stride": None if self.stride is None else self.stride.to_json(),
            "dtype": self.dtype.value,
            "storeDtype": self.store_dtype.value,
            "generation": None if self.generation is None else dict(self.generation),
            "maxModelLen": self.max_model_len,
            "shards": {"count": self.shard_count},
            "layout": self.layout,
            "specialTokenIds": list(self.special_token_ids),
        }

    def to_bytes(self) -> bytes:
        """The bytes of manifest.json."""
        return pretty_json(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """The manifest that a file holds.

        Raises:
            FormatError: when the file holds anything else.
            UnsupportedVersionError: when it is of another format version.
        """
        return cls.from_json(parse_json(read_file(path), path), path)

    @classmethod
    def from_json(cls, value: JsonValue, path: Path) -> Manifest:
        """The manifest that a JSON value, read from `path`, holds; raises as `load` does."""
        manifest = Fields(value, path)
        check_version(manifest)
        unknown = [key for key in manifest.names() if key not in _FIELDS]
        if unknown:
            raise manifest.error(unknown[0][:80], "is not a field of a manifest of this format version")
        loaded = cls(
            engine_version=manifest.text("engineVersion"),
            model=ModelIdentity.from_fields(manifest.object("model")),
            dataset=_dataset(manifest),
            layers=manifest.integers("layers"),
            final_norm=manifest.boolean("finalNorm"),
            hidden_size=manifest.integer("hiddenSize", minimum=1),
            positions=_choice(manifest, "positions", _POSITIONS),
            window=TokenWindow.from_fields(window) if (window := manifest.optional_object("window")) else None,
            stride=TokenStride.from_fields(stride) if (stride := manifest.optional_object("stride")) else None,
            dtype=StoreDType(_choice(manifest, "dtype", tuple(StoreDType))),
            store_dtype=StoreDType(_choice(manifest, "storeDtype", tuple(StoreDType))),
            generation=None if manifest.value.get("generation") is None else manifest.object("generation").value,
            max_model_len=manifest.integer("maxModelLen", minimum=1),
            shard_count=manifest.object("shards").integer("count", minimum=1, maximum=100_000),
            layout=_choice(manifest, "layout", ("Packed", "PerSample")),
            special_token_ids=manifest.integers("specialTokenIds"),
        )
        if not loaded.columns or len(set(loaded.layers)) != len(loaded.layers):
            raise manifest.error("layers", "must hold at least one id, or finalNorm be true, and no id twice")
        for field, selection, kind in (("window", loaded.window, "Window"), ("stride", loaded.stride, "Stride")):
            if (selection is not None) != (loaded.positions == kind):
                raise manifest.error(field, f"must be there with positions {kind}, and only then")
        if loaded.layout == "PerSample" and loaded.positions != "All":
            raise manifest.error("layout", f"must be Packed with positions {loaded.positions}")
        return loaded


def check_version(file: Fields) -> None:
    """Refuse a file of another format version.

    Raises:
        UnsupportedVersionError: naming both versions.
    """
    version = file.integer("formatVersion")
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            file.path,
            f"format version {version} cannot be read by this drillcore, which reads version {FORMAT_VERSION}; "
            "use the drillcore that wrote it, or extract again",
        )


def differing_fields(ours: JsonValue, theirs: JsonValue, name: str = "") -> list[str]:
    """Dotted names of the fields in which two JSON values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = []
        for key in dict.fromkeys([*ours, *theirs]):
            inner = f"{name}.{key}" if name else key
            if key not in ours or key not in theirs:
                names.append(inner)
            else:
                names.extend(differing_fields(ours[key], theirs[key], inner))
        return names
    return [] if canonical_json(ours) == canonical_json(theirs) else [name]


def _dataset(manifest: Fields) -> dict[str, JsonValue]:
    dataset = manifest.object("dataset")
    dataset.text("uri")
    for file in dataset.objects("files"):
        file.text("path")
        file.integer("bytes")
    if "maxSamples" in dataset.value:
        dataset.optional_integer("maxSamples")
    if "contextSize" in dataset.value:
        dataset.optional_integer("contextSize")
    return dataset.value


def _choice(file: Fields, key: str, choices: tuple[str, ...]) -> str:
    value = file.text(key)
    if value not in choices:
        raise file.error(key, f"must be one of {', '.join(choices)}; got {value[:80]!r}")
    return value
