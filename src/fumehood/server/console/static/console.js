// The script of the console: news of the log replace parts of the page, times become local, keys lead around.
// Everything works without it but for the news.
"use strict";

const state = { last: Number(document.body.dataset.after || 0), stream: null, pause: 500, timer: 0 };
const address = document.body.dataset.live;
const note = document.getElementById("live-state");

function say(text, kind) {
  if (!note) return;
  note.textContent = text;
  note.dataset.kind = kind;
}

function put(piece) {
  const box = document.createElement("template");
  box.innerHTML = piece.html;
  localise(box.content);
  const list = piece.into && document.getElementById(piece.into);
  for (const element of [...box.content.children]) {
    const old = document.getElementById(element.id);
    if (old) {
      const holder = old.contains(document.activeElement) && document.activeElement;
      old.replaceWith(element);
      if (holder) (element.querySelector("a") || element).focus();
    } else if (list) {
      element.classList.add("new");
      if (piece.at === "end") list.append(element);
      else list.prepend(element);
      while (piece.most && list.children.length > piece.most) list.lastElementChild.remove();
      const empty = list.closest("section") && list.closest("section").querySelector(".empty");
      if (empty) empty.remove();
    }
  }
}

function receive(event) {
  const seq = Number(event.lastEventId);
  if (seq <= state.last) return;
  state.last = seq;
  for (const piece of JSON.parse(event.data)) put(piece);
}

function open() {
  if (!address || state.stream || document.hidden) return;
  const stream = new EventSource(`${address}&after=${state.last}`);
  state.stream = stream;
  stream.onopen = () => { state.pause = 500; say("live", "good"); };
  stream.onmessage = receive;
  stream.addEventListener("reload", () => location.reload());
  stream.addEventListener("again", () => { close(); open(); });
  stream.onerror = () => { close(); say("reconnecting", "warn"); later(); };
}

function close() {
  if (state.stream) state.stream.close();
  state.stream = null;
}

// A session that is over answers with 401: then the page is loaded anew, which leads to the sign-in.
function later() {
  clearTimeout(state.timer);
  state.timer = setTimeout(async () => {
    state.pause = Math.min(state.pause * 2, 10000);
    try {
      const answer = await fetch(`${address}&after=check`, { cache: "no-store" });
      if (answer.status === 401) location.reload();
      if (answer.status === 422) open();
      else later();
    } catch { later(); }
  }, state.pause);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { close(); clearTimeout(state.timer); say("paused", ""); } else open();
});

function localise(part) {
  for (const element of part.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    element.title = moment.toISOString().replace("T", " ").replace("Z", " UTC");
    const day = { year: "numeric", month: "2-digit", day: "2-digit" };
    const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    const isToday = moment.toDateString() === new Date().toDateString();
    const shown = element.className === "clock" && isToday ? clock : { ...day, ...clock };
    if (element.className === "day") delete shown.second;
    element.textContent = new Intl.DateTimeFormat("sv-SE", shown).format(moment);
  }
}

const dialog = document.getElementById("key-help");
let isLed = false;

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
  const wasLed = isLed;
  isLed = event.key === "g" && !wasLed;
  if (wasLed) {
    const link = [...document.querySelectorAll("nav a[data-key]")].find((each) => each.dataset.key === event.key);
    if (link) link.click();
  } else if (isLed) event.preventDefault();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "/" && document.querySelector("[data-search]")) document.querySelector("[data-search]").focus();
  else if (event.key === "?" && dialog) dialog.showModal();
  else return;
  event.preventDefault();
}

function step(by) {
  const links = [...document.querySelectorAll("[data-row] a")];
  const at = links.findIndex((each) => each.closest("[data-row]").contains(document.activeElement));
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  if (next) next.focus();
}

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
}

function button(id, act) {
  const found = document.getElementById(id);
  if (found) found.addEventListener("click", act);
}

theme(localStorage.getItem("theme"));
button("theme", () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("theme", isDark ? "light" : "dark");
  theme(localStorage.getItem("theme"));
});
button("keys", () => dialog.showModal());
for (const each of document.querySelectorAll("[data-copy]")) {
  each.hidden = !navigator.clipboard;
  each.addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.origin + location.pathname);
    each.textContent = "Copied";
  });
}
document.addEventListener("keydown", keys);
// Answers are sent once, however often the button is pressed. A form that leaves its page there can be sent again.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || "again" in form.dataset) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => { for (const form of document.forms) delete form.dataset.sent; });
localise(document);
// The reason stands at the end.
for (const each of document.querySelectorAll(".b-stderr pre")) each.scrollTop = each.scrollHeight;
open();
