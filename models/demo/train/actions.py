"""Actions ("pause your subscription"): how a page says them and how a customer asks for them.

An action of the lexicon is `verb|object|paraphrases`, with @ for "your" or "my". A question may use
synonyms of the verb and the object, or a paraphrase of the whole; a statement never does, so that the
model has to learn that they are the same."""
import re

from values import load

SYNONYMS = load("synonyms")
# Longest first, so that "payment method" is met before "payment".
OBJECTS = sorted(SYNONYMS["objects"].items(), key=lambda kv: -len(kv[0]))


def gerund(phrase):
    """"cut the cake" -> "cutting the cake"."""
    verb, space, rest = phrase.partition(" ")
    if verb in SYNONYMS["doubling"]:
        verb += verb[-1] + "ing"
    elif verb.endswith("ie"):
        verb = verb[:-2] + "ying"
    elif verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        verb = verb[:-1] + "ing"
    else:
        verb += "ing"
    return verb + space + rest


class Action:
    """One thing that a customer of a domain can do."""

    def __init__(self, spec, domain):
        self.verb, self.object, *rest = spec.split("|")
        self.paraphrases = rest[0].split(";") if rest else []
        self.id = (domain, self.verb, self.object)

    def stated(self, possessive):
        return f"{self.verb} {self.object.replace('@', possessive)}"

    def asked(self, r, hard):
        """The action as a customer says it; `hard` (0 to 1) is how far from the page's words."""
        if self.paraphrases and r.random() < hard * .7:
            return r.choice(self.paraphrases).replace("@", "my")
        thing = self.object.replace("@", r.choice(["my", "my", "my", "the"]))
        if r.random() < hard * .7:
            thing = other_name(r, thing)
        if self.verb in SYNONYMS["verbs"] and r.random() < hard:
            phrase = r.choice(SYNONYMS["verbs"][self.verb]).replace("{o}", thing)
        else:
            phrase = f"{self.verb} {thing}"
        return phrase.replace("the my", "my")


def other_name(r, thing):
    """The object by another name, where the lexicon has one."""
    for known, names in OBJECTS:
        if re.search(rf"\b{known}\b", thing):
            said = re.sub(rf"\b{known}\b", r.choice(names), thing)
            return said.replace("a my", "my").replace("my my", "my")
    return thing
