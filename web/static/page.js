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

// Event streams are closed while the page is hidden: a browser opens six connections to a host, for all of its tabs.
document.addEventListener("visibilitychange", () => {
  for (const stream of document.querySelectorAll("[sse-connect]")) {
    if (document.hidden) {
      htmx.trigger(stream, "htmx:beforeCleanupElement"); // htmx-ext-sse closes the stream
    } else {
      htmx.trigger(stream, "htmx:afterProcessNode"); // and opens it
      for (const part of stream.querySelectorAll("[hx-trigger]")) htmx.trigger(part, "htmx:afterProcessNode");
    }
  }
});

// A part that is loaded again must not close what the reader has opened, and elements of scripts own what is in them.
Object.assign(Idiomorph.defaults.callbacks, {
  beforeAttributeUpdated: (name, element) => !(name === "open" && element.tagName === "DETAILS"),
  beforeNodeMorphed: (element) => !element.localName?.includes("-"),
});
