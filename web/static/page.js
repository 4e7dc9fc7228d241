// What every page does: refresh live parts while the page is visible, and say when the server cannot be reached.

const REFRESH = 2000; // milliseconds

/** Ask the live parts of the page to load again: they listen for `refresh` on the body (hx-trigger). */
function refresh() {
  if (document.visibilityState === "visible" && !document.body.querySelector("dialog[open]")) {
    document.body.dispatchEvent(new CustomEvent("refresh"));
  }
}

/** Show a message to the reader; an empty one removes the last. */
function announce(text) {
  const messages = document.getElementById("messages");
  if (messages.textContent !== text) messages.textContent = text;
}

if (document.querySelector("[hx-trigger*='refresh']")) {
  setInterval(refresh, REFRESH);
  document.addEventListener("visibilitychange", refresh);
}
document.body.addEventListener("htmx:sendError", () => announce("The server cannot be reached. This page tries again."));
document.body.addEventListener("htmx:responseError", (event) => {
  announce(`The server answered ${event.detail.xhr.status}. Reload the page to see why.`);
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) announce("");
});
