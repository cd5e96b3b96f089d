"""The sample documents: write samples/billing from natural/billing.txt, and check the question files.

    python samples.py publish      (once, and again when the text has changed)
    python samples.py check        (every answer of every questions.jsonl stands in its page verbatim)

A questions.jsonl has one question a line: {"question": ..., "answers": [{"page": file, "sentence": text}]}.
Several answers are alternatives; none means that the documents do not say. These questions are never
trained on, and nothing of samples/unseen is read by anything but the evaluation."""
import json
import pathlib
import re
import sys

import natural

ROOT = pathlib.Path(__file__).resolve().parents[3] / "samples"
# A sentence ends with . ? or ! before a space and a capital or a digit; the server splits alike.
END = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9\"'])")


def slug(title):
    return "-".join(re.findall(r"[a-z0-9]+", title.lower())) + ".md"


def publish():
    folder = ROOT / "billing"
    folder.mkdir(parents=True, exist_ok=True)
    pages = natural.read(natural.FOLDER / "billing.txt")
    for title, sentences in pages:
        said = [natural.published(s) for s, _ in sentences]
        half = (len(said) + 1) // 2
        paragraphs = [" ".join(said[:half]), " ".join(said[half:])]
        (folder / slug(title)).write_text(f"# {title}\n\n" + "\n\n".join(p for p in paragraphs if p) + "\n")
    print("pages written:", len(pages))


def read_page(path):
    """A page as (title, [sentence, ...])."""
    title, sentences = None, []
    for block in path.read_text().split("\n\n"):
        block = " ".join(block.split())
        if block.startswith("# "):
            title = block[2:]
        elif block:
            sentences += END.split(block)
    return title, sentences


def collection(name):
    """{file name: (title, sentences)} of samples/NAME."""
    return {p.name: read_page(p) for p in sorted((ROOT / name).glob("*.md")) if p.name != "README.md"}


def questions(name):
    return [json.loads(line) for line in (ROOT / name / "questions.jsonl").read_text().splitlines()]


def check():
    """Exit with the first few faults, or say what was counted."""
    faults = []
    for name in ("billing", "unseen"):
        pages, asked = collection(name), questions(name)
        trained = {q.lower() for _, ss in natural.read(natural.FOLDER / "billing.txt") for _, qs in ss for q in qs}
        for i, q in enumerate(asked, 1):
            where = f"samples/{name}/questions.jsonl:{i}"
            if q["question"].lower() in trained:
                faults.append(f"{where}: the model is trained on this question")
            for answer in q["answers"]:
                if answer["sentence"] not in pages.get(answer["page"], (None, []))[1]:
                    faults.append(f"{where}: not a sentence of {answer['page']}: {answer['sentence']}")
        used = {a["page"] for q in asked for a in q["answers"]}
        print(f"{name}: {len(pages)} pages, {len(asked)} questions over {len(used)} pages, "
              f"{sum(not q['answers'] for q in asked)} unanswerable")
    sys.exit("\n".join(faults[:20]) or 0)


if __name__ == "__main__":
    {"publish": publish, "check": check}[sys.argv[1]]()
