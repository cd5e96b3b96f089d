"""Word lists and random values: names, prices, durations, dates, telephone numbers.

Every text of the training data is made from templates with {placeholders}; this module fills them.
Nothing here reads anything but the files in lexicon/, and all randomness comes from the generator
that the caller hands in, so a seed decides every row."""
import pathlib
import re
import tomllib

LEXICON = pathlib.Path(__file__).parent / "lexicon"


def load(name):
    """The lexicon file `name` as a dictionary."""
    return tomllib.loads((LEXICON / f"{name}.toml").read_text())


LISTS = load("values")
WORDS = (LEXICON / "words.txt").read_text().split()

ONSET = "b c d f g h j k l m n p r s t v w z br cr dr gr kr pl pr st tr th sh ch fl gl sl".split()
VOWEL = "a e i o u a e i o ai ea ou ia".split()
CODA = ["", "", "", "n", "r", "l", "s", "m", "x", "nd", "rt", "th", "k", "v"]
UNITS = "minutes hours days days days weeks months business_days working_days years".split()
ROUND_DURATIONS = [14, 15, 20, 24, 28, 30, 36, 45, 48, 60, 72, 90, 120]
MAIL_BOXES = "help support billing care team desk hello service info office".split()


def syllables(r, n):
    """An invented word of n syllables."""
    def one(last):
        return r.choice(ONSET) + r.choice(VOWEL) + (r.choice(CODA) if last or r.random() < .25 else "")
    return "".join(one(i == n - 1) for i in range(n))


def name(r):
    return syllables(r, r.choice([1, 2, 2, 2, 3])).capitalize()


def product(r):
    """The name of a plan, a branch, an item: a common one in a third of the cases."""
    return r.choice(LISTS["product"]) if r.random() < .35 else name(r)


def person(r):
    return (r.choice(LISTS["first"]) if r.random() < .7 else name(r)) + " " + name(r)


def price(r):
    sign = r.choice("$$€£")
    amount = str(r.choice([r.randint(1, 20), r.randint(5, 120), r.randint(20, 900), r.randint(100, 5000)]))
    if r.random() < .35:
        amount += f".{r.choice([0, 50, 90, 95, 99, 25]):02d}"
    if r.random() < .75:
        return sign + amount
    return amount + {"$": " dollars", "€": " euros", "£": " pounds"}[sign]


def number(r):
    if r.random() < .45:
        return r.choice(LISTS["numw"])
    return str(r.choice([r.randint(2, 12), r.randint(10, 99), r.randint(100, 999)]))


def small_number(r):
    return r.choice(LISTS["numw"][:10]) if r.random() < .6 else str(r.randint(2, 12))


def duration(r):
    unit = r.choice(UNITS).replace("_", " ")
    k = r.random()
    if k < .12:
        return "one " + unit[:-1]
    if k < .22:
        return f"{r.randint(1, 5)} to {r.randint(6, 14)} {unit}"
    return f"{small_number(r) if r.random() < .6 else r.choice(ROUND_DURATIONS)} {unit}"


def date(r):
    k, d, m = r.random(), r.randint(1, 28), r.choice(LISTS["month"])
    if k < .4:
        return f"{d} {m}"
    if k < .7:
        return f"{m} {d}"
    return f"{d} {m} {r.randint(2019, 2031)}" if k < .85 else f"the end of {m}"


def clock(r):
    k, h = r.random(), r.randint(1, 12)
    half = r.choice(["am", "pm"])
    if k < .5:
        return f"{h} {half}"
    if k < .8:
        return f"{r.randint(6, 23)}:{r.choice(['00', '15', '30', '45'])}"
    return f"{h}:{r.choice(['15', '30', '45'])} {half}"


def phone(r):
    return r.choice([f"{r.randint(200, 999)}-{r.randint(1000, 9999)}", f"0{r.randint(100, 999)} {r.randint(100000, 999999)}",
                     f"+{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(1000, 9999)}"])


def email(r):
    return f"{r.choice(MAIL_BOXES)}@{syllables(r, 2)}{r.choice(['.com', '.org', '.net', '.example', '.io'])}"


def percent(r):
    return f"{r.choice([r.randint(1, 30), 5, 10, 15, 20, 25, 50])}{r.choice(['%', '%', ' percent'])}"


def size(r):
    return f"{r.randint(2, 400)} " + r.choice("cm mm kg litres metres GB MB inches grams".split())


def year(r):
    return str(r.randint(1890, 2031))


def ordinal(r):
    return r.choice("first second third fifth tenth last 15th 20th".split())


def side(r):
    return r.choice(["left", "right"])


MAKERS = {"price": price, "dur": duration, "date": date, "time": clock, "n": number, "n2": number, "sn": small_number,
          "sn2": ordinal, "pct": percent, "phone": phone, "email": email, "size": size, "person": person,
          "name": name, "N": product, "year": year, "side": side}
TWICE = {"doc2": "doc", "color2": "color", "unit2": "unit"}


def fill(r, template, known=None):
    """Fill {placeholders}: from `known`, by a maker, or from the list of that name."""
    known = {} if known is None else known

    def value(match):
        key = match.group(1)
        if key in known:
            return known[key]
        if key in MAKERS:
            return MAKERS[key](r)
        items = LISTS[TWICE.get(key, key)]
        other = known.get(TWICE.get(key))
        return fill(r, r.choice([x for x in items if x != other]), known)

    return re.sub(r"\{(\w+)\}", value, template)


def capital(s):
    return s[:1].upper() + s[1:]


def small(s):
    """Lower-case the first letter, unless the word is "I" or written in capitals."""
    word = s.split(" ", 1)[0]
    keep = word in ("I", "I'm", "I'd") or word[1:] != word[1:].lower() or word in LISTS["weekday"] + LISTS["month"]
    return s if keep else s[:1].lower() + s[1:]
