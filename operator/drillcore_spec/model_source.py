"""`spec.model`: the language model whose states are taken."""

from __future__ import annotations

from drillcore_spec.base import SpecModel
from drillcore_spec.enums import DType
from drillcore_spec.forms import ObjectName, Revision, SourceUri
from drillcore_spec.rules import Rule
from drillcore_spec.uris import is_hub, no_parent_folder


class ModelSource(SpecModel):
    """Where the model comes from, and in which number format it runs."""

    uri: SourceUri
    """hf://ORG/NAME on a model hub, file:///FOLDER, or pvc://CLAIM/FOLDER."""
    revision: Revision | None = None
    """Commit, branch or tag of an hf:// model, resolved to a commit and recorded. Default: the hub's
    default branch.
    """
    dtype: DType = DType.AUTO
    """Number format of weights and computation. Auto: the checkpoint's on a GPU, Float32 on a CPU."""
    secret_name: ObjectName | None = None
    """Secret in the job's namespace whose key `token` is the model hub's token (HF_TOKEN)."""
    cache_claim_name: ObjectName | None = None
    """Claim that keeps downloaded models, shared by the shards, so that each model is downloaded once."""

    rules = (
        no_parent_folder("uri"),
        Rule(
            cel="!has(self.revision) || self.uri.startsWith('hf://')",
            holds=lambda self: self.revision is None or is_hub(self.uri),
            expected="revision only with an hf:// uri",
            field=("revision",),
        ),
    )
