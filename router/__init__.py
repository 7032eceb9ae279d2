"""Choose a worker, account for load. Pure and synchronous; clocks are passed in."""

from router.candidate import Candidate
from router.decision import Decision, Hop
from router.explanation import Explanation
from router.models import ListedModel, ModelName
from router.outcome import Outcome
from router.policies import POLICIES
from router.policy import Policy
from router.pool import NoCandidate, WorkerPool
from router.request import Rendering, RouteRequest, Usage
from router.router import Router
from router.worker import Worker, WorkerId, WorkerSpec, WorkerState

__all__ = [
    "POLICIES",
    "Candidate",
    "Decision",
    "Explanation",
    "Hop",
    "ListedModel",
    "ModelName",
    "NoCandidate",
    "Outcome",
    "Policy",
    "Rendering",
    "RouteRequest",
    "Router",
    "Usage",
    "Worker",
    "WorkerId",
    "WorkerPool",
    "WorkerSpec",
    "WorkerState",
]
