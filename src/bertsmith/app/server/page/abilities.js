// What the page offers for each ability of a model: the fields, the request, and how the answer is shown.

import { Refused } from "./api.js";
import { picture } from "./attention.js";
import * as examples from "./examples.js";
import { bars, count, decimal, lines, make, marked, percent, piece, pointAt, remark, verdict } from "./parts.js";
import { OF_RECORDS } from "./records.js";

const FIRST = { name: "text", label: "Text", rows: 3 };
const SECOND = { name: "pair", label: "Second text", rows: 3 };
const LINES = { rows: 5, hint: "one per line" };

export const ABILITIES = [
  {
    id: "fill",
    group: "Pre-trained",
    needs: "fill",
    title: "Fill the mask",
    says: "Put [MASK] where a word is missing. The model predicts which word pieces belong there.",
    button: "Fill",
    path: "fill",
    fields: () => [{ ...FIRST, inserts: "[MASK]" }],
    examples: () => examples.GAPS,
    body: ({ text }) => ({ texts: [text], top: 5 }),
    show: showFillings,
  },
  {
    id: "complete",
    group: "Pre-trained",
    needs: "complete",
    title: "Complete",
    says: "The word pieces that the model expects next, and how it continues the text.",
    button: "Complete",
    path: "complete",
    fields: () => [FIRST],
    examples: () => examples.BEGINNINGS,
    body: ({ text }) => ({ texts: [text], top: 8, tokens: 24, top_p: 0.9 }),
    draft: { max_tokens: 24, top_p: 0.9 },
    show: showCompletion,
  },
  {
    id: "next",
    group: "Pre-trained",
    needs: "next_sentence",
    title: "Next sentence",
    says: "How likely is it that the second text follows the first?",
    button: "Predict",
    path: "next",
    fields: () => [FIRST, SECOND],
    examples: () => examples.CONTINUATIONS,
    body: ({ text, pair }) => ({ pairs: [[text, pair]] }),
    show: ({ predictions: [{ probability, relation }] }) => {
      const [yes, no] = relation === "in order" ? ["In order", "Swapped"] : ["It follows", "It does not"];
      return [bars([[yes, probability], [no, 1 - probability]], [probability >= 0.5 ? yes : no])];
    },
  },
  {
    id: "classify",
    group: "Fine-tuned",
    needs: "classify",
    title: "Classify",
    says: "The label that the model gives to a text, and the probabilities of all labels.",
    button: "Classify",
    path: "predict",
    tellsLabels: true,
    fields: labelFields,
    examples: examples.forLabels,
    body: (written) => ({ ...textBody(written), ...promised(written) }),
    show: showLabels,
  },
  {
    id: "score",
    group: "Fine-tuned",
    needs: "score",
    title: "Rate",
    says: "A number for a text or a pair of texts, on the scale of the training data.",
    button: "Rate",
    path: "predict",
    fields: textFields,
    examples: (model) => (readsPairs(model) === "no" ? examples.REVIEWS : examples.PAIRS),
    body: textBody,
    show: ({ predictions: [{ value }] }) => [make("p", { class: "value", text: decimal(value, 2) })],
  },
  {
    id: "choose",
    group: "Fine-tuned",
    needs: "choose",
    title: "Choose",
    says: "Which ending goes best with a beginning?",
    button: "Choose",
    path: "predict",
    fields: () => [{ ...FIRST, label: "Beginning", rows: 2 }, { ...LINES, name: "endings", label: "Endings" }],
    examples: () => examples.ENDINGS,
    body: ({ text, endings }) => ({ questions: [{ context: text, endings: lines(endings) }] }),
    show: showChoice,
  },
  {
    id: "tag",
    group: "Fine-tuned",
    needs: "tag",
    title: "Entities",
    says: "Names and other entities, marked in the text.",
    button: "Mark",
    path: "tag",
    tellsLabels: true,
    fields: ({ task, labels }) => [
      { ...FIRST, rows: 4 },
      ...(task === "entities-by-name"
        ? [{ ...LINES, name: "labels", label: "Labels", ...(labels.length ? { hint: "one per line; empty: those of the training", optional: true } : {}) }]
        : []),
    ],
    examples: examples.forTags,
    body: ({ text, labels }) => ({ texts: [text], ...(labels?.trim() ? { labels: described(labels) } : {}) }),
    show: showEntities,
  },
  {
    id: "answer",
    group: "Fine-tuned",
    needs: "answer",
    title: "Answer",
    says: "The model marks the answer to a question in a text of any length. It generates no text of its own.",
    button: "Answer",
    path: "answer",
    fields: () => [
      { name: "question", label: "Question", rows: 1 },
      { name: "context", label: "Text", rows: 6 },
    ],
    examples: () => examples.QUESTIONS,
    body: ({ question, context }) => ({ questions: [{ question, context }], n_best: 3 }),
    limit: ({ max_question }) => `The model reads at most ${max_question} tokens of a question, and the whole text.`,
    show: showAnswers,
  },
  {
    id: "write",
    group: "Fine-tuned",
    needs: "generate",
    title: "Write",
    says: "The text that the model writes for another one, such as its summary or a reply.",
    button: "Write",
    path: "predict",
    fields: () => [{ ...FIRST, rows: 6 }],
    examples: () => examples.SOURCES,
    body: textBody,
    draft: {},
    show: showWritten,
  },
  {
    id: "extract",
    group: "Fine-tuned",
    needs: "extract",
    title: "Key sentences",
    says: "The sentences that say most of a text of any length, marked in it.",
    button: "Choose",
    path: "predict",
    fields: () => [{ ...FIRST, rows: 8 }],
    examples: () => examples.SOURCES.slice(0, 1),
    body: textBody,
    show: showExtract,
  },
  {
    id: "resolve",
    group: "Fine-tuned",
    needs: "resolve",
    title: "Who is it?",
    says: "The name that a pronoun refers to. The first place of each word in the text counts.",
    button: "Resolve",
    path: "resolve",
    fields: () => [{ ...FIRST, rows: 4 }, { name: "pronoun", label: "Pronoun", rows: 1 }, { ...LINES, name: "names", label: "Candidates", rows: 3 }],
    examples: () => examples.PRONOUNS,
    body: ({ text, pronoun, names }) => ({
      pronouns: [{ text, pronoun: spanOf(text, pronoun.trim()), candidates: lines(names).map((name) => spanOf(text, name)) }],
    }),
    show: showResolved,
  },
  ...OF_RECORDS,
  {
    id: "compare",
    group: "Vectors",
    needs: "embed",
    title: "Similarity",
    says: "Each text becomes a vector. The table shows the cosine of every pair: 1 means the same direction.",
    button: "Compare",
    path: "v1/embeddings",
    fields: () => [{ ...LINES, name: "texts", label: "Texts" }],
    examples: () => examples.TEXTS,
    body: ({ texts }) => ({ input: lines(texts) }),
    limit: ({ embed_length }) => `The model reads at most ${embed_length} tokens of each text.`,
    show: showCosines,
  },
  {
    id: "label",
    group: "Vectors",
    needs: "classify_by_labels",
    title: "Your own labels",
    says: "The model chooses among labels that it was not trained on, by their names. A description after a colon helps.",
    button: "Classify",
    path: "classify",
    fields: () => [FIRST, { ...LINES, name: "labels", label: "Labels" }],
    examples: () => examples.LABELS,
    body: ({ text, labels }) => ({ texts: [text], labels: described(labels) }),
    show: showLabels,
  },
  {
    id: "rerank",
    group: "Vectors",
    needs: "rerank",
    title: "Rank",
    says: "Passages ranked by how well they answer a query, best first.",
    button: "Rank",
    path: "rerank",
    fields: () => [
      { name: "query", label: "Query", rows: 1 },
      { ...LINES, name: "passages", label: "Passages" },
    ],
    examples: () => examples.PASSAGES,
    body: ({ query, passages }) => ({ query, passages: lines(passages) }),
    show: showRanking,
  },
  {
    id: "search",
    group: "Vectors",
    needs: "search",
    title: "Search",
    says: "The texts of an index that are nearest to a query, best first.",
    button: "Search",
    path: "search",
    fields: () => [
      { name: "query", label: "Query", rows: 1 },
      { ...LINES, name: "where", label: "Conditions", rows: 2, optional: true, hint: "one per line, such as year >= 2020" },
    ],
    examples: () => examples.QUERIES,
    body: ({ query, where }) => ({ query, top: 10, ...(where.trim() && { where: lines(where) }) }),
    limit: ({ embed_length }) => `The model reads at most ${embed_length} tokens of a query.`,
    show: showHits,
  },
  {
    id: "pieces",
    needs: "pieces",
    group: "Look inside",
    title: "Pieces",
    says: "What the model reads: common words whole, rarer ones in pieces. ##\u00a0marks the continuation of a word.",
    path: "tokenize",
    live: true,
    fields: () => [FIRST],
    examples: () => examples.WORDS,
    body: textBody,
    show: showPieces,
  },
  {
    id: "attention",
    needs: "attention",
    group: "Look inside",
    title: "Attention",
    says: `In every layer, each piece attends to the others, and every head does so in its own way. ${pointAt()} a piece to see what it attends to.`,
    button: "Show",
    path: "attention",
    broad: true,
    fields: () => [{ ...FIRST, rows: 2 }, { ...SECOND, rows: 1, optional: true, hint: "optional" }],
    examples: () => examples.SENTENCES_TO_LOOK_AT,
    body: ({ text, pair }) => ({ text, ...(pair.trim() && { pair }) }),
    show: (seen) => [picture(seen)],
  },
];

/** "yes", "no" or "maybe". */
function readsPairs(model) {
  return model.pair === null ? "maybe" : model.pair ? "yes" : "no";
}

function textFields(model) {
  const reads = readsPairs(model);
  if (reads === "no") return [FIRST];
  const hint = reads === "maybe" ? "if the model reads two" : undefined;
  return [FIRST, { ...SECOND, optional: reads === "maybe", hint }];
}

/** With a choice among the thresholds that were saved with the model and, if their scores were, any share. */
function labelFields(model) {
  const fields = textFields(model);
  const choices = model.thresholds.map((promise) => {
    const [[name, share]] = Object.entries(promise);
    const shown = `${Math.round(1000 * share) / 10}%`;
    return [JSON.stringify(promise), name === "accuracy" ? `only if ${shown} of the answers are right` : `a set of labels, ${shown} with the right one`];
  });
  const often = [];
  if (model.calibrated_on) {
    choices.push(["accuracy", "only if the answers are right as often as below"], ["coverage", "a set of labels, with the right one as often as below"]);
    often.push({ name: "share", label: "How often", rows: 1, optional: true, hint: "percent; empty: 90" });
  }
  if (!choices.length) return fields;
  return [...fields, { name: "threshold", label: "Answer", optional: true, choices: [["", "always the most likely label"], ...choices] }, ...often];
}

function promised({ threshold, share }) {
  if (!threshold || threshold.startsWith("{")) return threshold ? JSON.parse(threshold) : {};
  const percent = Number(share.replace(/%\s*$/, "").trim() || 90);
  if (!(percent > 0 && percent < 100)) throw new Refused("How often: a number of percent between 0 and 100.");
  return { [threshold]: percent / 100 };
}

function textBody({ text, pair }) {
  return { texts: [pair?.trim() ? [text, pair] : text] };
}

/** Descriptions by name, of lines such as "billing: invoices and payments". */
function described(labels) {
  const pairs = lines(labels).map((line) => line.split(/:(.*)/s));
  const twice = pairs.find(([name], number) => pairs.findIndex(([other]) => other.trim() === name.trim()) < number);
  if (twice) throw new Refused(`The label “${twice[0].trim()}” is there twice.`);
  return Object.fromEntries(pairs.map(([name, description = ""]) => [name.trim(), description.trim()]));
}

function showFillings({ predictions: [{ gaps }] }, { text }) {
  const shown = [filled(text, gaps)];
  for (const [number, candidates] of gaps.entries()) {
    if (gaps.length > 1) shown.push(make("h2", { text: `Mask ${number + 1}` }));
    shown.push(bars(candidates.map((one) => [one.piece, one.probability]), [candidates[0]?.piece]));
  }
  return shown;
}

function showCompletion({ predictions: [{ continuation, direction, next }] }, { text }) {
  const parts = [text, make("mark", { text: continuation })];
  const whole = make("p", { class: "text" }, ...(direction === "backward" ? parts.reverse() : parts));
  return [whole, bars(next.map(({ piece: name, probability }) => [name, probability]), [next[0]?.piece])];
}

/** The text with the most likely piece in each gap. */
function filled(text, gaps) {
  const between = text.split("[MASK]");
  const parts = [];
  for (const [number, part] of between.entries()) {
    const best = gaps[number]?.[0]?.piece;
    const joins = best?.startsWith("##");
    parts.push(joins ? part.trimEnd() : part);
    if (number < between.length - 1) parts.push(make("mark", { text: best === undefined ? "[MASK]" : joins ? best.slice(2) : best }));
  }
  return make("p", { class: "text" }, ...parts);
}

function showLabels({ predictions: [found] }, written) {
  const shares = Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]);
  const chosen = found.chosen ?? [found.label].flat();
  const none = promised(written).accuracy ? "No answer: the model is not certain enough" : "None of the labels";
  return [verdict(chosen.join(", ") || none), bars(shares, chosen)];
}

function showChoice({ predictions: [found] }, { endings }) {
  const texts = lines(endings);
  const shares = Object.values(found.probabilities);
  const best = shares.indexOf(Math.max(...shares));
  const order = texts.map((text, index) => [text, shares[index]]).sort((a, b) => b[1] - a[1]);
  return [bars(order, [texts[best]], "long")];
}

function showEntities({ predictions: [{ entities, words }] }, { text }) {
  const spans = entities.map(({ type, begin, end, probability }) => ({
    begin,
    end,
    note: type,
    title: probability === undefined ? undefined : percent(probability),
  }));
  const shown = [marked(text, spans)];
  if (!spans.length) shown.push(remark("The model found no entities."));
  if (spans.some(({ title }) => title)) shown.push(remark(`${pointAt()} an entity to see its probability.`));
  if (words.length && !words[0].tag) return [...shown, ...listOf(entities)];
  const cells = words.map(({ text: word, tag }) =>
    make("span", { class: tag === "O" ? "tagged" : "tagged some" }, make("span", { class: "piece", text: word }), make("span", { class: "under", text: tag })),
  );
  shown.push(make("details", { class: "more" }, make("summary", { text: `Tags of all ${count(words.length, "word")}` }), make("p", { class: "pieces" }, ...cells)));
  return shown;
}

function listOf(entities) {
  const rows = entities.map(({ text, type, probability }) => [`${text} · ${type}`, probability]);
  return rows.length ? [make("details", { class: "more" }, make("summary", { text: "All entities" }), bars(rows, []))] : [];
}

function showAnswers({ predictions: [found] }, { context }) {
  const none = found.no_answer_probability ?? 0;
  const answers = found.answers.filter(({ begin, end }) => end > begin);
  const text = make("div", {});
  const mark = (answer) => text.replaceChildren(marked(context, answer ? [answer] : []));
  const best = answers[0];
  const given = best && (found.has_answer ?? best.probability >= none);
  mark(given ? best : null);
  const items = answers.map((answer, number) => {
    const button = make("button", { type: "button", class: "row", "aria-pressed": String(given && number === 0) });
    button.append(make("span", { class: "label", text: answer.text }), make("span", { class: "number", text: percent(answer.probability) }));
    button.addEventListener("click", () => {
      for (const other of button.closest("ul").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      mark(answer);
    });
    return make("li", {}, button);
  });
  return [
    verdict(given ? best.text : "The text does not say."),
    text,
    ...(items.length ? [make("h2", { text: "Candidates" }), make("ul", { class: "rows" }, ...items)] : []),
    ...(none ? [remark(`Probability that the text does not say: ${percent(none)}`)] : []),
  ];
}

function showWritten({ predictions: [{ text, answers, has_ended }] }) {
  const shown = [verdict(text || "Nothing.")];
  if (!has_ended) shown.push(remark("The text ends here because it has the maximum length."));
  if (answers.length > 1) {
    shown.push(make("h2", { text: "Other texts" }), make("ul", {}, ...answers.slice(1).map((other) => make("li", { text: other.text }))));
  }
  return shown;
}

function showExtract({ predictions: [{ sentences, scores }] }, { text }) {
  const spans = sentences.map(({ start, end, score }) => ({ begin: start, end, title: percent(score) }));
  const about = spans.length ? `${pointAt()} a sentence to see its score, of ${count(scores.length, "sentence")}.` : "The text has no sentences.";
  return [marked(text, spans), remark(about)];
}

function showResolved({ predictions: [{ text: answer, start, end, pronoun, candidates, none_probability }] }, { text }) {
  const spans = [{ begin: pronoun.start, end: pronoun.end, note: "pronoun" }, ...(answer ? [{ begin: start, end }] : [])];
  const rows = [...candidates.map((candidate) => [candidate.text, candidate.probability]), ["none of them", none_probability]];
  const best = [answer || "none of them"];
  return [verdict(answer || "None of them."), marked(text, spans), bars(rows.sort((a, b) => b[1] - a[1]), best)];
}

/** The characters of the first place of some words in a text, as the server counts them. */
function spanOf(text, words) {
  const letter = "[\\p{L}\\p{N}]";
  const place = text.search(new RegExp(`(?<!${letter})${words.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}(?!${letter})`, "u"));
  if (place < 0) throw new Refused(`“${words}” is not in the text.`);
  const start = Array.from(text.slice(0, place)).length;
  return [start, start + Array.from(words).length];
}

function showCosines({ data }, { texts }) {
  const names = lines(texts);
  const vectors = [...data].sort((a, b) => a.index - b.index).map(({ embedding }) => unit(embedding));
  const head = make("tr", {}, make("td", {}), ...names.map((name, number) => make("th", { scope: "col", title: name, text: number + 1 })));
  const rows = vectors.map((row, number) => {
    const label = make("th", { scope: "row" }, make("span", { class: "nth", text: number + 1 }), make("span", { text: names[number] }));
    const cells = vectors.map((column, other) => {
      const cosine = row.reduce((sum, value, place) => sum + value * column[place], 0);
      const share = number === other ? 0 : Math.max(0, cosine) ** 2;
      return make("td", { class: number === other ? "same" : null, shares: { share }, text: decimal(cosine, 2) });
    });
    return make("tr", {}, label, ...cells);
  });
  const table = make("table", { class: "cosines" }, make("thead", {}, head), make("tbody", {}, ...rows));
  const width = data[0]?.embedding.length ?? 0;
  return [make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Cosines" }, table), remark(`Vectors of ${count(width, "number")}`)];
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}

function showRanking({ results }, { passages }) {
  const texts = lines(passages);
  return [ranked([...results].sort((a, b) => b.score - a.score).map(({ index, score }) => [texts[index], score]))];
}

function showHits({ results: [{ passages }] }) {
  return passages.length ? [ranked(passages.map(({ id, text, score }) => [text, score, id]))] : [remark("No text of the index fits.")];
}

/** A list of texts with bars for their scores; a pointer shows the title of a text. */
function ranked(rows) {
  const share = (score) => Math.min(1, Math.max(0, score));
  const items = rows.map(([text, score, title]) =>
    make(
      "li",
      { title },
      make("span", { class: "label", text }),
      make("span", { class: "track", "aria-hidden": "true" }, make("span", { class: "bar", shares: { share: share(score) } })),
      make("span", { class: "number", text: decimal(score, 3) }),
    ),
  );
  return make("ol", { class: "bars long accented" }, ...items);
}

function showPieces({ texts: [{ pieces, ids, special }] }) {
  const cells = pieces.map((text, place) =>
    make("span", { class: text === "[UNK]" ? "tagged unknown" : "tagged" }, piece(text, special[place]), make("span", { class: "under", text: special[place] ? `${ids[place]} special` : ids[place] })),
  );
  const unknown = pieces.filter((text) => text === "[UNK]").length;
  const shown = [make("p", { class: "pieces" }, ...cells), remark(count(pieces.length, "piece"))];
  if (unknown) shown.push(remark(`${count(unknown, "word")} that the vocabulary cannot spell: [UNK].`));
  return shown;
}
