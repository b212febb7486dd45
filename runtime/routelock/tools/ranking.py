"""Ranks tools by a question in words: BM25 over names, descriptions, origins and parameters, with synonyms.

It is Okapi BM25 (https://en.wikipedia.org/wiki/Okapi_BM25) with a weight for each field. Four additions
find a tool by words that do not occur in it, or bring the right one of many similar tools to the front:

* Words are reduced to stems, a synonym counts nearly like the word itself, and an unknown word stands for the
  words that begin like it, or are a slip of the keyboard away.
* "data source" finds ``datasource`` and the other way round, and "GitHub" finds ``github``.
* A tool counts more, the more words of its name the question covers: "list issues" is ``list_issues`` rather
  than ``list_issue_comments``.
* A tool counts less if it does another kind of action than the question asks for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import TYPE_CHECKING, Any, cast

from routelock.tools.stems import split, stem

if TYPE_CHECKING:
    from routelock.tools.search import SearchedTool

__all__ = ["ToolIndex"]


_NAME, _DESCRIPTION, _ORIGIN, _PARAMETERS = 2.5, 1.0, 1.0, 0.3
"""How much a word counts in each field."""

_K1, _B = 1.2, 0.4
"""The constants of BM25; ``b`` is low, because a long description is no worse than a short one."""

_SYNONYM, _LIKE, _LIGHT = 0.8, 0.6, 0.5
"""How much a synonym counts, a word that begins like an unknown one, and a word of `_LIGHT_WORDS`."""

_COVER = 1.0
"""How much more a tool counts if the question has all words of its name."""

_OTHER_ACTION = 0.8
"""How much a tool counts that does another kind of action than the question asks for."""

_ASKING = frozenset(
    "what which who whose will where when how is are am was were does did has have any whats wheres hows "
    "whos".split()
)
"""A text that begins with one of these asks for something to read."""

_LIGHT_WORDS = """
who take put make have get give bring keep set go come do say tell see look try turn want need find show
let new work thing way where when how what which is are today tomorrow yesterday tonight morning afternoon
evening night week month year day hour minute time now later soon next last first monday tuesday wednesday
thursday friday saturday sunday long short much many more less few all every everyone people one two three
four five six seven eight nine ten old good bad big small other another same own whole current latest
recent company place person stay use customer user system service call add write open read check
"""
"""Words that say little about which tool is meant."""

_ACTIONS: Mapping[str, str] = {
    "read": (
        "get list search view show check find read fetch describe retrieve lookup query browse see display"
    ),
    "make": (
        "create add new make insert generate register send post book place start put write upload save "
        "draft submit"
    ),
    "change": "update edit modify change set rename move patch",
    "remove": "delete remove cancel close archive drop purge clear revoke terminate destroy trash",
}
"""The kinds of action, and the words that say that a tool does one."""

_REFUSING = re.compile(
    r"((i|we|you|please) )?(do not|don.?t|can.?t|cannot|no longer|won.?t|will not|never)\b"
)
"""A text that begins like this asks for something to end."""

_COMMON = 0.05
"""A word is common if a larger share of the tools has it."""

_MOST_REPEATS = 2
"""How often a word counts in one text: further repeats say nothing new."""

_MOST_VALUES = 50
"""How many values of a parameter are read."""

_WIDEST_GAP = 4
"""How many other words of a question may stand between the two words of a phrase: "take the page down"."""

_OF_ANY_ORIGIN = frozenset(map(stem, "agent api com mcp server service".split()))
"""Words in the names of servers and agents that tell none from another."""

_STOP_WORDS = frozenset(
    """
    a able about also am an and any are as at be been but by can cannot could d did do does don for from going
    gonna had has have he help her him his how i id if im in into is it its just let lets like ll m me
    my need needed needs of off on or our out please re really s she should so some somebody someone
    something t than that the their them then there these they this those to tool tools up us use used
    using ve via want wants was we were what whats when which whose will with would you your
    """.split()
)

_CAMEL = re.compile("[A-Z][a-z]+[A-Z][a-zA-Z]*")
"""A word such as "GitHub"."""


class _Scores(dict[int, float]):
    """The scores of tools, by number. A tool without one has none."""

    def best(self, others: Mapping[int, float], weight: float = 1.0) -> None:
        """Take the better of each two scores."""
        for place, score in others.items():
            self[place] = max(self.get(place, 0.0), weight * score)

    def add(self, others: Mapping[int, float], weight: float = 1.0) -> None:
        """Add scores."""
        for place, score in others.items():
            self[place] = self.get(place, 0.0) + weight * score


class ToolIndex:
    """The words of a set of tools. It is built once and never changes, so threads may share it."""

    def __init__(self, tools: Sequence[SearchedTool]) -> None:
        self._names = [tool.name for tool in tools]
        self._postings: dict[str, dict[int, float]] = {}
        """For each word, the tools that have it, by number, and how much it counts there."""
        self._in_name: dict[str, dict[int, float]] = {}
        """For each word, the tools that have it in their names, and its share of the name."""
        self._spread: Counter[str] = Counter()
        """For each word, how many tools have it in their names or descriptions."""
        self._actions: list[frozenset[str]] = []
        """The kinds of actions of each tool, by its name."""
        texts = [_Texts(tool) for tool in tools]
        mean = sum(text.length for text in texts) / max(1, len(texts)) or 1.0
        for place, text in enumerate(texts):
            norm = _K1 * (1 - _B + _B * text.length / mean)
            for word, count in text.counts.items():
                self._postings.setdefault(word, {})[place] = count * (_K1 + 1) / (count + norm)
            self._spread.update(text.main)
            for word in text.name:
                self._in_name.setdefault(word, {})[place] = 1 / len(text.name)
            self._actions.append(frozenset(kind for word in text.name for kind in _kinds().get(word, ())))
        self._by_letter: dict[str, list[str]] = defaultdict(list)
        """The words by their first letter."""
        for word in self._postings:
            self._by_letter[word[0]].append(word)

    def rank(self, query: str) -> list[str]:
        """Return the names of the tools that fit, the best first; of equal ones the first declared."""
        units = _units(query, self._postings)
        total, covered = _Scores(), _Scores()
        for unit in units:
            scores, cover = self._word_scores(unit.name)
            apart, apart_cover = _Scores(), _Scores()
            for word in unit.words:
                more, more_cover = self._word_scores(word)
                apart.add(more)
                apart_cover.add(more_cover)
            scores.best(apart)
            cover.best(apart_cover)
            total.add(scores)
            covered.add(cover)
        wanted = _wanted(query, units)
        for place in total:
            total[place] *= 1 + _COVER * covered.get(place, 0.0)
            if self._actions[place] and not wanted & self._actions[place]:
                total[place] *= _OTHER_ACTION
        return [self._names[place] for place in sorted(total, key=lambda place: (-total[place], place))]

    def _word_scores(self, word: str) -> tuple[_Scores, _Scores]:
        """Return the scores of tools for a word, and which share of their names it covers.

        A score is the best of the word and of its synonyms.
        """
        exact = self._postings.get(word, {})
        weight, meanings = _SYNONYM, self._known_meanings(word)
        if not exact and not meanings:
            weight, meanings = _LIKE, [[*self._like(word)]]
        is_light = word in _light_words() or word.isdecimal()
        if is_light or word.partition("_")[0] in _light_words() or len(exact) > _COMMON * len(self._names):
            # such a word says little, so a rare synonym of it must not count as a rare word
            meanings = [[other for others in meanings for other in others]]
        scores, cover = _Scores(), _Scores(self._in_name.get(word, {}))
        scores.add(exact, self._rarity([word]))
        for others in meanings:
            scores.best(self._synonym_scores([word, *others], others), weight)
            for other in others:
                cover.best(self._in_name.get(other, {}), weight)
        return (
            _Scores({place: _LIGHT * each for place, each in scores.items()}) if is_light else scores
        ), cover

    def _known_meanings(self, word: str) -> Sequence[Sequence[str]]:
        """Return the synonyms of a word that tools have, one list for each of its meanings."""
        known = (
            [other for other in others if other in self._postings] for others in _meanings().get(word, ())
        )
        return [others for others in known if others]

    def _synonym_scores(self, meaning: Sequence[str], words: Sequence[str]) -> Mapping[int, float]:
        """Return the scores of tools for some words of one meaning, all of which are as rare as together."""
        counts = _Scores()
        for word in words:
            counts.best(self._postings.get(word, {}))
        rarity = self._rarity(meaning)
        return {place: rarity * count for place, count in counts.items()}

    def _rarity(self, words: Sequence[str]) -> float:
        """Return how much words of one meaning count, by the number of tools that have them.

        Parameters do not make a word common, as long as names or descriptions have it.
        """
        count = sum(self._spread[word] for word in words)
        if not count:
            count = sum(len(self._postings.get(word, ())) for word in words)
        total = len(self._names)
        count = min(count, total)
        return log(1 + (total - count + 0.5) / (count + 0.5))

    def _like(self, word: str) -> Iterator[str]:
        """Yield the known words for an unknown one.

        They begin like it, are a slip away or the opposite, or there are two that make it up.
        """
        for known in self._by_letter.get(word[:1], ()):
            same = _shared_prefix(word, known)
            if (same >= 5 and same >= 0.6 * max(len(word), len(known))) or _is_slip(word, known):
                yield known
        for place in range(3, len(word) - 2):
            if word[:place] in self._postings and word[place:] in self._postings:
                yield from (word[:place], word[place:])
        if word.startswith("un") and word[2:] in self._postings:
            yield word[2:]


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word of a question, or a phrase and its words."""

    name: str
    words: tuple[str, ...] = ()
    is_plural: bool = False
    """Whether it is one word that ends like a plural, so that it is hardly a verb."""


class _Texts:
    """The words of one tool."""

    __slots__ = ("counts", "length", "main", "name")

    def __init__(self, tool: SearchedTool) -> None:
        name = [*_text_words(tool.name, re.findall(r"\d+", tool.name))]
        whole = (stem(each.lower()) for each in _CAMEL.findall(tool.description))
        description = [*_text_words(tool.description), *whole]
        origin = [word for word in _text_words(tool.origin or "") if word not in _OF_ANY_ORIGIN]
        self.name = [*dict.fromkeys(word for word in name if "_" not in word)]
        """The words of the name."""
        self.main = {*name, *description, *origin}
        """All but those of the parameters."""
        self.counts: dict[str, float] = defaultdict(float)
        """How much each word counts in all fields together."""
        fields = (
            (_NAME, name),
            (_DESCRIPTION, description),
            (_ORIGIN, origin),
            (_PARAMETERS, _text_words(" ".join(_parameter_texts(tool.parameters)))),
        )
        for weight, words in fields:
            for word, count in Counter(words).items():
                self.counts[word] += weight * min(count, _MOST_REPEATS)
        self.length = sum(self.counts.values())


def _parameter_texts(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names and descriptions of the parameters, and the values that they may have."""
    properties: object = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, each in cast("Mapping[str, object]", properties).items():
        yield str(name)
        if isinstance(each, Mapping):
            parameter = cast("Mapping[str, Any]", each)
            yield str(parameter.get("description") or "")
            if isinstance(values := parameter.get("enum"), list):
                yield " ".join(map(str, cast("list[object]", values)[:_MOST_VALUES]))


def _text_words(text: str, numbers: Collection[str] = ()) -> Iterator[str]:
    """Yield the stems of a text without stop words, and the known phrases in it; of numbers only these."""
    words, stems = split(text, numbers)
    for place, (word, each) in enumerate(zip(words, stems, strict=True)):
        if phrase := _phrase_at(place, stems, gap=0):
            yield _joined(phrase, stems)
        if word not in _STOP_WORDS:
            yield each


def _units(text: str, known: Collection[str]) -> Sequence[_Unit]:
    """Return the words of a question that count, as stems, each once.

    Words that are a phrase, or one word in some tool, are one unit: the phrase, then its words.

    Args:
        text: the question.
        known: the words of the tools, with the numbers in their names.
    """
    words, stems = split(text, known)
    used: set[int] = set()
    units: list[_Unit] = []
    for place, word in enumerate(words):
        if place in used:
            continue
        phrase = _phrase_at(place, stems, gap=_WIDEST_GAP)
        name = _joined(phrase, stems)
        after = place + 1
        together = stem(word + words[after]) if after < len(words) and after not in used else ""
        if together in known and name not in known:
            phrase, name = (place, after), together
        used.update(phrase)
        apart = tuple(stems[each] for each in phrase or [place] if words[each] not in _STOP_WORDS)
        if phrase:
            units.append(_Unit(name, apart))
        elif apart:
            units.append(_Unit(apart[0], is_plural=word.endswith("s") and not word.endswith("ss")))
    return [*dict.fromkeys(units)]


def _wanted(text: str, units: Sequence[_Unit]) -> Set[str]:
    """Return the kinds of action that a question asks for; a thing without an action is read or made."""
    words, _ = split(text)
    if _REFUSING.match(text.lower()):
        return {"remove"}
    if not _ASKING.isdisjoint(words[:1]):
        return {"read"}
    for place, unit in enumerate(units):
        if unit.is_plural:
            continue
        # a verb comes first, and the words after it may be nouns, so only the first may be a synonym of one
        meanings = () if place or unit.name in _kinds() else _meanings().get(unit.name, ())
        asked = (unit.name, *(each for meaning in meanings for each in meaning))
        if kinds := {kind for word in asked for kind in _kinds().get(word, ())}:
            return kinds
    return {"read"} if any(unit.is_plural for unit in units) else {"read", "make"}


def _phrase_at(place: int, stems: Sequence[str], *, gap: int) -> Sequence[int]:
    """Return the places of the words of the known phrase that begins at a place; empty if none does.

    A phrase of three words wins over one of two.

    Args:
        place: where it begins.
        stems: all words.
        gap: how many other words may stand between the words of a phrase of two.
    """
    pairs = [(place, last) for last in range(place + 1, place + 2 + gap)]
    for phrase in ((place, place + 1, place + 2), *pairs):
        if phrase[-1] < len(stems) and _joined(phrase, stems) in _phrases():
            return phrase
    return ()


def _joined(places: Sequence[int], stems: Sequence[str]) -> str:
    return "_".join(stems[place] for place in places)


def _shared_prefix(one: str, other: str) -> int:
    """Return how many letters two words have in common at their beginning."""
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return place
    return min(len(one), len(other))


def _is_slip(one: str, other: str) -> bool:
    """Whether two long words differ by one letter, or by two that are swapped."""
    if min(len(one), len(other)) < 5 or abs(len(one) - len(other)) > 1:
        return False
    start = _shared_prefix(one, other)
    end = _shared_prefix(one[start:][::-1], other[start:][::-1])
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


@cache
def _meanings() -> Mapping[str, Sequence[Sequence[str]]]:
    """Return for each word its meanings, each as the words that tools use for it."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for line in _synonyms():
        of_tools, _, of_users = line.partition(" = ")
        known = [*map(_phrase_stem, of_tools.split())]
        for word in (*known, *map(_phrase_stem, of_users.split())):
            found[word].append([other for other in known if other != word])
    return found


def _synonyms() -> Iterator[str]:
    """Return the lines of ``synonyms.txt``, which says what they mean."""
    text = files("routelock.tools").joinpath("synonyms.txt").read_text(encoding="utf-8")
    for line in text.replace("\n  ", " ").splitlines():
        if line and not line.startswith("#"):
            yield line


def _phrase_stem(phrase: str) -> str:
    return "_".join(map(stem, phrase.split("_")))


@cache
def _phrases() -> Collection[str]:
    return frozenset(word for word in _meanings() if "_" in word)


@cache
def _light_words() -> Collection[str]:
    return frozenset(map(stem, _LIGHT_WORDS.split()))


@cache
def _kinds() -> Mapping[str, frozenset[str]]:
    """Return for each action its kinds."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind, words in _ACTIONS.items():
        for word in words.split():
            found[stem(word)].add(kind)
    return {word: frozenset(kinds) for word, kinds in found.items()}
