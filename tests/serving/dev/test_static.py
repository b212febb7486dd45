"""The files of the page."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import pytest
from dev_page import dev_page

from routelock import Agent
from routelock.serving.dev.routes import index_page, static_files
from routelock.testing import ScriptedHandler

STATIC = files("routelock.serving.dev").joinpath("static")
SCRIPTS = sorted(name for name in static_files() if name.endswith(".js"))


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    """The policy would keep a browser from them anyway."""
    page = STATIC.joinpath("index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*src=)", page)


@pytest.mark.parametrize("name", [*SCRIPTS, "index.html", "style.css"])
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    text = STATIC.joinpath(name).read_text("utf-8")
    assert not re.search(r"(?:https?:)?//[a-z]+\.[a-z]", re.sub(r"http://www\.w3\.org/\S+", "", text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_becomes_text(name: str) -> None:
    """One place makes markup: of the server's own picture, in graph.js."""
    text = STATIC.joinpath(name).read_text("utf-8")
    sinks = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
    assert sinks == []
    assert ("parseFromString" in text) == (name == "graph.js")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_stay_small(name: str) -> None:
    assert len(STATIC.joinpath(name).read_text("utf-8").splitlines()) <= 200


def test_settings_of_the_page_are_data() -> None:
    hostile = "\"'><script>alert(1)</script>&amp;"
    page = index_page({"agents": [hostile]}).decode()
    assert page.count("<script") == 1
    assert hostile not in page
    assert "\\\"'><script>alert(1)</script>&amp;" in html.unescape(page)


def test_only_the_page_s_own_files_are_there() -> None:
    with dev_page(Agent("a", model=ScriptedHandler([]))) as page:
        for name in ("app.py", "..%2fapp.py", "../app.py", "index.html", "%00"):
            assert page.client.get(f"/static/{name}").status_code == 404


def test_a_trace_is_served_if_it_was_named_and_no_other_file(tmp_path: Path) -> None:
    named, other = tmp_path / "runs.jsonl", tmp_path / "other.jsonl"
    named.write_text('{"type": "run_start"}\n', "utf-8")
    other.write_text("secret", "utf-8")
    with dev_page(Agent("a", model=ScriptedHandler([])), traces=[named]) as page:
        assert page.settings["traces"] == ["runs.jsonl"]
        assert page.client.get("/traces/runs.jsonl").json()["text"] == named.read_text("utf-8")
        for name in ("other.jsonl", "..%2fruns.jsonl", "%2e%2e/other.jsonl"):
            assert page.client.get(f"/traces/{name}").status_code == 404
        named.unlink()
        assert "cannot be read" in page.client.get("/traces/runs.jsonl").json()["error"]


def test_two_traces_of_one_name_are_known_by_their_paths(tmp_path: Path) -> None:
    files_of = [tmp_path / folder / "runs.jsonl" for folder in ("one", "two")]
    for file in files_of:
        file.parent.mkdir()
        file.write_text(file.parent.name)
    named = [*files_of, files_of[0], tmp_path / "other.jsonl"]
    with dev_page(Agent("a", model=ScriptedHandler([])), traces=named) as page:
        assert page.settings["traces"] == [*map(str, files_of), "other.jsonl"]
        texts = [page.client.get(f"/traces/{quote(str(file), safe='')}").json()["text"] for file in files_of]
        assert page.client.get("/traces/runs.jsonl").status_code == 404
    assert texts == ["one", "two"]
