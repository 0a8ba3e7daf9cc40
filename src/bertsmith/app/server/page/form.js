// The frame of a view: which model, or which two, what goes in, examples, the button, where the answer appears, and the
// earlier answers of the session.

import { ask, asCommand, follow, Refused } from "./api.js";
import { chip, make, newId, notes, remark, usageLine } from "./parts.js";

const MOST_EARLIER = 30;

/** A section for an ability of `abilities.js`; `locked` takes an error, and tells whether it asks for a key. */
export function abilityView(ability, locked) {
  let model = ability.models[0];
  let rival = null; // the model that is compared with it
  let running = null;
  const earlier = []; // newest first
  const title = newId("title");
  const fields = make("div", { class: "fields" });
  const samples = make("div", { class: "samples" });
  const answer = make("div", { class: "answer", "aria-live": ability.broad ? null : "polite" });
  const go = make("button", { class: "go" }, ability.button);
  const form = make("form", { novalidate: true, onsubmit: submit, onkeydown: byKeys }, fields);
  const facts = make("span", { class: "facts" });
  const past = make("ul");
  const history = make("details", { class: "past", hidden: true }, make("summary", { text: "Earlier answers" }), past);
  let [choice, against] = [null, null];

  fields.before(modelLine());
  form.append(samples, make("div", { class: "actions" }, ability.live ? null : go, make("span", { class: "keys", text: ability.live ? "" : "Ctrl + Enter" })));
  fill();

  return make(
    "section",
    { class: ability.broad ? "view broad" : "view", "aria-labelledby": title },
    make("h1", { id: title, text: ability.title }),
    make("p", { class: "says", text: ability.says }),
    form,
    answer,
    history,
  );

  function modelLine() {
    if (ability.models.length === 1) {
      return make("p", { class: "model" }, make("span", { class: "facts", text: `Model: ${model.name}` }), facts);
    }
    const [id, ofRival] = [newId("model"), newId("rival")];
    const options = () => ability.models.map(({ name }) => make("option", { text: name }));
    choice = make("select", { id, onchange: () => choose(choice.selectedIndex) }, ...options());
    against = make("select", { id: ofRival, onchange: () => compare(against.selectedIndex) }, make("option", { text: "none" }), ...options());
    const second = ability.broad || ability.live ? [] : [make("label", { for: ofRival, text: "Compare with" }), against];
    return make("div", { class: "field model" }, make("label", { for: id, text: "Model" }), choice, ...second, facts);
  }

  function compare(index) {
    rival = ability.models[index - 1] ?? null;
    stop();
    answer.replaceChildren();
  }

  function choose(index) {
    const before = values();
    model = ability.models[index];
    stop();
    answer.replaceChildren();
    fill(before);
    if (ability.broad) run();
  }

  /** Fields and examples for the model; texts that were written by hand stay. */
  function fill(before = {}) {
    const examples = ability.examples(model);
    const untouched = examples.length ? examples[0].values : {};
    const known = new Set(ability.models.flatMap((one) => ability.examples(one).flatMap(({ values: v }) => Object.values(v))));
    const wanted = ability.fields(model).map((field) => {
      const written = before[field.name];
      const value = written && !known.has(written) ? written : (untouched[field.name] ?? "");
      return fieldOf(field, value);
    });
    fields.replaceChildren(...wanted);
    facts.textContent = model.labels.length && ability.tellsLabels ? shorten(model.labels) : "";
    const chips = examples.map(({ name, values: sample }) => chip(name, () => take(sample)));
    samples.replaceChildren(...(chips.length ? [make("span", { class: "heading", text: "Examples" }), ...chips] : []));
    if (ability.live) queueMicrotask(run);
  }

  function fieldOf(field, value) {
    const id = newId(field.name);
    const hint = field.hint ? make("span", { class: "hint", id: `${id}-hint`, text: field.hint }) : null;
    const properties = {
      id,
      name: field.name,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": hint ? hint.id : null,
      oninput: ability.live ? later : null,
    };
    const input = field.choices
      ? make("select", properties, ...field.choices.map(([choice, text]) => make("option", { value: choice, text })))
      : field.rows === 1
        ? make("input", { ...properties, type: "text" })
        : make("textarea", { ...properties, rows: field.rows });
    input.value = value;
    const label = make("label", { for: id, text: field.label });
    const aid = field.inserts ? chip(`Insert ${field.inserts}`, () => insert(input, field.inserts)) : null;
    return make("div", { class: "field" }, make("span", { class: "caption" }, label, hint, aid), input);
  }

  function insert(input, text) {
    input.setRangeText(text, input.selectionStart, input.selectionEnd, "end");
    input.focus();
  }

  function take(sample) {
    for (const input of fields.querySelectorAll("input, textarea")) input.value = sample[input.name] ?? "";
    run();
  }

  function values() {
    return Object.fromEntries([...fields.querySelectorAll("input, textarea, select")].map((input) => [input.name, input.value]));
  }

  function submit(event) {
    event.preventDefault();
    if (!running || !ability.draft) return run();
    stop();
    answer.append(remark("Stopped."));
  }

  function byKeys(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  }

  function later() {
    clearTimeout(later.timer);
    later.timer = setTimeout(run, 200);
  }

  function stop() {
    running?.abort();
    running = null;
  }

  async function run() {
    stop();
    const written = values();
    const missing = ability.fields(model).find((field) => !field.optional && !written[field.name].trim());
    if (missing) {
      if (ability.live) answer.replaceChildren();
      else refuse(`Fill in “${missing.label}” first.`);
      return;
    }
    const mine = new AbortController();
    running = mine;
    answer.setAttribute("aria-busy", "true");
    const began = performance.now();
    try {
      if (!rival || rival === model) {
        if (ability.draft) await draft(written, mine.signal);
        answer.replaceChildren(...(await answered(model, written, mine.signal, began)));
      } else {
        const both = [];
        for (const asked of [model, rival]) both.push(await underItsName(asked, written, mine.signal));
        answer.replaceChildren(make("div", { class: "pair" }, ...both));
      }
      if (!ability.live) remember(written);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Refused)) throw error;
      locked(error);
      refuse(error.message);
    } finally {
      if (running === mine) running = null;
      if (!running) {
        answer.removeAttribute("aria-busy");
        go.textContent = ability.button;
      }
    }
  }

  /** The answer of a model, with what is to be known of it. */
  async function answered(asked, written, signal, began = performance.now()) {
    const body = { model: asked.name, ...ability.body(written, asked) };
    const reply = await ask(ability.path, body, signal);
    const weakness = ["Fine-tuned", "Codes"].includes(ability.group) && asked.weakness;
    return [...ability.show(reply, written, asked), ...notes(weakness, reply.note), usageLine(reply.usage, performance.now() - began, limit(asked)), request(body)];
  }

  /** The answer of one of two models, under its name; it may be a refusal. */
  async function underItsName(asked, written, signal) {
    const unknown = ability.fields(asked).find((field) => !field.optional && !(field.name in written));
    const shown = unknown
      ? [wrong(`This model also reads “${unknown.label}”; choose it above.`)]
      : await answered(asked, written, signal).catch((error) => {
          if (!(error instanceof Refused) || error.status === 401) throw error;
          return [wrong(error.message)];
        });
    return make("section", { "aria-label": asked.name }, make("h2", { text: asked.name }), ...shown);
  }

  /** Lists the answer that is shown; a button brings it back, with what was asked. */
  function remember(written) {
    const kept = { models: [model, rival], written, nodes: [...answer.childNodes] };
    const names = new Set([model, rival].filter(Boolean).map(({ name }) => name));
    const start = (Object.values(written).find((text) => text.trim()) ?? "").trim().slice(0, 60);
    const told = ability.models.length > 1 ? `${start} · ${[...names].join(", ")}` : start;
    earlier.unshift(make("li", {}, make("button", { type: "button", class: "row", text: told, onclick: () => recall(kept) })));
    earlier.length = Math.min(earlier.length, MOST_EARLIER);
    past.replaceChildren(...earlier);
    history.hidden = earlier.length < 2;
  }

  function recall({ models, written, nodes }) {
    stop();
    [model, rival] = models;
    if (choice) [choice.selectedIndex, against.selectedIndex] = [ability.models.indexOf(model), ability.models.indexOf(rival) + 1];
    fill();
    for (const input of fields.querySelectorAll("input, textarea, select")) input.value = written[input.name] ?? "";
    answer.replaceChildren(...nodes);
  }

  /** Shows a text while it is written; the answer then replaces it. */
  function draft(written, signal) {
    go.textContent = "Stop";
    answer.replaceChildren();
    const show = (text) => {
      const reply = { text, continuation: text, next: [], answers: [], has_ended: true };
      answer.replaceChildren(make("div", { class: "draft" }, ...ability.show({ predictions: [reply] }, written)));
    };
    return follow({ model: model.name, prompt: written.text, ...ability.draft }, signal, show).catch((error) => {
      if (error.status !== 422) throw error; // the answer says what is wrong, or is there
    });
  }

  function limit(asked) {
    return ability.limit?.(asked) ?? `The model reads at most ${asked.max_length} tokens at once.`;
  }

  function refuse(sentence) {
    answer.replaceChildren(wrong(sentence));
  }

  function wrong(sentence) {
    return make("p", { class: "wrong", role: "alert", text: sentence });
  }

  function request(body) {
    const code = make("code", { text: asCommand(ability.path, body) });
    return make("details", { class: "request" }, make("summary", { text: "The same request with curl" }), make("pre", { tabindex: "0" }, code));
  }
}

function shorten(labels) {
  const most = 8;
  const rest = labels.length - most;
  return `Labels: ${labels.slice(0, most).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}
