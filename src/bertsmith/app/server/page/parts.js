// The small things that all views are made of.

let made = 0;
const touches = matchMedia("(hover: none)");

/** What one does to a thing to see more of it: "Point at", or "Tap" where nothing can hover. */
export function pointAt() {
  return touches.matches ? "Tap" : "Point at";
}

/** An element. Properties beginning with "on" are listeners, "text" is its text, "shares" are custom properties. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (name === "shares") for (const [key, share] of Object.entries(value)) element.style.setProperty(`--${key}`, share);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** What the model says first of all, and what follows it in the same line. */
export function verdict(text, rest = "") {
  return make("p", { class: "verdict" }, make("strong", { text }), rest);
}

/** A sentence about an answer. */
export function remark(text) {
  return make("p", { class: "remark", text });
}

/** A small button. */
export function chip(text, onclick) {
  return make("button", { type: "button", class: "chip", text, onclick });
}

/** The lines of a text that are not blank. */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** An id that nothing else on the page has. */
export function newId(name) {
  made += 1;
  return `${name}-${made}`;
}

/** "41.2%", and "<0.1%" for what would be shown as nothing. */
export function percent(share) {
  const least = 0.001;
  const format = new Intl.NumberFormat(undefined, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
  return share > 0 && share < least / 2 ? `<${format.format(least)}` : format.format(share);
}

/** Each share as a percentage; those of a whole add up to 100.0%, by largest remainders. */
export function percents(shares) {
  const exact = shares.map((share) => 1000 * share);
  const missing = 1000 - exact.reduce((sum, value) => sum + Math.floor(value), 0);
  const isWhole = Math.abs(shares.reduce((sum, share) => sum + share, 0) - 1) < 0.0005;
  if (!isWhole || missing < 0) return shares.map(percent);
  const rest = (place) => exact[place] - Math.floor(exact[place]);
  const raised = new Set([...exact.keys()].sort((a, b) => rest(b) - rest(a)).slice(0, missing));
  return exact.map((value, place) => {
    const tenths = Math.floor(value) + raised.has(place);
    return percent(tenths ? tenths / 1000 : Math.min(shares[place], 0.0004)); // what is not nothing is not shown as that
  });
}

/** A number with that many decimals; never a negative zero. */
export function decimal(value, digits = 3) {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay: "negative" };
  return new Intl.NumberFormat(undefined, options).format(value);
}

/** A count with its noun: "1 token", "1,200 tokens". */
export function count(number, noun) {
  return `${new Intl.NumberFormat().format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Labels with their shares as bars, in the order given; `best` labels stand out. "long" labels stand above theirs. */
export function bars(shares, best = [], kind = "") {
  const told = percents(shares.map(([, share]) => share));
  const rows = shares.map(([label, share], place) =>
    make(
      "li",
      { class: best.includes(label) ? "best" : null },
      make("span", { class: "label", text: label }),
      make("span", { class: "track", "aria-hidden": "true" }, make("span", { class: "bar", shares: { share } })),
      make("span", { class: "number", text: told[place] }),
    ),
  );
  return make("ul", { class: `bars ${kind}` }, ...rows);
}

/**
 * A text with marked spans; begin and end count characters as the server does, by code point. A span inside another one
 * is marked inside it; of two that overlap otherwise, the first one is marked.
 */
export function marked(text, spans) {
  const letters = Array.from(text);
  const sorted = [...spans].sort((a, b) => a.begin - b.begin || b.end - a.end);
  const within = (begin, end) => {
    const parts = [];
    let position = begin;
    while (sorted.length && sorted[0].begin < end) {
      const span = sorted.shift();
      if (span.begin < position || span.end > end) continue;
      parts.push(letters.slice(position, span.begin).join(""));
      const note = span.note ? make("span", { class: "type", text: span.note }) : null;
      parts.push(make("mark", { title: span.title, tabindex: span.title && 0 }, ...within(span.begin, span.end), note));
      position = span.end;
    }
    return [...parts, letters.slice(position, end).join("")];
  };
  return make("p", { class: "text" }, ...within(0, letters.length));
}

/** A word piece, its "##" set back; a special one is underlined. */
export function piece(text, special) {
  const continues = text.startsWith("##") && text.length > 2;
  const inside = continues ? [make("span", { class: "hashes", text: "##" }), text.slice(2)] : [text];
  return make("span", { class: special ? "piece special" : "piece", title: special && "special token" }, ...inside);
}

/** The sentences to read with an answer, each in a paragraph. */
export function notes(...sentences) {
  return sentences.filter(Boolean).map((text) => make("p", { class: "note", text: `${text[0].toUpperCase()}${text.slice(1)}.` }));
}

/** How many tokens were received, read and truncated; if any were truncated, also the sentence on the limit. */
export function usageLine(usage, milliseconds, limit = "") {
  const came = usage?.tokens_in ?? usage?.prompt_tokens;
  const time = `${Math.max(1, Math.round(milliseconds))} ms`;
  if (came === undefined) return make("p", { class: "usage", text: time });
  const cut = usage.tokens_cut ?? 0;
  if (!cut) return make("p", { class: "usage", text: `${count(came, "token")} received, none truncated · ${time}` });
  const used = usage.tokens_used ?? came - cut;
  const said = `${count(came, "token")} received, ${used} read, ${cut} truncated.`;
  return make("p", { class: "usage cut" }, make("strong", { text: said }), ` ${limit} ${time}`);
}
