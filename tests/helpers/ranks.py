"""Start Python processes as forks of one that has imported torch, which takes seconds.

A rank is what `python -c CODE WORDS…` is, with output in files.
"""

import multiprocessing
import os
import sys
import time

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "torch.distributed.fsdp", "torch.distributed.tensor", "posenc.lab.study.train"]
)


class Rank:
    """One started process, with the interface of `subprocess.Popen`."""

    def __init__(self, words, environment, folder, name):
        self.out, self.err = (folder / f"{name}.{stream}" for stream in ("out", "err"))
        words = [*map(str, words)]
        self.process = FORKS.Process(target=_run, args=(words, environment, self.out, self.err))
        self.process.start()

    def send_signal(self, number):
        os.kill(self.process.pid, number)

    def communicate(self, timeout):
        """Wait until the process has ended, and return its stdout and stderr."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"{self.out.stem}: {self.out.read_text()}{self.err.read_text()}")
        return self.out.read_text(), self.err.read_text()

    @property
    def returncode(self):
        return self.process.exitcode


def begin(each, folder, environment=()):
    """Start one process per entry of `each`: its command-line words, and its own variables."""
    start = f"{time.monotonic_ns()}"
    return [
        Rank(words, os.environ | dict(environment) | own, folder, f"{start}-{rank}")
        for rank, (words, own) in enumerate(each)
    ]


def _run(words, environment, out, err):
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        stream.flush()
        file = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.dup2(file, stream.fileno())
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    code, *rest = words
    sys.argv = ["-c", *rest]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
