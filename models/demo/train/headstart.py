"""How much of a head start sentences get that BM25 likes: the figures behind two numbers of the server.

    python headstart.py CHECKPOINT [--contexts 25]

Before it decodes, the server adds WEIGHT x (the sentence's BM25 score among all sentences of samples/) to the
score of each number, and REFUSAL to that of the refusal (crates/local/src/demo.rs). Here both are varied. They are
chosen on the hand-written questions; the others are there to be looked at, and to be reported.

Copies count as whole: on the server a grammar sees to that."""
import argparse
import itertools
import math
from collections import Counter

import torch

import samples
import tokenizer
from contexts import UNSEEN, Context, Mix, Question
from evaluate import B, FIRST, K1, LONGEST, Asked, bm25, generated, hand, words
from model import tree_mask
from prompt import REFUSAL
from rows import CHOICE, RowMaker, collate
from train import load

WEIGHTS = (0, .2, .4, .6, .8, 1)
REFUSALS = (0, 1, 2, 3)


class Sentences:
    """All sentences of the sample documents, as BM25 sees them: each with the title of its page."""

    def __init__(self, pages):
        texts = [words(f"{title} {s}") for title, said in pages.values() for s in said]
        self.count, self.mean = len(texts), sum(map(len, texts)) / len(texts)
        self.spread = Counter(w for text in texts for w in set(text))

    def score(self, title, sentence, question):
        text = Counter(words(f"{title or ''} {sentence}"))
        norm = K1 * (1 - B + B * text.total() / self.mean)
        idf = lambda w: math.log(1 + (self.count - self.spread[w] + .5) / (self.spread[w] + .5))
        return sum(idf(w) * text[w] * (K1 + 1) / (text[w] + norm) for w in set(words(question)) if w in text)


def documents(name, pages):
    """The questions of samples/NAME, with the best three of all pages before each, as the server shows them."""
    for q in samples.questions(name):
        found = bm25(pages, q["question"])
        flat = [(file, s) for file in found for s in pages[file][1]]
        answers = {(f"{name}/{a['page']}", a["sentence"]) for a in q["answers"]}
        right = {i for i, at in enumerate(flat) if at in answers}
        wanted = {file for file, _ in answers}
        asked = Asked(q["question"], right or ({-1} if wanted else set()), {i for i, f in enumerate(found) if f in wanted})
        yield Context([pages[f] for f in found], []), [asked]


@torch.no_grad()
def scored(model, maker, sentences, context, asked):
    """Of each question: what it is, the model's scores of the numbers and of the refusal, BM25's, and the pages."""
    shown = [(page, title, s) for page, (title, said) in enumerate(context.pages) for s in said]
    row = maker.build(Context(context.pages, [Question(a.text, None, "") for a in asked]), LONGEST, 1, lambda q: False)
    ids, positions, branches, _, kinds = collate([row])
    refusal = maker.encode(f" {REFUSAL}")[0]
    for a, said in zip(asked, model.logits(model(ids, positions, tree_mask(branches))[kinds == CHOICE])):
        liked = [sentences.score(title, s, a.text) for _, title, s in shown]
        yield a, said[FIRST:FIRST + len(shown)].tolist(), said[refusal].item(), liked, [page for page, _, _ in shown]


def figures(results, weight, refusal):
    page = sentence = false = refused = 0
    for asked, scores, nothing, liked, pages in results:
        best = max(range(len(scores)), key=lambda i: scores[i] + weight * liked[i])
        says = scores[best] + weight * liked[best] >= nothing + refusal
        false += bool(asked.right) and not says
        refused += not asked.right and not says
        page += says and pages[best] in asked.pages
        sentence += says and best in asked.right
    answerable = sum(bool(x[0].right) for x in results)
    shares = page / answerable, sentence / answerable, false / answerable, refused / max(len(results) - answerable, 1)
    return " ".join(f"{100 * share:3.0f}" for share in shares)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--contexts", type=int, default=25, help="of the held-out domains")
    args = parser.parse_args()
    model, _ = load(args.checkpoint)
    model.eval()
    maker = RowMaker(tokenizer.load())
    pages = {f"{name}/{file}": page for name in ("billing", "unseen") for file, page in samples.collection(name).items()}
    asked = {
        "hand": hand(), "billing": documents("billing", pages), "unseen": documents("unseen", pages),
        "domains": generated(Mix(questions=8, shares={"domain": 1}, domains=UNSEEN), args.contexts),
    }
    sentences = Sentences(pages)
    results = {name: [r for one in items for r in scored(model, maker, sentences, *one)] for name, items in asked.items()}
    print("right page, right sentence, refused falsely, refused rightly, in %")
    for weight, refusal in itertools.product(WEIGHTS, REFUSALS):
        print(f"weight {weight:3} refusal {refusal}", *(f"{name} {figures(r, weight, refusal)}" for name, r in results.items()), sep="  |  ")
