"""The Python package, in a virtual environment with nothing but NumPy. Run by cli/test_python."""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import warnings
import xml.dom.minidom

import numpy as np

import alibi

SOURCE = pathlib.Path(os.environ["SOURCE"])
PROGRAM = os.environ["ALIBI"]
TINY = dict(text_bytes=200000, layers=1, width=16, heads=2, train_length=16, batch=2, steps=6,
            save_every=2, warmup=2)


def flags(options):
    return [part for name, value in options.items() for part in ("--" + name.replace("_", "-"),
                                                                 str(value))]


def program(*arguments):
    """What the program prints."""
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True).stdout


def shown(result, test):
    """The pictures and tables of a notebook are well-formed."""
    html = result._repr_html_() if hasattr(result, "_repr_html_") else result._repr_svg_()
    xml.dom.minidom.parseString(f"<body>{html}</body>")
    test.assertIn("polyline", html)


def steps(run):
    return sorted(int(name[5:]) for name in os.listdir(run) if name.startswith("step-"))


class InFolder(unittest.TestCase):
    """One folder with a trained run for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.before = os.getcwd()
        os.chdir(cls.folder.name)
        cls.progress = []
        cls.run_of_train = alibi.train(out="run", device="cpu", progress=cls.progress.append,
                                       **TINY)
        cls.model = alibi.Model.open("run", device="cpu")

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.folder.cleanup()


class Layout(unittest.TestCase):
    def test_structs_are_those_of_the_compiler(self):
        lines, expected = [], []
        for name, struct in alibi.structs.items():
            lines.append(f'P("{name}", sizeof(struct {name}), 0);')
            expected.append(f"{name} {ctypes.sizeof(struct)} 0")
            for field, kind in struct._fields_:
                member = f"((struct {name} *)0)->{field}"
                lines.append(f'P("{name}.{field}", sizeof({member}), '
                             f'offsetof(struct {name}, {field}));')
                offset = getattr(struct, field).offset
                expected.append(f"{name}.{field} {ctypes.sizeof(kind)} {offset}")
        for name, value in alibi.constants.items():
            lines.append(f'P("{name}", {name}, 0);')
            expected.append(f"{name} {value} 0")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "layout.c")
            source.write_text(
                '#include <stdio.h>\n#include "alibi.h"\n'
                '#define P(n, s, o) printf("%s %zu %zu\\n", n, (size_t)(s), (size_t)(o))\n'
                "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
            compiler = os.environ.get("CC", "cc").split()
            subprocess.run([*compiler, "-I", SOURCE / "include", source, "-o", folder + "/layout"],
                           check=True)
            printed = subprocess.run([folder + "/layout"], check=True, capture_output=True,
                                     text=True).stdout
        self.assertEqual(printed.splitlines(), expected)

    def test_every_struct_and_function_of_the_header_is_read(self):
        text = (SOURCE / "include" / "alibi.h").read_text()
        for line in text.splitlines():
            if line.startswith("struct ") and line.endswith("{"):
                self.assertIn(line.split()[1], alibi.structs)
        self.assertGreater(text.count("\nALIBI_API "), 100)
        for name in ("alibi_train", "alibi_date", "alibi_session_view_logits", "alibi_tokenize"):
            self.assertTrue(callable(getattr(alibi.lib, name)))
        self.assertIn(alibi.__version__, program("--version"))


class Errors(unittest.TestCase):
    def test_each_status_is_a_class_with_the_line_of_the_library(self):
        with self.assertRaisesRegex(alibi.UsageError, "did you mean 'layers'"):
            alibi.train(layer=3)
        with self.assertRaisesRegex(alibi.BadInputError, "cannot open model 'nothing'") as caught:
            alibi.Model.open("nothing", device="cpu")
        self.assertEqual(caught.exception.status, alibi.constants["ALIBI_BAD_INPUT"])
        self.assertIsInstance(caught.exception, ValueError)
        alibi.lib.alibi_inject_fault(b"memory", 1)
        try:
            with self.assertRaises(MemoryError) as caught:
                alibi.Tokenizer.open()
        finally:
            alibi.lib.alibi_inject_fault(b"memory", 0)
        self.assertIsInstance(caught.exception, alibi.OutOfMemoryError)

    def test_an_object_of_another_type_does_not_reach_the_library(self):
        tokenizer = alibi.Tokenizer.open()
        null = alibi.pointers["alibi_tokenizer"]()
        for given, call in (
            ("'runs/book'; Model.open", lambda: alibi.Session("runs/book")),
            ("None", lambda: alibi.Session(None)),
            ("type Tokenizer", lambda: alibi.Session(tokenizer)),
            ("5", lambda: alibi.Corpus.builtin(size=9000, tokenizer=5)),
            ("None", lambda: alibi.lib.alibi_tokenizer_vocab(null)),
            ("type c_void_p", lambda: alibi.lib.alibi_tokenizer_vocab(ctypes.c_void_p(8))),
            ("argument 1: ", lambda: alibi.lib.alibi_tokenizer_open(3, None, None)),
            ("out of range", lambda: alibi.lib.alibi_protocol_view(2**32)),
        ):
            with self.assertRaisesRegex(alibi.UsageError, given):
                call()
        self.assertEqual(alibi.lib.alibi_tokenizer_vocab(tokenizer), 257)

    def test_ids_are_checked(self):
        tokenizer = alibi.Tokenizer.open()
        for ids in ([1.5], [[1]], [-1], [2**31]):
            with self.assertRaises(alibi.UsageError):
                tokenizer.decode(ids)
        with self.assertRaises(alibi.BadInputError):
            tokenizer.decode([tokenizer.vocab])


class Texts(unittest.TestCase):
    def test_a_text_comes_back(self):
        tokenizer = alibi.Tokenizer.open("bytes")
        for text in ("", "x", "naïve\0 日本"):
            ids = tokenizer.encode(text)
            self.assertEqual(ids.dtype, np.int32)
            self.assertEqual(tokenizer.decode(ids), text)
        self.assertEqual(tokenizer.vocab, 257)
        self.assertEqual(tokenizer.end, 256)

    def test_a_tokenizer_is_one_or_a_path(self):
        text = ["one two three"] * 20
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.json")
            alibi.Tokenizer.open().write(path)
            for given in ("bytes", str(path), path, folder, alibi.Tokenizer.open(path)):
                self.assertEqual(alibi.Corpus.of_texts(text, tokenizer=given).tokens(), 280)
            with self.assertRaisesRegex(alibi.BadInputError, "no-such-file"):
                alibi.Corpus.builtin(tokenizer=folder + "/no-such-file")

    def test_a_str_is_a_text_and_a_path_a_file(self):
        corpus = alibi.Corpus.of_texts(["one\n", "two"])
        self.assertEqual(corpus.tokens(), len("one\ntwo") + 2)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a.txt")
            path.write_text("some text\n" * 50)
            self.assertEqual(alibi.Corpus.open(path).tokens(), 501)
            with self.assertRaisesRegex(alibi.UsageError, "is the name of a file"):
                alibi.train(str(path), out=folder + "/run")
            for name in ("runs/book", "no book.txt", folder + "/none"):
                with self.assertRaisesRegex(alibi.UsageError, f"Path.'{name}'."):
                    alibi.train(name, out=folder + "/run")
        with self.assertRaisesRegex(alibi.BadInputError, "there is no text in 'texts'"):
            alibi.Corpus.of_texts(["", ""])
        with self.assertRaisesRegex(alibi.BadInputError, "'text 2' is not text: byte 0"):
            alibi.Corpus.of_texts(["a", "b\0"])
        self.assertEqual(alibi.Corpus.of_texts(["runs/book", "", "x"]).tokens(), 12)
        mixed = alibi.text.as_corpus(["N/A", "a text"], None) # not all look like names
        self.assertEqual(mixed.tokens(), 11)
        for wrong in (3, b"text", [3], ["text", pathlib.Path("x")]):
            with self.assertRaises(alibi.UsageError):
                alibi.train(wrong, out="wrong")

    def test_a_str_is_one_text_and_not_its_letters(self):
        for texts in ("one text", ["one text"], iter(["one text"])):
            self.assertEqual(alibi.Corpus.of_texts(texts).tokens(), 9)
        for wrong in (3, None, [3], ["a", b"b", None]):
            with self.assertRaisesRegex(alibi.UsageError, "texts must be a str"):
                alibi.Corpus.of_texts(wrong)


class Models(InFolder):
    def test_evaluation_is_that_of_the_program(self):
        result = self.model.evaluate(lengths=[16, 64], tokens=2048)
        printed = program("eval", "run", "--lengths", "16,64", "--tokens", "2048", "--skip", "0",
                          "--json", "--device", "cpu")
        for r in result:
            self.assertIn(f"{r.nll:.6f}"[:-1], printed)
            self.assertEqual(r.tokens, 2048)
        self.assertEqual(result.at(64).length, 64)
        self.assertIn("64", str(result))
        shown(result, self)

    def test_protocols_and_texts(self):
        text = "It was the best of times. " * 20
        whole = self.model.evaluate(text, lengths=[32])
        with self.assertRaisesRegex(alibi.BadInputError, "^((?!/tmp).)*'texts'"):
            self.model.evaluate([""])
        with self.assertRaisesRegex(alibi.BadInputError, "^'texts' has 6 tokens; evaluating"):
            self.model.evaluate("short", lengths=64)
        self.assertIn("'texts'", repr(alibi.Corpus.of_texts("text")))
        self.assertEqual(whole[0].nll, self.model.evaluate(text, lengths=32)[0].nll)
        with self.assertRaises(alibi.UsageError):
            self.model.generate("It was", tokens=-1)
        sliding = self.model.evaluate([text], lengths=[32], protocol="sliding", stride=8)
        stream = self.model.evaluate(text, protocol="stream")
        self.assertEqual([r[0].protocol for r in (whole, sliding, stream)],
                         ["nonoverlapping", "sliding", "stream"])
        self.assertEqual(sliding[0].stride, 8)
        with self.assertRaisesRegex(alibi.UsageError, "'best' is not one of"):
            self.model.evaluate(text, protocol="best")
        with self.assertRaisesRegex(alibi.UsageError, "stride has no effect"):
            self.model.evaluate(text, stride=4)

    def test_numbers_and_names_are_those_of_the_command_line(self):
        text = "It was late. " * 200
        wanted = self.model.evaluate(text, lengths=[64, 128], tokens=1024, protocol="sliding")
        for lengths, tokens, protocol in (
            ("64, 128", "1k", "slide"), (np.array([64, 128]), 1024.0, "SLIDING"),
            ((np.int64(64), np.int32(128)), np.int64(1024), "sliding"),
        ):
            got = self.model.evaluate(text, lengths=lengths, tokens=tokens, protocol=protocol)
            self.assertEqual([r.nll for r in got], [r.nll for r in wanted])
        self.assertEqual(self.model.evaluate(text, lengths=np.int64(64))[0].length, 64)
        for device, precision in (("CPU", "float32"), ("cpu", "fp32"), ("auto", "auto")):
            self.assertTrue(alibi.Device(device, precision).name)
        with self.assertRaisesRegex(alibi.Error, "^device cuda: |^GPU 1023"):
            alibi.Device("gpu", gpu=1023)
        with self.assertRaisesRegex(alibi.UsageError, "'fp16' is not one of auto.fp32.bf16"):
            alibi.Model.open("run", device="cpu", precision="fp16")
        with self.assertRaisesRegex(alibi.UsageError, "a Device has its precision"):
            alibi.Model.open("run", device=self.model.device, precision="bf16")

    def test_a_value_of_another_type_is_one_line(self):
        model, text = self.model, "It was late. " * 40
        for line, call in (
            ("text must be a str, not None", lambda: model.score(None)),
            ("text must be a str, not a value of type list", lambda: model.score(["a", "b"])),
            ("prompt must be a str, not 3", lambda: model.generate(3)),
            ("each of prompts must be a str, not 1", lambda: model.complete([1])),
            ("until must be a str or a list of them, not 3", lambda: model.complete("a", until=3)),
            ("each of prompts is not text", lambda: model.complete("\ud800")),
            ("text must be a str, not a value", lambda: model.tokenizer.encode(["a"])),
            ("option 'tokens': '1.5' is not a whole", lambda: model.evaluate(text, tokens=1.5)),
            ("option 'tokens' cannot be None", lambda: model.evaluate(text, tokens=None)),
            ("option 'lengths': 0 is out of range", lambda: model.evaluate(text, lengths=[0])),
            ("option 'split': 'v' is not one of", lambda: model.evaluate(text, split="v")),
            ("option 'skip': 1 is out of range", lambda: model.evaluate(text, skip=1)),
            ("option 'temperature': 'hot'", lambda: model.complete("a", temperature="hot")),
            ("option 'top_p': 2 is out", lambda: model.generate("a", top_p=2)),
            ("option 'seed': 'x' is not", lambda: alibi.Corpus.builtin(seed="x")),
            ("option 'steps': 'many' is not", lambda: alibi.train(out="x", steps="many")),
            ("option 'device': '3' is not", lambda: alibi.train(out="x", device=3)),
            ("a path is needed, not 5", lambda: alibi.train(out=5)),
            ("a path has no byte 0", lambda: alibi.Model.open("run\0")),
            ("end must be a str, not 3", lambda: alibi.Tokenizer.open("bytes", end=3)),
            ("progress must be a function", lambda: model.score("a", progress=3)),
            ("Model is not made from 'run'; Model.open", lambda: alibi.Model("run")),
        ):
            with self.assertRaisesRegex(alibi.UsageError, line):
                call()
        self.assertEqual(model.score(b"abc").logprob, model.score("abc").logprob)
        few = alibi.train(out="whole", device="cpu", **{**TINY, "steps": 6.0, "layers": np.int8(1)})
        self.assertEqual(few.loss, self.run_of_train.loss)

    def test_a_text_that_was_trained_on_is_told(self):
        text = pathlib.Path("seen.txt")
        text.write_text("".join(f"line {i} of the text\n" for i in range(500)))
        alibi.train(text, out="seen", device="cpu", **TINY)
        model, how = alibi.Model.open("seen", device="cpu"), dict(lengths=16, tokens=64)
        with self.assertWarnsRegex(UserWarning, "'seen.txt'.*split='valid' was held") as w:
            self.assertTrue(model.evaluate(text, **how).trained_on)
        self.assertEqual(os.path.basename(w.filename), os.path.basename(__file__))
        lines = []
        self.assertTrue(model.evaluate(text, split="train", log=lambda *line: lines.append(line),
                                       **how).trained_on)
        self.assertIn("trained on 'seen.txt'", lines[0][1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for unseen, split in ((text, "valid"), ("Another text. " * 20, None), (None, None)):
                model = self.model if unseen is None else model
                self.assertFalse(model.evaluate(unseen, split=split, **how).trained_on)

    def test_warnings_name_the_line_of_the_caller(self):
        pathlib.Path("a.txt").write_text("the same line of text\n" * 500)
        alibi.train(pathlib.Path("a.txt"), out="line", device="cpu", **TINY)
        model = alibi.Model.open("line", device="cpu")
        for call in (lambda: alibi.Corpus.open("a.txt", valid="a.txt"),  # deep in a long call
                     lambda: model.evaluate(pathlib.Path("a.txt"))):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
            self.assertEqual([warning.filename for warning in caught], [__file__])
            self.assertEqual(caught[0].lineno, call.__code__.co_firstlineno)

    def test_scores_are_log_softmax_of_logits(self):
        text = "It was late."
        scores = self.model.score(text, alternatives=2)
        end = self.model.tokenizer.end
        logits = self.model.logits([end, *scores.ids]).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        expected = logprobs[np.arange(len(scores.ids)), scores.ids]
        np.testing.assert_allclose(scores.logprobs, expected, atol=1e-4)
        self.assertAlmostEqual(scores.logprob, scores.logprobs.sum())
        self.assertEqual("".join(scores.pieces), text)
        self.assertEqual(scores.alternatives[3][0][0], logits[3].argmax())
        self.assertIn("ppl", str(scores))

    def test_generation_is_an_iterator_of_the_programs_text(self):
        pieces = self.model.generate("It was", tokens=30, temperature=0.5, seed=4)
        self.assertIs(iter(pieces), pieces)
        text = next(pieces) + "".join(pieces)
        together = self.model.complete(["It was"], tokens=30, temperature=0.5, seed=4)
        self.assertEqual([text], together)
        printed = program("generate", "run", "--prompt", "It was", "--tokens", "30",
                          "--temperature", "0.5", "--seed", "4", "--no-echo", "--device", "cpu")
        self.assertEqual(text, printed.removesuffix("\n"))
        for until in ([text[7]], text[7]):
            cut = self.model.complete("It was", tokens=30, temperature=0.5, seed=4, until=until)
            self.assertEqual(cut, [text[:text.index(text[7])]])
        end = text[7:9]
        cut = self.model.complete("It was", tokens=30, temperature=0.5, seed=4, until=end)
        self.assertEqual(cut, [text[:text.index(end)]])

    def test_threads_compute_at_once_and_agree(self):
        results = [None] * 3

        def score(i):
            results[i] = self.model.score("It was a dark night.").logprob

        threads = [threading.Thread(target=score, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(results)), 1)
        self.assertIsNotNone(results[0])


class Training(InFolder):
    def test_training_has_the_bits_of_the_program(self):
        program("train", *flags(TINY), "--out", "other", "--quiet", "--device", "cpu")
        for name in ("model.safetensors", "weights.safetensors"):
            ours, theirs = (pathlib.Path(run, "step-00000006", name) for run in ("run", "other"))
            if ours.exists():
                break
        self.assertEqual(ours.read_bytes(), theirs.read_bytes())
        self.assertEqual([p.done for p in self.progress], [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.run_of_train.step, 6)
        self.assertEqual([step for step, _ in self.run_of_train.curve], [1, 2, 3, 4, 5, 6])
        self.assertIn("step 6", str(self.run_of_train))
        shown(self.run_of_train, self)

    def test_a_run_and_a_model_are_their_paths(self):
        run = self.run_of_train
        model = alibi.Model.open(run, device="cpu")
        self.assertEqual(model.path, "run")
        self.assertEqual(alibi.Corpus.of_run(run).tokens(), alibi.Corpus.of_run("run").tokens())
        tuned = [alibi.train(out=f"tuned-{i}", device="cpu", init=init, **TINY)
                 for i, init in enumerate(("run", run, model, pathlib.Path("run")))]
        self.assertEqual(len({result.loss for result in tuned}), 1)
        self.assertNotEqual(tuned[0].loss, run.loss)
        for wrong in (self, b"run", {}):
            with self.assertRaisesRegex(alibi.UsageError, "option 'init' cannot be"):
                alibi.train(out="wrong", device="cpu", init=wrong, **TINY)
        with self.assertRaisesRegex(alibi.UsageError, "a path is needed, not 3"):
            alibi.Model.open(3, device="cpu")

    def test_a_model_to_start_from_gives_its_architecture(self):
        shape = dict(TINY, layers=2, width=24, heads=3, position="rotary:base=500",
                     activation="relu", norm="rmsnorm", embedding_norm=True)
        alibi.train(out="rotary", device="cpu", **shape)
        of_rotary = alibi.Model.open("rotary", device="cpu").config
        self.assertEqual(of_rotary, {**of_rotary, "position": "rotary:base=500", "layers": 2,
                                     "activation": "relu", "norm": "rmsnorm", "width": 24,
                                     "embedding_norm": True})
        other = {name: value for name, value in TINY.items()
                 if name not in ("layers", "width", "heads")}
        for name, more in (("same", {}), ("longer", {"train_length": 32}), ("heads", {"heads": 4}),
                           ("changed", {"position": "alibi", "activation": "gelu-erf"})):
            options = {**other, **more}
            alibi.train(out=name, device="cpu", init="rotary", **options)
            config = alibi.Model.open(name, device="cpu").config
            self.assertEqual(config, {**of_rotary, "max_length": options["train_length"],
                                      "kv_heads": more.get("heads", 3),
                                      **{key: more[key] for key in more if key in config}})
            program("train", *flags(options), "--init", "rotary", "--out", name + "-of-program",
                    "--quiet", "--device", "cpu")
            ours, theirs = (pathlib.Path(run, "step-00000006", "model.safetensors")
                            for run in (name, name + "-of-program"))
            self.assertEqual(ours.read_bytes(), theirs.read_bytes())

    def test_nothing_to_resume_is_no_new_run(self):
        with self.assertRaisesRegex(alibi.BadInputError, "cannot resume 'typo': there is no run"):
            alibi.train(out="typo", resume=True, device="cpu", steps=6)
        self.assertFalse(os.path.exists("typo"))
        with self.assertRaisesRegex(alibi.UsageError, "resume must be True or False, not 'no'"):
            alibi.train(out="typo", resume="no", device="cpu")

    def test_values_that_are_no_text_are_refused(self):
        with self.assertRaisesRegex(alibi.UsageError, "option 'position' has a byte 0"):
            alibi.train(out="none", device="cpu", position="alibi\0x")
        with self.assertRaisesRegex(alibi.UsageError, "not valid UTF-8"):
            alibi.train(out="none", device="cpu", position="\ud800")
        with self.assertRaisesRegex(alibi.UsageError, "a path is needed, not b'none'"):
            alibi.train(out=b"none", device="cpu")
        self.assertFalse(os.path.exists("none"))

    def test_an_imported_model_gives_its_architecture(self):
        alibi.train(out="bloom", device="cpu", embedding_norm=True, **TINY)
        program("export", "bloom", "--format", "hf", "--out", "bloom-hf")
        program("import", "bloom-hf", "--out", "bloom-imported")
        options = {name: value for name, value in TINY.items()
                   if name not in ("layers", "width", "heads")}
        alibi.train(out="bloom-tuned", device="cpu", init="bloom-imported",
                    tokenizer="bloom-imported", **options)
        tuned, imported = (alibi.Model.open(name, device="cpu").config
                           for name in ("bloom-tuned", "bloom-imported"))
        self.assertEqual(tuned, {**imported, "max_length": 16})
        self.assertTrue(tuned["embedding_norm"])

    def test_files_are_read_as_asked(self):
        line = "one line of text\n"
        pathlib.Path("lines.txt").write_text(line * 100)
        pathlib.Path("lines.data").write_text('{"body": "one line of text"}\n' * 100)
        tokens = len(line)
        for paths, how, wanted in (
            (["lines.txt"], {}, 100 * tokens + 1),
            (["lines.txt"], {"document": "line"}, 100 * (tokens + 1)),
            (["lines.txt"], {"valid": "lines.txt"}, 2 * (100 * tokens + 1)),
            (["lines.data"], {"format": "jsonl", "field": "body"}, 100 * tokens),
        ):
            corpus = alibi.Corpus.open(*paths, log=lambda *_: None, **how)
            self.assertEqual(corpus.tokens(), wanted)
        corpus.tokenizer.write("tokenizer.json")
        with self.assertRaisesRegex(alibi.UsageError, "the end of documents cannot be 'x'"):
            alibi.Corpus.open("lines.txt", tokenizer="tokenizer.json", end="x")
        with self.assertRaisesRegex(alibi.UsageError, "end 'x' names a token"):
            alibi.Corpus.open("lines.txt", end="x")
        with self.assertRaisesRegex(alibi.UsageError, "option 'document': 'lin'"):
            alibi.Corpus.open("lines.txt", document="lin")

    def test_options_that_belong_elsewhere_say_where(self):
        for name, where in (("valid", "Corpus.open.PATH, valid="), ("document", "document=..."),
                            ("end", "Corpus"), ("gpu", "Device.NAME, gpu="),
                            ("mix", "train --mix")):
            for call in (alibi.train, alibi.compare):
                with self.assertRaisesRegex(alibi.UsageError, where):
                    call(out="elsewhere", **{name: "x"})
        for name in ("position", "init", "keep_best"):
            with self.assertRaisesRegex(alibi.UsageError, f"'{name}' does not apply"):
                alibi.compare(out="elsewhere", **{name: "x"})
        self.assertFalse(os.path.exists("elsewhere"))

    def test_recipes_have_names(self):
        small = {**TINY, "steps": 2}
        for name in ("byte-10m", "byte-10m.json", SOURCE / "recipes" / "byte-10m.json"):
            alibi.train(out="recipe", recipe=name, device="cpu", **small)
            options = json.loads(pathlib.Path("recipe", "recipe.json").read_text())
            wanted = json.loads((SOURCE / "recipes" / "byte-10m.json").read_text())
            wanted.update(small)
            self.assertEqual({key: options[key] for key in wanted}, wanted)
            shutil.rmtree("recipe")
        with self.assertRaisesRegex(alibi.BadInputError, "no recipe 'byte-10': .*'byte-10m'.$"):
            alibi.train(out="recipe", recipe="byte-10")
        alibi.train(out="recipe", recipe="paper-1.3b", device="cpu", **small)
        with self.assertRaisesRegex(alibi.BadInputError, "runs/none.json"):
            alibi.train(out="recipe", recipe="runs/none.json")

    def test_texts_in_memory_are_given_again_to_resume(self):
        texts = ["It was the best of times. " * 99] * 9
        alibi.train(texts, out="memory", device="cpu", **TINY)
        with self.assertRaisesRegex(alibi.BadInputError, "give the text"):
            alibi.train(out="memory", device="cpu", resume=True, steps=8)
        resumed = alibi.train(texts, out="memory", device="cpu", resume=True, steps=8)
        self.assertEqual(resumed.step, 8)

    def test_ctrl_c_saves_and_the_run_resumes(self):
        long = {**TINY, "steps": 1000000, "save_every": 1000000}
        started = threading.Event()

        def interrupt():
            started.wait(20)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaisesRegex(KeyboardInterrupt, "saved in 'long'"):
            alibi.train(out="long", device="cpu", progress=lambda p: started.set(), **long)
        thread.join()
        stopped = steps("long")[-1]
        self.assertGreater(stopped, 0)
        resumed = alibi.train(out="long", resume=True, device="cpu", steps=stopped + 3)
        self.assertEqual(resumed.step, stopped + 3)

    def test_an_exception_in_a_callback_saves_too(self):
        def fail(progress):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            alibi.train(out="enough", device="cpu", progress=fail, **{**TINY, "steps": 100000})
        self.assertTrue(steps("enough"))

    def test_a_comparison_has_a_curve_per_method(self):
        small = {**TINY, "eval_tokens": 1024, "sliding_tokens": 0, "stream_tokens": 0}
        result = alibi.compare(out="compare", device="cpu", methods=["alibi", "learned"],
                               lengths=[16, 32], **small)
        self.assertEqual(result.methods, ("alibi", "learned"))
        self.assertEqual([length for length, _ in result.curve("alibi")], [16, 32])
        self.assertEqual([length for length, _ in result.curve("learned")], [16])
        self.assertIn("Perplexity by test length", str(result))
        shown(result, self)
        began = time.monotonic()
        again = alibi.compare(out="compare", device="cpu", methods=["alibi", "learned"],
                              lengths=[16, 32], **small)
        self.assertEqual(again.trials[0].results, result.trials[0].results)
        self.assertLess(time.monotonic() - began, 10)
        self.assertTrue(os.path.exists("compare/report.html"))


if __name__ == "__main__":
    unittest.main()
