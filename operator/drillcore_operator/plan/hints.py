"""What to do about each reason: the last sentence of a message."""

from __future__ import annotations

from drillcore_spec.reasons import Reason

SAME_OUTPUT = "in a new ExtractionJob with the same output, which goes on from the committed rows"

HINTS: dict[Reason, str] = {
    Reason.BAD_SPEC: f"correct the field {SAME_OUTPUT}",
    Reason.DATASET_NOT_FOUND: f"correct dataset.uri {SAME_OUTPUT}",
    Reason.BAD_DATASET: f"correct the dataset or dataset.columns {SAME_OUTPUT}",
    Reason.SHARD_UNREADABLE: "repair the files of this shard's rows, then start a new job with the same output",
    Reason.TOO_MANY_QUARANTINED: "see the quarantine files of the shard; failurePolicy.maxQuarantinedPercent"
    " is the limit",
    Reason.MODEL_UNAVAILABLE: "check model.uri, model.secretName and the network to the model hub",
    Reason.INTERNAL: "see the server's log",
    Reason.SIDECAR_LOST: "see the sidecar's log",
    Reason.OUTPUT_SIZE_LIMIT: f"raise output.sizeLimit {SAME_OUTPUT}",
    Reason.OUTPUT_FOREIGN: "choose an empty output.subPath",
    Reason.OUTPUT_IDENTITY: "choose another output.subPath, or the model, dataset and layers of the output there",
    Reason.OUTPUT_UNWRITABLE: "check the claim's permissions and podTemplate.runAsUser and fsGroup",
    Reason.OUTPUT_VOLUME_FULL: "make room on the volume: the shard is tried again, every 10 minutes in the end",
    Reason.COMMIT_TIMEOUT: "check the output's volume: the sidecar could not commit in time",
    Reason.NO_DEVICE: "check the node's GPU driver, and the CUDA version of the image",
    Reason.MODEL_UNSUPPORTED: "see docs/models.md for what is supported",
    Reason.MODEL_BROKEN: "check the files of the model",
    Reason.SHM_TOO_SMALL: f"lower ring.size or raise server.resources.memory {SAME_OUTPUT}",
    Reason.OUT_OF_MEMORY: "raise server.resources.memory, or lower ring.size or engine.maxNumBatchedTokens,"
    f" {SAME_OUTPUT}",
    Reason.TERMINATED: "the shard is run again",
}
