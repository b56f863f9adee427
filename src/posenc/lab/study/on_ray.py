"""The cells of a study on Ray: as many at once as its cluster has processors or GPUs.

Results come back to the process that leads, which alone writes the store. A cell whose node or
process dies is run again elsewhere; it goes on from its checkpoint where the folder of checkpoints
is shared by the nodes, and from the beginning where it is not, to the same bits.
"""

from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import torch

from posenc.compat.wait_policy import wait_passively
from posenc.lab.study.cell import Cell
from posenc.lab.study.execute import Event, Runner, run_cell


def _cell(cell: Cell, runner: Runner, cells: Path) -> Event:
    torch.set_num_threads(1)
    return run_cell(cell, runner, cells, lambda: False, lambda progress: None)


class OnRay:
    """Cells as tasks of Ray. `address` is that of a cluster; None: one on this machine is begun.
    Each cell has a processor, and so many `gpus`, which Ray alone shows to it.

    Ray listens to the network, on one machine too, and runs what it is sent: by whoever reaches its
    ports, or has its token where it asks for one (by itself from 2.60 on). Its dashboard, whose
    port takes jobs, is not begun.
    """

    def __init__(
        self, runner: Runner, cells: Path, address: str | None = None, gpus: int = 0
    ) -> None:
        self._runner, self._cells = runner, cells.absolute()
        self._began = not ray.is_initialized()
        if self._began:
            # Workers on this machine inherit the environment
            wait_passively()
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        # Ray would repeat what was killed by itself, without telling how often
        self._remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_cell)
        self._kind = "GPU" if gpus else "CPU"  # what there are few of
        self._running: dict[Any, Cell] = {}

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        """What the cluster has room for now; one cell at least waits for a node to come."""
        return max(1, int(ray.cluster_resources().get(self._kind, 0))) - self.busy

    def start(self, cell: Cell) -> None:
        self._running[self._remote.remote(cell, self._runner, self._cells)] = cell

    def wait(self, seconds: float) -> list[Event]:
        if not self._running:
            return []
        ready, _ = ray.wait([*self._running], num_returns=1, timeout=seconds)
        return [self._event(reference, self._running.pop(reference)) for reference in ready]

    def _event(self, reference: Any, cell: Cell) -> Event:
        try:
            return ray.get(reference)
        except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Event("stopped", cell)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return Event("stopped", cell)
            return Event("error", cell, " ".join(str(error.cause).split()))
        except ray.exceptions.RayError as error:
            # Its process or its node has ended
            return Event("killed", cell, type(error).__name__)

    def stop(self) -> None:
        for reference in self._running:
            ray.cancel(reference, force=True)

    def close(self) -> None:
        """Cancel what runs, and end the cluster if it was begun here."""
        self.stop()
        if self._began:
            ray.shutdown()
