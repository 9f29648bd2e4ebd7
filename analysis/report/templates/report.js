"use strict";
// Sorting, filtering, copying and the theme. Without it the page shows everything, in its own order.
const order = new Intl.Collator(undefined, { numeric: true }).compare;
const ROWS = "tbody > tr";

function compare(a, b, sign) {
  const [x, y] = [a.dataset.v, b.dataset.v];
  if (x !== undefined && y !== undefined) return sign * (x - y);
  if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1; // what is missing comes last
  return sign * order(a.textContent, b.textContent);
}

function sortable(table) {
  const original = [...table.querySelectorAll(ROWS)];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const rows = [...original];
      if (next !== "none") rows.sort((a, b) => compare(a.cells[column], b.cells[column], sign));
      table.tBodies[0].append(...rows);
    });
  });
}

function filterable(section, table) {
  const tools = section.querySelector(".tools");
  const search = tools.querySelector("input[type=search]");
  const only = tools.querySelector("input[type=checkbox]");
  const status = tools.querySelector("[role=status]");
  const textOf = (row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
  const rows = [...table.querySelectorAll(ROWS)].map((row) => [row, textOf(row)]);
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach(([row, text]) => {
      const kept = words.every((word) => text.includes(word)) && !(only && only.checked && !("differs" in row.dataset));
      row.hidden = !kept;
      left += kept;
    });
    status.textContent = left === rows.length ? `${left} row${left === 1 ? "" : "s"}` : `${left} of ${rows.length} rows`;
  };
  search.addEventListener("input", apply);
  if (only) only.addEventListener("change", apply);
  tools.hidden = false;
  apply();
}

document.querySelectorAll("table.data").forEach((table) => {
  sortable(table);
  filterable(table.closest("section, details"), table);
});

// A link into what is folded away unfolds it; not all browsers do so by themselves.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = target && target.closest("details");
  if (details && !details.open) {
    details.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
unfold();

document.querySelectorAll('a[href="#only-differing"]').forEach((link) => {
  link.addEventListener("click", () => {
    const only = document.getElementById("only-differing");
    only.checked = true;
    only.dispatchEvent(new Event("change"));
    only.focus();
  });
});

document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    let done = true;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source); // pages opened from a file may not use the clipboard
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });
});

const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
function show() {
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.setAttribute("aria-label", `Use the ${isDark() ? "light" : "dark"} theme`);
}
function remembered(value) {
  try {
    if (value) localStorage.setItem("vbstudy-theme", value);
    return localStorage.getItem("vbstudy-theme");
  } catch {
    return null; // storage is switched off: the theme lasts as long as the page
  }
}
const kept = remembered();
if (kept) document.documentElement.dataset.theme = kept;
theme.hidden = false;
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  remembered(document.documentElement.dataset.theme);
  show();
});
system.addEventListener("change", show);
show();

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
