"""Any history, as hypothesis makes one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from routelock.history.messages import Message
from routelock.history.repair import repair
from routelock.testing import call

TEXTS = st.sampled_from(["", " ", "Hi", "naïve", "a\n"])
TEXT_PARTS = TEXTS.map(lambda text: {"type": "text", "text": text})
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PARTS = st.lists(TEXT_PARTS | st.just(IMAGE), max_size=3)
IDS = st.sampled_from(["a", "abcDEF123", "x" * 41, "x" * 65, "é", "a b", "call_1"]) | st.text(min_size=1)
NAMES = st.sampled_from(["f", "transfer_to_x", "a.b", "é", "2fa", "x" * 80])
ARGUMENTS = st.sampled_from(["", "{}", '{"x":1}', "[1]", '{"x"'])
PRIVATE = st.sampled_from([{}, {"_origin": "x"}, {"refusal": None}, {"name": "n"}])


@st.composite
def handed_over(draw: st.DrawFn) -> list[Message]:
    """Messages as a handler is given them: any list, repaired."""
    out: list[Any] = []
    for role in draw(st.lists(st.sampled_from("user assistant calls system developer".split()), max_size=7)):
        if role == "calls":
            ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
            calls = [call(draw(NAMES), draw(ARGUMENTS), id=each) for each in ids]
            out.append({"role": "assistant", "content": draw(TEXTS | st.none()), "tool_calls": calls})
            answers = [{"role": "tool", "tool_call_id": each, "content": draw(TEXTS | PARTS)} for each in ids]
            out += draw(st.permutations(answers))
        elif role == "user":
            out.append({"role": role, "content": draw(TEXTS | PARTS)})
        elif role == "assistant":
            said = draw(TEXTS | st.lists(TEXT_PARTS, max_size=2) | st.none())
            out.append({"role": role, "content": said} | draw(PRIVATE))
        else:
            out.append({"role": role, "content": draw(TEXTS)})
    return repair(out)[0]
