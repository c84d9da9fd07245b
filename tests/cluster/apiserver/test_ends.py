"""How jobs end, for good or bad, and that a new one with the same output goes on after a failure."""

from __future__ import annotations

import pytest

from drillcore_spec.messages import TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_testcluster.field import Field, committed
from drillcore_testcluster.situations import SITUATIONS
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

GARBAGE_COLLECTION_S = 90.0
"""The garbage collector learns of new kinds every 30 s."""


def test_job_runs_to_success_with_counts_and_verified_output(schedulable: Field) -> None:
    job = schedulable.job("job", {"shards.count": 2, "parallelism": 2, "output.subPath": "run"})
    schedulable.finish(job, shards=2)
    status = job.status()
    assert job.condition("OutputVerified")["reason"] == "Verified"
    assert status["phase"] == "Succeeded"
    assert status["shards"] == {"total": 2, "active": 0, "succeeded": 2, "failed": 0, "summary": "2/2"}
    progress = {key: status["progress"][key] for key in ("rowsDone", "rowsTotal", "rowsQuarantined", "percentage")}
    assert progress == {"rowsDone": 128, "rowsTotal": 128, "rowsQuarantined": 2, "percentage": 100}
    assert status["output"] == {"uri": "pvc://states/run", "bytes": 8192}
    assert job.condition("Succeeded")["message"] == "126 rows are written, 2 quarantined"


def test_exit_code_zero_without_a_message_verifies_by_exit_code(schedulable: Field) -> None:
    job = schedulable.running_job()
    schedulable.report(job, "succeeded")
    job.wait("Succeeded", "True", "Succeeded")
    assert job.condition("OutputVerified")["reason"] == "VerifiedByExitCode"


def test_image_pull_error_ends_at_the_start_deadline_and_frees_the_gpu(schedulable: Field) -> None:
    job = schedulable.job("job", {"startDeadlineSeconds": 20})
    schedulable.report(job, "image-pull-backoff", reason="ErrImagePull")
    told = job.wait("PodsReady", "False", "ImagePullError")
    ended = job.wait("Succeeded", "False", "StartDeadlineExceeded")
    assert told["message"] in ended["message"]
    assert job.status()["phase"] == "Failed"
    until(lambda: not job.children(), "the Job is deleted")
    again = schedulable.job("again", {"output.subPath": "same"})
    schedulable.finish(again)


def test_invalid_template_is_final_and_creates_nothing(schedulable: Field) -> None:
    job = SITUATIONS["toleration"].arrange(schedulable, "job")
    ended = job.wait("Succeeded", "False", "InvalidPodTemplate")
    assert "tolerations" in ended["message"]
    assert job.children() == []


def test_shard_that_is_out_of_memory_again_and_again_fails_the_job(schedulable: Field) -> None:
    changes = {"failurePolicy.backoffLimitPerShard": 1, "shards.count": 2, "parallelism": 2}
    job = schedulable.job("job", changes)
    schedulable.report(job, "running", 1)
    schedulable.report(job, "succeeded", 1, message=committed())
    schedulable.report(job, "server-oom-killed")
    job.wait("PodsReady", "False", "OutOfMemory")
    schedulable.report(job, "server-oom-killed")
    ended = job.wait("Succeeded", "False", "ShardsFailed")
    assert "shards 0 failed: OutOfMemory" in ended["message"]
    status = job.status()
    assert status["shards"]["failedIndexes"] == "0"
    assert status["retries"] == 1
    assert job.condition("OutputVerified")["reason"] == "NotVerified"
    again = schedulable.job("again", {"server.resources.memory": "64Gi"})
    schedulable.finish(again)


def test_exit_code_that_no_retry_can_help_fails_the_job_with_the_servers_words(schedulable: Field) -> None:
    job = schedulable.job("job", {"shards.count": 4, "parallelism": 2})
    words = "dataset.uri: no file matches /volumes/datasets/*.jsonl"
    message = TerminationMessage(code=65, reason=Reason.DATASET_NOT_FOUND, message=words).to_line()
    schedulable.report(job, "server-exit", exit_code=65, message=message)
    ended = job.wait("Succeeded", "False", "DatasetNotFound")
    assert words in ended["message"]
    assert "in a new ExtractionJob with the same output" in ended["message"]


def test_full_volume_is_retried_without_charge_until_the_deadline(schedulable: Field) -> None:
    job = schedulable.running_job("job", {"activeDeadlineSeconds": 16, "failurePolicy.backoffLimitPerShard": 0})
    full = TerminationMessage(code=74, reason=Reason.OUTPUT_VOLUME_FULL, message="no space").to_line()
    schedulable.report(job, "server-exit", exit_code=74, message=full)
    job.wait("OutputReady", "False", "OutputVolumeFull")
    schedulable.report(job, "server-exit", exit_code=74, message=full)
    ended = job.wait("Succeeded", "False", "DeadlineExceeded", timeout_s=60)
    assert "activeDeadlineSeconds (16)" in ended["message"]
    assert job.status()["retries"] == 0


def test_ttl_removes_the_job_and_its_child(schedulable: Field) -> None:
    job = schedulable.job("job", {"ttlSecondsAfterFinished": 2})
    schedulable.finish(job)
    until(lambda: schedulable.api.find("ExtractionJob", "job", namespace=schedulable.namespace) is None, "it goes")
    until(lambda: not job.children(), "the child follows", GARBAGE_COLLECTION_S)
