"""Jobs of several steps that resume, after a crash, behind the last one that has finished."""

from durabl_ext.orchestrator.awaiting import AsyncOrchestrationContext
from durabl_ext.orchestrator.context import AsyncStepContext, StepContext
from durabl_ext.orchestrator.define import AsyncOrchestrator, Bounds, Orchestrator
from durabl_ext.orchestrator.view import JournalView, StepView
from durabl_ext.orchestrator.waiting import OrchestrationContext

__all__ = [
    "AsyncOrchestrationContext",
    "AsyncOrchestrator",
    "AsyncStepContext",
    "Bounds",
    "JournalView",
    "OrchestrationContext",
    "Orchestrator",
    "StepContext",
    "StepView",
]
