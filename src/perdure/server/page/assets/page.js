// What a page can do beyond reading: relative times, themes, keys, news of the live connection. Nothing here decides
// anything: every action is a form or a link that works without this file.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];
function ago(seconds) {
  for (const [size, unit] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return seconds < 5 ? "just now" : `${Math.floor(seconds)} s ago`;
}
function showTimes() {
  for (const one of $$("time[datetime]")) {
    const at = new Date(one.dateTime), text = ago(Math.max(0, (Date.now() - at) / 1000));
    if (one.textContent !== text) one.textContent = text;
    if (!one.title) one.title = at.toLocaleString();
  }
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `perdure_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
}

let here = -1, leader = "";
const GO = { h: "/", r: "/runs", q: "/questions" };
function move(by) {
  const rows = $$("[data-row]");
  if (!rows.length) return;
  here = Math.min(rows.length - 1, Math.max(0, here + by));
  for (const row of rows) row.classList.remove("here");
  rows[here].classList.add("here");
  $("a", rows[here])?.focus({ preventScroll: true });
  rows[here].scrollIntoView({ block: "nearest" });
}
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const go = leader === "g" ? GO[event.key] : undefined;
  leader = event.key;
  if (go) location.href = go;
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/" && $("[data-search]")) $("[data-search]").focus();
  else if (event.key === "?") $("#help").showModal();
  else return;
  event.preventDefault();
}

function onLive() {
  // Somebody who is filling in a form, or has a dialog open, is not disturbed: the next event brings everything.
  document.addEventListener("htmx:sse:before:message", (event) => {
    const live = $("#live");
    if (live?.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) event.preventDefault();
  });
  document.addEventListener("htmx:sse:after:message", () => { showTimes(); $$("[data-row]")[here]?.classList.add("here"); document.dispatchEvent(new Event("page:shown")); });
  document.addEventListener("htmx:sse:after:connection", (event) => {
    $("#lost").hidden = true;
    if (event.detail.connection.status === 401) $("#ended").hidden = false;
  });
  document.addEventListener("htmx:sse:error", (event) => {
    const ended = event.detail.status === 401;
    $("#ended").hidden = !ended;
    $("#lost").hidden = ended;
  });
}

// The extension takes up a connection that it had. One that never came about is asked for again here.
function keepLive() {
  const live = $("#live");
  if (!live || live._htmx?.sse || live.classList.contains("htmx-request") || document.hidden || !$("#ended").hidden) return;
  $("#lost").hidden = false;
  htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live })?.catch?.(() => {}); // `#lost` says so
}

for (const button of $$("[data-theme-toggle]")) { button.hidden = false; button.addEventListener("click", toggleTheme); }
for (const button of $$("[data-help]")) { button.hidden = false; button.addEventListener("click", () => $("#help").showModal()); }
document.addEventListener("keydown", onKey);
onLive();
showTimes();
const entry = $(".side nav a[aria-current]"); // on a small screen the menu is wider than the screen
if (entry) entry.parentElement.scrollLeft = entry.offsetLeft - entry.parentElement.offsetLeft - 40;
setInterval(showTimes, 5000);
setInterval(keepLive, 3000);

// The slider of the state: the form works without this; here it shows each moment while the slider moves.
let asked = 0;
async function showMoment(form) {
  const mine = ++asked, url = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
  const text = await (await fetch(url)).text();
  if (mine !== asked) return;
  const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("#moment");
  if (fresh) $("#moment").replaceChildren(...fresh.childNodes);
  history.replaceState(null, "", url);
}
document.addEventListener("input", (event) => {
  const form = event.target.closest("[data-slider]");
  if (!form || event.target.type !== "range") return;
  $("output", form).textContent = event.target.value;
  clearTimeout(form.timer);
  form.timer = setTimeout(() => showMoment(form), 60);
});
document.addEventListener("click", (event) => {
  const code = event.target.closest("[data-copy], .command");
  if (code && navigator.clipboard && !getSelection().toString()) {
    navigator.clipboard.writeText(code.textContent);
    code.classList.add("copied");
    setTimeout(() => code.classList.remove("copied"), 900);
  }
});
