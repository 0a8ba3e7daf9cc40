// Asks the server what its models can do, and offers that: one view for each ability, made when it is first wanted.

import { ask, unlock } from "./api.js";
import { abilityView } from "./form.js";
import { count, make } from "./parts.js";
import { ABILITIES } from "./abilities.js";

const frame = document.querySelector("#content");
const notice = document.querySelector("#notice");
const form = document.querySelector("#unlock");
const views = new Map();
let offered = [];

async function start() {
  let models;
  try {
    ({ models } = await ask("models"));
  } catch (error) {
    refuse(error);
    return;
  }
  form.hidden = true;
  offered = ABILITIES.map((ability) => ({ ...ability, models: models.filter((model) => can(model, ability)) })).filter(
    (ability) => ability.models.length,
  );
  const single = models.length === 1 ? models[0].name : count(models.length, "model");
  document.querySelector("#about").textContent = single;
  if (!offered.length) {
    notice.replaceChildren(make("p", { text: "This server has no model that this page can show." }));
    return;
  }
  notice.replaceChildren();
  list();
  show();
}

function can(model, ability) {
  return model.abilities.includes(ability.needs);
}

function list() {
  const items = [];
  for (const group of new Set(offered.map((ability) => ability.group))) {
    const links = offered
      .filter((ability) => ability.group === group)
      .map((ability) => make("li", {}, make("a", { href: `#${ability.id}`, text: ability.title })));
    items.push(make("li", { class: "group" }, make("span", { class: "heading", text: group }), make("ul", {}, ...links)));
  }
  document.querySelector("#abilities").replaceChildren(...items);
}

/** Shows the view that the address names; without a name the first. */
function show() {
  if (!offered.length) return;
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted === "content") return;
  const ability = offered.find(({ id }) => id === wanted) ?? offered[0];
  if (!views.has(ability.id)) {
    const view = abilityView(ability, locked);
    views.set(ability.id, view);
    frame.append(view);
  }
  for (const [id, view] of views) view.hidden = id !== ability.id;
  for (const link of document.querySelectorAll("#abilities a")) {
    const here = link.hash === `#${ability.id}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    // Not scrollIntoView: after it the Tab key would start at the link rather than at the top of the page.
    const bar = link.closest("nav");
    if (here && wanted) bar.scrollLeft = link.offsetLeft - (bar.clientWidth - link.offsetWidth) / 2;
  }
  document.title = `${ability.title} · Bertsmith`;
  document.dispatchEvent(new Event("view"));
}

/** Asks for the key where the server wants one; returns whether it does. */
function locked(error) {
  if (error.status !== 401) return false;
  form.hidden = false;
  form.querySelector("input").focus();
  return true;
}

function refuse(error) {
  if (locked(error)) {
    notice.replaceChildren();
    return;
  }
  const again = make("button", { type: "button", class: "go", text: "Try again", onclick: start });
  notice.replaceChildren(make("p", { class: "wrong", text: error.message }), again);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  unlock(form.querySelector("input").value);
  form.hidden = true;
  if (!offered.length) start();
});

const theme = document.querySelector("#theme");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : prefersDark.matches;
}

function tellTheme() {
  theme.setAttribute("aria-pressed", String(isDark()));
  document.dispatchEvent(new Event("colors"));
}

theme.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    // The choice that equals the system's is not stored, so that it keeps following the system.
    if ((next === "dark") === prefersDark.matches) localStorage.removeItem("theme");
    else localStorage.setItem("theme", next);
  } catch {
    // A browser that keeps nothing starts with the system's colors again.
  }
  tellTheme();
});

prefersDark.addEventListener("change", tellTheme);
addEventListener("hashchange", () => {
  show();
  scrollTo({ top: 0 });
});
tellTheme();
start();
