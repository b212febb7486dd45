"""Wrong commands and failed runs have different exit codes."""

from __future__ import annotations

import pytest

from routelock.cli.exit_codes import FAILED, WRONG, code_of, exit_code_help
from routelock.errors import ConfigError, MissingExtra, ModelBehaviorError, ProviderError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("two agents of one name"), WRONG),
        (MissingExtra("pip install rich"), WRONG),
        (ModelBehaviorError("no answer"), FAILED),
        (ProviderError("away"), FAILED),
        (OSError("no space left"), FAILED),
    ],
)
def test_an_error_has_its_code(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_help_explains_each_code_on_a_line() -> None:
    codes = [int(line.split()[0]) for line in exit_code_help().splitlines()]
    assert codes == sorted({0, FAILED, WRONG, 3, 130, 141})
