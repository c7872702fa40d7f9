"""The window in words, and what the clocks of the picker begin with."""

from datetime import UTC, datetime

import pytest

from overrun.dashboard import window_picker

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("from_", "to", "words", "edges"),
    [
        (
            "2026-11-20T10:00:00+00:00",
            "2026-11-20T10:10:00Z",
            "20 Nov 10:00:00 to 10:10:00 UTC",
            'data-from="2026-11-20T10:00:00Z" data-to="2026-11-20T10:10:00Z"',
        ),
        ("-36h", None, "19 Nov 00:00:00 to 20 Nov 12:00:00 UTC", 'data-to="2026-11-20T12:00:00Z"'),
        (None, "-1h", "20 Nov 10:00:00 to 11:00:00 UTC", 'data-from="2026-11-20T10:00:00Z"'),
        ("<b>2 weeks", None, "&lt;b&gt;2 weeks to now", 'data-length="3600"'),
        (None, None, "From … to …", 'data-length="3600"'),
    ],
)
def test_a_window_is_named_as_it_is_meant(
    from_: str | None, to: str | None, words: str, edges: str
) -> None:
    body = window_picker.render(from_, to, "1h", NOW)
    assert f">{words}</summary>" in body
    assert edges in body
