"""Trains a small language model on invented text: plain PyTorch, an ordinary training loop.

A decoder of about 110 million parameters, AdamW, bfloat16 autocast, sequences of varying length as
in fine-tuning, which is what fragments an allocator's memory. The same program runs on a GPU and on
the simulated one, where the kernels do nothing and the losses mean nothing.
"""

# ruff: noqa: T201 - a program prints

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import nn


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(
        self, vocabulary: int, max_length: int, layers: int, width: int, heads: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(max_length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def batches(arguments: argparse.Namespace) -> list[torch.Tensor]:
    """The same for every run of a seed. A text counts on from its first token: easy to learn."""
    lengths = random.Random(arguments.seed)  # noqa: S311 - reproducible, not secret
    generator = torch.Generator().manual_seed(arguments.seed)
    result = []
    for _ in range(arguments.steps):
        length = lengths.randint(arguments.max_length // 8, arguments.max_length)
        first = torch.randint(arguments.vocabulary, (arguments.batch, 1), generator=generator)
        result.append((first + torch.arange(length + 1)) % arguments.vocabulary)
    return result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--allocator", choices=("offcut", "native"), default="offcut")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="equal results in every run (CUBLAS_WORKSPACE_CONFIG=:4096:8 has to be set as well)",
    )
    parser.add_argument("--json-out", type=Path, help="write losses, times and peaks to this file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.allocator == "offcut":
        import offcut  # noqa: PLC0415 - native must not need it

        offcut.enable()

    torch.manual_seed(arguments.seed)
    # cuDNN is a library of its own, with its own imports: the simulated GPU has none.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(arguments.deterministic)

    device = torch.device("cuda")
    model = Decoder(
        arguments.vocabulary,
        arguments.max_length,
        arguments.layers,
        arguments.width,
        arguments.heads,
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{parameters / 1e6:.0f} million parameters on {torch.cuda.get_device_name()}, "
        f"{arguments.allocator} allocator",
        flush=True,
    )

    losses: list[float] = []
    step_seconds: list[float] = []
    for number, text in enumerate(batches(arguments)):
        start = time.perf_counter()
        if arguments.allocator == "offcut":
            offcut.step(number)
        tokens = text.to(device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits for the step
        del logits, loss
        step_seconds.append(time.perf_counter() - start)
        if number % 10 == 0 or number + 1 == arguments.steps:
            print(
                f"step {number:4d}  length {text.shape[1] - 1:5d}  loss {losses[-1]:7.4f}  "
                f"{step_seconds[-1] * 1e3:6.0f} ms  "
                f"reserved {torch.cuda.memory_reserved() / 2**30:.2f} GiB",
                flush=True,
            )

    statistics = torch.cuda.memory_stats()
    figures = {
        "allocator": arguments.allocator,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": parameters,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "deterministic": arguments.deterministic,
        "losses": losses,
        "step_seconds": step_seconds,
        "allocations": statistics["allocation.all.allocated"],
        "peak_requested_bytes": statistics["requested_bytes.all.peak"],
        "peak_allocated_bytes": statistics["allocated_bytes.all.peak"],
        "peak_reserved_bytes": statistics["reserved_bytes.all.peak"],
        "out_of_memory": statistics["num_ooms"],
    }
    if arguments.json_out:
        arguments.json_out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
