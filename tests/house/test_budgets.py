"""Does each room keep to its budget of lines? Budgets only fall: a feature pays for its lines by what it removes (budgets.toml)."""

from tests.house import budgets


def test_no_room_is_above_its_budget() -> None:
    over = [row for row in budgets.rows() if row.now > row.budget]
    assert not over, f"{over}: remove as much as was added; a budget is never raised"


def test_a_budget_falls_with_its_room() -> None:
    loose = [row for row in budgets.rows() if row.budget - row.now > budgets.SLACK]
    assert not loose, f"{loose}: `python -m tests.house.budgets` lowers them"


def test_every_file_of_the_product_is_in_a_room() -> None:
    counted = sum(row.now for row in budgets.rows() if row.part == "product")
    assert counted == budgets.lines(budgets.PRODUCT)
