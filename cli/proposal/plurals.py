"""English names of one and of several: a list of rows is called `lines`, a single row `line`.

Rules for the words that tables are named with. A word that they do not know gets an `s`, or loses one.
"""

from __future__ import annotations

_IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women", "foot": "feet", "tooth": "teeth"}
_IRREGULAR |= {"mouse": "mice", "goose": "geese", "analysis": "analyses", "basis": "bases", "criterion": "criteria"}
_IRREGULAR |= {"movie": "movies", "cookie": "cookies", "index": "indexes", "leaf": "leaves", "shelf": "shelves"}
_IRREGULAR |= {"half": "halves", "life": "lives", "wife": "wives", "knife": "knives", "hero": "heroes"}
_IRREGULAR |= {"potato": "potatoes", "status": "statuses", "bus": "buses", "bonus": "bonuses", "campus": "campuses"}
_IRREGULAR |= {"virus": "viruses", "census": "censuses", "box": "boxes", "tax": "taxes", "quiz": "quizzes"}
_IRREGULAR |= {"alias": "aliases", "atlas": "atlases", "canvas": "canvases", "bias": "biases", "lens": "lenses"}
_SINGULAR = {many: one for one, many in _IRREGULAR.items()}
_ALIKE = {"series", "species", "news", "media", "data", "metadata", "meta", "equipment", "information", "staff"}
_ALIKE |= {"money", "stuff", "content", "feedback", "software", "hardware", "merchandise", "sms"}
_HISSING = ("s", "x", "z", "ch", "sh")


def plural(name: str) -> str:
    """`order_line` -> `order_lines`; what is plural stays."""
    before, word = _last(name)
    return before + (word if _is_plural(word) or word in _ALIKE else _many(word))


def singular(name: str) -> str:
    """`profiles` -> `profile`; what is singular stays."""
    before, word = _last(name)
    return before + (_one(word) if _is_plural(word) else word)


def _last(name: str) -> tuple[str, str]:
    before, bar, word = name.rpartition("_")
    return before + bar, word


def _is_plural(word: str) -> bool:
    if word in _SINGULAR:
        return True
    ends = word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return ends and word not in _ALIKE and word not in _IRREGULAR and len(word) > 2


def _many(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(_HISSING) else f"{word}s"


def _one(word: str) -> str:
    if word in _SINGULAR:
        return _SINGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]
