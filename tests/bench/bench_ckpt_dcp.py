#!/usr/bin/env python3
"""torch.distributed.checkpoint's forms of an asynchronous save, between training steps of two gloo ranks.

usage: torchrun --nproc-per-node 2 bench_ckpt_dcp.py FOLDER SAVES

f32 parameters under fully_shard, with AdamW's moments: 50.3 MB for each of LAYERS (20). A line for each save, but the first of a form:
    dcp FORM MB ADDED_S SAVE_S STEP_S    ADDED_S: the call, and what the steps until the save's end take longer than
                                         those of STEP_S, the median of three just before it
    dcp load SECONDS                     with the system's cache emptied, if the system lets us
"""
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, ROWS = 2048, int(os.environ.get("LAYERS", "20")), int(os.environ.get("ROWS", "384"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Bench:
    def __init__(self, folder, saves):
        self.folder, self.saves, self.rank = folder, saves, dist.get_rank()
        self.net = Net()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in self.net.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.net, mesh=mesh)
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.x = torch.randn(ROWS, WIDTH)
        self.step()
        model, optim = get_state_dict(self.net, self.optim)
        self.state = {"model": model, "optim": optim}
        self.group = dist.new_group(backend="gloo")

    def step(self, before_update=lambda: None):
        dist.barrier()
        begun = time.monotonic()
        self.net(self.x).square().mean().backward()
        before_update()
        self.optim.step()
        self.optim.zero_grad()
        dist.barrier()
        return time.monotonic() - begun

    def alike(self, x):
        """The larger of the ranks' numbers."""
        t = torch.tensor([float(x)])
        dist.all_reduce(t, dist.ReduceOp.MAX)
        return t.item()

    def clean(self):
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.sync()
        dist.barrier()

    def one_save(self, begin, staged, is_over, wait, plain):
        self.clean()
        begun = time.monotonic()
        handle = begin()
        added, over = time.monotonic() - begun, 0.0
        while self.alike(not over):
            added += self.step(lambda: staged(handle)) - plain
            if not over and is_over(handle):
                over = time.monotonic() - begun
        wait(handle)
        return self.alike(added), self.alike(over)

    def run(self, name, begin, staged, is_over, wait):
        plain = statistics.median(self.step() for _ in range(5))
        self.one_save(begin, staged, is_over, wait, plain)
        for _ in range(self.saves):
            plain = statistics.median(self.step() for _ in range(3))
            added, save = self.one_save(begin, staged, is_over, wait, plain)
            if self.rank == 0:
                mb = sum(os.path.getsize(os.path.join(self.folder, f)) for f in os.listdir(self.folder)) / 1e6
                print(f"dcp {name} {mb:.1f} {added:.4f} {save:.4f} {plain:.4f}", flush=True)

    def asynchronous(self, name, kind):
        self.run(name,
                 lambda: dcp.async_save(self.state, checkpoint_id=self.folder, process_group=self.group,
                                        async_checkpointer_type=kind),
                 lambda f: None, lambda f: f.done(), lambda f: f.result())

    def staged(self):
        stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=True, use_async_staging=True,
                                              use_non_blocking_copy=False))

        # What is still being copied must not change: the update waits for it.
        self.run("staged",
                 lambda: dcp.async_save(self.state, checkpoint_id=self.folder, process_group=self.group,
                                        async_stager=stager),
                 lambda h: h.staging_completion.result(),
                 lambda h: h.upload_completion.done(), lambda h: h.upload_completion.result())

    def load(self):
        if self.rank == 0:
            os.sync()
            try:
                with open("/proc/sys/vm/drop_caches", "w") as f:
                    f.write("3")
            except OSError:
                pass
        dist.barrier()
        begun = time.monotonic()
        dcp.load(self.state, checkpoint_id=self.folder)
        seconds = self.alike(time.monotonic() - begun)
        if self.rank == 0:
            print(f"dcp load {seconds:.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    bench = Bench(sys.argv[1], int(sys.argv[2]))
    bench.asynchronous("thread", AsyncCheckpointerType.THREAD)
    bench.load()
    bench.staged()
    bench.asynchronous("process", AsyncCheckpointerType.PROCESS)
    bench.clean()
    dist.destroy_process_group()


if __name__ == "__main__":  # the process form imports this file again
    main()
