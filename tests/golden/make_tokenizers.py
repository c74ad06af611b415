#!/usr/bin/env python3
"""Writes the golden files of test_tokenizers.c: small byte-level BPEs, and the ids that Hugging Face's `tokenizers` gives.

    python3 tests/golden/make_tokenizers.py        needs tokenizers; seconds

In tests/golden/tokenizers:

    strings.txt                      the texts, one per line; bytes other than letters, digits and some signs stand as %XX
    NAME.json                        a tokenizer.json, or
    NAME/vocab.json, NAME/merges.txt the pair that GPT-2 has
    NAME.ids                         one line per text: its ids, without special tokens added around it
    refused-NAME.json                a tokenizer.json that is not supported

The tokenizers are trained on words of many scripts put together at random below, always the same. They are small, but what
differs between published tokenizers is in them: the expressions that cut text, the spelling of the merges, added tokens that
overlap, merges that are no longer in the order of training, tokens that no merge leads to.
"""
import json
import pathlib
import random
import shutil
import urllib.parse

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent / "tokenizers"

BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# ---- text

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one
you were her all she there would their we him been has when who will more no if out so said what up its about into than them can
only other new some could time these two may then do first any my now such like our over man me even most made after also did
many before must through back years where much your way well down should because each just those people how too little state
good very make world still own see men work long get here between both life being under never day same another know while last
might us great old year off come since against go came right used take three I'm don't it's we'll they've you're he'd John's
strawberry tokenization internationalization unbelievably Straße größer über naïve café señor niño façade œuvre smörgåsbord
łódź žluťoučký kůň pilvestä İstanbul ığdır čeština Việt Nam tiếng Αθήνα ελληνικά λόγος και το της Москва привет мир это слово
большой українська їжак България שלום עולם עברית السلام عليكم العربية هذا كتاب فارسی گفتگو می‌خواهم اردو ہے۔ हिन्दी नमस्ते
दुनिया है। বাংলা ভাষা தமிழ் தெலுగు తెలుగు ಕನ್ನಡ ภาษาไทย สวัสดี ພາສາລາວ မြန်မာ ខ្មែរ ქართული հայերեն አማርኛ 中文 你好，世界。 我们
學習 日本語 こんにちは カタカナ ひらがな 東京都 한국어 안녕하세요 세계 ᚠᚢᚦᚨᚱᚲ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒳𝓎 👍 😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ✨ ☃️ ½ ² ³ Ⅷ ٣٤٥ १२३ ① x² 10⁻³ 3.14159 2,088,628
1984 2026-11-15 12:30:59 0x7fff 1e-5 50% $9.99 €20 £5 192.168.0.1 user@example.org https://example.org/a?b=c&d=e#f C++ C#
""".split()

CODE = [
    "for (int i = 0; i < n; i++) {\n        sum += a[i] * b[i];\n    }\n",
    "def f(x, *args, **kwargs):\n    \"\"\"Doc.\"\"\"\n    return x if x else None\n\n\n",
    "if (a != NULL && b->next == a)\n\treturn -1; // no\n",
    "<div class=\"row\">\r\n  <p>text &amp; more</p>\r\n</div>\r\n",
    "{\"key\": [1, 2.5, null, true], \"other\": {}}\n",
    "SELECT * FROM t WHERE id >= 10 AND name LIKE '%x%';\n",
    "x = y ** 2 + 3 * z - 4 / w  # why\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
]

MARKS = [". ", ", ", "! ", "? ", "; ", ": ", " - ", " — ", "... ", "…", "。", "، ", "। ", "۔ ", "\n", "\n\n", "  ", "\t", " (",
         ") "]


def training_text(random):
    """Documents of words, marks, numbers and code."""
    for _ in range(400):
        parts = []
        for _ in range(random.randrange(20, 120)):
            # The front of the list is common, as in any text.
            parts.append(WORDS[int(len(WORDS) * random.random() ** 2)])
            parts.append(random.choice(MARKS) if random.random() < 0.2 else " ")
        if random.random() < 0.3:
            parts.append("\n" + random.choice(CODE))
        yield "".join(parts)


# ---- the texts that are encoded

PLAIN = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t x", " \n", "\n ", " \n \n ", "\r", "\v\f", "a", "A",
    "é",
    "the", " the", "  the", "   the", "the ", "the  ", "the   ", "the\n", "the \n", "the\n\n\n", "\nthe", "\n the", "\n  the",
    "hello world", "Hello, World!", "HELLO WORLD", "helloworld hello-world hello_world", "a b c d e", "a  b   c    d",
    "ab" * 40,
    "a" * 200, " " * 100, "\n" * 50, " \n" * 20, "\t \t " * 10, "-" * 70, "=" * 33 + "\n", "." * 5, "!?!?!?", "0" * 40,
    "I'm don't it's we'll they've you're he'd", "I'M DON'T IT'S WE'LL THEY'VE YOU'RE HE'D", "I’m don’t it’s",
    "'s't're've'm'll'd",
    "'S'T'RE'VE'M'LL'D 'lL 'Re", "'", "''", "' s", "'x", "rock'n'roll", "'tis 'twas", "o'clock's", "'\u017f 'T\u212a 'ſt",
    "it's\n'll", "''s", " 's", "\n's", "1's", ".'s", "é's", "x'sy",
    "1", "12", "123", "1234", "12345", "123456", "1234567 89", "3.14159", "2,088,628", "1e-5", "0x7fff", "٣٤٥٦", "१२३४",
    "½²³Ⅷ①", "a1b22c333",
    " 1", "  1", " 12 345 6789", "１２３４", "𝟘𝟙𝟚𝟛", "①②③④⑤",
    "Straße größer über", "naïve café", "nai\u0308ve cafe\u0301", "e\u0301\u0302\u0303", "\u0301a", " \u0301",
    "a\u0301\u0301 b", "Å Å Å",
    "İstanbul ığdır Iı", "ǅ ǆ Ǆ", "ﬁ ﬀ ﬆ", "ŉ ß ẞ", "Ａｂｃ", "ªº", "Việt Nam tiếng",
    "ελληνικά Αθήνα ΣΊΣΥΦΟΣ ς", "Москва, привет мир! Это слово.", "їжак Ґґ", "שלום עולם", "שָׁלוֹם",
    "السلام عليكم، هذا كتاب؟", "مَرْحَبًا",
    "می‌خواهم", "اردو ہے۔ اور", "हिन्दी नमस्ते दुनिया है। ठीक", "क्षत्रिय", "বাংলা ভাষা", "தமிழ்", "తెలుగు", "ಕನ್ನಡ",
    "മലയാളം", "සිංහල",
    "ภาษาไทยสวัสดี", "ພາສາລາວ", "မြန်မာ", "ខ្មែរ", "བོད་ཡིག", "ქართული", "հայերեն", "አማርኛ", "ᏣᎳᎩ", "ᚠᚢᚦᚨᚱᚲ", "ᐃᓄᒃᑎᑐᑦ",
    "你好，世界。我们學習、日本語！", "東京都　大阪", "こんにちは カタカナ ﾊﾝｶｸ", "한국어 안녕하세요 세계", "ᄒ\u1161\u11ab", "中文English混合text123数字",
    "\U00020000\U0002a6d6", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒳𝓎", "𐍈 𐎠 𒀀 𓀀", "👍", " 👍", "👍👍👍", "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷", "☃️✨❤️", "a👍b", "🤷‍♂️!",
    "\u00a0", "a\u00a0b", "\u00a0\u00a0a", " \u00a0 a", "\u2003x\u2003\u2003y", "\u3000日", "\u202f5", "a\u2028b\u2029c",
    "\u0085", "a\u0085\u0085b", "\u1680x",
    "\u180ex", "\u200b \u200bx", "\ufeffx", "\ufeff", "\u2060", "\u200d", "\u00ad", "\u061c", "\ufffd", "\ufffe", "\uffff",
    "\U0010ffff",
    "\ue000\uf8ff", "\U000e0001", "\u0378", "\0", "a\0b", "\0\0", "\x01\x02\x1f\x7f", "\x1b[31mred\x1b[0m",
    "\x1c\x1d\x1e\x1f a", "\x80\x9f",
    "(a|b)", "[.,!?]", "|", "(", ")", "(\n|", ")]+", " )x", "a.b,c!d?e", "…。，、।۔،", " …x", "word.word, word! word? word…",
    "«bonjour» „guten“", "‘a’ “b”",
    "https://example.org/a?b=c&d=e#f", "user@example.org", "C++ C# .NET", "foo_bar fooBar FOOBar FooBARBaz iOS",
    "don't/won't/\n", "//\n\n//\r\n",
    "a\r\nb\r\n\r\nc", "a\n\rb", "x \r\n y", " \r\n", "\r\n ", "a \n\n b", "a\t\n", "\n\t\tif (x)",
    "    return x;\n\n\n    }", "\n \n  \n   ",
    "Ġthe", "Ċ", "ĠĠ", "âĢĻ", "Ã©", "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", "<|endoftext",
    "|endoftext|>", " <|endoftext|> ",
    "</s>", "<s>a</s>", "<unk>", "<pad>", "<|begin_of_text|>Hi<|end_of_text|>", "strawberry", " strawberry",
    "strawberry strawberries",
    "tokenization internationalization", "abcabcabc", "aaaa", "aaaaaaa", "banana bananas", "ababab ab abab", "xyzzy",
    "<br>", "a<br>b", "<br><br>", "a <br> b", "<br", "br>", "<b<br>r>",
    "1 234 567,89 €", "x² + y² = z²", "∑∫√∞ ≤ ≥ ≠", "¿Qué? ¡Sí!", "a–b—c", "a‑b", "№5", "™®©", "٪", "﷽", "꙳", "ʼn ʻokina",
    "x\u0300'll", "\u0300's",
    # Letters, digits and marks of Unicode 15, 15.1 and 16, and what none of them has.
    "a\U00010d50\U00010d51 \U00010d40\U00010d41 1", "\u1c89\u1c8a b\ua7cb's", "\U00031350\U0002ebf0字", "x\U0001171e\U0001171d y",
    "\U0001e4d0\U0001e4ec \U0001e4f0", "\u1c8b\u1c8c a\U00010d66b", "\U0001f6dc \U0001fae9!", "\U00011f50\U00011f50\U00011f50\U00011f50",
    # Not in form C: marks to compose, to sort, blocked; Hangul letters; characters that are never normal.
    "e\u0301te\u0301 nai\u0308ve", "a\u0323\u0302 a\u0302\u0323 \u1ead\u0301", "q\u0307\u0323 q\u0323\u0307", "x\u0301\u0323'll \u0301\u0323",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \uac00\u11a8 \u1161\u11a8", "\u212b\u2126\u212a \u037e\u1fef", "\u0958\u0915\u093c \u09c7\u09be \ufb1d",
    "\U0002f800\uf900 \u0344a\u0344", "e<|endoftext|>\u0301e\u0301<|endoftext|>", ">\u0338 <|x|>\u0338 =\u0338", "a\u05ae\u0300\u0315b\u0321\u1dce\u031b",
    "\U00011099\U000110ba \U00011131\U00011127", "e\u0301!e\u0301!\u0301", "o\u031b\u0323\u0301" * 20, "\U00011938 \U00011935\U00011930 a\u1df9\u0334",
    "a" + "\u0301\u0323\u0334" * 30, "\u0b47\u0b56\u0b3e \u0dd9\u0dcf\u0dca", "\u0f71\u0f72\u0f73 \u0f77", "\u2000x\u2001  \u0301  \u0301",
    # White space around tokens that take it.
    "a  <x>  b", "a \n\t<x>\u3000\u2003b", "a <br>   b", " <br>\u00a0\u0085\u1680 ", "a  <s>  <s>  <x> <br> <x>", "<s>  ", "  <s>", "  <x", "  <x  <x>",
    # Digits and punctuation, also of bytes that look like digits, and words around words.
    "12345678", "x12 345,6789", "a12\u0301345\u0301 712\u0323\u0301 3e\u0301", "1234\u0301\u0323e\u0323\u03016", "\u00bd\u0432\u00b2 м мир \u00be1", "a!!b... \u00a7\u2026\u166d\u061d", "\U00011de0\U00016ff4 $+<=>^`|~", "\u0663\u0664\u0665\u0666",
    "one", "one two", "none one ones", "one_ one-one", "one\u0301 one\u00b2 oneé", "<x>one<x>six", "sixone six  one", "é!one é! aé!é!", "\u24d0one\u200done",
    "one<|endoftext|>one", "one1 1six \u2160one", "six \u3000one.",
    # Blanks that a tokenizer writes as another character, or puts before text.
    "\u2581", "\u2581a", "a\u2581b", "a \u2581 b\u2581\u2581c", "<s>\u2581a", "a\u2581<s>b", "<s><s>a<s>", "a<br>b<x>c</s>d", "<x>\nfoo", "\nfoo",
    "</s></s> \u2581</s>x", "\u2581\u2582 \u2580", "<0x0A> <0xE2>", "\u2581<br>x", "<s>\u0301", "one\u2581two one two", "\r\n\u2581",
    "a\u200b<x>\u200b<s>\u180e", "<br>  <|x|>  <x>  <|endoftext|>", "a " * 9 + " <x>" + " b" * 9, " " * 60 + "<s>" + " " * 60 + "b",
]

ADDED = [
    "<x>", "a<x>", "<x>y", "a<x>y", "<x><x>", "<x", "<xx>", "<x><xy>", "a<x>yz", "<|im_start|>user\nHi<|im_end|>\n", "<|im",
    "<|im_start|>", "<|im_start",
    "<|im_start|><|im_end|>", "one two", "one  two", "none two", "one twofold", "line\nend", "a line\nend.", "line\r\nend",
    "line\n\nend", "the end", "other",
    "  ", "   ", "     ", "      x", " x  y   z    ", "\n  \n", "abc", "abcd", "abcde", "abcdef", "xabcdex", "bcd", "abbcd",
    "ab cd", "aabcdd", "cde<x>",
    "é!", "é!!", "caf\u00e9!", "e\u0301!", "日本!", "日本語!", "👍👍", "👍👍👍", "👍👍👍👍", "<|endoftext|>  <x>", "<x>  <|endoftext|>",
    "y<y", "<y<x>>", "<<x>>", "q<x>", "pq<x>r",
    "<x>one two<x>", "Ġthe", "the", "atheist", " the the", "<s", "<s>", "<s>>", "\t\t", "\t\t\t", "\n\n", "\n\n\n", "a\n\nb",
]


def random_texts(random, count):
    """Words, marks and single code points put together without any care for sense."""
    single = [" ", " ", " ", "\n", "\r\n", "\t", "'", "'s", "'ll", "'RE", "\u00a0", "\u3000", "\u0301", "\u200d",
              "1", "23", "٣", "!", "…", "<x>", "<|endoftext|>"]
    ranges = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xd80), (0xe00, 0x1100),
              (0x1e00, 0x2300), (0x2460, 0x2800), (0x3000, 0x3130), (0x4e00, 0x4f00),
              (0xac00, 0xad00), (0x1d400, 0x1d4ff), (0x1f300, 0x1f650)]
    for _ in range(count):
        parts = []
        for _ in range(random.randrange(2, 14)):
            kind = random.random()
            if kind < 0.35:
                parts.append(random.choice(WORDS))
            elif kind < 0.7:
                parts.append(random.choice(single))
            else:
                parts.append(chr(random.randrange(*random.choice(ranges))))
        yield "".join(parts)


def texts():
    out = PLAIN + ADDED + CODE + list(random_texts(random.Random(3), 60))
    return list(dict.fromkeys(out))


# ---- tokenizers


def split(pattern):
    return pre_tokenizers.Split(pattern if isinstance(pattern, str) else Regex(pattern[0]), "isolated")


def cut(*patterns, use_regex=False):
    """Splits in a row and ByteLevel behind; a text stands for itself, a list of one for an expression."""
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([split(p) for p in patterns] + [last]) if patterns else last


def train(pre_tokenizer, vocab, special, normalizer=None):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(training_text(random.Random(1)), trainer)
    return json.loads(t.to_str())


def train_characters(vocab, pre_tokenizer=None, normalizer=None):
    """As SentencePiece's BPE, in the file that transformers makes of Llama 2's: characters, bytes for those without a token."""
    alphabet = sorted(set("".join(WORDS + CODE + MARKS)) - {" "})[::2] + ["\u2581"]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, show_progress=False, initial_alphabet=alphabet,
                                  limit_alphabet=len(alphabet))
    t.train_from_iterator(training_text(random.Random(1)), trainer)
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    out = json.loads(t.to_str())
    out["added_tokens"] = out["added_tokens"][:3]
    out["normalizer"], out["pre_tokenizer"] = normalizer, None
    return out


def metaspace(t, scheme, split):
    t = json.loads(json.dumps(t))
    t["normalizer"] = None
    t["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
    return t


LLAMA2 = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                              {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}


def with_template(t, before=None, after=None):
    """A post-processor that puts tokens around a text."""
    known = Tokenizer.from_str(json.dumps(t))
    around = lambda text: " ".join(filter(None, [before, text, after]))
    known.post_processor = processors.TemplateProcessing(single=around("$A"), pair=around("$A") + " " + around("$B"),
                                                         special_tokens=[(x, known.token_to_id(x)) for x in (before, after) if x])
    return json.loads(known.to_str())


def joined_merges(t):
    t["model"]["merges"] = [" ".join(pair) for pair in t["model"]["merges"]]
    return t


def shuffled_merges(t):
    """As no training makes them: a pair may come to be that should have been merged before."""
    random.Random(5).shuffle(t["model"]["merges"])
    return t


def shuffled_ids(t):
    vocab = t["model"]["vocab"]
    names = [n for n in vocab if n not in {a["content"] for a in t["added_tokens"]}]
    ids = [vocab[n] for n in names]
    random.Random(6).shuffle(ids)
    vocab.update(zip(names, ids))
    return t


def with_vocab(t, tokens):
    """Tokens that no merge leads to."""
    for token in tokens:
        t["model"]["vocab"].setdefault(token, len(t["model"]["vocab"]))
    return t


def with_added(t, tokens):
    """(text, special, normalized, strips...) each; the ids follow those that are there, or are those of the vocabulary."""
    known = Tokenizer.from_str(json.dumps(t))
    for text, special, normalized, *strips in tokens:
        token = AddedToken(text, special=special, normalized=normalized, **dict.fromkeys(strips, True))
        known.add_special_tokens([token]) if special else known.add_tokens([token])
    return json.loads(known.to_str())


def all_normalized(t):
    for token in t["added_tokens"]:
        token["normalized"] = True
    return t


OVERLAPPING = [(text, special, True) for text, special in [
    ("<x>", True), ("<x", False), ("<x>y", False), ("a<x", False), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|im", False),
    ("one two", False), ("line\nend", False), ("  ", False), ("    ", False), ("abc", False), ("abcde", False), ("bcd", False),
    ("é!", False), ("y<", True), ("the", False), ("\t\t\t", False), ("\n\n", False), ("<s", True), ("<s>", False),
]]

# Looked for before the others, but nowhere in their way.
FIRST = [("日本", True, False), ("👍👍", False, False), ("👍👍👍", True, False)]

# Looked for before "<x" and "abcde", and across them.
ACROSS = [("<x", False, True), ("<x>", True, False), ("abcde", False, True), ("bcd", False, False)]

UNREACHED = ["Ġstrawberry", "strawberry", "Ġstrawberries", "banana", "aaa", "abab", "ĊĊĊ", "123", "Ġ1"]

END = ["<|endoftext|>"]


def with_model(t, **members):
    t["model"].update(members)
    return t


def tokenizers():
    """The tokenizers by name, as their files have them."""
    yield "gpt2", joined_merges(train(cut(use_regex=True), 700, END))
    yield "gpt2-pair", train(cut(use_regex=True), 600, END)
    yield "bloom", train(cut([BLOOM]), 900, ["<unk>", "<s>", "</s>", "<pad>"])
    llama = train(cut([LLAMA3]), 650, [])
    llama = with_added(with_vocab(llama, UNREACHED), [("<|begin_of_text|>", True, False), ("<|end_of_text|>", True, False)])
    yield "llama3", with_model(llama, ignore_merges=True)
    yield "llama3-merges", joined_merges(with_model(json.loads(json.dumps(llama)), ignore_merges=False))
    yield "cl100k", with_added(train(cut([CL100K]), 500, []), [("<|endoftext|>", True, False)])
    yield "o200k", train(cut([O200K]), 500, END)
    yield "three-splits", train(cut([r"\p{N}{1,3}"], [r"[一-龥぀-ゟ゠-ヿ]+"], use_regex=True), 600, END)
    yield "plain-split", train(cut("<br>", [r"\s?\S+|\s+"]), 500, END)
    yield "no-split", train(cut(), 450, END)
    yield "added", with_added(all_normalized(train(cut(use_regex=True), 500, END)), OVERLAPPING + FIRST)
    yield "shuffled", shuffled_ids(shuffled_merges(train(cut(use_regex=True), 600, END)))
    blanks = [("    ", False, True), ("  ", False, True), ("<|x|>", True, False), ("e\u0301!", True, False)]
    yield "nfc", with_added(train(cut(use_regex=True), 600, END, normalizers.NFC()), blanks)
    qwen = train(cut([LLAMA3]), 500, END, normalizers.Sequence([normalizers.NFC()]))
    yield "nfc-split", joined_merges(qwen)
    levels = cut([r"\p{N}{1,3}|[^\p{N}\p{M}]+|\p{M}"], [r"[12]|\s+"])
    yield "nfc-levels", train(levels, 400, END, normalizers.NFC())
    strips = [("<x>", True, False, "lstrip"), ("<br>", False, False, "rstrip"), ("<s>", True, False, "lstrip", "rstrip"),
              ("<|x|>", True, False)]
    yield "strips", with_added(train(cut(use_regex=True), 500, END), strips)
    yield "strips-no-split", with_added(train(cut(), 400, END), strips)
    prefixed = pre_tokenizers.ByteLevel(add_prefix_space=True)
    yield "prefix", with_added(train(prefixed, 500, END), [("<x>", True, False), ("<br>", False, True), ("<s>", True, False, "rstrip")])
    llama2 = train_characters(900, normalizer=LLAMA2)
    yield "llama2", joined_merges(with_template(with_added(llama2, [("<x>", False, False), ("<br>", True, False, "lstrip")]), "<s>"))
    yield "llama2-normalized", all_normalized(with_added(llama2, [("<br>", True, True), ("<x>", False, True)]))
    joins = train_characters(900, pre_tokenizers.Split(Regex(r"\u2581?[^\u2581]*\u2581?[^\u2581]*"), "isolated"), LLAMA2)
    yield "llama2-joins", joins
    yield "metaspace-first", with_added(metaspace(llama2, "first", False), [("<br>", True, False, "lstrip", "rstrip"), ("<x>", False, True)])
    yield "metaspace-always", with_template(with_added(metaspace(llama2, "always", True), [("<x>", False, True)]), "<s>", "</s>")
    yield "metaspace-never", with_added(metaspace(llama2, "never", True), [("<x>", False, False, "rstrip"), ("one two", False, False)])
    falcon = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                      pre_tokenizers.Digits(False), split(["[0-9][0-9][0-9]"])])
    yield "falcon", train(falcon, 700, END)
    starcoder = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("isolated"), cut(use_regex=True)])
    yield "digits", train(starcoder, 600, END)
    words = [("one", False, True, "single_word"), ("<x>", True, False), ("six", False, True, "single_word"),
             ("é!", False, True, "single_word")]
    yield "words", with_added(train(cut(use_regex=True), 500, END), words)
    affixes = dict(continuing_subword_prefix="", end_of_word_suffix="")
    yield "shuffled-no-split", with_model(shuffled_merges(train(cut(), 500, END)), **affixes)


# ---- files


def write_pair(name, t):
    """vocab.json and merges.txt; returns what they mean."""
    folder = FOLDER / name
    folder.mkdir()
    pairs = [tuple(pair) for pair in t["model"]["merges"]]
    (folder / "vocab.json").write_text(json.dumps(t["model"]["vocab"], ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in pairs), encoding="utf-8")
    out = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    out.pre_tokenizer = cut(use_regex=True)
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(END)
    return out


def write_refused():
    """What is right for them and not supported here: the test is that it is said."""
    text = json.dumps(with_added(train(cut(use_regex=True), 300, END), ACROSS), ensure_ascii=False)
    (FOLDER / "refused-across.json").write_text(text + "\n", encoding="utf-8")


def write(name, t):
    if name.endswith("-pair"):
        return write_pair(name, t)
    text = json.dumps(t, ensure_ascii=False, indent=None)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return Tokenizer.from_str(text)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    strings = texts()
    lines = (urllib.parse.quote_from_bytes(s.encode(), safe="/<>|!?.,;:()[]{}'=+*#&@") + "\n" for s in strings)
    (FOLDER / "strings.txt").write_text("".join(lines), encoding="ascii")
    for name, t in tokenizers():
        ids = [e.ids for e in write(name, t).encode_batch(strings, add_special_tokens=False)]
        (FOLDER / f"{name}.ids").write_text("".join(" ".join(map(str, row)) + "\n" for row in ids), encoding="ascii")
        print(f"{name:20} {sum(map(len, ids)):6} ids of {len(strings)} texts")
    write_refused()


if __name__ == "__main__":
    main()
