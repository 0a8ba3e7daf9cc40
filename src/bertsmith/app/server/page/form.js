// The frame of a view: which model, what goes in, examples, the button, and where the answer appears.

import { ask, asCommand, follow, Refused } from "./api.js";
import { chip, make, newId, notes, remark, usageLine } from "./parts.js";

/** A section for an ability of `abilities.js`; `locked` takes an error, and tells whether it asks for a key. */
export function abilityView(ability, locked) {
  let model = ability.models[0];
  let running = null;
  const title = newId("title");
  const fields = make("div", { class: "fields" });
  const samples = make("div", { class: "samples" });
  const answer = make("div", { class: "answer", "aria-live": ability.broad ? null : "polite" });
  const go = make("button", { class: "go" }, ability.button);
  const form = make("form", { novalidate: true, onsubmit: submit, onkeydown: byKeys }, fields);
  const facts = make("span", { class: "facts" });

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
  );

  function modelLine() {
    if (ability.models.length === 1) {
      return make("p", { class: "model" }, make("span", { class: "facts", text: `Model: ${model.name}` }), facts);
    }
    const id = newId("model");
    const choice = make("select", { id, onchange: () => choose(choice.selectedIndex) });
    choice.append(...ability.models.map(({ name }) => make("option", { text: name })));
    return make("div", { class: "field model" }, make("label", { for: id, text: "Model" }), choice, facts);
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
      const body = { model: model.name, ...ability.body(written, model) };
      if (ability.draft) await draft(written, mine.signal);
      const reply = await ask(ability.path, body, mine.signal);
      answer.replaceChildren(...ability.show(reply, written, model), ...notes(["Fine-tuned", "Codes"].includes(ability.group) && model.weakness, reply.note), usageLine(reply.usage, performance.now() - began, limit()), request(body));
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

  function limit() {
    return ability.limit?.(model) ?? `The model reads at most ${model.max_length} tokens at once.`;
  }

  function refuse(sentence) {
    answer.replaceChildren(make("p", { class: "wrong", role: "alert", text: sentence }));
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
