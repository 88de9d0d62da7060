"""Trains with a plain PyTorch loop over data on the device. These are the variants:

plain                    as users write it first
channels-last            the same in that layout
compile                  forward and loss, and so their backward pass, through torch.compile
compile-reduce-overhead  the same in that mode, which replays CUDA graphs
cuda-graph               gathering, forward, backward and update captured by hand in one CUDA graph
cuda-graph-compile       the same with the compiled forward and backward

A step drops the last samples that fill no batch.
"""

import numpy as np
import torch
import torch.nn.functional as F
from nets import CLASSES, IMAGE_SIZE, NETS, Case, Data
from torch import nn
from worker import main, timed_epochs


def build(case: Case) -> nn.Sequential:
    net, channels, size = NETS[case.net], 1, IMAGE_SIZE
    stack: list[nn.Module] = []
    for filters, k, padding in net.convolutions:
        pad = k // 2 if padding == "same" else 0
        stack += [nn.Conv2d(channels, filters, k, padding=pad, bias=net.bias), nn.ReLU()]
        stack.append(nn.MaxPool2d(2))
        channels, size = filters, (size + 2 * pad - k + 1) // 2
    stack.append(nn.Flatten())
    if net.dropout:
        stack.append(nn.Dropout(net.dropout))
    features = channels * size * size
    for units in net.hidden:
        stack += [nn.Linear(features, units, bias=net.bias), nn.ReLU()]
        features = units
    stack.append(nn.Linear(features, CLASSES, bias=net.bias))
    model = nn.Sequential(*stack)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif net.initializer == "glorot_uniform":
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu")
    return model


def renamed(function, name: str):
    """Returns the function with a new code object, by which torch.compile keeps compiled code."""
    copy = type(function)(
        function.__code__.replace(co_name=name),
        function.__globals__,
        name,
        function.__defaults__,
        function.__closure__,
    )
    return copy


class TorchModel:
    def __init__(self, peer: "TorchPeer", case: Case):
        self._peer, self._size = peer, case.batch_size
        net = NETS[case.net]
        self._model = build(case).to(peer.device)
        if peer.variant == "channels-last":
            self._model = self._model.to(memory_format=torch.channels_last)
        self._model.train()
        on_gpu, parameters = peer.device.type == "cuda", self._model.parameters()
        if net.optimizer == "sgd":
            self._optimizer: torch.optim.Optimizer = torch.optim.SGD(
                parameters, lr=net.learning_rate, foreach=on_gpu
            )
        else:
            self._optimizer = torch.optim.Adam(
                parameters, lr=net.learning_rate, fused=True, capturable=on_gpu
            )
        self._steps = len(peer.x) // self._size
        self._loss, self._score = self._functions(str(case))
        self._graph: torch.cuda.CUDAGraph | None = None
        self._score_graphs: dict[int, tuple] = {}
        if peer.variant.startswith("cuda-graph"):
            self._capture()

    def _functions(self, name: str):
        model, last = self._model, self._peer.variant == "channels-last"

        def score(x):
            images = (x.float() / 255)[:, None]
            if last:
                images = images.contiguous(memory_format=torch.channels_last)
            return model(images)

        def loss(x, y):
            images = (x.float() / 255)[:, None]
            if last:
                images = images.contiguous(memory_format=torch.channels_last)
            return F.cross_entropy(model(images), y)

        if "compile" not in self._peer.variant:
            return loss, score
        mode = "reduce-overhead" if self._peer.variant == "compile-reduce-overhead" else None
        label = "".join(c if c.isalnum() else "_" for c in name)
        return tuple(
            torch.compile(renamed(function, f"{function.__name__}_{label}"), mode=mode)
            for function in (loss, score)
        )

    def _step(self, x, y) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(x, y).backward()
        self._optimizer.step()

    def _capture(self) -> None:
        """Captures a graph of one step, which finds its batch by a counter on the device."""
        x, y, device = self._peer.x, self._peer.y, self._peer.device
        self._order = torch.zeros(len(x), dtype=torch.long, device=device)
        self._counter = torch.zeros(1, dtype=torch.long, device=device)
        # This is kept because the graph reads its memory.
        self._places = places = torch.arange(self._size, device=device)
        before = [p.detach().clone() for p in self._model.parameters()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # The batch is gathered as in the graph; a slice would make torch.compile compile again.
            for _ in range(4):
                self._step(x[places], y[places])
        torch.cuda.current_stream().wait_stream(stream)
        self._optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            chosen = self._order[self._counter * self._size + places]
            self._loss(x[chosen], y[chosen]).backward()
            self._optimizer.step()
            self._counter += 1
        with torch.no_grad():
            for parameter, value in zip(self._model.parameters(), before, strict=True):
                parameter.copy_(value)

    def _run(self) -> None:
        x, y = self._peer.x, self._peer.y
        order = torch.randperm(len(x), device=self._peer.device)
        if self._graph is not None:
            self._order.copy_(order)
            self._counter.zero_()
            for _ in range(self._steps):
                self._graph.replay()
        else:
            for i in range(self._steps):
                chosen = order[i * self._size : (i + 1) * self._size]
                self._step(x[chosen], y[chosen])
        self._peer.synchronize()

    def run_epochs(self, count: int) -> list[float]:
        self._model.train()
        return timed_epochs(self._run, count)

    def _scores(self, x: np.ndarray, batch_size: int):
        """Yields the scores of each batch; with a graph the next batch overwrites them."""
        self._model.eval()
        device = self._peer.device
        images = torch.from_numpy(x).to(device)
        with torch.no_grad():
            for first in range(0, len(x), batch_size):
                batch = images[first : first + batch_size]
                if self._graph is None:
                    yield self._score(batch)
                else:
                    yield self._replay_scores(batch)

    def _replay_scores(self, batch):
        if len(batch) not in self._score_graphs:
            place = batch.clone()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._score(place)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                scores = self._score(place)
            self._score_graphs[len(batch)] = place, scores, graph
        place, scores, graph = self._score_graphs[len(batch)]
        place.copy_(batch)
        graph.replay()
        return scores

    def predict(self, x, batch_size):
        parts = [torch.softmax(scores, 1) for scores in self._scores(x, batch_size)]
        return torch.cat(parts).cpu().numpy()

    def evaluate(self, x, y, batch_size):
        labels = torch.from_numpy(y).to(self._peer.device).long()
        loss = right = torch.zeros((), device=self._peer.device)
        for i, scores in enumerate(self._scores(x, batch_size)):
            of_batch = labels[i * batch_size : (i + 1) * batch_size]
            loss = loss + F.cross_entropy(scores, of_batch, reduction="sum")
            right = right + (scores.argmax(1) == of_batch).sum()
        return float(loss) / len(x), float(right) / len(x)


class TorchPeer:
    def __init__(self, variant: str, data: Data, device: str):
        self.variant = variant
        self.device = torch.device(device)
        torch.manual_seed(0)
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")
        self.x = torch.from_numpy(data.x_train).to(self.device)
        self.y = torch.from_numpy(data.y_train).to(self.device).long()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def make(self, case: Case) -> TorchModel:
        return TorchModel(self, case)

    def reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None


if __name__ == "__main__":
    main(TorchPeer)
