"""Four kinds of training, small enough for one GPU and a minute, in plain PyTorch.

Each is a `Workload`: a model, and batches whose shapes vary from step to step as the real thing's
do, which is what fragments an allocator's memory. Same seed, same batches. The inputs are invented
and easy to learn; what matters is what is allocated, in which order, and for how long.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VOCABULARY = 32_000
PICTURES = 12  # a batch


@dataclass
class Workload:
    model: nn.Module
    # The loss of a batch.
    loss: Callable[[nn.Module, list[Tensor]], Tensor]
    # Batches on the host, one a step, without end.
    batches: Iterator[list[Tensor]]
    # What a step does before it trains, without gradients: it makes the batch.
    generate: Callable[[nn.Module, list[Tensor]], list[Tensor]] | None = None


# --- Decoders of text ---


class RotaryAttention(nn.Module):  # type: ignore[misc]
    """Causal, with rotary positions (Su et al., RoFormer, 2021)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, past: list[Tensor] | None) -> Tensor:
        batch, length, width = x.shape
        qkv = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = past[0].shape[2] if past else 0
        q, k = self.rotate(q, seen), self.rotate(k, seen)
        if past is not None:  # grows by a token at a time, as a cache of keys and values does
            if past:
                k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
            past[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=seen == 0)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))

    @staticmethod
    def rotate(x: Tensor, first: int) -> Tensor:
        half = x.shape[-1] // 2
        position = torch.arange(first, first + x.shape[2], device=x.device)
        frequency = 10_000 ** (-torch.arange(half, device=x.device) / half)
        angle = position[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        one, other = x[..., :half], x[..., half:]
        return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


class GatedMlp(nn.Module):  # type: ignore[misc]
    """SwiGLU (Shazeer, GLU variants improve transformer, 2020)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of experts: each token goes to two, so an expert's share varies with the text."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(GatedMlp(width, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(2, dim=-1)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)
            part = expert(tokens[token]) * weights[token, rank, None].to(x.dtype)
            result = result.index_add(0, token, part.to(result.dtype))
        return result.view_as(x)


class DecoderLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int, mlp: nn.Module) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = RotaryAttention(width, heads)
        self.mlp_norm = nn.RMSNorm(width)
        self.mlp = mlp

    def forward(self, x: Tensor, past: list[Tensor] | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), past)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int, mlps: list[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, mlp) for mlp in mlps)
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, past: list[list[Tensor]] | None = None) -> Tensor:
        x = self.tokens(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, past[number] if past is not None else None)
        return self.head(self.norm(x))


def texts(seed: int, batch: int, shortest: int, longest: int) -> Iterator[list[Tensor]]:
    """Each text counts on from its first token; a batch is as long as its longest text."""
    lengths = random.Random(seed)  # noqa: S311 - reproducible, not secret
    generator = torch.Generator().manual_seed(seed)
    while True:
        length = lengths.randint(shortest, longest)
        first = torch.randint(VOCABULARY, (batch, 1), generator=generator)
        yield [(first + torch.arange(length + 1)) % VOCABULARY]


def text_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    (tokens,) = batch
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def llama(seed: int, scale: float) -> Workload:
    width, layers = int(2048 * scale), 16
    model = Decoder(width, 16, [GatedMlp(width, 11 * width // 4) for _ in range(layers)])
    return Workload(model, text_loss, texts(seed, 4, int(512 * scale), int(4096 * scale)))


def mixture(seed: int, scale: float) -> Workload:
    width = int(1024 * scale)
    model = Decoder(width, 16, [Experts(width, 2 * width, 8) for _ in range(12)])
    return Workload(model, text_loss, texts(seed, 4, int(512 * scale), int(3072 * scale)))


def generation(seed: int, scale: float) -> Workload:
    """Writes some tokens with a cache, then trains on them, as fine-tuning by rewards does."""
    width = int(1536 * scale)
    written = random.Random(seed + 1)  # noqa: S311 - reproducible, not secret

    @torch.no_grad()  # type: ignore[misc]
    def generate(model: nn.Module, batch: list[Tensor]) -> list[Tensor]:
        (tokens,) = batch
        past: list[list[Tensor]] = [[] for _ in range(12)]
        new = tokens
        for _ in range(written.randint(16, 64)):
            new = model(new, past)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, new], dim=1)
        return [tokens]

    model = Decoder(width, 16, [GatedMlp(width, 11 * width // 4) for _ in range(12)])
    prompts = texts(seed, 8, int(256 * scale), int(1024 * scale))
    return Workload(model, text_loss, prompts, generate)


# --- Detection of objects in pictures ---


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, inner, 1, bias=False), nn.GroupNorm(8, inner), nn.ReLU()),
            *(
                nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
                nn.GroupNorm(8, inner),
                nn.ReLU(),
            ),
            *(nn.Conv2d(inner, outputs, 1, bias=False), nn.GroupNorm(8, outputs)),
        )
        self.shortcut = (
            nn.Identity()
            if inputs == outputs and stride == 1
            else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Detector(nn.Module):  # type: ignore[misc]
    """A residual backbone, a head on every place of three levels, and one on boxes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 4, 3)
        stages, inputs = [], width
        for outputs, blocks in ((4 * width, 3), (8 * width, 4), (16 * width, 6)):
            stages.append(
                nn.Sequential(
                    Residual(inputs, outputs, 2),
                    *(Residual(outputs, outputs, 1) for _ in range(blocks - 1)),
                )
            )
            inputs = outputs
        self.stages = nn.ModuleList(stages)
        self.laterals = nn.ModuleList(nn.Conv2d(w * width, 4 * width, 1) for w in (4, 8, 16))
        self.objectness = nn.Conv2d(4 * width, 1, 3, padding=1)
        self.boxes = nn.Sequential(
            nn.Linear(3 * 4 * width, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
            nn.Linear(1024, 4),
        )  # fmt: skip

    def forward(self, picture: Tensor, centres: Tensor) -> tuple[list[Tensor], Tensor]:
        x = self.stem(picture)
        levels = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            x = stage(x)
            levels.append(lateral(x))
        scores = [self.objectness(level) for level in levels]
        pieces = []
        for level in levels:
            height, width = level.shape[-2:]
            row = (centres[:, 1] * height).long().clamp_(0, height - 1)
            column = (centres[:, 2] * width).long().clamp_(0, width - 1)
            pieces.append(level[centres[:, 0].long(), :, row, column])
        return scores, self.boxes(torch.cat(pieces, dim=1))


def pictures(seed: int, scale: float) -> Iterator[list[Tensor]]:
    """Some pictures, all of one size, and the boxes in them: few, or thousands."""
    sizes = random.Random(seed)  # noqa: S311 - reproducible, not secret
    generator = torch.Generator().manual_seed(seed)
    while True:
        height, width = (int(scale * sizes.randrange(640, 1344, 32)) for _ in range(2))
        boxes = int(2 ** sizes.uniform(2, 13))
        centres = torch.rand(boxes, 3, generator=generator)
        centres[:, 0] = torch.randint(PICTURES, (boxes,), generator=generator)
        yield [torch.rand(PICTURES, 3, height, width, generator=generator), centres]


def detection_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    picture, centres = batch
    scores, boxes = model(picture, centres)
    loss = F.mse_loss(boxes.float(), centres.repeat(1, 2)[:, 1:5])
    for score in scores:
        loss = loss + F.softplus(score.float()).mean()
    return loss


def detection(seed: int, scale: float) -> Workload:
    return Workload(Detector(64), detection_loss, pictures(seed, scale))


# name: how it is made, from a seed and a scale; 1 fills a good part of a large GPU
WORKLOADS: dict[str, Callable[[int, float], Workload]] = {
    "llama": llama,
    "mixture_of_experts": mixture,
    "detection": detection,
    "generation": generation,
}
