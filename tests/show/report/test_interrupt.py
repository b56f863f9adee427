"""Against the signals themselves, sent to this process and to commands at work."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from posenc.show.report.interrupt import interruptible

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_being_asked_to_end_is_as_ctrl_c(name):
    number, cleaned = getattr(signal, name), []
    signal.signal(number, signal.SIG_DFL)  # nohup, for one, has it ignored
    before = signal.getsignal(number)

    def work():
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt, match=name), interruptible():
        work()
    assert cleaned
    assert signal.getsignal(number) is before


def test_what_is_ignored_or_handled_stays_so():
    """Under nohup, and in a program with its own handler."""
    for handler in (signal.SIG_IGN, lambda number, frame: None):
        before = signal.signal(signal.SIGHUP, handler)
        try:
            with interruptible():
                os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is handler
        finally:
            signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_changes():
    seen = []

    def work():
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


WAITS = """
import signal, sys
from posenc.commands import cli
from posenc.models import convert as conversion
write = conversion._write
def slowly(*arguments):
    for name in write(*arguments):
        print(name, flush=True)
        signal.pause()
        yield name
conversion._write = slowly
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_conversion_that_is_asked_to_end_leaves_nothing(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    config = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1}
    (model / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
    at = "model.layers.0.self_attn"
    save_file(
        {f"{at}.{n}_proj.weight": torch.randn(16, 16) for n in "qkv"}, model / "a.safetensors"
    )
    words = ["convert", str(model), "--layout", "interleaved", "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as work:
        assert work.stdout.readline().startswith(at)
        assert len(list(tmp_path.iterdir())) == 2  # the copy grows beside `out`
        work.terminate()
        _, err = work.communicate(timeout=300)
    assert (work.returncode, err) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == [model]
