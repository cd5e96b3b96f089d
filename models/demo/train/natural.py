"""Pages written by hand, sentence by sentence, each with the questions that people would ask.

The files in natural/ are plain text: `== Title`, then a sentence per line, each followed by its
questions on lines that begin with `?`. Placeholders are those of values.py; `{dur|three months}` says
which value the published page has (samples.py writes those pages), while training sees random ones.
A question whose sentence was left out of the page is the best unanswerable question there is."""
import pathlib
import re

from facts import Asking, Fact, spoken, trimmed
from values import capital, fill

FOLDER = pathlib.Path(__file__).parent / "natural"
FOLLOWS = re.compile(r"(It|They|This|These|That|Then|After that|Until then|Otherwise|In that case|If not)\b")


def read(path):
    """The pages of one file: [(title, [(sentence, [question, ...]), ...]), ...]."""
    pages = []
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            pages.append((line[3:], []))
        elif line.startswith("? "):
            pages[-1][1][-1][1].append(line[2:])
        elif line and not line.startswith("#"):
            pages[-1][1].append((line, []))
    return pages


def published(template):
    """The text with the values that the published page has."""
    return re.sub(r"\{\w+\|([^}]*)\}", r"\1", template)


def varied(r, template, known):
    """The text with random values; a value named twice is the same twice."""
    def value(match):
        key = match.group(1)
        if key == "company":
            return known.setdefault(key, capital(fill(r, "{N}")))
        return known.setdefault(match.group(0), fill(r, "{" + key + "}"))

    return fill(r, re.sub(r"\{(\w+)\|[^}]*\}", value, template), {"company": known.setdefault("company", fill(r, "{N}"))})


def library(names=None):
    """File name without ending -> its pages."""
    return {p.stem: read(p) for p in sorted(FOLDER.glob("*.txt")) if names is None or p.stem in names}


class NaturalPages:
    """Some pages of one file, some sentences left out."""

    def __init__(self, r, pages, lengths):
        self.chosen = r.sample(pages, min(len(pages), len(lengths)))
        self.rest = [p for p in pages if p not in self.chosen]
        self.known, self.titles, self.pages, self.absent = {}, {}, [], []
        for (title, sentences), length in zip(self.chosen, lengths):
            page = self.page(r, sentences, max(2, length))
            self.pages.append(page)
            if r.random() < .85:
                self.titles[id(page)] = varied(r, title, self.known)

    def page(self, r, sentences, length):
        drop = set()
        if len(sentences) > 2 and r.random() < .6:
            drop = set(r.sample(range(len(sentences)), r.randint(1, max(1, len(sentences) - length))))
        page = []
        for i, (sentence, questions) in enumerate(sentences):
            orphan = i - 1 in drop and FOLLOWS.match(sentence)
            if i in drop or orphan:
                drop.add(i)
                self.absent += questions
                continue
            page.append(self.fact(sentence, questions, r))
        return page

    def fact(self, sentence, questions, r):
        text = varied(r, sentence, self.known)
        follows = bool(FOLLOWS.match(sentence))

        def ask(r, how):
            return spoken(r, varied(r, r.choice(questions), self.known))

        return Fact(text if follows else (trimmed(r, text) if r.random() < .3 else text),
                    ask if questions else None, ("natural", sentence), None, "natural", None, None, True)

    def stranger(self, r):
        if self.absent and r.random() < .6:
            return spoken(r, varied(r, r.choice(self.absent), self.known))
        if not self.rest:
            return None
        _, sentences = r.choice(self.rest)
        questions = [q for _, qs in sentences for q in qs]
        return spoken(r, varied(r, r.choice(questions), self.known)) if questions else None
