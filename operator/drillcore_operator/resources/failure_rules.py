"""The child Job's podFailurePolicy, made from the exit-code table.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
"""

from __future__ import annotations

from typing import Any

from drillcore_spec import names
from drillcore_spec.reasons import EXIT_RULES, JobAction

_ACTIONS = (JobAction.FAIL_JOB, JobAction.FAIL_INDEX, JobAction.IGNORE)
"""Rules of the policy, in order; Count is what Kubernetes does without a rule."""


def pod_failure_policy() -> dict[str, Any]:
    """Disruptions never count; then one rule for each action that the table names."""
    disrupted = {
        "action": JobAction.IGNORE.value,
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    return {"rules": [disrupted, *(_exit_code_rule(action) for action in _ACTIONS)]}


def _exit_code_rule(action: JobAction) -> dict[str, Any]:
    codes = sorted(rule.code for rule in EXIT_RULES if rule.action is action)
    return {
        "action": action.value,
        "onExitCodes": {"containerName": names.CONTAINER_SERVER, "operator": "In", "values": codes},
    }
