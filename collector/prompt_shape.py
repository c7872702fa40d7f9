"""What may be kept of a prompt without keeping its text? Counts of its shape, and hashed words for the verbosity score.

Pure functions of a text, standard library alone: the collector calls them per distinct prompt at ingest (`[privacy]
prompt_features`), training and routers on the prompts they are handed. Only numbers come out, by the names of `SHAPE`.
"""

from __future__ import annotations

import itertools
import re
import zlib

# Counting stops here: what asks for a long answer stands in the first or last words, and a hostile prompt must not hold up ingest.
MAX_CHARACTERS = 8_000
# This many words from the start and as many from the end are looked at.
_END_WORDS = 150
BINS_BITS = 15

_CUES = {
    "brief": "brief briefly short shortly concise concisely succinct succinctly single quick quickly tldr summarize summarise summary one",
    "long": "detail details detailed comprehensive thorough thoroughly elaborate essay article long extensive complete full depth stepwise",
    "list": "list lists bullet bullets items example examples ideas ways steps tips reasons names top",
    "code": "code function python java javascript sql html css program script class algorithm regex api",
    "math": "solve calculate compute equation sum integral derivative probability percent percentage many much",
    "classify": "classify classification categorize categorise sentiment label true false yes no choose identify detect which",
    "rewrite": "rewrite rephrase paraphrase edit correct translate convert fix proofread improve",
    "explain": "explain describe why compare difference differences discuss analyze analyse how what",
    "creative": "story poem song lyrics compose imagine dialogue letter email blog speech recipe joke novel",
}
_CUE_NAMES = tuple(_CUES)
_CUE_OF = {word: number for number, words in enumerate(_CUES.values()) for word in words.split()}
# First words of instructions, by how they sort requests; the position is the feature.
_VERBS = (
    "what who when where which is are can how why give list name find classify identify translate rewrite edit summarize describe explain compare "
    "discuss create generate write compose design i please"
)
_VERB_AT = {verb: float(position) for position, verb in enumerate(_VERBS.split())}
_SHAPE = ("characters", "words", "lines", "paragraphs", "sentences", "questions", "commas", "colons", "numbers", "capitals", "quotes", "brackets", "bullets",
          "code_marks", "urls", "non_ascii", "mean_word", "unique_share", "max_number", "first_verb", "ends_with_question", "wanted_words", "wanted_items",
          "input_marks", "you")
SHAPE: tuple[str, ...] = (*(f"shape_{name}" for name in _SHAPE), *(f"cue_{name}" for name in _CUE_NAMES))

_WORD = re.compile(r"[^\W_]+")
_CAPITAL = re.compile(r"[A-Z]")
_WANTED = re.compile(r"(\d{1,5})[\s-]*(word|character|sentence|paragraph|line|item|example|idea|way|tip|step|reason|thing|question|point|name)", re.IGNORECASE)
_TOKENS_OF = {"word": 1.0, "character": 0.2, "sentence": 20.0, "paragraph": 100.0, "line": 10.0}


def words_of(prompt: str) -> list[str]:
    """The words at both ends of a prompt in lower case; what `shape` and `hashed_words` are handed."""
    words = _WORD.findall(prompt[:MAX_CHARACTERS].lower())
    return words if len(words) <= 2 * _END_WORDS else words[:_END_WORDS] + words[-_END_WORDS:]


def shape(prompt: str, words: list[str]) -> tuple[float, ...]:
    """One number per name in SHAPE: counts, shares and positions; nothing from which the text could be read."""
    text = prompt[:MAX_CHARACTERS]
    count = text.count
    numbers = [int(word) for word in words if word.isdecimal() and len(word) <= 6]
    wanted_words, wanted_items = _wanted(text) if numbers else (0.0, 0.0)
    cues = [0.0] * len(_CUE_NAMES)
    first = -1.0
    for word in words:
        cue = _CUE_OF.get(word)
        if cue is not None:
            cues[cue] += 1.0
        if first < 0:
            first = _VERB_AT.get(word, -1.0)
    size = max(len(words), 1)
    return tuple(map(float, (
        len(prompt), len(words), count("\n") + 1, count("\n\n"), count(".") + count("!") + count("?"), count("?"), count(","), count(":"), len(numbers),
        len(_CAPITAL.findall(text)), count('"') + count("“"), count("(") + count("[") + count("{"), count("\n- ") + count("\n* ") + count("\n1"),
        count("```") + count(";") + count("()"), count("http"), 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore")),
        sum(map(len, words)) / size, len(set(words)) / size, max(numbers, default=0), first, text.rstrip().endswith("?"), wanted_words, wanted_items,
        count("###") + count("Input") + count("Context"), words.count("you") + words.count("your"), *cues,
    )))  # fmt: skip


def _wanted(text: str) -> tuple[float, float]:
    """How long an answer is asked for, in words and in items: the largest of what is named, 0 if nothing is."""
    words = items = 0.0
    for number, unit in _WANTED.findall(text):
        each = _TOKENS_OF.get(unit.lower())
        if each is None:
            items = max(items, float(number))
        else:
            words = max(words, float(number) * each)
    return words, items


def hashed_words(words: list[str]) -> list[int]:
    """The distinct bins (below 2**BINS_BITS) of words and neighbouring pairs, ascending: input of the verbosity score, never stored."""
    mask, crc = (1 << BINS_BITS) - 1, zlib.crc32
    grams = [*words, *map(" ".join, itertools.pairwise(words)), *(f"^{word}" for word in words[:2])]
    return sorted({crc(gram.encode("utf-8", "surrogatepass")) & mask for gram in grams})
