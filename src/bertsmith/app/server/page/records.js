// What the page offers for models that answer about records, such as the visits of a subject with their codes.

import { Refused } from "./api.js";
import { bars, count, decimal, lines, make, percent, verdict } from "./parts.js";

const CODES = { name: "codes", label: "Codes", rows: 1, hint: "separated by spaces" };
const VISITS = { name: "visits", label: "Visits", rows: 8, hint: "one code per line, an empty line before the next visit" };

export const OF_RECORDS = [
  {
    id: "codes",
    group: "Codes",
    needs: "predict_codes",
    title: "Likely codes",
    says: "The codes that a subject is likely to have: at its last visit if the model recommends, otherwise at the next one.",
    button: "Predict",
    path: "codes/predict",
    fields: () => [VISITS],
    examples: examplesOfVisits,
    body: (written, model) => ({ ...subjectOf(written, model), top: 8 }),
    show: ({ predictions: [{ codes }] }) => [bars(codes.map(withProbability), codes.slice(0, 1).map(nameOf))],
  },
  {
    id: "anomalies",
    group: "Codes",
    needs: "find_anomalies",
    title: "Unusual visits",
    says: "How improbable each visit is: its surprise is the mean of -ln p over its codes. The least likely code is the first.",
    button: "Judge",
    path: "codes/anomalies",
    fields: () => [VISITS],
    examples: examplesOfVisits,
    body: subjectOf,
    show: ({ predictions }) =>
      predictions.flatMap((visit, number) => [
        make("h2", { text: `Visit ${number + 1}: ${visit.surprise === null ? "cannot be judged" : `surprise ${decimal(visit.surprise, 2)}`}` }),
        bars(visit.codes.map(withProbability)),
      ]),
  },
  {
    id: "gaps",
    group: "Codes",
    needs: "fill_codes",
    title: "Fill with codes",
    says: "The words that are missing in a text, given the codes of the same moment, and what the text alone says.",
    button: "Fill",
    path: "codes/fill",
    fields: () => [{ name: "text", label: "Text", rows: 2, inserts: "[MASK]" }, CODES],
    examples: ({ kinds }) => [{ name: "Two words", values: { text: "now let me show you how to [MASK] the [MASK].", codes: someCodes(kinds) } }],
    body: ({ text, codes }) => ({ segments: [{ text, codes: wordsOf(codes) }], top: 5 }),
    show: ({ predictions: [{ gaps, alone }] }) =>
      gaps.flatMap((candidates, number) => [
        make("h2", { text: gaps.length > 1 ? `Mask ${number + 1}` : "With the codes" }),
        barsOfPieces(candidates),
        make("h2", { text: gaps.length > 1 ? `Mask ${number + 1} without the codes` : "Without the codes" }),
        barsOfPieces(alone[number]),
      ]),
  },
  {
    id: "follow",
    group: "Codes",
    needs: "next_codes",
    title: "Next code",
    says: "The codes that are likely to follow some codes, and perhaps a text that is said at the same moment.",
    button: "Predict",
    path: "codes/next",
    fields: () => [CODES, { name: "text", label: "Text", rows: 1, optional: true }],
    examples: ({ kinds }) => [{ name: "Some codes", values: { codes: someCodes(kinds), text: "" } }],
    body: ({ codes, text }) => ({ segments: [{ text, codes: wordsOf(codes) }], top: 8 }),
    show: ({ predictions: [{ codes }] }) => [bars(codes.map(withProbability), [codes[0].code])],
  },
  {
    id: "match",
    group: "Codes",
    needs: "match_codes",
    title: "Match",
    says: "How likely is it that codes belong to a text? The best are the first.",
    button: "Match",
    path: "codes/match",
    fields: () => [
      { name: "text", label: "Text", rows: 1 },
      { name: "candidates", label: "Codes", rows: 5, hint: "of one moment per line, separated by spaces" },
    ],
    examples: ({ kinds }) => [{ name: "An onion", values: { text: "cut the onion", candidates: someCodes(kinds).replaceAll(" ", "\n") } }],
    body: ({ text, candidates }) => ({ text, segments: lines(candidates).map((line) => ({ codes: wordsOf(line) })) }),
    show: ({ results }, { candidates }) => [
      bars(results.map(({ index, probability }) => [lines(candidates)[index], probability]), [lines(candidates)[results[0].index]], "long"),
    ],
  },
  {
    id: "memory",
    group: "Memory",
    needs: "answer_from_memory",
    title: "Facts",
    says: "The answer to a question about a list of facts, and which of them the model attended to each time that it read them.",
    button: "Answer",
    path: "memory/answer",
    fields: () => [{ name: "facts", label: "Facts", rows: 6, hint: "one per line, the earliest first" }, { name: "question", label: "Question", rows: 1 }],
    examples: () => [
      { name: "Where is she?", values: { facts: "Mary went to the kitchen.\nJohn went to the garden.\nMary moved to the office.", question: "Where is Mary?" } },
    ],
    body: ({ facts, question }) => ({ stories: [{ facts: lines(facts), question }] }),
    limit: ({ max_length }) => `The model reads the last ${count(max_length, "fact")}.`,
    show: showFacts,
  },
];

function showFacts({ predictions: [{ answer, probability, facts, attention }] }) {
  const best = (weights) => facts[weights.indexOf(Math.max(...weights))];
  return [
    verdict(answer ?? best(attention.at(-1)), probability === null ? "" : ` ${percent(probability)}`),
    ...attention.flatMap((weights, hop) => [
      make("h2", { text: `Attention, hop ${hop + 1}` }),
      bars(facts.map((fact, number) => [fact, weights[number]]), [best(weights)], "long"),
    ]),
  ];
}

function barsOfPieces(candidates) {
  return bars(candidates.map(({ piece, probability }) => [piece, probability]), [candidates[0].piece]);
}

function wordsOf(text) {
  return text.split(/\s+/).filter(Boolean);
}

function someCodes(kinds) {
  return Object.values(kinds).flat().slice(0, 3).join(" ");
}

/** The visits that were written, with the codes of each kind. */
function subjectOf({ visits }, { kinds }) {
  const names = Object.keys(kinds);
  const keyOf = (line) => {
    const kind = names.find((name) => line.startsWith(`${name}:`));
    if (!kind && names.length > 1) throw new Refused(`Write “${line}” with its kind, such as “${names[0]}:${line}”.`);
    return kind ? [kind, line.slice(kind.length + 1).trim()] : [names[0], line];
  };
  const read = visits.trim().split(/\n\s*\n/).map((visit) => {
    const codes = {};
    for (const line of lines(visit)) {
      const [kind, code] = keyOf(line);
      (codes[kind] ??= []).push(code);
    }
    return { codes };
  });
  return { subjects: [{ visits: read }] };
}

function examplesOfVisits({ kinds }) {
  const [first, ...others] = Object.entries(kinds).map(([kind, codes], _, all) => codes.map((code) => (all.length > 1 ? `${kind}:${code}` : code)));
  const visit = (number) => [first[number], ...others.map((codes) => codes[number])].filter(Boolean).join("\n");
  const later = first[1] ?? first[0];
  return [
    { name: "Two visits", values: { visits: `${visit(0)}\n\n${later}` } },
    { name: "One visit", values: { visits: later } },
  ];
}

function nameOf({ code, description }) {
  return description ? `${code} ${description}` : code;
}

function withProbability(code) {
  return [nameOf(code), code.probability];
}
