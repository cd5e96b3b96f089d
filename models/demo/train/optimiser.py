"""Muon for the matrices of the blocks, AdamW for the embedding and the norms.

Muon steps along the orthogonalised momentum (K. Jordan, 2024): every direction of a matrix moves alike.
Fused matrices (query-key-value, gate-up) are orthogonalised part by part."""
import torch

PARTS = {"qkv": 3, "gate_up": 2}


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration towards the nearest orthogonal matrix, of a matrix or a stack of them.

    Whatever precision they come in will do: what is left of the direction is exact enough in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.size(-2) > g.size(-1)
    x = g.mT if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x


class Optimiser:
    """Both of them behind one step."""

    def __init__(self, model, rate=.012, embedding_rate=.003, momentum=.95, decay=.01, precision=torch.float32):
        self.precision = precision
        self.rate, self.embedding_rate, self.momentum, self.decay = rate, embedding_rate, momentum, decay
        named = list(model.named_parameters())
        self.matrices = [(n, p) for n, p in named if n.startswith("blocks") and p.ndim == 2]
        self.momenta = [torch.zeros_like(p) for _, p in self.matrices]
        chosen = {n for n, _ in self.matrices}
        self.adam = torch.optim.AdamW([p for n, p in named if n not in chosen], lr=embedding_rate,
                                      betas=(.9, .98), weight_decay=0, eps=1e-10)

    @torch.no_grad()
    def step(self, scale):
        """One step at `scale` times the full rates."""
        for (name, p), momentum in zip(self.matrices, self.momenta):
            momentum.lerp_(p.grad, 1 - self.momentum)
            g = p.grad.lerp(momentum, self.momentum)
            parts = next((n for key, n in PARTS.items() if key in name), 1)
            g = g.view(parts, -1, g.size(1))
            rate = self.rate * scale
            p.mul_(1 - rate * self.decay)
            p.add_(orthogonalise(g.to(self.precision)).reshape(p.shape), alpha=-rate * max(1, g.size(1) / g.size(2)) ** .5)
        for group in self.adam.param_groups:
            group["lr"] = self.embedding_rate * scale
        self.adam.step()
        for _, p in self.matrices:
            p.grad = None
        self.adam.zero_grad(set_to_none=True)

    def state(self):
        return {"momenta": self.momenta, "adam": self.adam.state_dict()}

    def load(self, state):
        for mine, saved in zip(self.momenta, state["momenta"]):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])
