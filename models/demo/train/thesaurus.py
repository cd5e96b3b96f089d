"""Synonyms: the same question in other words.

Every question of every kind may have a word or two replaced, so that the model meets each pair of
synonyms in thousands of sentences and not only where somebody thought of it."""
import re

from values import LEXICON, capital


def read():
    groups = {}
    for line in (LEXICON / "thesaurus.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            words = line.split(" / ")
            for word in words:
                groups.setdefault(word, set()).update(w for w in words if w != word)
    return {word: sorted(others) for word, others in groups.items()}


GROUPS = read()
# Longest first, whole words only.
FIND = re.compile(r"\b(" + "|".join(sorted(map(re.escape, GROUPS), key=len, reverse=True)) + r")\b", re.IGNORECASE)


def reworded(r, text, most=2):
    """The text with one to `most` words replaced, or as it was if it has none; names are left alone."""
    spots = [m for m in FIND.finditer(text) if m.group().lower() in GROUPS and (m.start() == 0 or m.group().islower())]
    for m in sorted(r.sample(spots, min(len(spots), r.randint(1, most))), key=lambda m: -m.start()):
        other = r.choice(GROUPS[m.group().lower()])
        text = text[:m.start()] + (capital(other) if m.group()[0].isupper() else other) + text[m.end():]
    return text
