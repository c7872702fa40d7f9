"""Numbers about a prompt: exact on a small one, bounded on a hostile one, and nothing that could be read back."""

import math
import zlib

from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.normalise.prompt_shape import MAX_CHARACTERS, SHAPE, shape, words_of
from overrun.collector.normalise.verbosity import KINDS, hashed

PROMPT = 'Please write a 300-word story about "Ada", with 3 examples:\n- one\n- two\n\nCould you explain why?'


def numbers(prompt: str) -> dict[str, float]:
    return dict(zip(SHAPE, shape(prompt, words_of(prompt)), strict=True))


def test_what_is_counted_is_exact() -> None:
    seen = numbers(PROMPT)
    expected = {
        "shape_characters": len(PROMPT), "shape_words": 17, "shape_lines": 5, "shape_paragraphs": 1, "shape_questions": 1, "shape_commas": 1, "shape_colons": 1,
        "shape_numbers": 2, "shape_capitals": 3, "shape_quotes": 2, "shape_bullets": 2, "shape_max_number": 300, "shape_ends_with_question": 1,
        "shape_wanted_words": 300, "shape_wanted_items": 3, "shape_you": 1, "cue_creative": 1, "cue_list": 1, "cue_explain": 2, "cue_brief": 1, "cue_math": 0,
        "cue_long_form": 1, "cue_short_form": 1, "cue_reason": 1, "shape_first_sentence": 10, "shape_last_sentence": 4, "shape_names": 0,
        "shape_stop_share": 2 / 17,
    }  # fmt: skip
    assert {name: seen[name] for name in expected} == expected


def test_an_asked_for_length_is_told_in_words() -> None:
    assert numbers("in 2 paragraphs, at most 50 words")["shape_wanted_words"] == 200
    assert numbers("no numbers at all")["shape_wanted_words"] == 0


@given(st.text(max_size=300))
def test_any_text_gives_one_finite_number_per_name(prompt: str) -> None:
    words = words_of(prompt)
    values = shape(prompt, words)
    assert len(values) == len(SHAPE)
    assert all(math.isfinite(value) for value in values)
    bins = hashed(words)
    for kind, low, high in zip(bins, KINDS[:-1], KINDS[1:], strict=True):
        assert all(low <= number < high for number in kind)
    assert all(kind == tuple(sorted(set(kind))) for kind in bins[:2])
    assert bool(words) == bool(bins[0]) == bool(bins[1])


def test_only_both_ends_of_a_long_prompt_are_looked_at() -> None:
    middle = " ".join(f"w{number}" for number in range(1_000))
    assert len(words_of(middle)) == 300
    long = "Read this: " + "filler, " * 100_000 + "and write an essay on it?"
    seen = numbers(long)
    assert (seen["shape_characters"], seen["shape_ends_with_question"], seen["cue_long_form"]) == (
        len(long),
        1,
        1,
    )
    assert words_of(long)[:2] == ["read", "this"]
    assert words_of(long)[-2:] == ["on", "it"]
    assert seen["shape_commas"] <= MAX_CHARACTERS / len("filler, ")
    single, placed, letters = hashed(words_of("word " * 100_000))
    assert (len(single), len(placed), len(letters)) == (2, 9, 117)


def test_bins_do_not_change_between_runs_and_machines() -> None:
    # CRC-32 of "hello", "world" and "helloworld", as any table of test values has them.
    single, placed, letters = hashed(["hello", "world"])
    assert set(single) == {0x3610A686 & 0x7FFF, 0x3A771143 & 0x7FFF, 0xF9EB20AD & 0x7FFF}
    assert placed == tuple(
        sorted(zlib.crc32(data) & 0x3FFF | 0x8000 for data in (b"\1hello", b"\2world"))
    )
    # The four bytes as a number, lowest first, times 2**32 over the golden ratio.
    grams = (" hel", "hell", "ello", "llo ", "lo w", "o wo", " wor", "worl", "orld")
    assert letters == tuple(
        (int.from_bytes(gram.encode(), "little") * 2_654_435_761 % 2**32 >> 18) + 0xC000
        for gram in grams
    )


def test_a_word_counts_where_it_stands_the_more_the_earlier() -> None:
    def placed(text: str) -> set[int]:
        return set(hashed(text.split())[1])

    assert placed("list ten lakes") != placed("ten list lakes")
    assert placed("a b c d e list") == placed("a c b d list e")
    assert hashed(["x"] * 40 + ["list"])[1] == hashed(["x"] * 45 + ["list"])[1]
