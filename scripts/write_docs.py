"""Write the files that are made from README.md and from the pages of docs/; a test holds them up to date.

* docs/llms-full.txt: all pages that docs/llms.txt lists, except the reference, in one file.
* README.pypi.md: README.md as the package index shows it, with `pip install` first and with absolute links.

usage: write_docs.py
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).parent.parent
DOCS = REPO / "docs"
FULL = DOCS / "llms-full.txt"
PACKAGE = REPO / "README.pypi.md"

_LISTED = re.compile(r"^- \[[^\]]+\]\(([^)]+)\): ", re.MULTILINE)
_PART = re.compile(r"<!-- (checkout|repository) -->\n(.*?)<!-- /\1 -->\n", re.DOTALL)
_IMAGE = re.compile(r'^<img src="(?!https:)([^"]+)"([^>]*)>\n\n?', re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https:|#)([^)\s]+)\)")
_INSTALL = "```sh\npip install routelock\n```\n\n"


def pages() -> Iterator[Path]:
    """Yield the pages that docs/llms.txt lists, in its order, without those of the reference."""
    listed = _LISTED.findall((DOCS / "llms.txt").read_text("utf-8"))
    yield from (DOCS / page for page in listed if not page.startswith("reference/"))


def full_text() -> str:
    """Return the head of docs/llms.txt and then each page, below a line with its path."""
    head = (DOCS / "llms.txt").read_text("utf-8").split("\n## ", 1)[0]
    head = head.replace(" [All guides in one file](llms-full.txt).", "")
    parts = [f"<!-- {page.relative_to(DOCS)} -->\n\n{page.read_text('utf-8').strip()}\n" for page in pages()]
    return "\n".join([head.strip() + "\n", *parts])


def repository() -> str | None:
    """Return the address of the repository that pyproject.toml names; None without one."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    address: str | None = project.get("urls", {}).get("Repository")
    return address and address.rstrip("/")


def package_readme(text: str, address: str | None) -> str:
    """Return a README as the package index shows it.

    Args:
        text: README.md. What stands between ``<!-- checkout -->`` and ``<!-- /checkout -->`` is left out.
        address: of the repository. The package index cannot resolve a relative link. So without an address
            links into the repository become plain text, and its pictures are left out, and so is what stands
            between ``<!-- repository -->`` and ``<!-- /repository -->``.
    """
    kept = _PART.sub(lambda part: part[2] if part[1] == "repository" and address else "", text)
    title, rest = kept.split("\n\n", 1)
    about, rest = rest.split("\n\n", 1)
    raw = f"{address}/raw/main/" if address else None
    rest = _IMAGE.sub(lambda found: f'<img src="{raw}{found[1]}"{found[2]}>\n\n' if raw else "", rest)
    shown = _absolute(f"{title}\n\n{about}\n\n{_INSTALL}{rest}", address)
    return re.sub(r"\n{3,}", "\n\n", shown)


def _absolute(text: str, address: str | None) -> str:
    def link(found: re.Match[str]) -> str:
        return f"[{found[1]}]({address}/blob/main/{found[2]})" if address else found[1]

    return _LINK.sub(link, text)


def written() -> dict[Path, str]:
    """Return the text of each file that this script writes."""
    readme = (REPO / "README.md").read_text("utf-8")
    return {FULL: full_text(), PACKAGE: package_readme(readme, repository())}


def main() -> None:
    """Write the files."""
    for path, text in written().items():
        path.write_text(text, "utf-8")
        print(f"{path.relative_to(REPO)}: {len(text):,} characters")


if __name__ == "__main__":
    main()
