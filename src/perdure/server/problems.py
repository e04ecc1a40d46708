"""Errors as RFC 9457 problem documents: our code, message and hint, and a fitting status."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from perdure import errors as e
from perdure.errors import PerdureError

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[BaseException], int] = {
    e.Unauthenticated: 401,
    e.NotAllowed: 403,
    e.QuotaExceeded: 429,
    e.RequestTooLarge: 413,
    e.RequestRepeated: 422,
    e.RequestUnfinished: 409,
    e.MethodRefused: 405,
    e.RequestTooSlow: 503,
    e.ServerProblem: 400,
    e.ResourceNotFound: 404,
    e.KeyNotFound: 404,
    e.ValueTooLarge: 413,
    e.ValueProblem: 422,
    e.CorruptValue: 500,
    e.StoreProblem: 503,
    e.StorageFull: 507,
    e.JournalDamaged: 500,
    e.ArtifactDamaged: 500,
    e.ArchiveDamaged: 500,
    e.RunProblem: 409,
    e.RunNotFound: 404,
    e.PointNotFound: 404,
    e.RefNotFound: 404,
    e.ContextTooSmall: 422,
    e.WorkflowProblem: 409,
    e.WorkflowNotFound: 404,
    e.WorkflowInvalid: 422,
    e.UnknownAction: 422,
    e.CallProblem: 422,
    e.InDoubt: 409,
    e.VersionConflict: 409,
    e.ThreadConflict: 409,
    e.ThreadDeleted: 410,
    e.HistoryCompacted: 410,
    e.EventsCompacted: 410,
    e.CheckpointNotFound: 404,
    e.ArtifactNotFound: 404,
    e.TaskNotFound: 404,
    e.ThreadNotFound: 404,
    e.PlaybookNotFound: 404,
    e.MemoryNotFound: 404,
    e.ExtraMissing: 501,
    e.AgentProblem: 409,
    e.AgentNotFound: 404,
    e.AgentMoved: 410,
    e.AgentRetired: 410,
    e.WorkspaceProblem: 422,
    PerdureError: 500,
}
"""The status of each error; the nearest base class counts."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    request_id: str = ""


def status_of(error: PerdureError) -> int:
    """Return the HTTP status of an error."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def describe_problem(error: PerdureError, request_id: str = "") -> Problem:
    """Return the problem document of an error."""
    return Problem(
        type=f"urn:perdure:error:{error.code}",
        title=type(error).__name__,
        status=status_of(error),
        detail=error.message,
        code=error.code,
        hint=error.hint,
        request_id=request_id,
    )


def problem_response(error: PerdureError, request_id: str = "", status: int | None = None) -> Response:
    """Return the answer for an error."""
    problem = describe_problem(error, request_id)
    if status is not None:
        problem = msgspec.structs.replace(problem, status=status)
    headers = {"cache-control": "no-store"}
    if isinstance(error, e.Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="perdure"'
    if isinstance(error, e.QuotaExceeded):
        headers["retry-after"] = str(max(1, round(error.retry_after + 0.5)))
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)
