"""Do texts keep to a terminal's width, and commands stay whole for whoever copies them?"""

from overrun.analysis.front.text_layout import within


def test_long_lines_are_wrapped_with_their_indent_and_commands_are_not() -> None:
    sentence = "  never seen: " + "word " * 30
    command = "SEE  overrun report --trace 0123456789abcdef --db /a/very/long/path/to/a/file.db"
    coloured = "\x1b[31mSLOW\x1b[0m " + "x" * 60
    text = within("\n".join([sentence, "short", command, coloured]), 60)
    lines = text.split("\n")
    assert command in lines
    assert coloured in lines
    assert "short" in lines
    rest = [line for line in lines if line not in (command, coloured)]
    assert max(map(len, rest)) <= 60
    assert rest[1].startswith("    word")
    assert text.split() == "\n".join([sentence, "short", command, coloured]).split()
