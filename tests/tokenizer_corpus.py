# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""Strings for tokenizer tests, the same ones in every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# One remark about a lamp in a tower, in thirty languages.
LANGUAGES = {
    "Arabic": "في البرج القديم مصباحٌ لا ينطفئ أبدًا، حتى في ليلة ٢٣ من الشتاء.",
    "Bengali": "পুরনো মিনারে একটি প্রদীপ আছে, যা কখনও নেভে না — ১২টি রাতেও না।",
    "Bulgarian": "В старата кула има лампа, която никога не угасва.",
    "Chinese": "古老的塔楼里有一盏灯，三百年来从未熄灭过。",
    "Czech": "Ve staré věži je lampa, která nikdy nezhasne; říká se, že je kouzelná.",
    "Danish": "I det gamle tårn står der en lampe, som aldrig går ud.",
    "Dutch": "In de oude toren staat een lamp die nooit dooft, zelfs niet 's nachts.",
    "English": "There's a lamp in the old tower that never goes out, and we'll see it tonight.",
    "Finnish": "Vanhassa tornissa on lamppu, joka ei koskaan sammu.",
    "French": "Dans la vieille tour brûle une lampe qui ne s'éteint jamais : l'été comme l'hiver.",
    "Georgian": "ძველ კოშკში არის ლამპა, რომელიც არასოდეს ქრება.",
    "German": "Im alten Turm steht eine Lampe, die nie erlischt – größer als jede Straßenlaterne.",
    "Greek": "Στον παλιό πύργο υπάρχει μια λάμπα που δεν σβήνει ποτέ.",
    "Hebrew": "במגדל הישן יש מנורה שאינה כבה לעולם, גם לא בשעה 12.",
    "Hindi": "पुराने मीनार में एक दीपक है जो कभी नहीं बुझता।",
    "Hungarian": "A régi toronyban van egy lámpa, amely soha nem alszik ki.",
    "Indonesian": "Di menara tua ada lampu yang tidak pernah padam.",
    "Italian": "Nella vecchia torre c'è una lampada che non si spegne mai.",
    "Japanese": "古い塔には、決して消えないランプがあります。ガラスがきらきら光る。",
    "Korean": "오래된 탑에는 절대 꺼지지 않는 등불이 있다. 값은 1,200원.",
    "Persian": "در برج کهنه چراغی هست که هیچ‌گاه خاموش نمی‌شود.",
    "Polish": "W starej wieży jest lampa, która nigdy nie gaśnie.",
    "Portuguese": "Na velha torre há uma lâmpada que nunca se apaga.",
    "Russian": "В старой башне есть лампа, которая никогда не гаснет, даже в 1999 году.",
    "Spanish": "En la vieja torre hay una lámpara que nunca se apaga. ¿La has visto?",
    "Swedish": "I det gamla tornet finns en lampa som aldrig slocknar.",
    "Tamil": "பழைய கோபுரத்தில் ஒருபோதும் அணையாத விளக்கு உள்ளது.",
    "Thai": "ในหอคอยเก่ามีโคมไฟที่ไม่เคยดับ",
    "Turkish": "Eski kulede hiç sönmeyen bir lamba var; ışığı İstanbul'dan görülür.",
    "Vietnamese": "Trong tòa tháp cổ có một ngọn đèn không bao giờ tắt ở Việt Nam.",
}
EMOJI = ("👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️‍🔥 👨🏿‍🚀 ☝🏻 🧑🏼‍🤝‍🧑🏾 1️⃣ #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 😀 🫱🏻‍🫲🏿 ™️ ⌚ 🤷🏽‍♀️ ©️ 🀄 🧟‍♂️ 🐻‍❄️").split(
    " "
)
# What pre-tokenizers decide on: spaces of all kinds, breaks, quotes, digits of all kinds, letters, marks.
TRICKY = [
    *"  \t\n\r\v\f'’\"aSsTtRrEeVvMmLlDdıſKé9012",
    *"\u00a0\u0085\u1680\u2003\u2028\u2029\u202f\u3000\u200b\u200d\ufeff\u180e",
    *"²½Ⅷ٣०三〇㊿𝟙\U00011de5",
    *"\u0301\u0327\u0345\u0323\u093c\u200c\ufe0f\u3099",
    *"-.,!?_/\\(){}[]<>|=+*&^%$#@~`—…“”«»。、",
    *"äßñאبক한中ꙁ𐐷𓀀\u10ff\ufffd\u0378\ue000",
    "\r\n",
    "\n\n",
    "  ",
    "'s",
    "'LL",
    "'ſ",
]
# Characters with decompositions, compositions, exclusions and marks of many classes; jamo.
COMPOSING = [
    *"aeiouAEcnyzsﬁÅΩK",
    *"\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030c\u0323\u0327\u0328\u0331\u0338\u0340\u0341\u0343\u0344\u0345",
    *"\u05b0\u05bc\u05c1\u064b\u0651\u0653\u0654\u0655اوي\u0591",
    *"\u0915\u093c\u0928\u0929\u0958\u09c7\u09be\u09d7\u0bc6\u0bbe\u0dd9\u0dca\u0dcf\u1025\u102e\u0f71\u0f72\u0f74\u0f80",
    *"\u1100\u1112\u1161\u1175\u11a8\u11c2\u11a7가각힣한",
    *"かカ\u3099\u309a\ufb2c\ufb1f\u2adc\U0001d15e\U0001d165\U0001d16e\U000110ba\U00011099\U00011938\U00011935\U00011930",
    *"\u1e9b\u1fbe\u1f82\u0390\u03b0\uf900\U0002f800\u212b\u2126\u0374\u037e\u0387",
]


def _pick(rng: random.Random, pool: list[str], low: int, high: int) -> str:
    return "".join(rng.choice(pool) for _ in range(rng.randint(low, high)))


def _scalar(rng: random.Random) -> str:
    limit = rng.choice((0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x110000))
    code = rng.randrange(limit)
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)


def _unicode(rng: random.Random) -> str:
    """Any characters, assigned or not; at times a run within one block."""
    if rng.random() < 0.4:
        start = ord(_scalar(rng))
        codes = (min(start + rng.randrange(64), 0x10FFFF) for _ in range(rng.randint(1, 30)))
        return "".join("\ufffd" if 0xD800 <= c <= 0xDFFF else chr(c) for c in codes)
    return "".join(_scalar(rng) for _ in range(rng.randint(1, 30)))


def _language(rng: random.Random) -> str:
    text = rng.choice(list(LANGUAGES.values()))
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 60)] + rng.choice(("", " ", "\n", "\r\n", "!"))


def _emoji(rng: random.Random) -> str:
    text = "".join(rng.choice(EMOJI) + rng.choice(("", " ", "x")) for _ in range(rng.randint(1, 6)))
    return text[rng.randrange(len(text)) :]


def _code_sampler() -> Callable[[random.Random], str]:
    files = sorted(
        [*ROOT.glob("c_abi/text/*.cpp"), *ROOT.glob("tests/*.py"), *ROOT.glob("include/superslm/*.h")]
    )
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)

    def sample(rng: random.Random) -> str:
        start = rng.randrange(len(text))
        part = text[start : start + rng.randint(1, 160)]
        return part.replace("\n", "\r\n") if rng.random() < 0.3 else part

    return sample


def _numbers(rng: random.Random) -> str:
    shapes = (
        lambda: str(rng.randrange(10 ** rng.randint(1, 30))),
        lambda: f"{rng.random():.{rng.randint(1, 12)}f}",
        lambda: hex(rng.getrandbits(rng.randint(1, 64))),
        lambda: f"{rng.randrange(10**9):,}",
        lambda: "".join(rng.choice("0123456789٣०Ⅷ²") for _ in range(rng.randint(1, 12))),
    )
    return (
        rng.choice(("", " ", "  ", "x", "$")) + rng.choice(shapes)() + rng.choice(("", " ", "a", ".", "\n"))
    )


def _breaks(rng: random.Random) -> str:
    pool = ["\r\n", "\n", "\r", " ", "  ", "\t", "word", "Word", "7", ".", "...\n", "\n \n", "don't", "I'LL"]
    return _pick(rng, pool, 1, 12)


def strings(count: int, specials: list[str]) -> Iterator[tuple[str, str]]:
    """(kind, text) pairs: `count` of them, spread evenly over the kinds. `specials`: added tokens' texts."""
    rng = random.Random(20240229)
    code = _code_sampler()

    def special(rng: random.Random) -> str:
        pieces = [rng.choice(specials) for _ in range(rng.randint(1, 3))]
        cut = rng.choice(specials)
        pieces.append(cut[: rng.randrange(len(cut) + 1)])
        pieces += [_pick(rng, TRICKY, 0, 4) for _ in range(3)]
        rng.shuffle(pieces)
        return "".join(pieces)

    kinds: dict[str, Callable[[random.Random], str]] = {
        "unicode": _unicode,
        "tricky": lambda r: _pick(r, TRICKY, 1, 16),
        "composing": lambda r: _pick(r, COMPOSING, 1, 20),
        "language": _language,
        "emoji": _emoji,
        "code": code,
        "numbers": _numbers,
        "breaks": _breaks,
        "special": special,
    }
    names = list(kinds)
    for i in range(count):
        name = names[i % len(names)]
        yield name, kinds[name](rng)


def byte_strings(count: int) -> Iterator[bytes]:
    """Texts with bytes that are part of no character: lone, cut short, overlong, surrogates, beyond Unicode."""
    rng = random.Random(19700101)
    broken = [
        *(bytes([b]) for b in range(0x80, 0x100)),
        "é".encode()[:1],
        "€".encode()[:1],
        "€".encode()[:2],
        "😀".encode()[:3],
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ]
    for i in range(count):
        if i % 4 == 0:
            yield rng.randbytes(rng.randint(1, 40))
            continue
        parts = [rng.choice(broken) for _ in range(rng.randint(1, 4))]
        parts += [_pick(rng, TRICKY, 0, 5).encode() for _ in range(4)]
        rng.shuffle(parts)
        yield b"".join(parts)
