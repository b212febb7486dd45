"""Ranks tools by a question in words: BM25 over names, descriptions and parameters, with synonyms.

It is Okapi BM25 (https://en.wikipedia.org/wiki/Okapi_BM25) with a weight for each field. Three additions
find a tool by words that do not occur in it: words are reduced to stems, a synonym counts nearly like the
word itself, and an unknown word stands for the words that begin like it. Tools that read or make something
get a bonus, so they come first where a question names a thing and no action.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from math import log
from typing import TYPE_CHECKING, Any, cast

from routelock._tool_names import name_words
from routelock.tools.synonyms import LIGHT_WORDS, SYNONYMS

if TYPE_CHECKING:
    from routelock.tools.search import SearchedTool

__all__ = ["ToolIndex"]


_NAME, _DESCRIPTION, _PARAMETERS = 2.5, 1.0, 0.3
"""How much a word counts in each field."""

_K1, _B = 1.2, 0.4
"""The constants of BM25; ``b`` is low, because a long description is no worse than a short one."""

_SYNONYM, _LIKE, _LIGHT = 0.9, 0.6, 0.6
"""How much a synonym counts, a word that begins like an unknown one, and a word of `LIGHT_WORDS`."""

_READ, _MAKE = 0.15, 0.5
"""The bonus of tools that read or make something. For a text that asks they are 1 and 0."""

_READING = "get list search view show check find read fetch describe retrieve lookup"

_MAKING = "create add new make insert generate register send book place start"

_ASKING = frozenset(
    "what which who whose will where when how is are am was were does did has have any whats wheres hows "
    "whos".split()
)
"""A text that begins with one of these asks for something to read."""

_COMMON = 0.05
"""A word is common if a larger share of the tools has it."""

_MOST_REPEATS = 2
"""How often a word counts in one text: further repeats say nothing new."""

_MOST_VALUES = 50
"""How many values of a parameter are read."""

_WIDEST_GAP = 4
"""How many other words of a question may stand between the two words of a phrase: "take the page down"."""

_STOP_WORDS = frozenset(
    """
    a able about also am an and any are as at be been but by can could d did do does for from going
    gonna had has have he help her him his how i id if im in into is it its just let lets like ll m me
    my need needed needs of off on or our out please re really s she should so some somebody someone
    something t than that the their them then there these they this those to tool tools up us use used
    using ve via want wants was we were what whats when which whose will with would you your
    """.split()
)


class ToolIndex:
    """The words of a set of tools. It is built once and never changes, so threads may share it."""

    def __init__(self, tools: Sequence[SearchedTool]) -> None:
        self._names = [tool.name for tool in tools]
        counts = [_weighted_words(tool) for tool in tools]
        lengths = [sum(words.values()) for words in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        self._postings: dict[str, dict[int, float]] = {}
        """For each word, the tools that have it, by number, and how much it counts there."""
        for place, (words, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = _K1 * (1 - _B + _B * length / mean)
            for word, count in words.items():
                self._postings.setdefault(word, {})[place] = count * (_K1 + 1) / (count + norm)

    def rank(self, query: str) -> list[str]:
        """Return the names of the tools that fit, the best first; of equal ones the first declared."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(_query_words(query)):
            weight = _LIGHT if word in _light_words() else 1.0
            for place, score in self._word_scores(word).items():
                scores[place] += weight * score
        is_asking = not _ASKING.isdisjoint(name_words(query)[:1])
        self._add_bonus(scores, _READING, 1.0 if is_asking else _READ)
        self._add_bonus(scores, _MAKING, 0.0 if is_asking else _MAKE)
        return [self._names[place] for place in sorted(scores, key=lambda place: (-scores[place], place))]

    def _add_bonus(self, scores: dict[int, float], actions: str, weight: float) -> None:
        """Raise the scores of those tools that do one of some actions; a tool without a score gets none."""
        for place, score in self._synonym_scores([*map(_stem, actions.split())]).items():
            if place in scores:
                scores[place] += weight * _SYNONYM * score

    def _word_scores(self, word: str) -> Mapping[int, float]:
        """Return the scores of tools for a word of the question: the best of the word and of its synonyms."""
        exact = self._postings.get(word, {})
        weight, meanings = _SYNONYM, self._known_meanings(word)
        if not exact and not meanings:
            weight, meanings = _LIKE, [[*self._like(word)]]
        if word in _light_words() or len(exact) > _COMMON * len(self._names):
            # such a word says little, so a rare synonym of it must not count as a rare word
            meanings = [[other for others in meanings for other in others]]
        rarity = self._rarity(len(exact))
        scores = {place: rarity * count for place, count in exact.items()}
        for others in meanings:
            for place, score in self._synonym_scores(others, exact).items():
                scores[place] = max(scores.get(place, 0.0), weight * score)
        return scores

    def _known_meanings(self, word: str) -> Sequence[Sequence[str]]:
        """Return the synonyms of a word that tools have, one list for each of its meanings."""
        known = (
            [other for other in others if other in self._postings] for others in _meanings().get(word, ())
        )
        return [others for others in known if others]

    def _synonym_scores(self, words: Sequence[str], beside: Collection[int] = ()) -> Mapping[int, float]:
        """Return the scores of tools for words of one meaning.

        The words count as one: its rarity is that of all of them together.

        Args:
            words: the words.
            beside: tools that have another word of this meaning, which count for the rarity only.
        """
        counts: dict[int, float] = {}
        for word in words:
            for place, count in self._postings.get(word, {}).items():
                counts[place] = max(counts.get(place, 0.0), count)
        rarity = self._rarity(len(counts.keys() | beside))
        return {place: rarity * count for place, count in counts.items()}

    def _rarity(self, count: int) -> float:
        """Return how much a word counts that so many tools have."""
        return log(1 + (len(self._names) - count + 0.5) / (count + 0.5))

    def _like(self, word: str) -> Iterator[str]:
        """Yield the known words that begin like an unknown one, and two known words that make it up."""
        for known in self._postings:
            same = _shared_prefix(word, known)
            if same >= 5 and same >= 0.6 * max(len(word), len(known)):
                yield known
        for place in range(3, len(word) - 2):
            if word[:place] in self._postings and word[place:] in self._postings:
                yield from (word[:place], word[place:])


def _weighted_words(tool: SearchedTool) -> Mapping[str, float]:
    """Return how much each word of a tool counts in all its fields together."""
    found: dict[str, float] = defaultdict(float)
    fields = (
        (_NAME, tool.name),
        (_DESCRIPTION, tool.description),
        (_PARAMETERS, " ".join(_parameter_texts(tool.parameters))),
    )
    for weight, text in fields:
        for word, count in Counter(_text_words(text)).items():
            found[word] += weight * min(count, _MOST_REPEATS)
    return found


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


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a text, and their stems."""
    words = name_words(text.replace("'", " ").replace("\N{RIGHT SINGLE QUOTATION MARK}", " "))
    return words, [*map(_stem, words)]


def _text_words(text: str) -> Iterator[str]:
    """Yield the stems of a text without stop words, and the known phrases in it."""
    words, stems = _split(text)
    for place, (word, stem) in enumerate(zip(words, stems, strict=True)):
        if phrase := _phrase_at(place, stems, gap=0):
            yield _joined(phrase, stems)
        if word not in _STOP_WORDS:
            yield stem


def _query_words(text: str) -> Iterator[str]:
    """Yield the stems of a question without stop words; a known phrase stands in place of its words."""
    words, stems = _split(text)
    in_phrases: set[int] = set()
    for place, (word, stem) in enumerate(zip(words, stems, strict=True)):
        if place in in_phrases:
            continue
        phrase = _phrase_at(place, stems, gap=_WIDEST_GAP)
        if phrase:
            in_phrases.update(phrase)
            yield _joined(phrase, stems)
        # two words with others between them may be no phrase, so the first counts by itself, too
        has_gap = phrase and phrase[-1] >= place + len(phrase)
        if (has_gap or not phrase) and word not in _STOP_WORDS:
            yield stem


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


def _stem(word: str) -> str:
    """Return a word without the common endings of English; words of other languages mostly stay as they are.

    It is a short form of Porter's algorithm (https://tartarus.org/martin/PorterStemmer/).
    """
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3:
        return word
    word = _without_tense(_singular(word))
    for ending, shortest in _ENDINGS:
        root = word.removesuffix(ending)
        if root != word and len(root) >= shortest and not _is_short(root):
            word = root
            break
    if len(word) > 4 and word.endswith("ll"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word[-1] == "y" and word[-2] not in "aeiou" else word


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_tense(word: str) -> str:
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and _VOWEL.search(root):
            is_doubled = root[-1] == root[-2:-1] and root[-1] not in "lsz"
            return root[:-1] if is_doubled else root + "e" * _is_short(root)
    return word


def _is_short(root: str) -> bool:
    """Whether a root is one syllable that ends like "hop": its word has a final e."""
    return _SHORT.fullmatch(root) is not None


_ENDINGS = (
    ("ification", 3),
    ("ify", 3),
    ("ation", 5),
    ("ate", 5),
    ("ance", 5),
    ("ence", 5),
    ("ment", 4),
    ("al", 5),
    ("ion", 4),
    ("er", 5),
    ("e", 3),
)
"""Each ending, and the length of the shortest root that is left without it."""

_IRREGULAR_WORDS = """
took:take taken:take gave:give given:give got:get gotten:get made:make wrote:write written:write
left:leave lost:lose kept:keep found:find told:tell said:say saw:see seen:see began:begin ran:run
spent:spend won:win sent:send paid:pay bought:buy sold:sell brought:bring went:go gone:go came:come
built:build met:meet chose:choose chosen:choose broke:break broken:break drew:draw drawn:draw
drove:drive driven:drive flew:fly flown:fly forgot:forget forgotten:forget held:hold knew:know
known:know led:lead lent:lend rang:ring rose:rise slept:sleep spoke:speak spoken:speak stole:steal
stolen:steal taught:teach threw:throw thrown:throw woke:wake wore:wear menus:menu people:person
children:child men:man women:woman
"""

_IRREGULAR = {each.split(":")[0]: each.split(":")[1] for each in _IRREGULAR_WORDS.split()}

_VOWEL = re.compile("[aeiouy]")

_SHORT = re.compile("[^aeiouy]*[aeiouy][^aeiouywx]")


@cache
def _meanings() -> Mapping[str, Sequence[Sequence[str]]]:
    """Return for each word its meanings, each as the words that tools use for it."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    for line in SYNONYMS.strip().replace("\n  ", " ").splitlines():
        of_tools, _, of_users = line.partition(" = ")
        known = [*map(_phrase_stem, of_tools.split())]
        for word in (*known, *map(_phrase_stem, of_users.split())):
            found[word].append([other for other in known if other != word])
    return found


def _phrase_stem(phrase: str) -> str:
    return "_".join(map(_stem, phrase.split("_")))


@cache
def _phrases() -> Collection[str]:
    return frozenset(word for word in _meanings() if "_" in word)


@cache
def _light_words() -> Collection[str]:
    return frozenset(map(_stem, LIGHT_WORDS.split()))
