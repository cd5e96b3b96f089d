"""Facts: one sentence of a page and the ways of asking for it.

Four kinds: an action with a relation ("Pausing costs $5"), a named thing with an attribute ("The
Comet plan includes 5 seats"), a hand-written rule of a domain, and what free.py and generic.py make.
The last wording of every list of statements and questions is held out of training, so that an
evaluation can tell new wordings from new facts."""
import re
from dataclasses import dataclass
from typing import Callable

from actions import Action, gerund
from thesaurus import reworded
from values import capital, fill, load, small

RELATIONS = load("relations")
CLAUSES = RELATIONS["consequence"]["clause"]
SOFT, BLURRED, KEYWORDS = RELATIONS["soft"]["names"], RELATIONS["blurred"], RELATIONS["keywords"]
PLAIN = [k for k in RELATIONS if k not in ("consequence", "soft", "blurred", "keywords")]
WEIGHTS = dict(zip(PLAIN + ["consequence"], [12, 6, 9, 7, 7, 10, 6, 5, 6, 4, 6, 3, 3, 10]))
ATTRIBUTES, KINDS = (load("attributes")[k] for k in ("attribute", "kind"))
MANNERS = load("manners")
STOP = set("a an the i my you your we our is are do does can may of to for in on at and or how what when where who "
           "which why if it be much many long have has get there with this that me please from by any not".split())


@dataclass
class Asking:
    """How a fact is to be asked for."""
    qualified: bool = False     # name the qualifier ("on the Comet plan"), for there is a twin without it
    general: bool = False       # "what happens if ...?" is unambiguous here
    hard: float = .45           # how far from the page's words, 0 to 1
    relation: str | None = None  # ask as if it were this relation
    held: bool = False          # only with wordings that training never sees


@dataclass
class Fact:
    sentence: str
    ask: Callable               # (r, Asking) -> question
    key: tuple                  # two facts with one key would answer the same question
    action: Action | None = None
    relation: str | None = None
    qualifier: str | None = None
    thing: object = None        # what a free sentence is about
    follows: bool = False       # begins with a pronoun: must stay behind the sentence before it


@dataclass
class Domain:
    name: str
    actions: list
    kinds: list
    qualifiers: list
    rules: list


def domains():
    return {k: Domain(k, [Action(a, k) for a in d["actions"]], d["kinds"], d["qualifiers"], d["rules"])
            for k, d in load("domains").items()}


def content(text):
    """The stems of the words that carry meaning."""
    return {w[:5] for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in STOP}


def wording(r, templates, held):
    """One wording; the last of a list only where held-out ones are asked for."""
    if len(templates) < 3:
        return r.choice(templates)
    return templates[-1] if held else r.choice(templates[:-1])


def state(r, template, known):
    """A statement from its template; {Vpg} and the like are placeholders in capitals."""
    lower = re.sub(r"\{(Vpg|E|Role|Person|Ncond|Sn)\}", lambda m: "{" + m.group(1).lower() + "}", template)
    return capital(fill(r, lower, known))


def trimmed(r, sentence):
    """The statement with something before or after it, now and then."""
    if r.random() < .13 and not sentence.startswith(("Yes", "I ")):
        sentence = capital(fill(r, r.choice(MANNERS["before"])) + small(sentence))
    if r.random() < .10 and sentence.endswith("."):
        sentence = sentence[:-1] + fill(r, r.choice(MANNERS["after"])) + "."
    return sentence


def mistyped(r, text):
    """One typing mistake in one longer word."""
    spots = [m.start() for m in re.finditer(r"(?<=[a-z])[a-z](?=[a-z]{3})", text)]
    if not spots:
        return text
    i, k = r.choice(spots), r.random()
    if k < .4:
        return text[:i] + text[i + 1] + text[i] + text[i + 2:]
    return text[:i] + text[i + 1:] if k < .8 else text[:i] + text[i] + text[i:]


def spoken(r, question):
    """The question as people type it: greetings, no capitals, no question mark, typing mistakes, other words."""
    question = capital(reworded(r, question) if r.random() < .3 else question)
    k = r.random()
    if k < .07:
        greeting = r.choice(MANNERS["greeting"])
        question = greeting + (question if greeting.endswith(("! ", ". ")) else small(question))
    elif k < .12:
        question = fill(r, r.choice(MANNERS["lead"])) + question
    if r.random() < .04:
        question += r.choice([" Thanks.", " Thank you!", " Please help.", " Thanks!"])
    if r.random() < .12:
        question = question.lower()
    if r.random() < .10:
        question = question.rstrip("?")
    return mistyped(r, question) if r.random() < .05 else question


def action_fact(r, action, relation, qualifier, held=False, clause=None):
    """An action with one of the relations; `clause` is the consequence, if it is that."""
    phrase = action.stated(r.choice(["your", "your", "your", "the"]))
    inside = bool(qualifier) and r.random() < .5
    said = f"{phrase} {qualifier}" if inside else phrase
    known = {"vp": said, "vpg": gerund(said)}
    if clause:
        known["c"] = fill(r, clause["say"])
    sentence = state(r, wording(r, RELATIONS[relation]["say"], held), known)
    if qualifier and not inside:
        sentence = f"{capital(qualifier)}, {small(sentence)}"

    def ask(r, how):
        return ask_action(r, action, how.relation or relation, qualifier, clause, how)

    kind = "allow" if relation == "deny" else relation
    key = (action.id, kind, clause["say"] if clause else None, qualifier)
    return Fact(trimmed(r, sentence), ask, key, action, relation, qualifier)


def ask_action(r, action, relation, qualifier, clause, how):
    phrase = action.asked(r, how.hard)
    if relation in KEYWORDS and not how.held and r.random() < .06:
        tail = f" {qualifier}" if qualifier and how.qualified else ""
        return f"{r.choice(KEYWORDS[relation])} {gerund(phrase) if r.random() < .4 else phrase}{tail}"
    if qualifier and (how.qualified or r.random() < .4):
        phrase = f"{phrase} {qualifier}"
    if relation != "consequence":
        template = wording(r, RELATIONS[relation]["ask"], how.held)
    elif how.general and r.random() < .5:
        template = r.choice(RELATIONS["consequence"]["ask"])
    else:
        template = r.choice(clause["ask"])
    return spoken(r, template.replace("{qg}", gerund(phrase)).replace("{q}", phrase))


def thing_fact(r, thing, attribute, held=False):
    """A named thing with one of its attributes."""
    templates = ATTRIBUTES[attribute]
    known = {"e": thing}
    sentence = state(r, wording(r, templates["say"], held), remember(r, templates, known))

    def ask(r, how):
        return spoken(r, fill(r, wording(r, templates["ask"], how.held), known))

    return Fact(trimmed(r, sentence), ask, (thing, attribute), None, attribute)


def rule_fact(r, domain, index):
    """A hand-written rule; only questions that fit the chosen wording are asked."""
    rule = domain.rules[index]
    known = remember(r, rule, {})
    chosen = r.choice(rule["say"])

    def shared(question, statement):
        bare = [re.sub(r"\{\w+\}", "", x) for x in (question, statement)]
        return len(content(bare[0]) & content(bare[1]))

    fitting = [q for q in rule["ask"] if shared(q, chosen) >= max(shared(q, s) for s in rule["say"])] or rule["ask"]
    sentence = trimmed(r, state(r, chosen, known))

    def ask(r, how):
        return spoken(r, fill(r, r.choice(fitting), known))

    return Fact(sentence, ask, (domain.name, "rule", index), None, "rule")


def remember(r, templates, known):
    """Values of the placeholders that questions use, too: both sides must mean the same city."""
    for key in sorted(set(re.findall(r"\{(\w+)\}", " ".join(templates["ask"])))):
        if key not in known:
            known[key] = fill(r, "{" + key + "}", known)
    return known
