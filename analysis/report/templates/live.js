"use strict";
// Asks whether there is a newer page, and shows it. The page stays as it is when the server has ended.
const live = document.getElementById("live");
let missed = 0;
async function ask() {
  try {
    const answer = await fetch("version", { cache: "no-store" });
    if (!answer.ok) throw new Error("another server"); // its address has another token
    if ((await answer.text()) !== live.dataset.version) {
      location.reload();
      return;
    }
    missed = 0;
  } catch {
    missed += 1;
    if (missed === 3) live.querySelector("b").textContent = "No longer live: the server has ended";
  }
  setTimeout(ask, 2000);
}
setTimeout(ask, 2000);
