"""Training: for so many minutes, on the CPU or a GPU, from the start or from a checkpoint.

    python train.py --run RUN --minutes 60 [--decay 20] [--device cuda] [--from CHECKPOINT]

The rate is constant and falls to nothing over the last `--decay` minutes, so that a run can be cut into
as many pieces as one likes: go on from `last.pt` at the full rate, and branch off a decay to get a model to
publish. Batch n is made from the seed and n alone, so a resumed run sees the rows it would have seen.

RUN/ holds last.pt (weights, optimiser, step), final.pt after a decay, log.jsonl, and pid: the process can be
stopped and continued (SIGSTOP, SIGCONT) at any time, pauses not counting, and SIGTERM saves before it ends. `export.py
compact` writes the small checkpoint that is committed: half-precision weights, from which momenta warm up again."""
import argparse
import json
import os
import pathlib
import random
import signal
import time

import torch
import torch.nn.functional as F

import tokenizer
from circuits import start
from model import Config, Model, tree_mask
from optimiser import Optimiser
from rows import CHOICE, COPY, PADDING, STAGES, RowMaker, collate

SAVE_MINUTES, LOG_STEPS = 4, 25
LONGEST_STEP = 60               # seconds; what is above was a pause and does not count


def plan(step, decaying):
    """[(share, stage)] of a batch: short rows first, long ones when choosing has been learnt."""
    if decaying:
        return [(.38, "normal"), (.17, "long"), (.45, "samples")]
    if step < 150:
        return [(.3, "echo"), (.7, "short")]
    if step < 300:
        return [(.7, "short"), (.3, "normal")]
    return [(.1, "short"), (.75, "normal"), (.15, "long")]


class Batches(torch.utils.data.Dataset):
    """Batch n of a run: rows of one stage, as tensors. `tokens` is how many a batch holds."""

    def __init__(self, seed, tokens, decaying):
        self.maker, self.seed, self.tokens, self.decaying = RowMaker(tokenizer.load()), seed, tokens, decaying

    def __len__(self):
        return 1 << 40

    def __getitem__(self, n):
        r = random.Random(f"{self.seed} {n}")
        shares, stages = zip(*plan(n, self.decaying))
        stage = r.choices(stages, shares)[0]
        length, mix = STAGES["short" if stage == "echo" else stage]
        make = (lambda: self.maker.echo(r, length)) if stage == "echo" else (lambda: self.maker.make(r, length, mix))
        return stage, collate([make() for _ in range(max(1, self.tokens // length))])


def batches(args, step):
    """The batches from `step` on, made by worker processes if there are any."""
    data = Batches(args.seed, args.tokens, args.decay >= args.minutes)
    order = range(step, step + (1 << 30))
    return iter(torch.utils.data.DataLoader(data, sampler=order, batch_size=None, num_workers=args.workers))


def next_words(ids, branches, share=.25):
    """Positions [B, T] whose next token goes on with the same text: a random share of them."""
    same = torch.zeros_like(ids, dtype=torch.bool)
    same[:, :-1] = (branches[:, 1:] == branches[:, :-1]) & (branches[:, 1:] != PADDING)
    return same & (torch.rand(ids.shape, device=ids.device) < share)


def losses(model, batch, words=0.0):
    """Mean loss of the choices, of the copied words and of all words, and how many choices were right.

    The third, the loss of a language model, is computed only where `words` is above 0."""
    ids, positions, branches, targets, kinds = batch
    hidden = model(ids, positions, tree_mask(branches))
    choice, copy = kinds == CHOICE, kinds == COPY
    said = model.logits(hidden[choice]).float()
    zero = said.sum() * 0
    right = (said.argmax(-1) == targets[choice]).float().mean() if choice.any() else zero
    of_choice = F.cross_entropy(said, targets[choice]) if choice.any() else zero
    of_copy = F.cross_entropy(model.logits(hidden[copy]).float(), targets[copy]) if copy.any() else zero
    some = next_words(ids, branches)
    of_words = F.cross_entropy(model.logits(hidden[some]).float(), ids.roll(-1, 1)[some]) if words else zero
    return of_choice, of_copy, of_words, right


def load(path, device="cpu", averaged=True):
    """A model from a checkpoint, full or compact, and the checkpoint; `averaged` over the last steps if it has that."""
    saved = torch.load(path, map_location=device, weights_only=True)
    model = Model(Config(**saved["config"]))
    weights = saved["average"] if averaged and "average" in saved else saved["weights"]
    model.load_state_dict({k: v.float() for k, v in weights.items()})
    return model.to(device), saved


def write(path, model, **rest):
    """Write a checkpoint; never leaves half a file behind."""
    scratch = path.with_suffix(".new")
    torch.save({"config": model.describe(), "weights": model.state_dict(), **rest}, scratch)
    scratch.replace(path)


class Average:
    """The mean of the weights over the last couple of hundred steps: what is evaluated and published."""

    def __init__(self, model, weights=None, keep=.995):
        self.live = dict(model.named_parameters())
        self.mean = {n: (weights or self.live)[n].detach().clone().float() for n in self.live}
        self.keep = keep

    @torch.no_grad()
    def step(self, step):
        keep = min(self.keep, (step + 1) / (step + 10))
        torch._foreach_lerp_(list(self.mean.values()), [p.detach() for p in self.live.values()], 1 - keep)


class Run:
    """One training process."""

    def __init__(self, args):
        self.args, self.run = args, pathlib.Path(args.run)
        self.run.mkdir(parents=True, exist_ok=True)
        (self.run / "pid").write_text(str(os.getpid()))
        torch.manual_seed(args.seed)
        torch.set_num_threads(args.threads)
        torch.set_flush_denormal(True)
        self.step, self.tokens, self.warm = 0, 0, 0
        saved = {}
        if args.start:
            self.model, saved = load(args.start, args.device, averaged=False)
        else:
            config = Config(vocabulary=tokenizer.load().get_vocab_size(), width=args.width, layers=args.layers, hidden=args.hidden)
            self.model = Model(config)
            if not args.plain:
                start(self.model)
            self.model.to(args.device)
        self.bf16 = args.bf16 or args.device == "cuda"
        precision = torch.bfloat16 if self.bf16 else torch.float32
        self.optimiser = Optimiser(self.model, args.rate, args.embedding_rate, precision=precision)
        self.average = Average(self.model, saved.get("average"))
        self.step, self.tokens = saved.get("step", 0), saved.get("tokens", 0)
        if "optimiser" in saved:
            self.optimiser.load(saved["optimiser"])
            self.warm = args.warm
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopping = True

    def log(self, **entry):
        line = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in entry.items()})
        print(line, flush=True)
        with open(self.run / "log.jsonl", "a") as file:
            file.write(line + "\n")

    def save(self, name):
        write(self.run / name, self.model, optimiser=self.optimiser.state(), average=self.average.mean,
              step=self.step, tokens=self.tokens, seed=self.args.seed)

    def scale(self, minutes):
        """How much of the full rate: rises over the first steps, falls over the last minutes."""
        self.warm += 1
        left = (self.args.minutes - minutes) / self.args.decay if self.args.decay else 1
        return max(.01, min(1, self.warm / self.args.warm, left))

    def train(self):
        args, sums, rows = self.args, torch.zeros(5), batches(self.args, self.step)
        seconds, saved_at, last = 0.0, 0.0, time.monotonic()
        self.log(event="start", parameters=self.model.parameter_count(), **vars(args), step=self.step)
        counted = self.tokens
        while (minutes := seconds / 60) < args.minutes and not self.stopping and self.step < args.steps:
            stage, batch = next(rows)
            batch = [t.to(args.device, non_blocking=True) for t in batch]
            with torch.autocast(args.device, torch.bfloat16, enabled=self.bf16):
                choice, copy, words, right = losses(self.model, batch, args.words)
            (choice + copy + args.words * words).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            scale = self.scale(minutes)
            self.optimiser.step(scale)
            self.step += 1
            self.average.step(self.step)
            self.tokens += int((batch[2] != PADDING).sum())
            if stage != "echo":
                sums += torch.tensor([1, choice.item(), right.item(), copy.item(), words.item()])
            now = time.monotonic()
            seconds, last = seconds + min(now - last, LONGEST_STEP), now
            if self.step % LOG_STEPS == 0 and sums[0]:
                means = dict(zip(("choice", "right", "copy", "words"), (sums[1:] / sums[0]).tolist()))
                self.log(step=self.step, minutes=minutes, tokens=self.tokens, **means, rate=scale,
                         per_second=int((self.tokens - counted) / seconds))
                sums.zero_()
            if seconds - saved_at > SAVE_MINUTES * 60:
                self.save("decaying.pt" if args.decay and scale < 1 else "last.pt")
                saved_at = seconds
        self.save("final.pt" if args.decay and not self.stopping else "last.pt")
        self.log(event="end", step=self.step, tokens=self.tokens, minutes=seconds / 60)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--run", required=True, help="folder of this run")
    add("--minutes", type=float, default=60)
    add("--decay", type=float, default=0, help="minutes at the end over which the rate falls")
    add("--steps", type=int, default=1 << 40, help="stop at this step, whatever the time")
    add("--from", dest="start", help="checkpoint to go on from")
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--bf16", action="store_true", help="multiply in bfloat16, as a GPU does: 1.5 times as fast where lscpu says avx512_bf16 or amx")
    add("--threads", type=int, default=2)
    add("--workers", type=int, default=0, help="processes that make rows; 14 for a GPU")
    add("--tokens", type=int, default=3072, help="tokens of a batch; 65536 for a GPU")
    add("--seed", type=int, default=1)
    add("--rate", type=float, default=.004, help="of Muon")
    add("--embedding-rate", type=float, default=.002)
    add("--warm", type=int, default=30, help="steps over which the rate rises")
    add("--width", type=int, default=256)
    add("--layers", type=int, default=6)
    add("--hidden", type=int, default=512)
    add("--words", type=float, default=.15, help="weight of the loss of a language model on all text")
    add("--plain", action="store_true", help="start from ordinary random weights, without circuits.py")
    return parser.parse_args()


if __name__ == "__main__":
    Run(arguments()).train()
