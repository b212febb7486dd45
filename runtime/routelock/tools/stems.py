"""Words of texts and their stems, for the search of tools by `routelock.tools.ranking`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from routelock._tool_names import name_words

__all__ = ["split", "stem"]


_SCRIPTS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"

_UNSPACED = re.compile(f"[{_SCRIPTS}]+")
"""Chinese, Japanese and Korean do not set words apart, so each two letters count as one."""

_CHUNK = re.compile(rf"[{_SCRIPTS}]+|[^\W_{_SCRIPTS}]+")

_LONGEST_CODE = 4
"""Letters and digits, if no more than this, are one word: "S3", "EC2", "k8s"."""


def split(text: str, numbers: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Return the words of a text, and their stems.

    Args:
        text: the text.
        numbers: the numbers that are words; others are left out, because they are values.
    """
    words = [word for chunk in _CHUNK.findall(text) for word in _chunk_words(chunk)]
    words = [word for word in words if not word.isdecimal() or word in numbers]
    return words, [*map(stem, words)]


def _chunk_words(chunk: str) -> Sequence[str]:
    """Return the words of letters and digits that stand together."""
    if _UNSPACED.match(chunk):
        return [chunk[place : place + 2] for place in range(max(1, len(chunk) - 1))]
    if not chunk.isascii():
        spaced = (
            chunk if chunk.isupper() else "".join(f" {each}" if each.isupper() else each for each in chunk)
        )
        return spaced.casefold().split()
    is_code = len(chunk) <= _LONGEST_CODE and not chunk.isalpha()
    return [chunk.lower()] if is_code else name_words(chunk)


def stem(word: str) -> str:
    """Return a word without the common endings of English; words of other languages mostly stay as they are.

    It is a short form of Porter's algorithm (https://tartarus.org/martin/PorterStemmer/).
    """
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3:
        return word
    word = _without_tense(_singular(word))
    if word.endswith("ification"):
        return word.removesuffix("cation")
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
    is_plural = word.endswith("s") and not word.endswith(("ss", "us", "is")) and word != "news"
    return word[:-1] if is_plural else word


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
