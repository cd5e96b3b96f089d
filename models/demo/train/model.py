"""The model: a plain Llama (RMSNorm, rotary positions, SwiGLU, tied embedding) over tree rows.

Shapes: B rows, T tokens, d width, H heads of d/H. Nothing here is special, so that any Llama engine
can run the result; what is special is where the weights start (circuits.py) and how rows are masked
(`tree_mask`)."""
import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: int = 6144
    width: int = 256
    layers: int = 6
    heads: int = 4
    hidden: int = 512           # of the feed-forward part
    base: float = 500_000.0     # of the rotary positions: many slow pairs, for comparing contents
    positions: int = 2048
    epsilon: float = 1e-5


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x, cos, sin):
    """Rotary positions, first half against second half (as in the HF weights)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.width
        self.heads, self.head = config.heads, d // config.heads
        self.norm1, self.norm2 = Norm(d, config.epsilon), Norm(d, config.epsilon)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * config.hidden, bias=False), nn.Linear(config.hidden, d, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, self.head).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        d, head = config.width, config.width // config.heads
        self.embedding = nn.Embedding(config.vocabulary, d)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(d, config.epsilon)
        speeds = config.base ** (-torch.arange(0, head, 2).float() / head)
        angles = torch.outer(torch.arange(config.positions).float(), speeds)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        nn.init.normal_(self.embedding.weight, std=.25)
        nn.init.constant_(self.norm.weight, .3)
        for block in self.blocks:
            for w in (block.qkv.weight, block.gate_up.weight):
                nn.init.normal_(w, std=1 / math.sqrt(d))
            for w in (block.out.weight, block.down.weight):
                nn.init.normal_(w, std=.3 / math.sqrt(w.shape[1]))

    def forward(self, ids, positions, mask):
        """Hidden states [B, T, d] after the last norm; `logits` turns the wanted ones into words."""
        x = self.embedding(ids)
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.norm(x)

    def logits(self, hidden):
        return hidden @ self.embedding.weight.t()

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())

    def describe(self):
        return asdict(self.config)


def tree_mask(branches):
    """[B, T] branch numbers (0 context, 255 padding) -> [B, 1, T, T]: earlier tokens of the context or the own branch."""
    t = branches.shape[1]
    causal = torch.ones(t, t, dtype=torch.bool, device=branches.device).tril()
    same = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    return (causal & same).unsqueeze(1)
