// Text to pieces of words: the rules of BERT's tokenizer, with the place of each piece in the text.

const REMOVED = /^[\p{Cc}\p{Cf}\u{fffd}]$/u;
const SPACE = /^\s$/u;
const PUNCTUATION = /^[!-/:-@[-`{-~\p{P}]$/u;
const CHINESE = new RegExp("^[\u{3400}-\u{4dbf}\u{4e00}-\u{9fff}\u{f900}-\u{faff}"
  + "\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b820}-\u{2ceaf}"
  + "\u{2f800}-\u{2fa1f}]$", "u");
const NO_WORD = -1;  // of the tokens that start and end a text

class Tokenizer {
  /** @param options The object that `tokenizer_data` in playground.py returns. */
  constructor(options) {
    Object.assign(this, options);
    this.ids = new Map(this.tokens.map((token, id) => [token, id]));
    [this.padId, this.unknownId, this.startId, this.endId, this.maskId] =
      this.standardTokens.map(token => this.ids.get(token));
    this.accents = this.likeGoogle ? /\p{Mn}/gu : /[\p{Mn}\u{1734}]/gu;
    this.isLetter = this.test(this.letters);
    this.isPunctuation = this.test(this.punctuation);
    this.specials = this.specialTokens();
  }

  /** Return a function that tells whether a character is one of the given code points. */
  test(codes) {
    const found = new Set(codes);
    return c => found.has(c.codePointAt(0));
  }

  /** Return an expression for the tokens that stay whole in a text; the longest come first. */
  specialTokens() {
    if (this.splitSpecials) return null;
    const all = [...this.ownTokens, ...this.standardTokens, "[UNK]"];
    all.sort((a, b) => b.length - a.length);
    const escaped = c => `\\u{${c.codePointAt(0).toString(16)}}`;
    return new RegExp(all.map(token => Array.from(token, escaped).join("")).join("|"), "gu");
  }

  /**
   * Return the pieces of a text, with the tokens that start and end it:
   * `{id, token, word, start, end}`, with the number of the word and the place in the text.
   */
  tokenize(text) {
    const pieces = [];
    let word = 0, place = 0;
    const addWords = part => {
      for (const characters of this.words(part, place)) {
        for (const piece of this.split(characters)) pieces.push({ ...piece, word });
        word++;
      }
      place += part.length;
    };
    for (const match of this.specials ? text.matchAll(this.specials) : []) {
      addWords(text.slice(place, match.index));
      const id = this.ids.get(match[0]) ?? this.unknownId;
      pieces.push({ ...this.piece(id, place, place + match[0].length), word: word++ });
      place += match[0].length;
    }
    addWords(text.slice(place));
    const ends = [this.piece(this.startId, 0, 0), this.piece(this.endId, place, place)];
    return [{ ...ends[0], word: NO_WORD }, ...pieces, { ...ends[1], word: NO_WORD }];
  }

  piece(id, start, end) {
    return { id, token: this.tokens[id], start, end };
  }

  /** Return the words of a text that starts at `place`: lists of `{c, start, end}`. */
  words(text, place) {
    const words = [];
    let isInWord = false;
    for (const character of this.normalized(text, place)) {
      const { c } = character;
      const isSpace = SPACE.test(c);
      const isSign = PUNCTUATION.test(c) || (this.splitChinese && CHINESE.test(c));
      const isAlone = this.isPunctuation(c) || (isSign && !this.isLetter(c));
      if (isSpace || isAlone) isInWord = false;
      if (isSpace) continue;
      if (isInWord) words.at(-1).push(character);
      else words.push([character]);
      isInWord = !isAlone;
    }
    return words;
  }

  /** Return the normalized characters of a text, each with its place in the original. */
  normalized(text, place) {
    const kept = [];
    for (const c of text) {
      const start = place;
      place += c.length;
      const isPrivate = !this.likeGoogle && /^\p{Co}$/u.test(c);
      const isControl = REMOVED.test(c) && !/[\t\n\r]/.test(c) && !this.isLetter(c);
      if (!isControl && !isPrivate) kept.push({ c, start, end: place });
    }
    if (this.lowercase) this.lower(kept);
    return kept.flatMap(({ c, start, end }) => {
      const isKept = !this.stripAccents || this.isLetter(c) || this.isPunctuation(c);
      const bare = isKept ? c : c.normalize("NFD").replace(this.accents, "");
      return Array.from(bare, c => ({ c, start, end }));
    });
  }

  /** Lowercase characters in place. With Google's rules, a sigma at the end of a word is final. */
  lower(characters) {
    const whole = characters.map(({ c }) => c).join("").toLowerCase();
    let place = 0;
    for (const character of characters) {
      const alone = character.c.toLowerCase();
      const inContext = whole.slice(place, place += alone.length);
      if (!this.isLetter(character.c)) character.c = this.likeGoogle ? inContext : alone;
    }
  }

  /** Split a word into the longest pieces of the vocabulary. */
  split(characters) {
    const [first, last] = [characters[0], characters.at(-1)];
    const unknown = [this.piece(this.unknownId, first.start, last.end)];
    if (characters.length > this.maxCharacters) return unknown;
    const pieces = [];
    for (let start = 0, end; start < characters.length; start = end) {
      let id;
      for (end = characters.length; end > start; end--) {
        const text = characters.slice(start, end).map(({ c }) => c).join("");
        id = this.ids.get(start ? `##${text}` : text);
        if (id !== undefined) break;
      }
      if (id === undefined) return unknown;
      pieces.push(this.piece(id, characters[start].start, characters[end - 1].end));
    }
    return pieces;
  }
}
