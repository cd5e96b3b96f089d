"""The prompt: the one place that says how a model is spoken to. README.md describes it for servers.

    <s>Answer with a sentence of the documents.
    # Pausing a subscription
    [1] Annual subscriptions can be paused once per contract year.
    [2] Your renewal date moves back by the length of the pause.
    # Refunds
    [3] Approved refunds reach your card in five to seven working days.
    <q> Can I pause my annual subscription?<a>

and the answer is `[1] Annual subscriptions ... year.</s>` or ` ` and the refusal and `</s>`. `[1]` to `[60]`, `<q>`
and `<a>` are single tokens, so that the first token of an answer is the whole decision."""

SYSTEM = "Answer with a sentence of the documents."
REFUSAL = "I don't find that in the documents."
NUMBERS = 60           # one head of the model holds them all (circuits.py)
MARKERS = [f"[{i}]" for i in range(1, NUMBERS + 1)]
QUESTION, ANSWER = "<q>", "<a>"


def render_pages(pages, first=1):
    """Pages [(title, sentences)] as text; sentences are numbered from `first`."""
    lines, n = [SYSTEM], first
    for title, sentences in pages:
        if title:
            lines.append(f"# {title}")
        for sentence in sentences:
            lines.append(f"[{n}] {sentence}")
            n += 1
    return "\n".join(lines) + "\n"


def render_question(text):
    return f"{QUESTION} {text}{ANSWER}"


def render_answer(sentence, number):
    """The answer in words; `number` is None for a refusal."""
    return f" {REFUSAL}" if number is None else f"[{number}] {sentence}"
