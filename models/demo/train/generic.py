"""Sentences without a topic, from random words: nothing helps but finding the words of the question.

They teach matching and copying of words that the model has seldom or never met."""
from facts import Fact, content, trimmed
from free import article, plural
from values import LISTS as VALUES
from values import WORDS, capital, fill, load, name, number, person, price, syllables

LISTS = load("generic")


def word(r, kind):
    if r.random() < .6:
        return r.choice(LISTS[kind])
    return r.choice(WORDS) if r.random() < .7 else syllables(r, 2)


def sentences(r):
    """One template with its questions, filled with random words."""
    a, a2 = word(r, "adjective"), word(r, "adjective")
    n, n2, n3 = (word(r, "noun") for _ in range(3))
    past, base = r.choice(LISTS["verb"]).split("|")
    who, where, year = person(r), r.choice(VALUES["city"]), str(r.randint(1800, 2030))
    firm, adverb = name(r), fill(r, r.choice(LISTS["adverb"]))
    many, many2 = plural(n), plural(n2)
    return r.choice([
        lambda: (f"The {a} {n} {past} the {a2} {n2} {adverb}.",
                 [f"What did the {a} {n} do?", f"Who {past} the {n2}?", f"What {past} the {a2} {n2}?", f"What did the {n} {base}?",
                  f"What happened to the {a2} {n2}?", f"When did the {n} {base} the {n2}?", f"Did the {n} {base} the {n2}?"]),
        lambda: (f"{who} {past} {article(a)} {n} in {where} in {year}.",
                 [f"Who {past} the {n}?", f"Where did {who} {base} the {n}?", f"What did {who} do?",
                  f"When did {who} {base} {article(n)}?", f"What was {past} in {where}?", f"What happened in {year}?"]),
        lambda: (f"Every {n} needs {number(r)} {many2} and {article(a)} {n3}.",
                 [f"What does {article(n)} need?", f"How many {many2} does {article(n)} need?", f"What needs {article(a)} {n3}?"]),
        lambda: (f"The {n} of the {n2} is kept in the {a} {n3}.",
                 [f"Where is the {n} of the {n2}?", f"What is kept in the {n3}?", f"In which {n3} is the {n} kept?"]),
        lambda: (f"{firm} is {article(a)} {n} for {many2}.",
                 [f"What is {firm}?", f"Which {n} is for {many2}?", f"Who is {firm} for?", f"Tell me about {firm}."]),
        lambda: (f"{who} became the {n} of {firm} in {year}.",
                 [f"Who became the {n} of {firm}?", f"When did {who} become the {n} of {firm}?", f"What did {who} become?"]),
        lambda: (f"{capital(article(n))} with {article(a)} {n2} costs {price(r)} in {where}.",
                 [f"How much is {article(n)} with {article(n2)}?", f"What costs money in {where}?",
                  f"What does the {n} cost in {where}?", f"Where can I buy {article(n)} with {article(a)} {n2}?"]),
        lambda: (f"The {n} has {number(r)} {many2}, and each of them is {a}.",
                 [f"How many {many2} does the {n} have?", f"What is {a}?", f"Are the {many2} of the {n} {a}?"]),
        lambda: (f"If the {n} is {a}, {base} the {n2} {adverb}.",
                 [f"What do I do if the {n} is {a}?", f"When should I {base} the {n2}?", f"The {n} is {a}. What now?"]),
        lambda: (f"{capital(many)} from {where} are more {a} than {many2}.",
                 [f"Which {many} are more {a}?", f"What is more {a} than {many2}?", f"What about {many} from {where}?"]),
        lambda: (f"People {base} {many} because the {n2} is {a}.",
                 [f"Why do people {base} {many}?", f"What do people {base}?", f"What do people do because the {n2} is {a}?"]),
        lambda: salad(r),
    ])()


def salad(r):
    """Random words in a row, asked for by two or three of them."""
    words = [word(r, r.choice(["noun", "adjective"])) for _ in range(r.randint(5, 14))]
    m = r.randint(2, 3)
    i = r.randint(0, len(words) - m)
    run, pair = " ".join(words[i:i + m]), " and ".join(r.sample(words, 2))
    return capital(" ".join(words)) + ".", [
        f"What about {run}?", f"Where is {run} mentioned?", run, f"Tell me about {pair}.",
        f"What does it say about {pair}?", f"Which sentence has {pair}?", f"{run}?"]


def generic_fact(r):
    sentence, questions = sentences(r)
    stated = trimmed(r, sentence) if r.random() < .3 else sentence

    def ask(r, how):
        question = r.choice(questions)
        return capital(question) if r.random() < .85 else question.lower()

    return Fact(stated, ask, ("generic", sentence), None, "generic")


def stranger(r, facts, how):
    """A question about other words; one shared word at most."""
    here = content(" ".join(f.sentence for f in facts))
    question = generic_fact(r).ask(r, how)
    return question if len(content(question) & here) <= (r.random() < .3) else None
