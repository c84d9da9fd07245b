"""The operator's service account, with the rights that the chart gives it and no others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from drillcore_spec.names import API_GROUP, PLURAL
from drillcore_testcluster.audit import Right, calls_of
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.helm import Helm, Manifest
from drillcore_testcluster.suite_rights import SuiteRights
from drillcore_testcluster.waiting import until

ACCOUNT_KINDS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
ROLE_KINDS = frozenset({"ClusterRole", "Role"})
KUEUE = "kueue.enabled=true"


@dataclass(frozen=True)
class OperatorAccount:
    """The account that a release of the chart makes."""

    release: str
    """Begins with `drillcore`, so that it is the account's name too."""
    namespace: str = "drillcore-system"

    @property
    def user(self) -> str:
        """Its name in the audit log."""
        return f"system:serviceaccount:{self.namespace}:{self.release}"

    def grant(self, control_plane: ControlPlane, helm: Helm, *values: str, namespace: str = "") -> Path:
        """Makes what the chart makes of the account and its rights; gives a kubeconfig with its token."""
        api = control_plane.api
        try:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        except ApiError as error:
            if error.code != 409:
                raise
        for manifest in self._manifests(helm, *values):
            api.apply(manifest, manager="chart", force=True)
        return self.kubeconfig(control_plane, namespace)

    def kubeconfig(self, control_plane: ControlPlane, namespace: str = "") -> Path:
        """A kubeconfig with its token, once it may list jobs: the API server learns of new rights a little later."""
        about = {"group": API_GROUP, "resource": PLURAL, "verb": "list", "namespace": namespace}
        spec = {"user": self.user, "resourceAttributes": about}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        api = control_plane.api
        until(lambda: bool(api.request("POST", path, body=body)["status"]["allowed"]), f"{self.user} has its rights")
        return control_plane.account_kubeconfig(self.namespace, self.release)

    def rights(self, helm: Helm, *values: str) -> set[Right]:
        """What the chart grants it in a namespace that it serves."""
        names = (self.release, f"{self.namespace}:{self.release}")
        roles = [
            m for m in self._manifests(helm, *values) if m["kind"] in ROLE_KINDS and m["metadata"]["name"] in names
        ]
        return {right for role in roles for right in granted(role["rules"])}

    def _manifests(self, helm: Helm, *values: str) -> list[Manifest]:
        rendered = helm.render(*values, namespace=self.namespace, release=self.release)
        hooks = [m for m in rendered if "helm.sh/hook" in m["metadata"].get("annotations", {})]
        return [m for m in rendered if m["kind"] in ACCOUNT_KINDS and m not in hooks]


def granted(rules: list[Manifest]) -> set[Right]:
    """What the rules of a Role grant."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


CLUSTER_WIDE = OperatorAccount("drillcore")
"""Of operators that serve the whole cluster, with Kueue."""
NAMESPACED = OperatorAccount("drillcore-namespaced")
"""Of operators that serve one namespace, without."""


class SuiteAccounts:
    """The accounts at one control plane, and what they did there."""

    def __init__(self, control_plane: ControlPlane, helm: Helm) -> None:
        self._control_plane = control_plane
        self._helm = helm
        self._in_mode = {
            "cluster-wide": ([CLUSTER_WIDE], CLUSTER_WIDE.rights(helm, KUEUE)),
            "namespaced": ([NAMESPACED], NAMESPACED.rights(helm, *_serving("any"))),
        }

    @cached_property
    def cluster_wide(self) -> Path:
        """A kubeconfig of the account for the whole cluster."""
        return CLUSTER_WIDE.grant(self._control_plane, self._helm, KUEUE)

    def namespaced(self, namespace: str) -> Path:
        """A kubeconfig of the account for single namespaces, with its Role in this one."""
        return NAMESPACED.grant(self._control_plane, self._helm, *_serving(namespace), namespace=namespace)

    def include(self, account: OperatorAccount, mode: str) -> None:
        """Counts another account, of a release that helm installed, to a mode."""
        self._in_mode[mode][0].append(account)

    def tell(self, suite: SuiteRights) -> None:
        """Hands what the accounts did to the comparison over the whole suite."""
        for mode, (accounts, rights) in self._in_mode.items():
            calls = [call for account in accounts for call in calls_of(self._control_plane.audit_log, account.user)]
            known = [call for call in calls if not (call.is_forbidden and self._control_plane.was_away(call.time))]
            if known:
                suite.add(mode, known, rights)


def _serving(namespace: str) -> tuple[str, str]:
    return f'watchNamespaces=["{namespace}"]', "rbac.aggregateToDefaultRoles=false"
