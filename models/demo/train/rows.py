"""Training rows: one context with many questions as branches of a tree.

A row is the text of a context followed by branches, each a question and its answer. A branch sees
the context and itself only (`model.tree_mask`) and its positions go on where the context ends, so
that every branch is exactly what decoding it alone would be, at a fraction of the cost.

Most branches end with the decision: the answer's marker is a target and nothing follows. Copying the
sentence is learnt sooner than choosing it and needs fewer examples."""
import random
from dataclasses import dataclass

import torch

from contexts import Mix, make_context
from prompt import MARKERS, NUMBERS, render_answer, render_pages, render_question
from tokenizer import BOS, EOS, PAD

PADDING, BRANCHES = 255, 254            # branch number of padding; most branches of a row
NOTHING, CHOICE, COPY = 0, 1, 2         # what a target is


@dataclass
class Row:
    ids: list
    positions: list
    branches: list                      # 0 context, 1.. branches
    targets: list                       # the next token where it counts, else 0
    kinds: list                         # NOTHING, CHOICE or COPY
    questions: list                     # the Question of every branch


class RowMaker:
    """Makes rows of at most `length` tokens with one tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.refusal = self.encode(render_answer("", None))

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def build(self, context, length, first, copied):
        """A row of this context, its sentences numbered from `first`; `copied(question)` says whether its answer is written out."""
        ids = [BOS] + self.encode(render_pages(context.pages, first))
        start = len(ids)
        row = Row(ids, list(range(start)), [0] * start, [0] * start, [NOTHING] * start, [])
        sentences = context.sentences
        for question in context.questions:
            number = None if question.answer is None else question.answer + first
            asked = self.encode(render_question(question.text))
            said = self.refusal if number is None else self.encode(render_answer(sentences[question.answer], number))
            tail = said if copied(question) else []
            n = len(asked) + len(tail)
            if len(row.ids) + n > length or len(row.questions) == BRANCHES:
                continue
            row.questions.append(question)
            row.ids += asked + tail
            row.positions += range(start, start + n)
            row.branches += [len(row.questions)] * n
            row.targets += [0] * (len(asked) - 1) + [said[0]] + (said[1:] + [EOS] if tail else [])
            row.kinds += [NOTHING] * (len(asked) - 1) + [CHOICE] + [COPY] * len(tail)
        return row

    def make(self, r, length, mix, copies=.4, fill=.75):
        """A random row; contexts that leave too little room for questions are made anew."""
        while True:
            context = make_context(r, mix)
            sentences = len(context.sentences)
            if not context.questions or sentences > NUMBERS:
                continue
            first = 1 if r.random() < .5 else r.randint(1, NUMBERS - sentences + 1)
            row = self.build(context, length, first, lambda q: r.random() < (copies if q.answer is not None else copies / 3))
            if row.questions and row.branches.count(0) <= length * fill:
                return row

    def echo(self, r, length):
        """Random tokens and branches that repeat a span of them: only copying helps."""
        words = range(len(MARKERS) + 5, self.tokenizer.get_vocab_size())
        start = r.randint(40, length // 2)
        ids = [BOS] + [r.choice(words) for _ in range(start - 1)]
        row = Row(list(ids), list(range(start)), [0] * start, [0] * start, [NOTHING] * start, [])
        while len(row.ids) + 8 < length:
            span = min(r.randint(8, 30), length - len(row.ids))
            at = r.randint(1, max(1, start - span - 1))
            piece = ids[at:at + span + 1]
            n = len(piece) - 1
            row.questions.append(None)
            row.ids += piece[:n]
            row.positions += range(start, start + n)
            row.branches += [len(row.questions)] * n
            row.targets += piece[1:]
            row.kinds += [COPY] * n
        return row


def collate(rows):
    """Rows as tensors of one length: ids, positions, branches, targets, kinds."""
    length = max(len(row.ids) for row in rows)

    def table(field, padding):
        return torch.tensor([getattr(row, field) + [padding] * (length - len(row.ids)) for row in rows])

    return tuple(table(f, p) for f, p in
                 (("ids", PAD), ("positions", 0), ("branches", PADDING), ("targets", 0), ("kinds", NOTHING)))


STAGES = {  # name: (length of a row, its mix)
    "short": (256, Mix(pages=(1, 3), length=(1, 4), questions=14)),
    "normal": (512, Mix(pages=(1, 5), length=(2, 7), questions=24)),
    "long": (1024, Mix(pages=(4, 9), length=(3, 9), questions=36)),
    # The published sample pages, with other names and numbers; the last part of training only.
    "samples": (640, Mix(pages=(2, 4), length=(4, 6), questions=24, natural=("billing",), shares={"natural": 1})),
}


def stream(maker, stage, seed):
    """Rows of a stage for ever."""
    r = random.Random(seed)
    length, mix = STAGES[stage]
    while True:
        yield maker.make(r, length, mix)
