"""The site's table of contents, its index for language models, and the links between its pages."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import REPO

ROOTS = ("runtime", "providers", "skills")
DOCS = REPO / "docs"
OUTSIDE = [
    f"../{name}"
    for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md", "cassettes/README.md")
]
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))

_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)|<img src=\"([^\"]+)\"")


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _named(each)


def test_the_table_of_contents_has_every_page_once() -> None:
    site = yaml.safe_load((REPO / "mkdocs.yml").read_text("utf-8"))
    assert sorted(_named(site["nav"])) == PAGES, "add the page to nav in mkdocs.yml, once"


def test_the_index_for_language_models_has_every_page_once() -> None:
    """As llmstxt.org has it: a title, a summary, and lists of links, each with what it is about."""
    text = (DOCS / "llms.txt").read_text("utf-8")
    assert re.match(r"# routelock\n\n> .+\n", text)
    lines = [line for line in text.split("\n## ", 1)[1].splitlines()[1:] if line and line[:3] != "## "]
    links = [re.fullmatch(r"- \[.+?\]\((.+?)\): .+", line) for line in lines]
    assert [line for line, link in zip(lines, links, strict=True) if link is None] == []
    assert sorted(link[1] for link in links if link) == PAGES, "add the page to docs/llms.txt, once"


@pytest.mark.parametrize("page", [*OUTSIDE, *PAGES])
def test_links_lead_somewhere(page: str) -> None:
    """To pages, their headings, and files; a page of the site links to nothing outside of it."""
    path = DOCS / page
    dead: list[str] = []
    for target, anchor, image in _LINK.findall(_CODE.sub("", path.read_text("utf-8"))):
        name = target or image
        if name.startswith(("https://", "mailto:")):
            continue
        found = (path.parent / name).resolve() if name else path.resolve()
        outside = page in PAGES and DOCS not in found.parents
        if outside or not found.exists() or (anchor and anchor not in _anchors(found)):
            dead.append(f"{name}#{anchor}" if anchor else name)
    assert dead == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_word_has_its_page() -> None:
    """Each page is named like its word, and the table of words is the order of the pages."""
    rows = re.findall(
        r"^\| \[([\w ]+)\]\(([\w-]+)\.md\) \|", (DOCS / "concepts" / "index.md").read_text("utf-8"), re.M
    )
    words = [path.stem for path in (DOCS / "concepts").glob("*.md") if path.stem != "index"]
    assert sorted(page for _, page in rows) == sorted(words)
    assert [word for word, page in rows if word.replace(" ", "-") != page] == []
    site = (REPO / "mkdocs.yml").read_text("utf-8")
    assert re.findall(r": concepts/([\w-]+)\.md", site) == [page for _, page in rows]


def _how_to_pages() -> list[str]:
    """The pages below the parts of the table of contents whose title begins with "How to"."""
    nav = yaml.safe_load((REPO / "mkdocs.yml").read_text("utf-8"))["nav"]
    parts = [part for entry in nav if isinstance(entry, dict) for part in entry.items()]
    return [page for title, pages in parts if title.startswith("How to") for page in _named(pages)]


@pytest.mark.parametrize("page", _how_to_pages())
def test_a_how_to_page_is_short_and_begins_with_its_tasks(page: str) -> None:
    """A reader finds the task in a list of links at the top, and the page has no more than 250 lines."""
    text = (DOCS / page).read_text("utf-8")
    assert len(text.splitlines()) <= 250
    before_first_heading = text.split("\n## ", 1)[0]
    assert re.search(r"^I want to\n\n(?:[*] .*\[.+?\]\(.+?\).*\n(?:  .+\n)*)+", before_first_heading, re.M)


@pytest.mark.parametrize(
    "page", [*_how_to_pages(), *(p for p in PAGES if p.startswith(("concepts/", "tutorial/")))]
)
def test_a_sentence_names_its_subject(page: str) -> None:
    """The run, the model, the caller: not "whoever" or "somebody", for which a reader has to guess."""
    text = _CODE.sub("", (DOCS / page).read_text("utf-8"))
    assert re.findall(r"(?i)\b(?:whoever|nobody|somebody|anybody)\b", text) == []


def test_written_files_are_up_to_date() -> None:
    """docs/llms-full.txt, and the README for the package index."""
    script = runpy.run_path(str(REPO / "scripts" / "write_docs.py"))
    stale = [path.name for path, text in script["written"]().items() if path.read_text("utf-8") != text]
    assert not stale, f"run scripts/write_docs.py: {stale}"


@pytest.mark.parametrize("address", [None, "https://git.example/routelock"])
def test_the_readme_for_the_package_index_has_no_relative_link(address: str | None) -> None:
    """The package index does not resolve them. It begins with how to install the package."""
    script = runpy.run_path(str(REPO / "scripts" / "write_docs.py"))
    text = script["package_readme"]((REPO / "README.md").read_text("utf-8"), address)
    assert text.split("```", 2)[1] == "sh\npip install routelock\n"
    targets = [target or image for target, _, image in _LINK.findall(_CODE.sub("", text))]
    assert [target for target in targets if not target.startswith("https://")] == []
    assert re.findall("<!-- /?(?:checkout|repository) -->|from a checkout", text) == []
    assert ("https://git.example/routelock/blob/main/docs/guarantees.md" in text) == (address is not None)


def test_pictures_are_what_is_drawn() -> None:
    script = runpy.run_path(str(REPO / "scripts" / "draw_docs.py"))
    stale = [
        name
        for name, draw in script["PICTURES"].items()
        if (DOCS / "images" / name).read_text("utf-8") != draw()
    ]
    assert not stale, f"run scripts/draw_docs.py: {stale}"


# -- the reference --


def _listed() -> list[str]:
    pages = sorted((DOCS / "reference").glob("*.md"))
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.M)]


def _imports(text: str) -> Iterator[tuple[str, str]]:
    """(module, name) of what a program takes from routelock."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("routelock"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _shown() -> Iterator[tuple[str, str]]:
    """What the docs and the examples tell people to import."""
    for page in (REPO / "README.md", *DOCS.rglob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            yield from _imports(block)
    for program in (REPO / "examples").rglob("*.py"):
        yield from _imports(program.read_text("utf-8"))


@cache
def _exported(module: str) -> tuple[str, ...]:
    """What `__all__` says; nothing is loaded for it."""
    place = module.replace(".", "/")
    for path in (REPO / root / f"{place}{end}" for root in ROOTS for end in (".py", "/__init__.py")):
        for node in ast.parse(path.read_text("utf-8")).body if path.exists() else ():
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    return tuple(ast.literal_eval(value))
    return ()


def test_the_reference_has_each_module_once() -> None:
    listed = _listed()
    assert [name for name in listed if listed.count(name) > 1] == []
    assert [name for name in listed if not _exported(name)] == []


def test_the_reference_has_every_front_door() -> None:
    """A package that exports anything is a door."""
    packages = {
        path.parent.relative_to(REPO / root).as_posix().replace("/", ".")
        for root in ROOTS
        for path in (REPO / root).rglob("__init__.py")
    }
    closed = sorted(name for name in packages - set(_listed()) if _exported(name))
    assert not closed, f"add `::: name` to a page of docs/reference: {closed}"


def test_what_the_docs_import_is_in_the_reference() -> None:
    documented = {(name, each) for name in _listed() for each in _exported(name)}
    absent = sorted({".".join(each) for each in _shown() if each not in documented})
    assert not absent, f"add `::: module` to a page of docs/reference, or import from a front door: {absent}"
