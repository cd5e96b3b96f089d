"""Free support sentences: things, people and verbs combined at will, asked for by their adjuncts.

"Each spare key must be returned within two days" answers "When must the spare key be given back?".
Thousands of combinations, so that nothing can be learnt by heart: the model has to look for who, what
and which kind of adjunct (time, place, manner, condition, reason). A page stays with one thing, and a
sentence may go on with "It" or "They"."""
from facts import Asking, Fact, spoken, trimmed
from values import capital, fill, load, small

LISTS = load("free")
KIND = {"T": "time", "L": "place", "M": "manner", "C": "condition", "R": "reason"}


def plural(noun):
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def article(noun):
    return ("an " if noun[0] in "aeiouAEIOU" else "a ") + noun


class Thing:
    """What a sentence is about: "spare keys for guests"."""

    def __init__(self, r):
        noun = r.choice(LISTS["thing"])
        self.plural = r.random() < .4
        kind = r.random()
        if kind < .22:
            noun = f"{r.choice(LISTS['adjective'])} {noun}"
        self.head = plural(noun) if self.plural else noun
        self.tail = " " + fill(r, r.choice(LISTS["tail"])) if kind > .82 else ""
        self.full = False       # must be asked for with its tail: there is another one without

    @property
    def key(self):
        return self.head + self.tail

    def stated(self, r):
        forms = ["{}", "{}", "your {}", "the {}", "all {}"] if self.plural else ["the {}", "the {}", "your {}", "each {}", None]
        form = r.choice(forms)
        return (form.format(self.head) if form else article(self.head)) + self.tail

    def asked(self, r):
        forms = ["the {}", "the {}", "my {}", "my {}"] + (["{}", "{}"] if self.plural else [])
        return r.choice(forms).format(self.head) + (self.tail if self.full or r.random() < .75 else "")


def free_fact(r, thing, verb, follows=False, alone=lambda: True):
    """A thing and what is done with it. `alone` says whether the page speaks of the thing only once."""
    participle, base, *_ = verb.split("|")
    be = "are" if thing.plural else "is"
    kinds = sorted(r.sample("TLMCR", r.choices([1, 2], [65, 35])[0]), key="MLTCR".index)
    adjuncts = [fill(r, r.choice(LISTS[KIND[k]])) for k in kinds]
    mode = r.choices(["be", "can", "must", "will", "cannot", "we", "you"], [30, 16, 10, 10, 8, 14, 12])[0]
    subject = capital(("They" if thing.plural else "It") if follows else thing.stated(r))
    target = ("them" if thing.plural else "it") if follows else thing.stated(r)
    front = adjuncts.pop() if kinds[-1] in "TC" and not follows and r.random() < .12 else None
    opening = {"be": f"{subject} {be} {participle}", "we": f"We {base} {target}", "you": f"You can {base} {target}",
               "cannot": f"{subject} {r.choice(['cannot', 'can not', 'can' + chr(39) + 't'])} be {participle}"}
    sentence = " ".join([opening.get(mode, f"{subject} {mode} be {participle}")] + adjuncts) + "."
    if front:
        sentence = f"{capital(front)}, {small(sentence)}"
    if not follows and r.random() < .6:
        sentence = trimmed(r, sentence)

    def ask(r, how):
        return spoken(r, ask_free(r, thing, verb, mode, r.choice(kinds), how.hard, alone()))

    return Fact(sentence, ask, ("free", thing.key, verb), None, "free", None, thing, follows)


def ask_free(r, thing, verb, mode, kind, hard, alone):
    """A question for the adjunct of that kind, a yes/no question, or one about the thing as a whole."""
    participle, base, *synonyms = verb.split("|")
    changed = r.random() < hard * .8
    if changed:
        participle, base = synonyms
    what, be = thing.asked(r), "are" if thing.plural else "is"
    modal = {"can": "can", "cannot": "can", "you": "can", "must": "must", "will": "will"}.get(mode, be)
    clause = f"{modal} {what} {participle}" if modal == be else f"{modal} {what} be {participle}"
    active = f"do I {base} {what}" if mode in ("you", "can") else clause
    able = mode in ("can", "cannot", "you")
    yes_no = [f"{clause}?", f"can I {base} {what}?" if able else f"{clause}?",
              f"can {what} be {participle}?" if able else f"do you {base} {what}?"]
    by_kind = {
        "T": [f"when {clause}?", f"when {clause}?", f"by when {clause}?", f"how long until {what} {be} {participle}?",
              f"how soon {clause}?", f"at what time {clause}?"],
        "L": [f"where {clause}?", f"where {clause}?", f"in which place {clause}?", f"where {active}?"],
        "M": [f"how {clause}?", f"how {clause}?", f"in what way {clause}?", f"how {active}?"],
        "C": [f"under what conditions {clause}?", yes_no[0], yes_no[2], f"in which case {clause}?"],
        "R": [f"why {clause}?", f"why {clause}?", f"what is the reason that {what} {be} {participle}?"],
    }[kind]
    k = r.random()
    if k < .55 or (k >= .82 and not alone):
        return r.choice(by_kind)
    if k < .82 or changed:
        return r.choice(yes_no)
    pronoun = f"{modal} {'they' if thing.plural else 'it'} {'' if modal == be else 'be '}{participle}"
    return r.choice([f"what happens to {what}?", f"what should I know about {what}?", f"tell me about {what}.",
                     f"I have a question about {what}: {pronoun}?", f"{what} {participle}", f"what do you do with {what}?"])


def person_fact(r, people, thing, deed):
    """What a group of people may or must do with a thing."""
    base, synonym = deed.split("|")
    adjunct = fill(r, r.choice(LISTS[r.choice(["time", "place", "manner", "condition"])]))
    negative = r.random() < .12
    modal = "cannot" if negative else r.choice(["", "", "can", "must", "may"])
    sentence = capital(" ".join(f"{people} {modal} {base} {thing.stated(r)} {adjunct}.".split()))

    def ask(r, how):
        verb = synonym if r.random() < how.hard else base
        what, aux = thing.asked(r).replace("my ", "the "), "can" if negative else (modal or "do")
        may = "can" if negative or not modal else modal
        return spoken(r, r.choice([
            f"who {may} {verb} {what}?", f"what {aux} {people} {verb}?", f"{aux} {people} {verb} {what}?",
            f"when {aux} {people} {verb} {what}?", f"how {aux} {people} {verb} {what}?",
            f"which people {may} {verb} {what}?", f"I am one of the {people}. {capital(aux)} we {verb} {what}?"]))

    return Fact(sentence, ask, ("free", people, deed), None, "free", None, thing)


def some_things(r, count):
    """Things of which no two can be confused; some share their head and differ in the tail only."""
    things = []
    while len(things) < count:
        t = Thing(r)
        if r.random() < .12 and things:                          # the same thing with another modifier
            twin = r.choice(things)
            t.plural, t.tail = twin.plural, twin.tail
            t.head = f"{r.choice(LISTS['adjective'])} {twin.head.split(' ', 1)[-1]}"
            t.full = True
        same = [x for x in things if x.head == t.head]
        if any(x.key == t.key for x in things) or (same and (not t.tail or any(not x.tail for x in same))):
            continue
        for x in same:
            x.full = t.full = True
        things.append(t)
    return things


class FreePages:
    """Pages of free sentences, and questions that look as if they belonged there but do not."""

    def __init__(self, r, lengths):
        self.things, self.verbs = some_things(r, len(lengths) + 1), r.sample(LISTS["verb"], 3)
        self.people, self.used, self.times = r.sample(LISTS["person"], 3), set(), {}
        self.pages = [p for p in (self.page(r, n) for n in lengths) if p]

    def page(self, r, length):
        topic, page = r.choice(self.things), []
        for _ in range(length * 3):
            if len(page) == length:
                break
            fact = self.fact(r, topic if r.random() < .65 else r.choice(self.things), page)
            if fact:
                page.append(fact)
        return page

    def fact(self, r, thing, page):
        if r.random() < .2:
            people, deed = r.choice(self.people), r.choice(LISTS["deed"])
            keys = {(people, deed), ("deed", thing.key, deed)}
            make = lambda: person_fact(r, people, thing, deed)
        else:
            verb = r.choice(self.verbs if r.random() < .5 else LISTS["verb"])
            follows = bool(page) and page[-1].thing is thing and r.random() < .4
            keys = {(thing.key, verb)}
            make = lambda: free_fact(r, thing, verb, follows, lambda: self.times[thing.key] == 1)
        if keys & self.used:
            return None
        self.used |= keys
        self.times[thing.key] = self.times.get(thing.key, 0) + 1
        return make()

    def stranger(self, r):
        """A question that nothing here answers: a thing of these pages with another verb, or so."""
        thing = r.choice(self.things) if r.random() < .6 else Thing(r)
        verb = r.choice(self.verbs if r.random() < .5 else LISTS["verb"])
        about = {u[1] for u in self.used if u[0] == "deed"}
        if (thing.key, verb) in self.used or thing.key in about or any(x is not thing and x.head == thing.head for x in self.things):
            return None
        return free_fact(r, thing, verb, False, lambda: False).ask(r, Asking(hard=.2))
