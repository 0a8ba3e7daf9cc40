// The picture that explains the model: every head of every layer, and for each piece where it looks.

import { count, make, newId, percent, piece, pointAt, remark } from "./parts.js";
import { accent, drawHead, drawLines } from "./drawing.js";

const MEAN = -1; // the head that is the mean of all heads of its layer
const NARROW = 700; // pixels; below this, pieces stand in a text rather than in two columns
const MANY = 48; // pieces; of more, two columns would be a long way
const TOLD = 4; // pieces named in the sentence below the picture

/** The heads, the pieces and what joins them, for one answer of the server. */
export function picture(seen) {
  const { pieces, special, layers, heads, attention } = seen;
  const means = new Map();
  const state = { layer: 0, head: 0, pinned: null, hovered: null, turned: false, lines: innerWidth >= NARROW && pieces.length <= MANY };
  const layerChoice = numbers("Layer", layers, [], (value) => choose(value, state.head));
  const headChoice = numbers("Head", heads, [[MEAN, "mean"]], (value) => choose(state.layer, value));
  const direction = switchOf("Direction", [["attends to", false], ["is attended to by", true]], state.turned, (value) => set({ turned: value }));
  const style = switchOf("Drawn as", [["lines", true], ["text", false]], state.lines, (value) => {
    set({ lines: value });
    build();
  });
  const stage = make("div", { class: "stage" });
  const told = make("p", { class: "told", "aria-live": "polite" });
  const [overview, cells] = overviewOf();
  let sources = [];
  let targets = [];
  let canvas = null;

  const whole = make(
    "div",
    { class: "attention" },
    make("div", { class: "choices" }, layerChoice.element, headChoice.element, direction, style),
    make("div", { class: "both" }, make("div", { class: "seen" }, told, stage), overview),
  );
  build();
  choose(0, 0);
  const redraw = () => {
    if (!whole.isConnected) return;
    const color = accent();
    for (const cell of cells) cell.draw(color);
    update();
  };
  document.addEventListener("colors", redraw);
  document.addEventListener("view", redraw);
  const watcher = new ResizeObserver(() => update());
  watcher.observe(stage);
  return whole;

  /** Weights [s][s] of a head, or of the mean of a layer. */
  function weights(layer, head) {
    if (head !== MEAN) return attention[layer][head];
    if (!means.has(layer)) {
      const mean = pieces.map((_, from) => pieces.map((__, to) => attention[layer].reduce((sum, one) => sum + one[from][to], 0) / heads));
      means.set(layer, mean);
    }
    return means.get(layer);
  }

  function choose(layer, head) {
    set({ layer, head });
    layerChoice.input.value = layer;
    headChoice.input.value = head;
    for (const cell of cells) cell.mark(cell.layer === layer && cell.head === head);
  }

  function set(changes) {
    Object.assign(state, changes);
    update();
  }

  /** Rebuilds the pieces, in two columns or as a text. */
  function build() {
    state.hovered = null;
    sources = pieces.map(pieceButton);
    if (state.lines) {
      targets = pieces.map((text, place) => make("span", { class: "spot" }, piece(text, special[place])));
      canvas = make("canvas", { "aria-hidden": "true" });
      const column = (items, name) => make("div", { class: `column ${name}` }, ...items);
      stage.replaceChildren(make("div", { class: "columns" }, column(sources, "from"), canvas, column(targets, "to")));
    } else {
      targets = sources;
      canvas = null;
      stage.replaceChildren(make("div", { class: "running" }, ...sources));
    }
    rove(sources, 1);
    update();
  }

  function pieceButton(text, place) {
    return make(
      "button",
      {
        type: "button",
        class: "spot",
        "aria-pressed": "false",
        onpointerenter: (event) => event.pointerType === "mouse" && set({ hovered: place }),
        onpointerleave: (event) => event.pointerType === "mouse" && set({ hovered: null }),
        onfocus: (event) => event.target.matches(":focus-visible") && set({ hovered: place }),
        onblur: () => set({ hovered: null }),
        onclick: () => set({ pinned: state.pinned === place ? null : place }),
      },
      piece(text, special[place]),
    );
  }

  function update() {
    const table = weights(state.layer, state.head);
    const from = state.hovered ?? state.pinned;
    const look = (place) => (from === null ? 0 : state.turned ? table[place][from] : table[from][place]);
    for (const [place, spot] of targets.entries()) spot.style.setProperty("--share", look(place));
    for (const [place, spot] of sources.entries()) {
      spot.classList.toggle("source", place === from);
      spot.setAttribute("aria-pressed", String(place === state.pinned));
    }
    if (canvas) drawLines(canvas, sources, targets, (a, b) => (state.turned ? table[b][a] : table[a][b]), from);
    told.replaceChildren(...sentence(from, look));
  }

  function sentence(from, look) {
    if (from === null) return [`${pointAt()} a piece${pointAt() === "Tap" ? "" : ", or click it to pin it"}.`];
    const head = state.head === MEAN ? "mean of all heads" : `head ${state.head + 1}`;
    const ranked = pieces.map((text, place) => [text, look(place)]).sort((a, b) => b[1] - a[1]);
    const best = ranked.slice(0, TOLD).filter(([, share]) => share >= 0.01);
    const parts = best.flatMap(([text, share], place) => [place ? ", " : "", make("b", { text }), ` ${percent(share)}`]);
    const verb = state.turned ? " is attended to most by " : " attends most to ";
    return [`Layer ${state.layer + 1}, ${head}: `, make("b", { text: pieces[from] }), verb, ...(parts.length ? parts : ["nothing"]), "."];
  }

  /** All heads as small pictures: a row a layer. */
  function overviewOf() {
    const made = [];
    const rows = [];
    for (let layer = 0; layer < layers; layer += 1) {
      const row = [make("span", { class: "nth", "aria-hidden": "true", text: layer + 1 })];
      for (let head = 0; head < heads; head += 1) {
        const small = make("canvas", { "aria-hidden": "true" });
        const name = `Layer ${layer + 1}, head ${head + 1}`;
        const button = make("button", { type: "button", class: "head", "aria-label": name, title: name, "aria-pressed": "false", onclick: () => choose(layer, head) }, small);
        const mark = (chosen) => button.setAttribute("aria-pressed", String(chosen));
        made.push({ layer, head, button, mark, draw: (color) => drawHead(small, attention[layer][head], color) });
        row.push(button);
      }
      rows.push(...row);
    }
    rove(made.map(({ button }) => button), heads);
    const grid = make("div", { class: "grid", role: "group", "aria-label": "All heads, one row per layer", shares: { heads } }, ...rows);
    const color = accent();
    for (const cell of made) cell.draw(color);
    const caption = remark(`${count(layers, "layer")} of ${count(heads, "head")}, one row per layer. In each picture, the pieces from top to bottom attend to those from left to right: the stronger the color, the more.`);
    return [make("div", { class: "overview" }, grid, caption), made];
  }
}

/** A chooser of numbers from 1, with further choices as (value, name). */
function numbers(label, most, further, onchoice) {
  const id = newId(label);
  const input = make("select", { id, onchange: () => onchoice(Number(input.value)) });
  for (let number = 0; number < most; number += 1) input.append(make("option", { value: number, text: number + 1 }));
  for (const [value, name] of further) input.append(make("option", { value, text: name }));
  return { input, element: make("span", { class: "choice" }, make("label", { for: id, text: label }), input) };
}

/** A group of radio buttons of (name, value). */
function switchOf(label, options, chosen, onchoice) {
  const group = newId("switch");
  const items = options.map(([name, value]) => {
    const id = newId("option");
    const input = make("input", { type: "radio", name: group, id, checked: value === chosen, onchange: () => onchoice(value) });
    return make("span", {}, input, make("label", { for: id, text: name }));
  });
  return make("fieldset", { class: "switch" }, make("legend", { class: "unseen", text: label }), ...items);
}

/** One stop of the Tab key for many buttons; arrows go on from there, up and down by a row. */
function rove(buttons, rowLength) {
  const total = buttons.length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: rowLength, ArrowUp: -rowLength };
  for (const [index, button] of buttons.entries()) {
    button.tabIndex = index ? -1 : 0;
    button.addEventListener("focus", () => {
      for (const other of buttons) other.tabIndex = other === button ? 0 : -1;
    });
    button.addEventListener("keydown", (event) => {
      const next = event.key === "Home" ? 0 : event.key === "End" ? total - 1 : index + (steps[event.key] ?? NaN);
      if (!(next >= 0 && next < total)) return;
      event.preventDefault();
      buttons[next].focus();
    });
  }
}
