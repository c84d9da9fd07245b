"""The route on which the pods of a job post their progress."""

from __future__ import annotations

from fastapi import APIRouter

from drillcore_spec import names
from drillcore_spec.messages import ProgressReport
from drillcore_status.parameters import JobName, Namespace, Token
from drillcore_status.services import PodReports
from drillcore_status.views import Status


def progress_router(reports: PodReports) -> APIRouter:
    """The route, for a server that has pods."""
    router = APIRouter(tags=["pods"])

    @router.post(
        f"/v1/namespaces/{{namespace}}/{names.PLURAL}/{{name}}/progress",
        status_code=202,
        summary="A shard's progress",
        responses={code: {"model": Status} for code in (401, 403, 413, 422, 503)},
    )
    async def post_progress(namespace: Namespace, name: JobName, token: Token, report: ProgressReport) -> None:
        """For pods only, with their token of audience `drillcore.dev/NAMESPACE/NAME`.

        Counts are cumulative: sending a report twice changes nothing, and a lost one is made up for by the next.
        """
        pod = await reports.authorizer.identify_pod(token, namespace, name)
        await reports.sink.take(namespace, name, pod, report)

    return router
