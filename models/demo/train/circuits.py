"""Weights to start from: the circuits that extraction needs, set by hand.

A small model with ordinary random weights does not find copying within minutes (see MODEL_CARD.md),
so these start in place. They are plain Llama weights and all of them are trained afterwards.

- Layer 0, head 0: every token looks one token back and writes down what stood there.
- Layer 0, head 1: every token looks for the last marker before it ([k], or <q>) and writes it down:
  it knows its sentence.
- Layer 1, heads 0 and 1, copying: look for a token of one's own sentence number whose predecessor is oneself, and
  say it. After "[7]" that is the first word of sentence 7, and so on to its end.
- Layer 1, other heads, matching: look for tokens like oneself; a word of the question fetches the
  markers of the sentences that have it.
- Layer 2, head 0, voting: <a> adds up what the words of its question have fetched, and says it.
- Later layers compare like with like (keys start as queries) and copy weakly.

The residual stream is divided at first: a constant, "I am a marker", "I am <a>", "I am in the
question", one dimension for each number, what was fetched, the word before, and the words themselves. Comparisons use the slow pairs of the rotary
positions only, which hardly turn over the length of a prompt."""
import torch

from prompt import NUMBERS

BOS, ASK, REPLY, FIRST = 0, 3, 4, 5             # tokens of <s>, <q>, <a>, [1]
CONSTANT, MARKER, IS_REPLY, IN_QUESTION = range(4)  # dimensions; the last says: the marker before is <q>
NUMBER = slice(4, 4 + NUMBERS)
FETCHED = slice(NUMBER.stop, NUMBER.stop + NUMBERS)


class Start:
    """Sets the weights of one model; the strengths were found by trying (see `python circuits.py`)."""

    def __init__(self, model, back=1.8, copy=2.6, sentence=.5, say=1.2, match=2.2, fetch=.6, vote=8.0, other=1.0, slow=.004, near=.7):
        self.model, self.config = model, model.config
        self.back, self.copy, self.sentence = back, copy, sentence
        self.near, self.say, self.match, self.other, self.fetch, self.vote = near, say, match, other, fetch, vote
        c = self.config
        self.head = c.width // c.heads
        self.half = self.head // 2
        self.speed = c.base ** (-torch.arange(self.half).float() * 2 / self.head)
        self.slow = torch.cat([self.speed, self.speed]).lt(slow).nonzero().flatten()
        self.past = slice(FETCHED.stop, FETCHED.stop + len(self.slow))
        self.words = slice(self.past.stop, c.width)
        self.medium = [i for i in range(self.half) if .008 < self.speed[i] < .3]

    def views(self, layer):
        """(query, key, value [heads, head, width]; out [width, heads, head]) of a layer."""
        c, block = self.config, self.model.blocks[layer]
        q, k, v = block.qkv.weight.view(3, c.heads, self.head, c.width)
        return q, k, v, block.out.weight.view(c.width, c.heads, self.head)

    def code(self, area):
        """A random reading of part of the stream: orthogonal rows, one for each slow dimension."""
        n = area.stop - area.start
        reading = torch.zeros(len(self.slow), self.config.width)
        reading[:, area] = torch.linalg.qr(torch.randn(n, n))[0][:len(self.slow)]
        return reading

    @torch.no_grad()
    def set(self):
        for block in self.model.blocks:                         # quiet beside the circuits
            block.out.weight *= .25
            block.down.weight *= .25
        self.embedding()
        self.look_back()
        self.copying()
        self.matching()
        self.voting()
        for layer in range(2, self.config.layers):
            q, k, v, out = self.views(layer)
            for h in range(layer == 2, self.config.heads):
                k[h] = q[h]
                out[:, h] = .15 * v[h].t()

    def embedding(self):
        e = self.model.embedding.weight
        e[:, :self.words.start] = 0
        e[:, self.words] *= 1.5
        e[:, CONSTANT] = 1.0
        markers = torch.arange(NUMBERS)
        e[FIRST + markers, self.words] *= .3
        e[FIRST + markers, NUMBER.start + markers] = 2.0
        e[torch.tensor([BOS, ASK]), MARKER] = 2.0
        e[FIRST + markers, MARKER] = 2.0
        e[REPLY, IS_REPLY] = 2.0
        e[ASK, IN_QUESTION] = .5

    def look_back(self):
        """Head 0: one token back, by the fast pairs. Head 1: the last marker, by pairs of medium speed."""
        q, k, v, out = self.views(0)
        q[:2] *= .05
        k[:2] *= .05
        n, half = max(5, self.half // 4), self.half
        k[0, :n, CONSTANT] += self.back
        q[0, :n, CONSTANT] += self.back * torch.cos(self.speed[:n])
        q[0, half:half + n, CONSTANT] -= self.back * torch.sin(self.speed[:n])
        self.word = self.code(self.words)
        v[:2], out[:, :2] = 0, 0
        v[0, self.slow] = self.word
        self.before = torch.zeros_like(self.word)
        self.before[:, self.past] = torch.eye(len(self.slow))
        out[:, 0, self.slow] = .5 * self.before.t()
        q[1, self.medium, CONSTANT] += 1.0
        k[1, self.medium, MARKER] += 1.2
        numbers = torch.arange(NUMBERS)
        v[1, numbers, NUMBER.start + numbers] = 1.0
        out[NUMBER.start + numbers, 1, numbers] = .35
        v[1, NUMBERS, IN_QUESTION] = 1.0
        out[IN_QUESTION, 1, NUMBERS] = 1.2

    def copying(self):
        q, k, v, out = self.views(1)
        sentence = self.sentence * self.code(NUMBER)
        for h, part in enumerate(torch.arange(self.words.start, self.words.stop).chunk(2)):
            q[h] *= .04
            k[h] *= .04
            q[h, self.slow] += self.copy * (self.word + sentence)
            k[h, self.slow] += self.copy * (self.before + sentence)
            rows = torch.arange(len(part))
            v[h], out[:, h] = 0, 0
            v[h, rows, part] = 1.0
            out[part, h, rows] = self.say

    def matching(self):
        q, k, v, out = self.views(1)
        numbers = torch.arange(NUMBERS)
        for h in range(2, self.config.heads):
            q[h] *= .04
            q[h, self.slow] += self.match * self.code(self.words)
            k[h] = q[h]
            q[h, self.medium, CONSTANT] += self.other           # rather another place than oneself
            k[h, self.medium, CONSTANT] -= self.other
            v[h], out[:, h] = 0, 0
            v[h, numbers, NUMBER.start + numbers] = 1.0
            out[FETCHED.start + numbers, h, numbers] = self.fetch / (self.config.heads - 2)

    def voting(self):
        q, k, v, out = self.views(2)
        q[0] *= .05
        k[0] *= .05
        q[0, self.slow[:8], IS_REPLY] += self.near
        k[0, self.slow[:8], IN_QUESTION] += self.near
        k[0, self.slow[:8], MARKER] -= self.near                # <q> itself has fetched nothing
        numbers = torch.arange(NUMBERS)
        v[0], out[:, 0] = 0, 0
        v[0, numbers, FETCHED.start + numbers] = 1.0
        out[NUMBER.start + numbers, 0, numbers] = self.vote


def start(model, **strengths):
    Start(model, **strengths).set()
    return model
