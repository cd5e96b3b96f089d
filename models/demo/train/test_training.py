"""What training relies on: `python -m unittest test_training`.

Needs torch and tokenizers, takes a few seconds, and is no part of the project's own test run."""
import random
import unittest

import torch

import contexts
import natural
import samples
import tokenizer
from circuits import start
from model import Config, Model, tree_mask
from prompt import ANSWER, MARKERS, NUMBERS, QUESTION, render_answer, render_pages, render_question
from rows import CHOICE, COPY, STAGES, RowMaker, collate
from tokenizer import BOS, EOS
from train import Batches


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(1)
        cls.maker = RowMaker(tokenizer.load())
        cls.model = start(Model(Config()))

    def rows(self, stage, count, seed=3):
        r = random.Random(seed)
        return [self.maker.make(r, *STAGES[stage], copies=.5) for _ in range(count)]

    def test_a_branch_is_what_decoding_it_alone_would_be(self):
        row = self.rows("short", 1)[0]
        ids, positions, branches, _, kinds = collate([row])
        with torch.no_grad():
            together = self.model(ids, positions, tree_mask(branches))[0]
            for branch in range(1, len(row.questions) + 1):
                keep = (branches[0] == 0) | (branches[0] == branch)
                alone = ids[0][keep][None]
                order = torch.arange(alone.shape[1])[None]
                hidden = self.model(alone, order, tree_mask(torch.zeros_like(alone)))[0]
                torch.testing.assert_close(hidden[kinds[0][keep] != 0], together[keep][kinds[0][keep] != 0], atol=1e-4, rtol=1e-3)

    def test_rows_say_what_their_questions_ask(self):
        for stage in ("short", "normal", "long", "samples"):
            for row in self.rows(stage, 5):
                self.assertLessEqual(len(row.ids), STAGES[stage][0])
                self.assertEqual(row.ids[0], BOS)
                self.assertEqual(row.kinds.count(CHOICE), len(row.questions))
                text = self.maker.tokenizer.decode(row.ids[:row.branches.count(0)], skip_special_tokens=False)
                sentences = [line.split("] ", 1)[1] for line in text.split("\n") if line.startswith("[")]
                shown = [row.targets[i] for i, k in enumerate(row.kinds) if k == CHOICE]
                first = int(text.split("\n[", 1)[1].split("]", 1)[0])
                for number, question in zip(shown, row.questions):
                    said = self.maker.tokenizer.id_to_token(number)
                    self.assertEqual(said, "ĠI" if question.answer is None else f"[{first + question.answer}]")
                    self.assertTrue(question.answer is None or question.answer < len(sentences))
                ends = sum(t == EOS and k == COPY for t, k in zip(row.targets, row.kinds))
                self.assertEqual(ends, len({b for b, k in zip(row.branches, row.kinds) if k == COPY}))

    def test_markers_are_one_token_and_text_comes_back(self):
        for mark in [*MARKERS, QUESTION, ANSWER]:
            self.assertEqual(len(self.maker.encode(mark)), 1)
        self.assertEqual(len(MARKERS), NUMBERS)
        text = render_pages([("Zürich", ["Ça coûte 12,50 €.", "日本 <q"])]) + render_question("Qué?") + render_answer("x", 2)
        self.assertEqual(self.maker.tokenizer.decode(self.maker.encode(text), skip_special_tokens=False), text)

    def test_held_out_domains_and_documents_stay_out(self):
        held = {a.object for d in contexts.UNSEEN for a in d.actions} - {a.object for d in contexts.SEEN for a in d.actions}
        unseen = [s for _, said in samples.collection("unseen").values() for s in said]
        for row in self.rows("normal", 40):
            text = self.maker.tokenizer.decode(row.ids)
            self.assertFalse([s for s in unseen if s in text])
        used = {d.name for d in contexts.Mix().domains}
        self.assertFalse(used & set(contexts.HELD))
        self.assertTrue(held)
        pages = [s for name, pages in contexts.NATURAL.items() for _, said in pages for s, _ in said]
        self.assertFalse([s for s in unseen if s in map(natural.published, pages)])

    def test_a_resumed_run_sees_the_rows_it_would_have_seen(self):
        first, again = (Batches(5, 1024, False)[700] for _ in range(2))
        self.assertEqual(first[0], again[0])
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(first[1], again[1])))

    def test_the_circuits_copy_and_vote_before_any_training(self):
        ids, positions, branches, targets, kinds = collate(self.rows("normal", 12))
        with torch.no_grad():
            hidden = self.model(ids, positions, tree_mask(branches))
        copied = self.model.logits(hidden[kinds == COPY]).argmax(-1) == targets[kinds == COPY]
        self.assertGreater(copied.float().mean().item(), .35)
        numbers = slice(5, 5 + NUMBERS)
        wanted = targets[kinds == CHOICE]
        answered = (wanted >= numbers.start) & (wanted < numbers.stop)
        chosen = self.model.logits(hidden[kinds == CHOICE])[:, numbers].argmax(-1) + numbers.start
        self.assertGreater((chosen == wanted)[answered].float().mean().item(), .15)   # chance is .07


if __name__ == "__main__":
    unittest.main()
