"""What the job-status API asks about tokens: two cluster-scoped kinds that are created and never stored.

Source: https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from drillcore_operator.cluster.connection import Connection
from drillcore_operator.cluster.rate import Rate

Document = dict[str, Any]

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SHARE = 0.5
"""Of the operator's rate: when the tokens of thousands of pods come at once, the jobs are looked at on."""


@dataclass(frozen=True)
class User:
    """Whom a token belongs to, as the cluster says."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a service account's token, the pod that it is bound to."""

    @classmethod
    def from_review(cls, user: Mapping[str, Any]) -> Self:
        """Reads `status.user` of a TokenReview."""
        extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
        return cls(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), extra)


@dataclass(frozen=True)
class Access:
    """One verb on a kind of object in a namespace."""

    verb: str
    group: str
    resource: str
    namespace: str


class ReviewApi(Protocol):
    """What is asked about tokens."""

    async def user_of_token(self, token: str, audiences: Sequence[str] = ()) -> User | None:
        """The token's owner; None: it is not good, or not for one of the audiences (none: the API server's)."""

    async def may(self, user: User, access: Access) -> bool:
        """Whether the user may do this."""


class Reviews:
    """`ReviewApi` at a real API server; needs what system:auth-delegator may."""

    def __init__(self, connection: Connection, requests_per_second: float) -> None:
        self._connection = connection
        self._rate = Rate(SHARE * requests_per_second)

    async def user_of_token(self, token: str, audiences: Sequence[str] = ()) -> User | None:
        """A TokenReview; an authenticator that ignores audiences gives none back, which is a no."""
        spec: Document = {"token": token}
        if audiences:
            spec["audiences"] = list(audiences)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = (await self._asked(_TOKEN_REVIEWS, body)).get("status") or {}
        if not status.get("authenticated"):
            return None
        if audiences and not set(audiences) & set(status.get("audiences") or ()):
            return None
        return User.from_review(status["user"])

    async def may(self, user: User, access: Access) -> bool:
        """A SubjectAccessReview."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            "resourceAttributes": {
                "verb": access.verb,
                "group": access.group,
                "resource": access.resource,
                "namespace": access.namespace,
            },
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._asked(_ACCESS_REVIEWS, body)
        return bool(answer["status"].get("allowed")) and not answer["status"].get("denied")

    async def _asked(self, path: str, body: Document) -> Document:
        await self._rate.turn()
        return await self._connection.request("POST", path, body=body)
