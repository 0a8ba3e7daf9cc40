// What the page offers for models that answer about records, such as the visits of a subject with their codes.

import { Refused } from "./api.js";
import { bars, count, decimal, make, remark } from "./parts.js";

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
    show: ({ predictions: [answer] }) => [
      bars(answer.codes.map(withProbability), answer.codes.slice(0, 1).map(nameOf)),
      ...remarks(answer.unlike_training && `The model read ${answer.unlike_training}.`, unknown(answer)),
    ],
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
        ...remarks(unknown(visit)),
      ]),
  },
];

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
    for (const line of visit.split("\n").map((text) => text.trim()).filter(Boolean)) {
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

function unknown({ unknown_codes }) {
  return unknown_codes ? `${count(unknown_codes, "code")} that the model does not know.` : "";
}

function remarks(...sentences) {
  return sentences.filter(Boolean).map(remark);
}
