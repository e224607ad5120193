"""kill -9 at any moment: charged once, no step run twice, the run comes to its end."""

from tests.storm.slices import check, storms


def test_killed_runs_are_charged_once_and_come_to_their_end(tmp_path):
    check(storms(["trainings"], 15, tmp_path, "--fresh", 0.0)["trainings"], 15)
