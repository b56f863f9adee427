"""Cells on Ray against the same cells in processes, on a cluster of two nodes."""

import time
from dataclasses import asdict
from pathlib import Path

import pytest
import study_runner
from study_runner import TINY

from posenc.lab.study import execute, store
from posenc.lab.study.plan import Plan

ray = pytest.importorskip("ray", reason="Ray, of the extra `ray`, is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with a processor each, on this machine."""
    from ray.cluster_utils import Cluster

    tests = str(Path(study_runner.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{tests}:{Path(execute.__file__).parents[3]}")
    monkeypatch.setenv("STEP_SECONDS", "0.2")
    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = two.add_node(num_cpus=1)
    ray.init(address=two.address, log_to_driver=False)
    yield two, second
    ray.shutdown()
    two.shutdown()


def plan():
    return Plan.of(
        {"tasks": ["copy"], "encodings": ["nope", "rope"], "profile": asdict(TINY), "seeds": 3}
    )


def test_a_node_that_is_killed_in_the_middle_costs_nothing(cluster, tmp_path):
    from posenc.lab.study.on_ray import OnRay

    two, second = cluster
    killed = []

    def kill(status):
        if status.done >= 1 and not killed:
            killed.append(time.monotonic())
            two.remove_node(second, allow_graceful=False)

    ended = execute.study(
        plan(), tmp_path / "ray", runner=study_runner.run, engine=OnRay, progress=kill, pilot=True
    )
    assert killed
    assert (ended.done, ended.missing) == (6, [])
    execute.study(plan(), tmp_path / "here", runner=study_runner.run, start="fork", pilot=True)
    one, other = ((tmp_path / name / store.RESULTS).read_bytes() for name in ("ray", "here"))
    assert one == other
