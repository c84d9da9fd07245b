"""Who may read jobs and who may report progress: the cluster's own judgement, kept for a short while.

Readers: TokenReview, then SubjectAccessReview of `get extractionjobs` in the namespace. Pods: TokenReview of a
token with the job's own audience, which kubelet made for one pod.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from drillcore_operator.api.timed_cache import TimedCache, spread_s
from drillcore_operator.cluster import Access, ReviewApi, User
from drillcore_operator.errors import ClusterError, Refused
from drillcore_spec import names
from drillcore_status import PodIdentity
from drillcore_status.errors import Forbidden, Unauthorized, Unavailable

GOOD_TOKEN_S: Final = 300.0
"""A token's review is kept for between half of this and all of it, at most until the token expires."""
BAD_TOKEN_S: Final = 10.0
"""A refusal is kept only to answer a flood of the same token."""
ACCESS_S: Final = 30.0
MAX_TOKENS: Final = 20_000
"""Kept reviews; the pods of some thousand shards among them."""
MAX_TOKEN_CHARACTERS: Final = 16 * 1024
RETRY_AFTER_S: Final = 5

_POD_NAME = "authentication.kubernetes.io/pod-name"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_LOG_IN = "log in with a token of the cluster, as `kubectl create token` makes them"
_NO_DELEGATOR = (
    "the operator may not review tokens: install the chart with auth.delegator.create=true, or bind"
    " system:auth-delegator to its service account"
)

T = TypeVar("T")


class ClusterAuthorizer:
    """`Authorizer` and `PodAuthorizer` by the cluster's reviews. A token is kept as its hash only."""

    def __init__(
        self,
        reviews: ReviewApi,
        clock_s: Callable[[], float] = time.monotonic,
        unix_time_s: Callable[[], float] = time.time,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self._reviews = reviews
        self._random_unit = random_unit
        self._unix_time_s = unix_time_s
        self._users: TimedCache[tuple[str, str], User | None] = TimedCache(clock_s, MAX_TOKENS)
        self._access: TimedCache[tuple[str, str], bool] = TimedCache(clock_s, MAX_TOKENS)

    async def check_reader(self, token: str | None, namespace: str) -> None:
        """Raises Unauthorized, Forbidden or Unavailable unless the owner may get jobs of the namespace."""
        user = await self._user(token, audience="")
        if token is None or user is None:
            raise Unauthorized(_LOG_IN)
        access = Access("get", names.API_GROUP, names.PLURAL, namespace)

        async def review() -> tuple[bool, float]:
            return await _asked(self._reviews.may(user, access)), ACCESS_S

        if not await self._access.get((_digest(token), namespace), review):
            raise Forbidden(f"{user.name} may not get {names.PLURAL}.{names.API_GROUP} in namespace {namespace}")

    async def identify_pod(self, token: str | None, namespace: str, name: str) -> PodIdentity:
        """The pod; raises Unauthorized, Forbidden or Unavailable."""
        user = await self._user(token, names.token_audience(namespace, name))
        if user is None:
            raise Unauthorized(f"a pod's token with the audience {names.token_audience(namespace, name)} is needed")
        pods = user.extra.get(_POD_NAME, ())
        if len(pods) != 1 or not user.name.startswith(f"{_SERVICE_ACCOUNT}{namespace}:"):
            raise Forbidden("the token is not one that kubelet made for a pod of the job's namespace")
        return PodIdentity(namespace, pods[0])

    async def _user(self, token: str | None, audience: str) -> User | None:
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            return None

        async def review() -> tuple[User | None, float]:
            user = await _asked(self._reviews.user_of_token(token, [audience] if audience else []))
            if user is None:
                return None, BAD_TOKEN_S
            return user, min(spread_s(GOOD_TOKEN_S, self._random_unit), self._lifetime_s(token))

        return await self._users.get((_digest(token), audience), review)

    def _lifetime_s(self, token: str) -> float:
        """Seconds until a token that was found good expires; many for one that does not say."""
        try:
            payload = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            return max(0.0, float(claims["exp"]) - self._unix_time_s())
        except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
            return GOOD_TOKEN_S


async def _asked(question: Awaitable[T]) -> T:
    """The answer; what the cluster could not answer is said to the caller in words that help."""
    try:
        return await question
    except Refused as error:
        raise Unavailable(f"{_NO_DELEGATOR} ({error})") from error
    except ClusterError as error:
        raise Unavailable("the API server cannot be asked about tokens now", retry_after_s=RETRY_AFTER_S) from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
