"""Contexts: a few pages of numbered sentences, and questions about them.

This is where the kinds of text are mixed. A context is what the retrieval hands over: one to six
pages, each with or without a title; a question has one right sentence, or none."""
from dataclasses import dataclass, field

import generic
from actions import gerund
from domainpages import DomainPages
from facts import MANNERS, Asking, domains
from free import FreePages
from natural import NaturalPages, library
from values import capital, fill

DOMAINS = domains()
HELD = ("library", "clinic", "energy")          # whole domains that training never sees
SEEN = [d for k, d in DOMAINS.items() if k not in HELD]
UNSEEN = [DOMAINS[k] for k in HELD]
NATURAL = library()


@dataclass
class Mix:
    """What contexts are made of, and how large they are."""
    pages: tuple = (1, 5)           # how many pages, both ends included
    length: tuple = (2, 7)          # sentences of a page
    questions: int = 16
    unanswerable: float = .25
    shares: dict = field(default_factory=lambda: {"domain": .34, "free": .16, "generic": .1, "natural": .4})
    domains: list = field(default_factory=lambda: SEEN)
    natural: tuple = ()             # files of natural/ in use; empty means all but the samples
    held: bool = False              # only wordings that training never sees


@dataclass
class Question:
    text: str
    answer: int | None              # index of the sentence, counted over all pages
    kind: str


@dataclass
class Context:
    pages: list                     # [(title or None, [sentence, ...]), ...]
    questions: list

    @property
    def sentences(self):
        return [s for _, page in self.pages for s in page]


class GenericPages:
    """Random words; see generic.py."""

    def __init__(self, r, lengths):
        self.pages = [[generic.generic_fact(r) for _ in range(n)] for n in lengths]
        self.facts = [f for p in self.pages for f in p]

    def stranger(self, r):
        return generic.stranger(r, self.facts, Asking())


def natural_pages(mix):
    names = mix.natural or [n for n in NATURAL if n != "billing"]
    return [NATURAL[n] for n in names if n in NATURAL]


def source(r, mix):
    """The pages of one context, before they are put in order."""
    lengths = [r.randint(*mix.length) for _ in range(r.randint(*mix.pages))]
    kind = r.choices(list(mix.shares), mix.shares.values())[0]
    if kind == "natural":
        files = natural_pages(mix)
        if files:
            return NaturalPages(r, r.choices(files, [len(f) for f in files])[0], lengths)
        kind = "domain"
    if kind == "generic":
        return GenericPages(r, lengths)
    if kind == "free":
        return FreePages(r, lengths)
    made = DomainPages(r, r.choice(mix.domains), lengths, mix.domains, mix.held)
    if len(made.pages) > 1 and r.random() < .2:                  # a page about something else
        other = FreePages(r, lengths[:1]).pages
        if other:
            made.pages[r.randrange(len(made.pages))] = other[0]
            made.facts = [f for p in made.pages for f in p]
    return made


def filler(r):
    """A sentence that says nothing; it may name an action and still answers no question."""
    action = r.choice(r.choice(SEEN).actions)
    return capital(fill(r, r.choice(MANNERS["filler"]), {"g": gerund(action.stated("your"))}))


def lay_out(r, made):
    """Put the pages in order: -> pages of sentences, and the facts with their sentence numbers."""
    titles = getattr(made, "titles", {})
    pages, numbered, n = [], [], 0
    r.shuffle(made.pages)
    for page in made.pages:
        title = titles.get(id(page))
        if isinstance(made, FreePages) and r.random() < .5:
            title = capital(page[0].thing.head) if page[0].thing else None
        if r.random() < .3 and not any(f.follows for f in page):
            r.shuffle(page)
        sentences = []
        if r.random() < .08:
            sentences.append(filler(r))
        for fact in page:
            numbered.append((fact, n + len(sentences)))
            sentences.append(fact.sentence)
        if r.random() < .04:
            sentences.append(filler(r))
        n += len(sentences)
        pages.append((title, sentences))
    return pages, numbered


def ask(r, made, fact, held):
    return made.ask(r, fact, held) if isinstance(made, DomainPages) else fact.ask(r, Asking(held=held))


def make_context(r, mix):
    """One context with up to `mix.questions` questions; every fact is asked for about equally often."""
    made = source(r, mix)
    pages, numbered = lay_out(r, made)
    numbered = [x for x in numbered if x[0].ask]
    questions, left = [], []
    for _ in range(mix.questions * 3):
        if len(questions) == mix.questions or not numbered:
            break
        if r.random() < mix.unanswerable:
            text = next(filter(None, (made.stranger(r) for _ in range(5))), None)
            if text:
                questions.append(Question(text, None, "none"))
            continue
        left = left or r.sample(numbered, len(numbered))
        fact, number = left.pop()
        questions.append(Question(ask(r, made, fact, mix.held), number, fact.relation))
    r.shuffle(questions)
    return Context(pages, questions)
