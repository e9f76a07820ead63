"""Replacements for code points that TensorFlow's ops handle differently from the tokenizers.

Each uses a different version of Unicode. Google's tokenizer uses the version of Python. TensorFlow
uses Unicode 13 for lowercasing and newer versions in its other ops. Hugging Face's tokenizer
(tokenizers 0.23.3) uses a newer version for lowercasing and Unicode 8 for categories. The maps in
this module go from code point to code point. A private-use code point represents a letter that no
op changes.

Two differences remain. Hugging Face's tokenizer reorders two adjacent combining marks that are
newer than Unicode 8 and not in canonical order. Google's tokenizer may choose a different sigma for
a capital sigma beside a character newer than Unicode 13.
"""

import itertools
import unicodedata
from collections.abc import Iterable, Iterator

NUM_CODES = 0x110000  # code points of Unicode
_REMOVED = 0x02  # a control character, which cleaning removes
_FIRST_PRIVATE = 0xE000
_END_OF_LETTERS = 0x32400  # only symbols and private-use characters follow

# Capitals that TensorFlow does not lowercase, and the lowercase letter of the first.
_CAPITALS = """
1C89:1C8A 2C2F:2C5F A7C0:A7C1 A7CB:264 A7CC:A7CD A7CE:A7CF A7D0:A7D1 A7D2:A7D3 A7D4:A7D5 A7D6:A7D7
A7D8:A7D9 A7DA:A7DB A7DC:19B 10570-1057A:10597 1057C-1058A:105A3 1058C-10592:105B3
10594-10595:105BB 10D50-10D65:10D70 16EA0-16EB8:16EBB
"""
# Characters that Hugging Face treats as plain letters. In newer versions of Unicode they are
# punctuation, Chinese characters, accents, format characters, or letters that decompose or are
# reordered.
_HUGGING_FACE_LETTERS = """
61D 7FD 890-891 898-89F 8CA-8E2 9FD-9FE A76 AFA-AFF B55 C04 C3C C77 C84 D00 D3B-D3C D81 EBA ECE
1715 180F 1885-1886 1ABF-1ACE 1B4E-1B4F 1B7D-1B7F 1DF6-1DFB 2E43-2E4F 2E52-2E5D A82C A8C5 A8FF
A9BD 105C9 105E4 10D24-10D27 10D6E 10EAB-10EAD 10EFD-10EFF 10F46-10F50 10F55-10F59 10F82-10F89
11070 11073-11074 110C2 110CD 111CF 1123E 11241 1133B 11383 11385 1138E 11391 113C5 113C7-113C8
113CE-113D0 113D4-113D5 113D7-113D8 11438-1143F 11442-11444 11446 1144B-1144F 1145A-1145B
1145D-1145E 11660-1166C 116B9 1182F-11837 11839-1183B 11938 1193B-1193E 11943-11946 119D4-119D7
119DA-119DB 119E0 119E2 11A01-11A0A 11A33-11A38 11A3B-11A47 11A51-11A56 11A59-11A5B 11A8A-11A96
11A98-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C30-11C36 11C38-11C3D 11C3F 11C41-11C45 11C70-11C71
11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47
11D90-11D91 11D95 11D97 11EF3-11EF4 11EF7-11EF8 11F00-11F01 11F36-11F3A 11F40-11F4F 11FFF
12FF1-12FF2 13430-13440 13447-13455 16121-16128 1612F 16D68-16D6A 16D6D-16D6F 16E97-16E9A 16F4F
16FE2 16FE4 16FF0-16FF1 1CF00-1CF2D 1CF30-1CF46 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024
1E026-1E02A 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5FF 1E944-1E94A 1E95E-1E95F
2B820-2B91F
"""
# Characters that only Hugging Face treats as punctuation. TensorFlow's ops treat the replacements
# as Chinese characters, and Hugging Face treats them as letters.
_HUGGING_FACE_PUNCTUATION = {0x166D: 0x2B820, 0x111C9: 0x2B821}
_HUGGING_FACE_ACCENT = 0x1734
# Marks that are no accents but may move in a decomposition, and the characters that contain them.
# Hugging Face's tokenizer gives tokens with them other offsets.
_MOVED_MARKS = """
1B44 1BAA 1BF2-1BF3 302E-302F A953 A9C0 111C0 11235 1134D 116B6 1D15E-1D166 1D16D-1D172 1D1BB-1D1C0
"""
# Marks that Hugging Face's StripAccents keeps, and others that it removes. It uses Unicode 9.
_KEPT_MARKS = """
7FD 898-89F 8CA-8D3 9FE AFA-AFF B55 C04 C3C CF3 D00 D3B-D3C D81 EBA ECE 1715 180F 1ABF-1ACE 1CF7
1DF6-1DFA A82C A8FF 10D24-10D27 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074
110C2 11145-11146 111C9 111CE-111CF 11241 1133B 1145E 1182C-1183A 11930-11943 119D1-119E4
11A01-11A0A 11A33-11A39 11A3B-11A3E 11A47 11A51-11A5B 11A8A-11A99 11D31-11D47 11D8A-11D97
11EF3-11EF6 11F00-11F03 11F34-11F42 13440 13447-13455 16F4F 16F7F-16F87 16FE4 16FF0-16FF1
1CF00-1CF2D 1CF30-1CF46 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF
"""
_OTHER_MARKS = "1CF2-1CF3"
# Capitals that some locales lowercase to a letter with an additional dot.
_DOTTED = {ord(capital): ord(capital.lower()) for capital in "ÌÍĨĮ"}
CHINESE = (
    "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
)
# Characters that Hugging Face's normalization forms (NFC, NFD, NFKC, NFKD) do not change, move or
# join with others. In the version of Unicode that TensorFlow uses for these forms, they do.
_INERT = """
7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA 32FF A7F2-A7F4 A82C AB69 105C9
105D2 105DA 105E4 10781-10785 10787-107B0 107B2-107BA 10D24-10D27 10D69-10D6D 10EAB-10EAC
10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11382-11385 1138B 1138E 11390-11391 113B8 113BB
113C2 113C5 113C7-113C9 113CE-113D0 1145E 11839-1183A 11930 11935 11938 1193D-1193E 11943 119E0
11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 1611E-16129 1612F 16D63 16D67-16D6A
16FF0-16FF1 1CCD6-1CCF9 1E030-1E06D 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF
1F16C 1FBF0-1FBF9
"""
# Letters and numbers of Hugging Face's byte-level tokenizers (Unicode 16) that are not assigned in
# Unicode 14, the version of Python 3.11.
_NEW_LETTERS = """
1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 1123F-11240
11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33
1342F 13441-13446 13460-143FA 16100-1611D 16D40-16D6C 18CFF 1B132 1B155 1DF25-1DF2A 1E030-1E06D
1E4D0-1E4EB 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF
"""
_NEW_NUMBERS = """
10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1D2C0-1D2D3
1E4F0-1E4F9 1E5F1-1E5FA
"""
# Characters of words and numbers of the pre-tokenizers Whitespace and Digits, likewise.
_NEW_IN_WORDS = """
897 CF3 ECE 24B6-24E9 10D40-10D49 10D69-10D6D 10EFC-10EFF 11241 113B8-113C0 113C2 113C5 113C7-113CA
113CC-113D0 113D2 113E1-113E2 116D0-116E3 11BF0-11BF9 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42
11F50-11F5A 13440 13447-13455 1611E-16139 16D70-16D79 1CCF0-1CCF9 1E08F 1E4EC-1E4F9 1E5EE-1E5EF
1E5F1-1E5FA 1F130-1F149 1F150-1F169 1F170-1F189 200C-200D
"""
_NEW_DIGITS = "11DE0-11DE9 16FF4-16FF6"
_WHITE_SPACE = "9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000"
_SIGMA, _SMALL_SIGMA = 0x3A3, 0x3C3  # Hugging Face has no final sigma


def used_codes() -> Iterator[int]:
    """Yield the code points that may be letters, marks or format characters.

    The rest is private or unassigned.
    """
    return itertools.chain(range(0x30000), range(0xE0000, 0xE1000))


def stand_ins(compat: str, tokenize_chinese_chars: bool) -> dict[int, int]:
    """Return the replacements for code points in both the texts and the vocabulary."""
    if compat == "google":
        return {}
    letters = enumerate(code_points(_HUGGING_FACE_LETTERS), _FIRST_PRIVATE)
    new = {letter: private for private, letter in letters} | _HUGGING_FACE_PUNCTUATION
    if tokenize_chinese_chars:
        return new
    private = (code for code in itertools.count(0xF0000) if code & 0xFFFF < 0xFFFE)
    return {code: next(private) for code in code_points(CHINESE)} | new


def replacements(
    compat: str, lowercase: bool, strips_accents: bool, tokenize_chinese_chars: bool
) -> dict[int, int]:
    """Return the replacements for code points of a text before TensorFlow's ops process it."""
    same = stand_ins(compat, tokenize_chinese_chars)
    if strips_accents and not tokenize_chinese_chars:
        # NFD would decompose compatibility characters, but not their private-use replacements.
        for code in code_points(CHINESE):
            same[code] = same[ord(unicodedata.normalize("NFD", chr(code)))]
    if compat == "huggingface" and strips_accents:
        same[_HUGGING_FACE_ACCENT] = _REMOVED
    if not lowercase:
        return same
    small = {capital: same.get(letter, letter) for capital, letter in _new_capitals()}
    if compat == "huggingface":
        small[_SIGMA] = _SMALL_SIGMA
    if not strips_accents:
        small |= _DOTTED
    return small | same


def disputed_characters() -> set[int]:
    """Return the characters that the tokenizers treat differently, apart from private-use ones."""
    letters, marks = code_points(_HUGGING_FACE_LETTERS), code_points(_MOVED_MARKS)
    return {*letters, *marks, *_HUGGING_FACE_PUNCTUATION, _HUGGING_FACE_ACCENT, _SIGMA}


def lowercase_of() -> dict[int, str]:
    """Return the characters that Hugging Face's Lowercase replaces, each on its own."""
    pairs = ((code, chr(code).lower()) for code in used_codes())
    small = {code: text for code, text in pairs if text != chr(code)}
    return small | {capital: chr(letter) for capital, letter in _new_capitals()}


def accents() -> set[int]:
    """Return the characters that Hugging Face's StripAccents removes."""
    marks = {code for code in used_codes() if unicodedata.category(chr(code))[0] == "M"}
    return marks.difference(code_points(_KEPT_MARKS)).union(code_points(_OTHER_MARKS))


def _new_capitals() -> Iterator[tuple[int, int]]:
    for part in _CAPITALS.split():
        capitals, _, first = part.partition(":")
        yield from zip(code_points(capitals), itertools.count(int(first, 16)))


def inert_characters() -> set[int]:
    """Return the characters that normalization forms must not change, move or join with others."""
    return set(code_points(_INERT))


def white_space() -> set[int]:
    """Return the characters with the property White_Space."""
    return set(code_points(_WHITE_SPACE))


def letters_and_numbers() -> tuple[set[int], set[int]]:
    """Return the letters and the numbers of Hugging Face's byte-level tokenizers."""
    categories = [unicodedata.category(chr(code))[0] for code in range(_END_OF_LETTERS)]
    letters = {code for code, category in enumerate(categories) if category == "L"}
    numbers = {code for code, category in enumerate(categories) if category == "N"}
    return letters.union(code_points(_NEW_LETTERS)), numbers.union(code_points(_NEW_NUMBERS))


def word_classes() -> tuple[set[int], set[int], set[int]]:
    """Return the characters of words, the numbers and the punctuation of Hugging Face's steps."""
    categories = {code: unicodedata.category(chr(code)) for code in used_codes()}
    letters, numbers = letters_and_numbers()
    words = {c for c, of in categories.items() if of[0] == "M" or of in ("Nd", "Nl", "Pc")}
    marks = {code for code, of in categories.items() if of[0] == "P"} | {*map(ord, "$+<=>^`|~")}
    return (
        words.union(letters, code_points(_NEW_IN_WORDS)),
        numbers.union(code_points(_NEW_DIGITS)),
        marks.difference(code_points(_HUGGING_FACE_LETTERS)).union(_HUGGING_FACE_PUNCTUATION),
    )


def character_class(codes: Iterable[int]) -> str:
    """Return code points as ranges of a regular expression."""
    runs = itertools.groupby(enumerate(sorted(codes)), lambda item: item[1] - item[0])
    ranges = [[code for _, code in run] for _, run in runs]
    return "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in ranges)


def code_points(ranges: str) -> Iterator[int]:
    """Yield the code points of ranges such as `"9-D 20"`, in hexadecimal."""
    for part in ranges.split():
        first, _, last = part.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)
