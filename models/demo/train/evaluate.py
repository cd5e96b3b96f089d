"""Evaluation: every set of questions, by what greedy decoding would say.

    python evaluate.py CHECKPOINT [--contexts 60] [--show billing] [--json FILE]

Two passes give the greedy answer without decoding it word by word: the first reads off which marker (or
refusal) comes first; the second puts the answer of that marker behind the question and asks whether every
word of it would have been said. Where not, the copy is broken. The figures are those of the issue's bars:

- page: of the answerable questions, the marker is one of a sentence on the right page;
- sentence: the marker is right and the sentence is copied to its end without a fault;
- refused: of the unanswerable questions; false: of the answerable ones;
- broken: answers whose copy would not be the sentence they name.

Questions of samples/ go through `bm25`, the three best pages being the prompt, best first."""
import argparse
import json
import math
import pathlib
import random
import re
import tomllib
from collections import Counter
from dataclasses import dataclass

import snowballstemmer
import torch

import samples
import tokenizer
from contexts import SEEN, UNSEEN, Context, Mix, Question, make_context
from model import tree_mask
from prompt import MARKERS, NUMBERS
from rows import CHOICE, NOTHING, RowMaker, collate
from train import load

FIRST = 5                                   # the token of [1]
LONGEST = 8192                              # of a row; positions stay below 2,048
STEMMER = snowballstemmer.stemmer("english")
K1, B = 1.2, .75                            # of BM25, as everybody sets them


@dataclass
class Asked:
    """A question with everything that would be a right answer: numbers of sentences, none for a refusal."""
    text: str
    right: set
    pages: set                              # of which page, counted from 0


@dataclass
class Result:
    asked: Asked
    chosen: int | None                      # number of the sentence, None for a refusal
    page: int | None
    broken: bool
    prompt: int                             # tokens


def words(text):
    """The stems of its words, as crates/local/src/demo/bm25.rs has them."""
    return STEMMER.stemWords(re.findall(r"[a-z0-9]+", text.lower()))


def bm25(pages, question, best=3):
    """The names of the `best` pages for a question; pages: {name: (title, sentences)}."""
    texts = {name: Counter(words(f"{title} {' '.join(said)}")) for name, (title, said) in pages.items()}
    mean = sum(sum(t.values()) for t in texts.values()) / len(texts)

    def score(text):
        total = 0.0
        for w in set(words(question)):
            n = sum(w in t for t in texts.values())
            weight = math.log(1 + (len(texts) - n + .5) / (n + .5))
            total += weight * text[w] * (K1 + 1) / (text[w] + K1 * (1 - B + B * sum(text.values()) / mean))
        return total

    return sorted(texts, key=lambda name: -score(texts[name]))[:best]


def documents(name):
    """A sample collection as [(context, [Asked])], one question each."""
    pages, out = samples.collection(name), []
    for q in samples.questions(name):
        found = bm25(pages, q["question"])
        flat = [(file, s) for file in found for s in pages[file][1]]
        right = {i for i, at in enumerate(flat) if {"page": at[0], "sentence": at[1]} in q["answers"]}
        wanted = {a["page"] for a in q["answers"]}
        asked = Asked(q["question"], right or ({-1} if wanted else set()), {i for i, f in enumerate(found) if f in wanted})
        out.append((Context([pages[f] for f in found], []), [asked]))
    return out


def hand():
    """The hand-written questions as [(context, [Asked])]."""
    out = []
    for c in tomllib.loads((pathlib.Path(__file__).parent / "hand.toml").read_text())["context"]:
        starts = [sum(map(len, c["passages"][:i])) for i in range(len(c["passages"]))]
        asked = [Asked(q["ask"], {starts[q["passage"] - 1] + i for i in q["sentences"]}, {q["passage"] - 1})
                 if "passage" in q else Asked(q["ask"], set(), set()) for q in c["questions"]]
        out.append((Context([(None, p) for p in c["passages"]], []), asked))
    return out


def generated(mix, contexts, seed=991, longer_than=0, maker=None):
    """Contexts of the generator as [(context, [Asked])]."""
    r, out = random.Random(seed), []
    while len(out) < contexts:
        c = make_context(r, mix)
        if not c.questions or len(c.sentences) > NUMBERS:
            continue
        if longer_than and len(maker.encode(" ".join(c.sentences))) + 2 * len(c.sentences) < longer_than:
            continue
        page_of = [i for i, (_, said) in enumerate(c.pages) for _ in said]
        out.append((c, [Asked(q.text, set() if q.answer is None else {q.answer},
                              set() if q.answer is None else {page_of[q.answer]}) for q in c.questions]))
    return out


def sets(contexts, maker):
    """Name -> [(context, [Asked])] of everything that is measured."""
    alone = lambda kind: {kind: 1}
    few = max(4, contexts // 3)
    return {
        "seen": generated(Mix(questions=8, shares=alone("domain")), contexts),
        "wording": generated(Mix(questions=8, shares=alone("domain"), held=True), contexts),
        "domains": generated(Mix(questions=8, shares=alone("domain"), domains=UNSEEN), contexts),
        "free": generated(Mix(questions=8, shares=alone("free")), contexts),
        "generic": generated(Mix(questions=8, shares=alone("generic")), contexts),
        "long": generated(Mix(pages=(6, 9), length=(4, 8), questions=8, shares={"domain": .6, "free": .4}, domains=SEEN), few, 992, 520, maker),
        "hand": hand(), "billing": documents("billing"), "unseen": documents("unseen"),
    }


@torch.no_grad()
def passes(model, maker, context, asked):
    """The Results of the questions of one context."""
    page_of = [i for i, (_, said) in enumerate(context.pages) for _ in said]
    context = Context(context.pages, [Question(a.text, None, "") for a in asked])
    row = maker.build(context, LONGEST, 1, lambda q: False)
    ids, positions, branches, _, kinds = collate([row])
    said = model.logits(model(ids, positions, tree_mask(branches))[kinds == CHOICE]).argmax(-1).tolist()
    chosen = [t - FIRST if FIRST <= t < FIRST + len(MARKERS) and t - FIRST < len(page_of) else None for t in said]
    for question, number in zip(context.questions, chosen):
        question.answer = number
    row = maker.build(context, LONGEST, 1, lambda q: True)
    ids, positions, branches, targets, kinds = collate([row])
    copies = kinds != NOTHING
    fine = model.logits(model(ids, positions, tree_mask(branches))[copies]).argmax(-1) == targets[copies]
    where = branches[copies]
    length = row.branches.count(0)
    return [Result(a, n, None if n is None else page_of[n], not bool(fine[where == i].all()), length)
            for i, (a, n) in enumerate(zip(asked, chosen), 1)]


def figures(results):
    answerable, rest = [x for x in results if x.asked.right], [x for x in results if not x.asked.right]
    share = lambda some, of: round(sum(some) / len(of), 3) if of else None
    return {
        "page": share((x.page in x.asked.pages for x in answerable), answerable),
        "sentence": share((x.chosen in x.asked.right and not x.broken for x in answerable), answerable),
        "false": share((x.chosen is None for x in answerable), answerable),
        "refused": share((x.chosen is None for x in rest), rest),
        "broken": sum(x.broken for x in results),
        "answerable": len(answerable), "unanswerable": len(rest),
        "prompt": round(sum(x.prompt for x in results) / len(results)),
    }


def show(context, results):
    flat = context.sentences
    for x in results:
        right = x.chosen in x.asked.right if x.asked.right else x.chosen is None
        print("ok " if right and not x.broken else "BAD", x.asked.text, "->", "(refused)" if x.chosen is None else flat[x.chosen],
              "(broken)" if x.broken else "")


def evaluate(model, contexts=60, shown=()):
    """All sets: name -> figures."""
    maker, out = RowMaker(tokenizer.load()), {}
    model.eval()
    for name, items in sets(contexts, maker).items():
        results = []
        for context, asked in items:
            some = passes(model, maker, context, asked)
            if name in shown:
                show(context, some)
            results += some
        out[name] = figures(results)
        print(f"{name:8}", *(f"{k} {v}" for k, v in out[name].items()), sep="  ", flush=True)
    model.train()
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--contexts", type=int, default=60, help="of every generated set; a third of it for long ones")
    parser.add_argument("--show", nargs="*", default=[], help="sets whose answers are printed")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, saved = load(args.checkpoint)
    result = evaluate(model, args.contexts, args.show)
    total = sum(v["answerable"] + v["unanswerable"] for v in result.values())
    print("answers:", total, "broken:", sum(v["broken"] for v in result.values()), "tokens trained on:", saved.get("tokens"))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"tokens": saved.get("tokens"), "step": saved.get("step"), **result}, indent=1) + "\n")
