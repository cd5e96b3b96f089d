"""Pages of one domain: its actions, its named things and its rules, with near misses.

What makes a question hard is what stands beside the answer: the same action with another relation,
another action on the same object, the same attribute of another plan, a rule with and without a
qualifier. Pages are built to hold such twins, and two facts that would answer the same question are
never put into one context."""
from actions import gerund
from facts import (ATTRIBUTES, BLURRED, CLAUSES, KINDS, PLAIN, SOFT, WEIGHTS, Asking, action_fact, content, rule_fact,
                   thing_fact)
from values import capital, fill, product

# Attributes that answer each other's questions; one is not asked as missing where another is stated.
KIN = [{"hours", "closed", "support"}, {"phone", "mail", "support"}, {"trial", "price"}, {"founded", "manager"}, {"starts", "length"},
       {"address", "parking"}, {"price", "discount"}, {"includes", "storage"}, {"rating", "discount"}]
EDGES = ("allow", "deny")


def some_qualifiers(r, domain):
    if r.random() > .35:
        return []
    template = r.choice(domain.qualifiers)
    return list(dict.fromkeys(fill(r, template) for _ in range(3)))


def related(a, b):
    """Actions that are easily confused: one verb or one object."""
    return a.verb == b.verb or a.object.split()[-1] == b.object.split()[-1]


class DomainPages:
    """Pages of a domain and questions about them; `held` uses only wordings kept out of training."""

    def __init__(self, r, domain, lengths, others=(), held=False):
        self.domain, self.held = domain, held
        near = r.choice(domain.actions)
        self.actions = [near] + [a for a in domain.actions if a is not near and related(a, near) and r.random() < .5]
        rest = [a for a in domain.actions if a not in self.actions]
        self.actions += r.sample(rest, min(len(rest), len(lengths) + 1))
        if others and r.random() < .15:
            self.actions += r.sample(r.choice(others).actions, 2)
        r.shuffle(self.actions)
        self.qualifiers = some_qualifiers(r, domain)
        self.kind = r.choice(domain.kinds)
        self.pattern = r.choice(KINDS[self.kind]["names"])
        self.things = list({self.pattern.replace("{N}", product(r)) for _ in range(3)})
        self.things.sort()
        self.rules = list(range(len(domain.rules)))
        r.shuffle(self.rules)
        self.used, self.titles, self.turn, self.twin = set(), {}, 0, None
        self.pages = [p for p in (self.page(r, n) for n in lengths) if p]
        self.facts = [f for p in self.pages for f in p]

    def page(self, r, length):
        mode = r.choices(["action", "thing", "mixed"], [55, 25, 20])[0]
        action = self.actions[self.turn % len(self.actions)]
        self.turn += mode != "thing" and r.random() < .85
        thing = r.choice(self.things[:2])
        qualifier = r.choice(self.qualifiers[:2]) if self.qualifiers and r.random() < .6 else None
        page = []
        for _ in range(length * 4):
            if len(page) == length:
                break
            what = mode if mode != "mixed" else r.choice(["action", "thing", "rule"])
            if what == "action" and r.random() < .12:
                what = "rule"
            fact = {"action": self.about_action, "thing": self.about_thing, "rule": self.about_rule}[what](r, action, thing, qualifier)
            if fact:
                page.append(fact)
        if page and r.random() < .7:
            self.titles[id(page)] = self.title(r, mode, action, thing)
            if mode == "action" and not qualifier and r.random() < .25:
                self.refer(r, page, action)
        return page

    def title(self, r, mode, action, thing):
        if mode == "thing":
            return capital(thing.removeprefix("the ").removeprefix("our "))
        phrase = action.stated(r.choice(["your", "your", "the"]))
        return capital(gerund(phrase) if r.random() < .7 else r.choice(["how to {}", "{}", "if you want to {}"]).format(phrase))

    def refer(self, r, page, action):
        """Say "this" where the title has said what: such sentences cannot be understood alone."""
        for fact in page:
            if fact.action is not action or r.random() < .3:
                continue
            for phrase in (action.stated("your"), action.stated("the")):
                for said, this in ((gerund(phrase), "this"), (phrase, "do this")):
                    fact.sentence = fact.sentence.replace(said, this).replace(capital(said), capital(this))

    def about_action(self, r, action, thing, qualifier):
        relation = r.choices(list(WEIGHTS), WEIGHTS.values())[0]
        if self.twin and r.random() < .3:
            action, relation = self.twin
        clause = r.choice(CLAUSES) if relation == "consequence" else None
        fact = action_fact(r, action, relation, qualifier, self.held, clause)
        same = [k for k in self.used if k[:-1] == fact.key[:-1] and len(k) == 4]
        # A qualified and an unqualified twin would both be right.
        if any(k[3] == qualifier or k[3] is None or qualifier is None for k in same):
            return None
        if qualifier and not clause and not self.twin:
            self.twin = (action, relation)
        self.used.add(fact.key)
        return fact

    def about_thing(self, r, action, thing, qualifier):
        attribute = r.choice(KINDS[self.kind]["attributes"])
        if (thing, attribute) in self.used:
            return None
        self.used.add((thing, attribute))
        return thing_fact(r, thing, attribute, self.held)

    def about_rule(self, r, action, thing, qualifier):
        if not self.rules:
            return None
        fact = rule_fact(r, self.domain, self.rules.pop())
        self.used.add(fact.key)
        return fact

    def ask(self, r, fact, held=False):
        """A question that this fact and no other of the context answers."""
        how = Asking(held=held)
        if fact.action:
            same = [f for f in self.facts if f is not fact and f.action and f.action.id == fact.action.id]
            how.qualified = any(f.relation == fact.relation or {f.relation, fact.relation} == set(EDGES) for f in same)
            how.general = sum(f.relation == "consequence" for f in same) == 0
            softly = fact.relation in SOFT and not any(f.relation in (*SOFT, *EDGES) for f in same)
            if softly and not how.qualified and r.random() < .15:
                how.relation = "allow"
        return fact.ask(r, how)

    def stranger(self, r, held=False):
        """A question that belongs to the domain and is not answered here, or None."""
        k = r.random()
        if k < .62:
            return self.strange_action(r, held)
        return self.strange_thing(r, held) if k < .85 else self.strange_rule(r)

    def strange_action(self, r, held):
        present = {f.action.id: f.action for f in self.facts if f.action}
        if present and r.random() < .55:                          # the same action, another relation
            action = r.choice(list(present.values()))
            have = {f.relation for f in self.facts if f.action and f.action.id == action.id}
            free = [x for x in BLURRED if x not in have and not have & set(BLURRED[x])]
            return action_fact(r, action, r.choice(free), None).ask(r, Asking(held=held)) if free else None
        absent = [a for a in self.domain.actions if a.id not in present]
        near = [a for a in absent if any(related(a, b) for b in present.values())]
        if near and r.random() < .6:
            absent = near
        if not absent:
            return None
        relation = r.choice(PLAIN)
        return action_fact(r, r.choice(absent), relation, None).ask(r, Asking(hard=.2, held=held))

    def strange_thing(self, r, held):
        here = [f.key for f in self.facts if f.relation in ATTRIBUTES]
        if not here:
            return None
        thing, attribute = r.choice(here)
        if r.random() < .5:                                       # the same attribute of another thing
            thing = r.choice(self.things) if r.random() < .6 else self.pattern.replace("{N}", product(r))
        else:
            told = {a for t, a in here if t == thing}
            missing = [a for a in KINDS[self.kind]["attributes"] if not any(a in kin and told & kin for kin in KIN)]
            if not missing:
                return None
            attribute = r.choice(missing)
        if (thing, attribute) in here:
            return None
        return thing_fact(r, thing, attribute).ask(r, Asking(held=held))

    def strange_rule(self, r):
        words = content(" ".join(f.sentence for f in self.facts))
        index = r.randrange(len(self.domain.rules))
        if any(f.key == (self.domain.name, "rule", index) for f in self.facts):
            return None
        question = rule_fact(r, self.domain, index).ask(r, Asking())
        return question if len(content(question) & words) <= (r.random() < .5) else None
