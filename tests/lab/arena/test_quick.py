"""The first look of the arena: the packaged baselines, the plan of the entry, and the table."""

from posenc.lab.arena import quick


def test_packaged_baselines_are_those_of_the_plan():
    plan, rows = quick.stored()
    assert {row.task for row in rows} <= {*plan.tasks}
    assert {row.row for row in rows} >= {"rope", "nope"}
    for row in rows:
        assert row.trained == plan.trained
        assert 1 <= row.seeds <= plan.seeds
        assert sorted(row.means) == [*plan.tested]
        assert all(0 <= mean <= 1 for mean in row.means.values())


def test_the_plan_of_an_entry_has_the_texts_and_seeds_of_the_baselines():
    """Cells differ in their encoding alone, so that results of a seed can be compared."""
    plan = quick.stored()[0]
    ours = quick.plan_of("kerple", plan).cells()
    theirs = {(cell.task, cell.seed): cell for cell in plan.cells() if cell.name == "rope"}
    assert len(ours) == len(plan.tasks) * quick.SEEDS
    for cell in ours:
        other = theirs[cell.task, cell.seed]
        assert (cell.trained, cell.tested, cell.profile) == (
            other.trained, other.tested, other.profile,
        )  # fmt: skip


def test_a_table_has_a_line_for_each_row():
    row = quick.FirstLook("copy", "mine", 4, 2, {4: 1.0, 5: 0.7, 6: 0.456}, 12_345, 0.0123)
    rest = quick.FirstLook("copy", "rope", 4, 8, {4: 0.995, 6: 0.1}, None, None)
    title, heads, mine, rope = quick.lines([row, rest])
    assert title == "copy, % right, trained to n = 4"
    assert heads.split() == ["row", "seeds", "n=4", "n=6", "parameters", "ms", "a", "step"]
    assert mine.split() == ["mine", "2", "100", "46", "12,345", "12"]
    assert rope.split() == ["rope", "8", "100", "10"]
