"""What may be kept of a prompt without keeping its text? Counts of its shape.

Pure functions of a text, standard library alone: the collector calls them per distinct prompt at ingest (`[privacy]
prompt_features`), training and routers on the prompts they are handed. Only numbers come out, by the names of `SHAPE`.
"""

from __future__ import annotations

import re

# Of a longer prompt half of this is looked at from either end: what asks for a long answer stands in the first or last words, and a hostile prompt must not
# hold up ingest.
MAX_CHARACTERS = 4_000
# This many words from the start and as many from the end are looked at.
_END_WORDS = 150

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
    "long_form": "essay article report story script blog speech guide tutorial plan proposal review outline lesson chapter paper novel dialogue interview "
                 "itinerary summary paragraph pitch biography",
    "short_form": "title titles headline slogan tweet synonym synonyms antonym antonyms caption label phrase haiku joke rhyme acronym riddle word words name "
                  "noun verb adjective pun",
    "fact": "who when where year date capital born president population largest tallest first last old height distance city country famous inventor",
    "advice": "should best better recommend suggest advice help tips improve need want ways good most",
    "process": "steps step process procedure instructions recipe cook make build install create setup implement develop use used",
    "reason": "why reason reasons cause causes effects impact benefits advantages disadvantages pros cons importance difference differences similarities",
    "many": "all every each different various several many multiple few some other more",
}  # fmt: skip
_CUE_NAMES = tuple(_CUES)
_CUES_OF: dict[str, list[int]] = {}
for _number, _words in enumerate(_CUES.values()):
    for _word in _words.split():
        _CUES_OF.setdefault(_word, []).append(_number)
_STOP = "the a an of to in and for on with is are be that this it as at by from or"
_STOP_WORDS = frozenset(_STOP.split())
_LONG_WORD = 8
# First words of instructions, by how they sort requests; the position is the feature.
_VERBS = (
    "what who when where which is are can how why give list name find classify identify translate rewrite edit summarize describe explain compare "
    "discuss create generate write compose design i please"
)
_VERB_AT = {verb: float(position) for position, verb in enumerate(_VERBS.split())}
_SHAPE = (
    "characters",
    "words",
    "lines",
    "paragraphs",
    "sentences",
    "questions",
    "commas",
    "colons",
    "numbers",
    "capitals",
    "quotes",
    "brackets",
    "bullets",
    "code_marks",
    "urls",
    "non_ascii",
    "mean_word",
    "unique_share",
    "max_number",
    "first_verb",
    "ends_with_question",
    "wanted_words",
    "wanted_items",
    "input_marks",
    "you",
    "stop_share",
    "long_word_share",
    "first_sentence",
    "last_sentence",
    "names",
)
SHAPE: tuple[str, ...] = (
    *(f"shape_{name}" for name in _SHAPE),
    *(f"cue_{name}" for name in _CUE_NAMES),
)

_WORD = re.compile(r"[^\W_]+")
_CAPITAL = re.compile(r"[A-Z]")
# A capital inside a sentence, and where one ends.
_NAME = re.compile(r"[a-z,] [A-Z][a-z]")
_SENTENCE_END = re.compile(r"[.!?\n]+\s*")
_WANTED = re.compile(
    r"(\d{1,5})[\s-]*(word|character|sentence|paragraph|line|item|example|idea|way|tip|step|reason|thing|question|point|name)",
    re.IGNORECASE,
)
_TOKENS_OF = {"word": 1.0, "character": 0.2, "sentence": 20.0, "paragraph": 100.0, "line": 10.0}


def words_of(prompt: str) -> list[str]:
    """The words at both ends of a prompt in lower case; what `shape` and `overrun.collector.normalise.verbosity.hashed` are handed."""
    words = _WORD.findall(_ends(prompt).lower())
    return words if len(words) <= 2 * _END_WORDS else words[:_END_WORDS] + words[-_END_WORDS:]


def shape(prompt: str, words: list[str]) -> tuple[float, ...]:
    """One number per name in SHAPE: counts, shares and positions; nothing from which the text could be read.

    The largest number in a prompt is kept to one digit: it may be somebody's.
    """
    text = _ends(prompt)
    count = text.count
    numbers = [int(word) for word in words if word.isdecimal() and len(word) <= 6]
    wanted_words, wanted_items = _wanted(text) if numbers else (0.0, 0.0)
    cues = [0.0] * len(_CUE_NAMES)
    first = -1.0
    stops = longs = 0
    for word in words:
        for cue in _CUES_OF.get(word, ()):
            cues[cue] += 1.0
        if first < 0:
            first = _VERB_AT.get(word, -1.0)
        stops += word in _STOP_WORDS
        longs += len(word) >= _LONG_WORD
    size = max(len(words), 1)
    opening, closing = _end_sentences(text)
    return tuple(map(float, (
        len(prompt), len(words), count("\n") + 1, count("\n\n"), count(".") + count("!") + count("?"), count("?"), count(","), count(":"), len(numbers),
        len(_CAPITAL.findall(text)), count('"') + count("“"), count("(") + count("[") + count("{"), count("\n- ") + count("\n* ") + count("\n1"),
        count("```") + count(";") + count("()"), count("http"), 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore")),
        sum(map(len, words)) / size, len(set(words)) / size, _one_digit(numbers), first, text.rstrip().endswith("?"), wanted_words, wanted_items,
        count("###") + count("Input") + count("Context"), words.count("you") + words.count("your"), stops / size, longs / size, opening, closing,
        len(_NAME.findall(text)), *cues,
    )))  # fmt: skip


def _ends(prompt: str) -> str:
    half = MAX_CHARACTERS // 2
    return prompt if len(prompt) <= MAX_CHARACTERS else f"{prompt[:half]}\n{prompt[-half:]}"


def _one_digit(numbers: list[int]) -> float:
    return float(f"{max(numbers, default=0):.0e}")


def _end_sentences(text: str) -> tuple[int, int]:
    """How many words, by the spaces between them, the first and the last sentence have."""
    text = text.strip(" .!?\n")
    end = _SENTENCE_END.search(text)
    opening = text if end is None else text[: end.start()]
    closing = text[max(map(text.rfind, ".!?\n")) + 1 :].lstrip()
    return opening.count(" ") + 1, closing.count(" ") + 1


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
