"""What a function's signature and docstring say to a model."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pydantic
import pytest
from pydantic import Field
from typing_extensions import TypedDict

from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError, ModelBehaviorError
from routelock.tools.invoke import Signature
from routelock.tools.signature import signature_of

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(pydantic.BaseModel):
    """A postal address."""

    street: str
    city: str = "Berlin"


@dataclass
class Point:
    x: int
    y: int = 0


class Filters(TypedDict):
    tag: str


def loose(function: Callable[..., Any]) -> dict[str, Any]:
    """The properties of a function's schema as it is, without the strict form."""
    return dict(signature_of(function, strict=False).schema["properties"])


def call(signature: Signature, function: Callable[..., Any], text: str, context: object = None) -> Any:
    arguments, named = signature.arrange(signature.read(text), context)
    return function(*arguments, **named)


# -- types --


def everything(
    text: str,
    number: int,
    share: float,
    yes: bool,
    colour: Colour,
    size: Literal["s", "m"],
    address: Address,
    point: Point,
    filters: Filters,
    tags: list[str],
    prices: dict[str, int],
    either: int | str,
    maybe: Optional[int],  # noqa: UP045 - the old spelling has to work too
    old: Union[int, None],  # noqa: UP007
    day: date,
    anything: Any,
    untyped,  # type: ignore[no-untyped-def]
) -> None: ...


def test_every_kind_of_annotation_has_its_schema() -> None:
    null_or_int = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert loose(everything) == {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "share": {"type": "number"},
        "yes": {"type": "boolean"},
        "colour": {"$ref": "#/$defs/Colour"},
        "size": {"enum": ["s", "m"], "type": "string"},
        "address": {"$ref": "#/$defs/Address"},
        "point": {"$ref": "#/$defs/Point"},
        "filters": {"$ref": "#/$defs/Filters"},
        "tags": {"items": {"type": "string"}, "type": "array"},
        "prices": {"additionalProperties": {"type": "integer"}, "type": "object"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "maybe": null_or_int,
        "old": null_or_int,
        "day": {"format": "date", "type": "string"},
        "anything": {},
        "untyped": {},
    }


def test_values_arrive_as_the_annotated_types() -> None:
    def f(colour: Colour, address: Address, point: Point, day: date, tags: set[str]) -> tuple[Any, ...]:
        return colour, address, point, day, tags

    text = (
        '{"colour": "red", "address": {"street": "Main"}, "point": {"x": 1}, "day": "2026-01-02", "tags": []}'
    )
    assert call(signature_of(f), f, text) == (
        Colour.RED,
        Address(street="Main"),
        Point(1),
        date(2026, 1, 2),
        set(),
    )


def test_a_function_without_parameters_has_the_empty_strict_schema() -> None:
    def f() -> None: ...

    assert signature_of(f).schema == {
        "additionalProperties": False,
        "type": "object",
        "properties": {},
        "required": [],
    }


def test_type_without_a_strict_form_has_a_plain_schema() -> None:
    def f(prices: dict[str, int], limit: int = 3) -> None: ...

    signature = signature_of(f)
    assert not signature.strict
    assert signature.schema["required"] == ["prices"]
    assert signature.schema["properties"]["limit"] == {"type": "integer", "default": 3}


def test_strict_can_be_declined() -> None:
    def f(limit: int = 3) -> None: ...

    signature = signature_of(f, strict=False)
    assert not signature.strict
    assert signature.schema == {
        "additionalProperties": False,
        "properties": {"limit": {"type": "integer", "default": 3}},
        "type": "object",
    }


def test_constraints_are_in_the_schema_and_hold() -> None:
    def f(n: Annotated[int, Field(ge=1)], name: Annotated[str, Field(min_length=2)]) -> None: ...

    assert loose(f)["n"] == {"type": "integer", "minimum": 1}
    with pytest.raises(ModelBehaviorError, match="n: Input should be greater than or equal to 1"):
        signature_of(f).read('{"n": 0, "name": "ab"}')
    with pytest.raises(ModelBehaviorError, match="at least 2 characters"):
        signature_of(f).read('{"n": 1, "name": "a"}')


def test_parameters_may_have_any_name() -> None:
    """Names that a pydantic model could not have as fields."""

    def f(schema: str, copy: int, _id: str, model_config: str, self_: int = 1) -> tuple[Any, ...]:
        return schema, copy, _id, model_config, self_

    text = '{"schema": "a", "copy": 1, "_id": "b", "model_config": "c"}'
    assert call(signature_of(f), f, text) == ("a", 1, "b", "c", 1)


def test_an_alias_is_what_the_model_sees() -> None:
    def f(user_name: Annotated[str, Field(alias="userName")] = "guest") -> str:
        return user_name

    signature = signature_of(f)
    assert list(signature.schema["properties"]) == ["userName"]
    assert call(signature, f, '{"userName": "ada"}') == "ada"
    assert call(signature, f, '{"userName": null}') == "guest"


# -- defaults --


def with_defaults(
    query: str, limit: int = 10, *, colour: Colour = Colour.RED, note: str | None = None
) -> Any:
    """Search.

    Args:
        query: What for.
        limit: How many.
    """
    return query, limit, colour, note


def test_strict_form_allows_null_for_optional_arguments() -> None:
    signature = signature_of(with_defaults)
    assert signature.strict
    assert signature.schema["required"] == ["query", "limit", "colour", "note"]
    assert signature.schema["properties"]["limit"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "How many. (null: the default, 10)",
    }
    assert signature.schema["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "text", ['{"query": "a"}', '{"query": "a", "limit": null, "colour": null, "note": null}']
)
@pytest.mark.parametrize("strict", [True, False])
def test_left_out_and_null_both_mean_the_default(text: str, strict: bool) -> None:
    signature = signature_of(with_defaults, strict=strict)
    assert call(signature, with_defaults, text) == ("a", 10, Colour.RED, None)


def test_a_null_that_the_type_takes_is_a_value() -> None:
    def f(limit: int | None = 10) -> Any:
        return limit

    assert call(signature_of(f), f, '{"limit": null}') is None
    assert call(signature_of(f), f, "{}") == 10


def test_null_inside_an_argument_is_not_a_default() -> None:
    def f(point: Point = Point(1, 2)) -> Any:  # noqa: B008
        return point

    with pytest.raises(ModelBehaviorError, match=r"point\.x: Input should be a valid integer"):
        signature_of(f).read('{"point": {"x": null}}')


def test_null_for_a_required_argument_is_refused() -> None:
    with pytest.raises(ModelBehaviorError, match="query: Input should be a valid string"):
        signature_of(with_defaults).read('{"query": null, "limit": null}')


def test_a_default_that_json_cannot_express_still_applies() -> None:
    marker = object()

    def f(a: int = marker, b: float = math.inf) -> Any:  # type: ignore[assignment]
        return a, b

    signature = signature_of(f)
    assert signature.strict
    assert signature.schema["properties"]["a"]["description"] == "(null: the default)"
    assert call(signature, f, '{"a": null}') == (marker, math.inf)


def test_a_default_that_contradicts_the_type_still_applies() -> None:
    def f(a: int = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return a

    assert call(signature_of(f), f, '{"a": null}') is None


def test_pydantic_fields_may_be_defaults() -> None:
    def f(
        a: int = Field(3, ge=1, description="A"),
        b: list[int] = Field(default_factory=list),  # noqa: B008
        c: int = Field(ge=1),
    ) -> Any:
        return a, b, c

    signature = signature_of(f)
    assert signature.strict
    assert call(signature, f, '{"c": 1}') == (3, [], 1)
    assert call(signature, f, '{"a": null, "b": null, "c": 1}') == (3, [], 1)
    assert loose(f)["a"] == {"type": "integer", "minimum": 1, "description": "A", "default": 3}
    with pytest.raises(ModelBehaviorError, match="c: Field required"):
        signature.read("{}")


def test_an_annotated_field_may_hold_the_default() -> None:
    def f(a: Annotated[int, Field(default=3)]) -> Any:
        return a

    assert call(signature_of(f), f, "{}") == 3


# -- how arguments are passed --


def test_positional_only_and_keyword_only_parameters() -> None:
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> Any:
        return a, b, c, d

    assert call(signature_of(f), f, '{"a": 1, "d": 5}') == (1, 2, 3, 5)
    assert call(signature_of(f), f, '{"a": 1, "b": null, "c": 9}') == (1, 2, 9, 4)


def test_the_rest_of_the_positional_arguments_is_a_list() -> None:
    def f(first: int, second: int = 2, *rest: str) -> Any:
        return first, second, rest

    signature = signature_of(f)
    assert loose(f)["rest"] == {"items": {"type": "string"}, "type": "array", "default": []}
    assert call(signature, f, '{"first": 1, "rest": ["a", "b"]}') == (1, 2, ("a", "b"))
    assert call(signature, f, '{"first": 1, "second": 3, "rest": null}') == (1, 3, ())


def test_free_keyword_arguments_are_a_configuration_error() -> None:
    def f(**options: int) -> None: ...

    with pytest.raises(ConfigError, match=r"f: a model cannot fill \*\*options"):
        signature_of(f)


def test_bound_arguments_are_not_in_the_schema() -> None:
    def search(query: str, region: str, api_key: str) -> Any:
        """Search the web."""
        return query, region, api_key

    bound = functools.partial(search, api_key="secret", region="eu")
    signature = signature_of(bound)
    assert (signature.name, signature.description) == ("search", "Search the web.")
    assert list(signature.schema["properties"]) == ["query"]
    assert "secret" not in str(signature.schema)
    assert call(signature, bound, '{"query": "a"}') == ("a", "eu", "secret")


def test_methods_partials_and_objects_are_functions_too() -> None:
    class Shop:
        def find(self, name: str) -> str:
            """Find it."""
            return name

        def __call__(self, name: str) -> str:
            """Call it."""
            return name

    shop = Shop()
    assert list(signature_of(shop.find).schema["properties"]) == ["name"]
    assert signature_of(shop.find).description == "Find it."
    assert signature_of(shop).name == "Shop"
    assert signature_of(shop).description == "Call it."
    assert list(signature_of(functools.partial(shop)).schema["properties"]) == ["name"]


def test_a_decorated_function_keeps_its_signature() -> None:
    def decorated(a: int) -> int:
        """Say it."""
        return a

    @functools.wraps(decorated)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return decorated(*args, **kwargs)

    assert list(signature_of(wrapper).schema["properties"]) == ["a"]


def test_a_callable_without_a_signature_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="the signature of 'min' cannot be read"):
        signature_of(min)


# -- the context --


def test_the_context_is_passed_and_not_shown() -> None:
    def f(ctx: RunContext[int], a: int) -> Any:
        return ctx, a

    signature = signature_of(f)
    assert signature.context == "ctx"
    assert list(signature.schema["properties"]) == ["a"]
    assert call(signature, f, '{"a": 1}', "context") == ("context", 1)


def plain(ctx: ToolContext, a: int) -> Any:
    return ctx


def annotated(ctx: Annotated[RunContext[Any], "of this run"], a: int) -> Any:
    return ctx


def optional(a: int, ctx: ToolContext[Any] | None = None) -> Any:
    return ctx


def keyword(*, ctx: RunContext[Any], a: int) -> Any:
    return ctx


def positional(ctx: RunContext[Any], /, a: int) -> Any:
    return ctx


def before_the_rest(ctx: RunContext[Any], a: int, *rest: int) -> Any:
    return ctx


@pytest.mark.parametrize("function", [plain, annotated, optional, keyword, positional, before_the_rest])
def test_the_context_may_be_declared_in_many_ways(function: Callable[..., Any]) -> None:
    signature = signature_of(function)
    assert signature.context == "ctx"
    assert "ctx" not in signature.schema["properties"]
    assert call(signature, function, '{"a": 1}', "context") == "context"


def test_context_under_type_checking_is_recognised_by_name() -> None:
    def f(ctx: routelock.RunContext[Missing], a: int) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return ctx

    assert signature_of(f).context == "ctx"


def test_two_contexts_are_a_configuration_error() -> None:
    def f(a: RunContext[Any], b: ToolContext[Any]) -> None: ...

    with pytest.raises(ConfigError, match="a and b both take the run's context"):
        signature_of(f)


# -- what cannot be filled --


def test_unknown_annotation_is_named_in_the_error() -> None:
    def pay(amount: Decimal, to: str) -> None: ...

    with pytest.raises(ConfigError, match=r"pay: the type of parameter 'amount', 'Decimal'.*TYPE_CHECKING"):
        signature_of(pay)


def test_local_class_under_deferred_annotations_is_an_error() -> None:
    class Local(pydantic.BaseModel):
        a: int

    def f(it: Local) -> None: ...

    with pytest.raises(ConfigError, match="f: the type of parameter 'it'"):
        signature_of(f)


def test_a_return_annotation_does_not_matter() -> None:
    def f(a: int) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert signature_of(f).strict


def test_type_without_a_json_form_is_named_in_the_error() -> None:
    def f(a: int, done: Callable[[], None]) -> None: ...

    def g(a: int, connection: Signature) -> None: ...

    with pytest.raises(
        ConfigError, match=r"f: parameter 'done' has a type that JSON cannot express.*context"
    ):
        signature_of(f)
    with pytest.raises(ConfigError, match="g: parameter 'connection' has a type that JSON cannot express"):
        signature_of(g)


# -- reading --


@pytest.mark.parametrize("text", ["", "null", "{}", "  ", " null\n"])
def test_no_arguments_can_be_spelled_in_many_ways(text: str) -> None:
    """Providers differ."""

    def f(a: int = 1) -> None: ...

    assert signature_of(f).read(text) == {}


def test_missing_arguments_are_named() -> None:
    with pytest.raises(ModelBehaviorError, match="query: Field required"):
        signature_of(with_defaults).read("")


@pytest.mark.parametrize("text", ["[]", "5", '"text"', "true", "[1, 2]"])
def test_only_an_object_holds_arguments(text: str) -> None:
    def f(a: int = 1) -> None: ...

    with pytest.raises(ModelBehaviorError, match="Input should be an object"):
        signature_of(f).read(text)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ModelBehaviorError, match="limt: Extra inputs are not permitted"):
        signature_of(with_defaults).read('{"query": "a", "limt": 3}')


def test_wrong_next_to_null_is_reported_alone() -> None:
    with pytest.raises(ModelBehaviorError) as caught:
        signature_of(with_defaults).read('{"query": 5, "limit": null}')
    assert str(caught.value).startswith("query: Input should be a valid string.\nYou sent")


def test_numbers_survive_the_dropping_of_nulls() -> None:
    def f(big: int, small: float, note: str = "") -> Any:
        return big, small

    text = '{"big": 123456789012345678901234567890, "small": 0.1, "note": null}'
    assert call(signature_of(f), f, text) == (123456789012345678901234567890, 0.1)


# -- docstrings --


def google(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Uses the nearest station.

    Args:
        city (str): Where.
            In full.
        days: How long.

    Returns:
        Nothing of interest.
    """


def numpy(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Uses the nearest station.

    Parameters
    ----------
    city : str
        Where.
        In full.
    days : int, optional
        How long.

    Returns
    -------
    None
    """


def sphinx(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Uses the nearest station.

    :param city: Where.
        In full.
    :param int days: How long.
    :returns: Nothing of interest.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstrings_of_every_style_describe_the_parameters(function: Callable[..., Any]) -> None:
    signature = signature_of(function, strict=False)
    assert signature.description == "Forecast the weather.\n\nUses the nearest station."
    described = {name: each["description"] for name, each in signature.schema["properties"].items()}
    assert described == {"city": "Where.\nIn full.", "days": "How long."}


def test_a_docstring_without_sections_is_the_description() -> None:
    def f(a: int) -> None:
        """Do it.

        With care: always.
        """

    assert signature_of(f).description == "Do it.\n\nWith care: always."


def test_description_is_empty_without_a_docstring() -> None:
    assert signature_of(lambda a: a).description == ""


def test_nearest_text_describes_a_parameter() -> None:
    def f(
        a: Annotated[int, "text"],
        b: Annotated[int, Field(description="field"), "text"],
        c: Annotated[int, pydantic.AfterValidator(abs)],
    ) -> None:
        """Do it.

        Args:
            a: doc
            b: doc
            c: doc
        """

    assert [each["description"] for each in loose(f).values()] == ["text", "field", "doc"]


def test_reference_with_a_description_is_resolved() -> None:
    def f(address: Address) -> None:
        """Move.

        Args:
            address: The new one.
        """

    signature = signature_of(f)
    assert signature.schema["properties"]["address"]["description"] == "The new one."
    assert signature.schema["properties"]["address"]["properties"]["city"] == {
        "type": "string",
        "description": '(default: "Berlin")',
    }


def test_infinite_and_nan_defaults_are_text_in_the_schema() -> None:
    def f(
        a: dict[str, Any],
        most: float = math.inf,
        bounds: list[float] = [-math.inf, math.nan],  # noqa: B006
        half: str = "\ud800",
    ) -> Any:
        return most

    told = json.dumps(signature_of(f).schema["properties"], allow_nan=False, ensure_ascii=False).encode()
    assert b'"default": "Infinity"' in told
    assert b'"default": ["-Infinity", "NaN"]' in told


def test_default_set_has_one_order() -> None:
    """The order of a set of texts differs from process to process, and would break every cassette."""

    def f(tags: frozenset[str] = frozenset({"c", "a", "b"})) -> None: ...

    assert loose(f)["tags"]["default"] == ["a", "b", "c"]
