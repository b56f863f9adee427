"""Fixtures of all tests: the same seed for each, and one small comparison of everything."""

import gc
import logging
import os
import shutil
from collections import Counter
from pathlib import Path

import jaxtyping
import pytest
from thorough import QUICK, THOROUGH, quick

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch reads it when it is imported
import torch

TESTS = Path(__file__).parent
LIBRARY = {
    "support",
    "compat",
    "core",
    "positions",
    "biases",
    "attention",
    "rotation",
    "encodings",
    "properties",
    "analysis",
}
CHECKED = LIBRARY | {"test_checker.py", "test_strangers.py"}

# Where the root has no handler, Python writes what is logged on stderr, which tests read.
logging.getLogger().addHandler(logging.NullHandler())
# Playwright's list, for Chromium reads the last that it is given, and the popup of its address bar:
# each page had a renderer for that too, a third of the time of opening one.
LEFT_OUT = """
AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades
HttpsFirstBalancedModeAutoEnable LensOverlay MediaRouter PaintHolding ThirdPartyStoragePartitioning
AvoidCorsURLLoaderRestartOnRedirect OptimizationHints NetworkTimeServiceQuerying AimEnabled
PreconnectToSearch WebUIOmniboxPopup WebUIOmniboxFullPopup WebUIOmniboxAimPopup
""".split()
PATIENCE = 120_000  # milliseconds that a page may take on a busy machine: only a hang takes longer
torch.set_num_threads(1)  # tensors are small here; threads would wait for each other
os.environ["OMP_NUM_THREADS"] = "1"  # nor in Pythons that tests begin: a wait takes a whole core


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Disable the garbage collector while tests are collected, and pass over what then exists.

    To collect it would take a quarter of the time of collecting, and a part of that of each test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


collect_ignore = [name for name in ("benchmarks", "studies") if not (TESTS.parent / name).is_dir()]
if "studies" in collect_ignore:
    collect_ignore.append("helpers/made_suite.py")


def pytest_collection_modifyitems(config, items):
    """Skip what lacks its data, and in a quick run most of many like cases."""
    if not (TESTS.parent / "studies").is_dir():
        for item in items:
            if item.get_closest_marker("repository"):
                item.add_marker(pytest.mark.skip(reason="the source distribution lacks its data"))
    if QUICK:
        kept = quick({item: item.nodeid.partition("[")[0] for item in items})
        config.hook.pytest_deselected(items=[*{*items}.difference(kept)])
        items[:] = kept


def pytest_terminal_summary(terminalreporter):
    """Say in which wing of the house tests failed."""
    failed = Counter(
        wing(report.nodeid)
        for kind in ("failed", "error")
        for report in terminalreporter.getreports(kind)
    )
    if failed:
        counts = ", ".join(f"{name} {count}" for name, count in failed.most_common())
        terminalreporter.write_line(f"failed by wing: {counts}")


def wing(nodeid):
    """The wing that a test belongs to: the library's rooms are one, loose tests are the house's."""
    folder = nodeid.replace("src/posenc/", "tests/").removeprefix("tests/").partition("/")[0]
    if folder in LIBRARY:
        return "library"
    return folder if folder in ("models", "lab", "show", "commands") else "house"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Check shapes where arithmetic is, elsewhere in thorough runs: it takes time too."""
    room = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
    unchecked = not THOROUGH and room not in CHECKED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", unchecked)
        return (yield)


@pytest.fixture(autouse=True)
def alike():
    """Every test begins alike, and leaves torch as it was: two threads slow all that follow.

    The seed is of the CPU: `torch.manual_seed` writes the stack down for each device, in 1.4 ms.
    """
    torch.default_generator.manual_seed(0)
    before = of_torch()
    yield
    assert of_torch() == before, "threads, dtype, gradients: the test leaves others behind"


def of_torch():
    """Return the global settings of torch that a test could leave changed for later tests."""
    return torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()


@pytest.fixture(autouse=True, scope="session")
def no_numba():
    """numba cannot compile functions with shape checks; in_numba.py tests the kernels, twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posenc.compat.kernels.forked", True)  # then no kernel is loaded
        yield


@pytest.fixture(scope="session")
def chromium():
    """The browser of the system. CI sets POSENC_BROWSER: then none is an error, not a skip."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        found, lacking = None, "playwright is not installed"
    else:
        lacking = "there is no chromium on the path"
    if found is None:
        assert "POSENC_BROWSER" not in os.environ, f"POSENC_BROWSER is set, but {lacking}"
        pytest.skip(lacking)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as play:
        left_out = f"--disable-features={','.join(LEFT_OUT)}"
        browser = play.chromium.launch(executable_path=found, args=[left_out], timeout=PATIENCE)
        browser.new_context = patient(browser.new_context)
        browser.new_page = patient(browser.new_page)
        yield browser
        browser.close()


def patient(new):
    """Make pages that wait for what must happen, not for the half minute that Playwright gives."""

    def made(**options):
        page = new(**options)
        page.set_default_timeout(PATIENCE)
        return page

    return made


@pytest.fixture
def unchecked(monkeypatch):
    """The library as its users meet it: its own errors, not those of the shape checker."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def text():
    """Eight short paragraphs of few words."""
    from posenc.analysis.text import parse

    once = "the dog bites the man .\n\nthe man bites the old dog , the man said .\n\n"
    return parse("a test", once * 4)


@pytest.fixture(scope="session")
def small():
    """Settings small enough to compare everything within a test."""
    from posenc.lab.compare.comparison import Settings

    return Settings(
        dim=16, heads=2, window=12, windows=2, sentences=3, cost_tokens=16, cost_rounds=1
    )


@pytest.fixture(scope="session")
def everything(small):
    """Every encoding on the packaged novel."""
    from posenc.lab.compare.comparison import compare

    return compare(settings=small)


@pytest.fixture(scope="session")
def portrait(small):
    """Four encodings of different kinds looked at closely."""
    from posenc.lab.compare.portrait import portray

    return portray(["sinusoidal", "rope", "alibi", "axial-rope"], settings=small)
