"""Calls of a function that takes its arguments as JSON text, for a tool that comes with its schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from routelock.context import ToolContext
from routelock.errors import ModelBehaviorError
from routelock.tools.invoke import ToolCallable, run_in_thread, with_arguments
from routelock.tools.schema import describe_error

__all__ = ["JsonCall"]


_Arguments = tuple[str, Mapping[str, Any]]
"""Arguments as JSON text, and parsed."""


@dataclass(frozen=True, slots=True)
class JsonCall(ToolCallable):
    """A call of a function that takes the arguments as JSON text, which is checked to be an object first."""

    function: Callable[[ToolContext[Any], str], Any]
    schema: Mapping[str, Any]
    is_async: bool

    def read(self, text: str) -> _Arguments:
        """Return the arguments as text and parsed. The function itself checks the rest of the schema.

        Raises:
            ModelBehaviorError: the text is not JSON or not an object, or a required key is missing.
        """
        from pydantic_core import from_json  # noqa: PLC0415 - see `routelock.tools.schema`

        sent = "{}" if not text or text.strip() in ("", "null") else text
        try:
            values: object = from_json(sent)
        except (ValueError, TypeError) as error:  # TypeError: half a surrogate pair
            raise self._refusal(f"Invalid JSON: {error}", text) from error
        if not isinstance(values, dict):
            raise self._refusal("The arguments must be a JSON object", text)
        found = cast("dict[str, Any]", values)
        if missing := [name for name in self.schema.get("required") or () if name not in found]:
            raise self._refusal(f"Required and missing: {', '.join(missing)}", text)
        return sent, found

    def _refusal(self, problem: str, text: str) -> ModelBehaviorError:
        return ModelBehaviorError(describe_error(ValueError(problem), text, schema=self.schema))

    async def call(self, context: ToolContext[Any], values: _Arguments) -> Any:
        """Call the function with the arguments that `read` returned."""
        text, parsed = values
        context = with_arguments(context, parsed)
        if self.is_async:
            return await self.function(context, text)
        return await run_in_thread(functools.partial(self.function, context, text))
