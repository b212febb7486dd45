"""The data of each type of handoff as a dataclass, and a registry that checks payloads against them.

An app makes its own registry; there is no global one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from routelock._text import plain
from routelock.errors import ConfigError, PayloadError
from routelock.handoffs.payload import HandoffPayload, loggable

__all__ = [
    "AnalysisDelegation",
    "AnalysisRequest",
    "ComponentDesign",
    "GenerationDelegation",
    "HandoffTypes",
    "QuickLookup",
    "ResearchDelegation",
]


_Given = str | dict[str, Any] | list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchDelegation:
    """``research_delegation``: find facts that are not in the conversation."""

    reference_document: _Given | None = None
    """The user's document; as an object, with ``content``, ``type``, ``filename`` and ``has_content``."""
    referenced_files: _Given | None = None
    analysis_context: _Given | None = None
    """The results of earlier analysis."""
    constraints: _Given | None = None
    """Limits of the search, such as a period of time or sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisDelegation:
    """``analysis_delegation``: judge some content."""

    content_to_analyze: _Given
    analysis_type: str | None = None
    criteria: _Given | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDelegation:
    """``generation_delegation``: write or make something."""

    generation_context: _Given
    """The thing to make, and its purpose."""
    style_guide: _Given | None = None
    constraints: _Given | None = None
    """Limits of the result, such as its length, tone or requirements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickLookup:
    """``quick_lookup``: answer one question."""

    conversation_context: _Given


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest:
    """``analysis_request``: analyse a story."""

    story_content: _Given
    analysis_criteria: _Given | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentDesign:
    """``component_design``: design a part of a project."""

    project_requirements: _Given
    constraints: _Given | None = None


def _common() -> dict[str, type[Any]]:
    return {
        "research_delegation": ResearchDelegation,
        "analysis_delegation": AnalysisDelegation,
        "generation_delegation": GenerationDelegation,
        "quick_lookup": QuickLookup,
        "analysis_request": AnalysisRequest,
        "component_design": ComponentDesign,
    }


class HandoffTypes:
    """The handoff types of an app, with the model that the data of each must fit.

    Args:
        types: the model of each type, by name; None starts with the six models of this module. A model is a
            pydantic model, a dataclass or a TypedDict.

    Raises:
        ConfigError: a name is blank, or pydantic cannot check a model.
    """

    __slots__ = ("_models",)

    def __init__(self, types: Mapping[str, type[Any]] | None = None) -> None:
        self._models: dict[str, type[Any]] = _common() if types is None else {}
        for name, model in (types or {}).items():
            self.register(name, model)

    @property
    def models(self) -> Mapping[str, type[Any]]:
        """The model of each type, by name, in the order of registration."""
        return dict(self._models)

    def register(self, name: str, model: type[Any]) -> None:
        """Declare the model of one type; it may replace one of the six that come with the registry.

        Raises:
            ConfigError: the name is blank or registered with another model, or pydantic cannot check this
                one.
        """
        known = self._models.get(name)
        if not name.strip():
            raise ConfigError("A handoff type needs a name, such as 'research_delegation'.")
        if known not in (None, model, _common().get(name)):
            raise ConfigError(f"Handoff type {name!r:.80} is already registered, as {known!r:.80}.")
        try:
            pydantic.TypeAdapter(model)
        except Exception as error:
            why = str(error).partition("\n")[0][:300]
            raise ConfigError(
                f"{model!r:.80} cannot be the model of handoff type {name!r:.80}: {why} "
                "Use a pydantic model, a dataclass or a TypedDict."
            ) from error
        self._models[name] = model

    def check(self, payload: HandoffPayload, *, strict: bool = False) -> tuple[HandoffPayload, str | None]:
        """Return the payload unchanged, and a warning if it does not fit its type.

        Keys that the model does not declare are allowed, unless the model forbids them.

        Args:
            payload: to be sent, or just received.
            strict: whether to raise the warning as an error.

        Returns:
            The payload and a warning, or None. The warning names fields and never shows a value.

        Raises:
            PayloadError: strict, and the type is unknown or ``context_data`` does not fit.
        """
        warning = self._misfit(payload)
        if warning is not None and strict:
            raise PayloadError(warning)
        return payload, warning

    def _misfit(self, payload: HandoffPayload) -> str | None:
        model = self._models.get(payload.handoff_type)
        if model is None:
            known = ", ".join(plain(name, 40) for name in list(self._models)[:20]) or "none"
            return f"Unknown handoff type: {loggable(payload)}. Known types: {known}."
        try:
            payload.data_as(model)
        except PayloadError as error:
            return str(error)
        except Exception as error:  # from a validator of the app; its text may show a value
            return f"Checking {loggable(payload)} raised {type(error).__name__} in {model.__name__}."
        return None
