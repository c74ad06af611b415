"""The model class for lm-evaluation-harness: with the harness where it is there, otherwise with the
part of its interface that the class uses."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
import unittest

import numpy as np

import alibi

HARNESS = importlib.util.find_spec("lm_eval") is not None


class Instance:
    def __init__(self, *arguments):
        self.args = arguments


def install_stub():
    """As lm-eval 0.4: the names and the behaviour that alibi.harness relies on."""

    class TemplateLM:
        prefix_token_id = property(lambda self: self.eot_token_id)

        def loglikelihood(self, requests):
            pairs = []
            for context, continuation in (request.args for request in requests):
                before = self.tok_encode(context) if context else [self.prefix_token_id]
                whole = self.tok_encode(context + continuation)
                pairs.append((None, before, whole[len(before) if context else 0 :]))
            return self._loglikelihood_tokens(pairs)

    def windows(token_list, prefix_token, max_seq_len, context_len):
        assert context_len == 1
        for at in range(0, len(token_list), max_seq_len):
            end = min(at + max_seq_len, len(token_list))
            if at == 0:
                yield [prefix_token, *token_list[: end - 1]], token_list[:end]
            else:
                yield token_list[end - max_seq_len - 1 : end - 1], token_list[at:end]

    def disjoint(pair):
        context, continuation = pair
        return context[: len(context) - (len(continuation) - 1)], continuation

    contents = {
        "lm_eval": {}, "lm_eval.models": {}, "lm_eval.api": {},
        "lm_eval.api.model": {"TemplateLM": TemplateLM},
        "lm_eval.api.registry": {"register_model": lambda name: lambda kind: kind},
        "lm_eval.utils": {"get_rolling_token_windows": windows, "make_disjoint_window": disjoint},
    }
    for name, members in contents.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not HARNESS:
            install_stub()
        from alibi.harness import AlibiLM

        cls.folder = tempfile.TemporaryDirectory()
        run = os.path.join(cls.folder.name, "run")
        alibi.train(out=run, device="cpu", text_bytes=200000, layers=1, width=16, heads=2,
                    train_length=16, batch=2, steps=6, warmup=2)
        cls.run_folder = run
        cls.lm = AlibiLM(path=run, device="cpu", max_length=32, batch_size=2)
        cls.model = cls.lm.model

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_loglikelihood_is_the_score_after_the_context(self):
        pairs = [("It was", " late"), ("It was", " latf"), ("It was", "x"), ("", "Now"),
                 ("They", " came home")]
        results = self.lm.loglikelihood([Instance(*pair) for pair in pairs])
        for (context, continuation), (logprob, greedy) in zip(pairs, results):
            self.assertAlmostEqual(
                logprob, self.model.score(continuation, prompt=context).logprob, places=4)
            self.assertIs(type(greedy), bool)

    def test_the_likeliest_continuation_is_greedy(self):
        ids = self.model.tokenizer.encode("It was")
        session = alibi.Session(self.model)
        session.feed(ids)
        chosen = []
        for _ in range(3):
            chosen.append(int(session.last_logits().argmax()))
            session.feed(chosen[-1:])
        other = [*chosen[:2], (chosen[2] + 1) % 256]
        results = self.lm._loglikelihood_tokens(
            [(None, ids.tolist(), chosen), (None, ids.tolist(), other)])
        self.assertEqual([greedy for _, greedy in results], [True, False])
        self.assertGreater(results[0][0], results[1][0])

    def test_the_device_that_nobody_named_may_be_the_cpu(self):
        for device in (None, "cuda:0"):  # the second is the harness's own default
            lm = type(self.lm)(path=self.run_folder, device=device, max_length=32)
            (result,) = lm.loglikelihood([Instance("It was", " late")])
            (wanted,) = self.lm.loglikelihood([Instance("It was", " late")])
            self.assertAlmostEqual(result[0], wanted[0], delta=0.1)
        if lm.model.device.name == "cpu":
            for device in ("cuda", "cuda:1"):
                with self.assertRaises(alibi.DeviceError):
                    type(self.lm)(path=self.run_folder, device=device)

    def test_arguments_that_are_none_are_one_line(self):
        for line, arguments in (
            ("model_args has no 'max_lenght'; it has path, max_length", dict(max_lenght=64)),
            ("model_args has no path", dict(path=None)),
            ("option 'max_length': 'abc' is not a whole number", dict(max_length="abc")),
            ("option 'batch_size': 0 is out of range", dict(batch_size=0)),
            ("option 'skip': 'x' is not a number", dict(skip="x")),
            ("option 'gpu': 'x' is not a whole number", dict(device="cuda:x")),
        ):
            with self.assertRaisesRegex(alibi.UsageError, line):
                type(self.lm)(**{"path": self.run_folder, "device": "cpu", **arguments})
        lm = type(self.lm)(path=self.run_folder, device="cpu", batch_size="auto:4", max_length="32",
                           max_batch_size=64, trust_remote_code=True)
        self.assertEqual((lm.batch_size, lm.max_length), (8, 32))

    @unittest.skipUnless(HARNESS, "no lm-eval")
    def test_the_program_ends_with_one_line_and_the_status(self):
        ended = subprocess.run(
            [sys.executable, "-m", "alibi.harness", "run", "--model", "alibi", "--model_args",
             "path=none", "--tasks", "lambada_openai"],
            env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 3)
        self.assertRegex(ended.stderr.splitlines()[-1], "^alibi.harness: cannot open model 'none'")
        self.assertNotIn("Traceback", ended.stderr)

    def test_rolling_scores_every_token_once(self):
        for text in ("short", "a text of more than one window, " * 4):
            (rolled,) = self.lm.loglikelihood_rolling([Instance(text)])
            ids = [self.model.tokenizer.end, *self.model.tokenizer.encode(text)]
            wanted, at = 0.0, 1
            while at < len(ids):  # as docs/evaluation.md says: windows end where the text does
                end = min(at + 32, len(ids))
                start = max(0, end - 1 - 32)
                logits = self.model.logits(ids[start : end - 1]).astype(np.float64)
                logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
                wanted += sum(logprobs[i - start - 1, ids[i]] for i in range(at, end))
                at = end
            self.assertAlmostEqual(rolled, wanted, places=3)

    def test_generation_ends_before_the_stop_text(self):
        whole = self.model.complete(["It was"], tokens=8)[0]
        options = {"until": [whole[3]], "max_gen_toks": 8}
        prompts = ["It was", "They", "It was"]
        texts = self.lm.generate_until(
            [Instance(prompt, options) for prompt in prompts]
            + [Instance("It was", {"until": [], "max_gen_toks": 8})])
        self.assertEqual(texts[0], whole[: whole.index(whole[3])])
        self.assertEqual(texts[2], texts[0])
        self.assertEqual(texts[3], whole)
        long = self.lm.generate_until([Instance("x" * 500 + "It was", {"max_gen_toks": 8})])
        self.assertEqual(long, self.model.complete(["x" * 18 + "It was"], tokens=8))


if __name__ == "__main__":
    unittest.main()
