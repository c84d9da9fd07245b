"""The cluster's judgement about tokens: asked once in a while, and never more trusted than it says."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest

from drillcore_operator.api.authorization import ClusterAuthorizer
from drillcore_operator.cluster import Access, User
from drillcore_operator.errors import Refused
from drillcore_operator.errors import Unavailable as ClusterUnavailable
from drillcore_status.errors import Forbidden, Unauthorized, Unavailable

AUDIENCE = "drillcore.dev/team-a/job"
POD_NAME = "authentication.kubernetes.io/pod-name"


class PlayedReviews:
    """Knows one reader and one pod, and counts the questions."""

    def __init__(self) -> None:
        self.users = {
            ("reader", ()): User("ann", groups=("team-a",)),
            ("pod", (AUDIENCE,)): User("system:serviceaccount:team-a:default", extra={POD_NAME: ("job-0-x",)}),
            ("foreign", (AUDIENCE,)): User("system:serviceaccount:team-b:default", extra={POD_NAME: ("job-0-x",)}),
            ("no-pod", (AUDIENCE,)): User("system:serviceaccount:team-a:default"),
            ("person", (AUDIENCE,)): User("ann", extra={POD_NAME: ("job-0-x",)}),
        }
        self.token_questions: list[tuple[str, tuple[str, ...]]] = []
        self.access_questions: list[tuple[str, Access]] = []
        self.error: Exception | None = None

    async def user_of_token(self, token, audiences=()):
        self.token_questions.append((token, tuple(audiences)))
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return self.users.get((token.partition(".")[0], tuple(audiences)))

    async def may(self, user, access):
        self.access_questions.append((user.name, access))
        return access == Access("get", "drillcore.dev", "extractionjobs", "team-a")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def reviews() -> PlayedReviews:
    return PlayedReviews()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authorizer(reviews, clock) -> ClusterAuthorizer:
    return ClusterAuthorizer(reviews, clock_s=clock, unix_time_s=clock, random_unit=lambda: 0.0)


def test_a_reader_may_read_where_the_cluster_says_so_and_nowhere_else(authorizer):
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    with pytest.raises(Forbidden, match="ann may not get extractionjobs"):
        asyncio.run(authorizer.check_reader("reader", "team-b"))


@pytest.mark.parametrize("token", [None, "", "unknown", "pod", "x" * 20_000])
def test_without_a_good_token_nobody_reads(authorizer, reviews, token):
    with pytest.raises(Unauthorized):
        asyncio.run(authorizer.check_reader(token, "team-a"))
    assert reviews.access_questions == []


def test_a_token_is_reviewed_once_in_five_minutes_however_many_ask(authorizer, reviews, clock):
    async def crowd() -> None:
        await asyncio.gather(*(authorizer.check_reader("reader", "team-a") for _ in range(20)))

    asyncio.run(crowd())
    clock.now_s += 299
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    assert len(reviews.token_questions) == 1
    clock.now_s += 2
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    assert len(reviews.token_questions) == 2


def test_tokens_that_came_at_once_are_not_reviewed_again_at_once(reviews, clock):
    authorizer = ClusterAuthorizer(reviews, clock_s=clock, unix_time_s=clock, random_unit=random.Random(0).random)
    tokens = [f"reader.{number}" for number in range(300)]
    asked = []

    for _ in range(60):
        before = len(reviews.token_questions)
        for token in tokens:
            asyncio.run(authorizer.check_reader(token, "team-a"))
        asked.append(len(reviews.token_questions) - before)
        clock.now_s += 10.0

    assert asked[0] == len(tokens)
    assert max(asked[1:]) <= len(tokens) / 6
    assert sum(asked[1:31]) >= len(tokens)


def test_access_is_reviewed_again_after_half_a_minute(authorizer, reviews, clock):
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    clock.now_s += 31
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    assert len(reviews.access_questions) == 2


def test_a_token_is_not_believed_after_it_expires(authorizer, reviews, clock):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": clock.now_s + 60}).encode()).decode().rstrip("=")
    token = f"reader.{claims}.signature"
    asyncio.run(authorizer.check_reader(token, "team-a"))
    reviews.users.clear()
    clock.now_s += 59
    asyncio.run(authorizer.check_reader(token, "team-a"))
    clock.now_s += 2
    with pytest.raises(Unauthorized):
        asyncio.run(authorizer.check_reader(token, "team-a"))


def test_a_refused_token_is_asked_about_again_soon(authorizer, reviews, clock):
    for _ in range(3):
        with pytest.raises(Unauthorized):
            asyncio.run(authorizer.check_reader("unknown", "team-a"))
    assert len(reviews.token_questions) == 1
    clock.now_s += 11
    with pytest.raises(Unauthorized):
        asyncio.run(authorizer.check_reader("unknown", "team-a"))
    assert len(reviews.token_questions) == 2


def test_a_pod_is_known_by_its_token_of_this_jobs_audience(authorizer):
    pod = asyncio.run(authorizer.identify_pod("pod", "team-a", "job"))
    assert (pod.namespace, pod.name) == ("team-a", "job-0-x")


@pytest.mark.parametrize(("token", "name"), [(None, "job"), ("reader", "job"), ("unknown", "job"), ("pod", "other")])
def test_a_token_that_is_not_for_this_job_is_no_pods(authorizer, token, name):
    with pytest.raises(Unauthorized):
        asyncio.run(authorizer.identify_pod(token, "team-a", name))


@pytest.mark.parametrize("token", ["foreign", "no-pod", "person"])
def test_a_token_with_the_audience_that_is_not_a_pods_of_the_namespace_is_forbidden(authorizer, token):
    with pytest.raises(Forbidden):
        asyncio.run(authorizer.identify_pod(token, "team-a", "job"))


def test_an_operator_that_may_not_review_says_which_chart_value_helps(authorizer, reviews):
    reviews.error = Refused("tokenreviews is forbidden", is_invalid=False)
    with pytest.raises(Unavailable, match=r"auth\.delegator\.create=true"):
        asyncio.run(authorizer.check_reader("reader", "team-a"))
    reviews.error = None
    asyncio.run(authorizer.check_reader("reader", "team-a"))


def test_an_api_server_that_is_away_is_no_refusal(authorizer, reviews):
    reviews.error = ClusterUnavailable("no answer")
    with pytest.raises(Unavailable) as caught:
        asyncio.run(authorizer.check_reader("reader", "team-a"))
    assert caught.value.retry_after_s == 5


def test_no_token_is_kept_in_clear(authorizer):
    asyncio.run(authorizer.check_reader("reader", "team-a"))
    assert "reader" not in repr(vars(authorizer._users)) + repr(vars(authorizer._access))
