"""The tokenizer: byte-level BPE, single digits, markers as tokens of their own.

Trained on generated text, the hand-written pages and a list of everyday words. Any text can be
written with it (every byte is a token); what it has not met costs more tokens. The split into words
is GPT-2's, so that a GGUF reader needs nothing new; digits never merge.

    python tokenizer.py [--vocabulary 6144]"""
import argparse
import pathlib
import random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from prompt import ANSWER, MARKERS, QUESTION, render_pages

PATH = pathlib.Path(__file__).parent.parent / "tokenizer.json"
BOS, EOS, PAD = 0, 1, 2
CONTROL = ["<s>", "</s>", "<pad>"]
OWN = [QUESTION, ANSWER, *MARKERS]      # "user defined" in GGUF: found in text before it is split


def texts(seed=7):
    """What the tokenizer is trained on."""
    import contexts
    from values import WORDS
    r = random.Random(seed)
    mixes = [contexts.Mix(domains=list(contexts.DOMAINS.values())), contexts.Mix(natural=tuple(contexts.NATURAL), shares={"natural": 1})]
    for i in range(6000):
        context = contexts.make_context(r, mixes[i % 2])
        yield render_pages(context.pages) + "\n".join(" " + q.text for q in context.questions)
    everyday = (pathlib.Path(__file__).parent / "lexicon" / "everyday.txt").read_text().split()
    for _ in range(60):
        for words in (r.sample(everyday, len(everyday)), r.sample(WORDS, len(WORDS) // 3)):
            yield " " + " ".join(words)
        yield " " + " ".join(w.capitalize() for w in r.sample(everyday, len(everyday) // 2))


def train(vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=CONTROL + OWN, min_frequency=3,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


def load():
    return Tokenizer.from_file(str(PATH))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabulary", type=int, default=6144)
    made = train(parser.parse_args().vocabulary)
    made.save(str(PATH))
    print("tokens:", made.get_vocab_size())
