"""What a package index shows of the project."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from paths import REPO

FIELDS: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))


def test_the_metadata_is_complete() -> None:
    project = FIELDS["project"]
    assert {
        "name",
        "version",
        "description",
        "license",
        "license-files",
        "authors",
        "keywords",
    } <= project.keys()
    assert project["keywords"] == sorted(set(project["keywords"]))
    assert project["classifiers"] == sorted(set(project["classifiers"]))
    assert len(project["description"]) <= 100
    assert "License ::" not in str(project["classifiers"]), "the SPDX expression says it"


def test_every_dependency_has_a_lower_bound() -> None:
    """Without one, `make test-lowest` would test nothing."""
    project = FIELDS["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for each in extras for line in each)]
    assert [line for line in lines if ">=" not in line and not line.startswith("routelock[")] == []


def test_every_package_is_in_the_wheel_and_says_that_it_is_typed() -> None:
    packages = FIELDS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(
        path.parent.relative_to(REPO).as_posix()
        for root in ("runtime", "providers", "skills")
        for path in (REPO / root).glob("*/__init__.py")
    )
    assert all((REPO / package / "py.typed").is_file() for package in packages)


def test_the_version_is_the_one_in_the_changelog() -> None:
    """Before a release the first heading is Unreleased, and afterwards the version's."""
    headings = re.findall(r"^## \[(.+?)\]", (REPO / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[0] in ("Unreleased", FIELDS["project"]["version"])
