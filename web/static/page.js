// What every page does: refresh live parts while the page is visible, and say when the server cannot be reached.

const REFRESH = 2000; // milliseconds
const STREAM_RETRY = 5000; // milliseconds

/** Ask the live parts of the page to load again: they listen for `refresh` on the body (hx-trigger). */
function refresh() {
  if (document.visibilityState === "visible" && !document.body.querySelector("dialog[open]")) {
    document.body.dispatchEvent(new CustomEvent("refresh"));
  }
}

let unreachable = false; // whether the last message is about the server

/** Show a message about the server to the reader; an empty one removes it. */
function announce(text) {
  unreachable = text !== "";
  const messages = document.getElementById("messages");
  if (messages.textContent !== text) messages.textContent = text;
}

if (document.querySelector("[hx-trigger*='refresh']")) {
  setInterval(refresh, REFRESH);
  document.addEventListener("visibilitychange", refresh);
}
document.body.addEventListener("htmx:sendError", () => announce("The server cannot be reached. This page tries again."));
document.body.addEventListener("htmx:responseError", ({ detail: { xhr } }) => {
  const explained = xhr.getResponseHeader("Content-Type")?.startsWith("text/plain"); // by the page, not by a proxy
  announce(explained ? xhr.responseText : `The server answered ${xhr.status}. Reload the page to see why.`);
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful && event.detail.target?.id !== "messages" && unreachable) announce("");
});

// An answer for the former filters of a list may come after that for the present ones, and must not replace it.
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { elt, path } = detail.requestConfig;
  const current = document.getElementById("refresh")?.getAttribute("hx-get");
  if (elt.id === "refresh" && path !== current) detail.shouldSwap = false;
});

// After the button *back*, the browser fills in the fields of a form: the parts that depend on them are loaded again.
addEventListener("pageshow", ({ persisted }) => {
  const [visit] = performance.getEntriesByType("navigation");
  if (!persisted && visit?.type !== "back_forward" && visit?.type !== "reload") return;
  for (const part of document.querySelectorAll("[hx-trigger*='restored']")) htmx.trigger(part, "restored");
});

/** Open the event stream of an element; one that is open is closed first. */
function openStream(stream) {
  htmx.trigger(stream, "htmx:beforeCleanupElement"); // htmx-ext-sse closes it
  htmx.trigger(stream, "htmx:afterProcessNode"); // and opens it
  for (const part of stream.querySelectorAll("[hx-trigger]")) htmx.trigger(part, "htmx:afterProcessNode");
}

// The end of a stream is not an error, as which htmx-ext-sse would log it: the browser opens it again, or this page does
// after a refusal. A stream whose element has been removed from the page is closed.
htmx.createEventSource = (address) => {
  const source = new EventSource(address);
  source.addEventListener("error", (event) => {
    event.stopImmediatePropagation();
    const stream = () => document.querySelector(`[sse-connect="${CSS.escape(address)}"]`);
    if (!stream()) source.close();
    else if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => stream() && !document.hidden && openStream(stream()), STREAM_RETRY);
    }
  });
  return source;
};

// Event streams are closed while the page is hidden: a browser opens six connections to a host, for all of its tabs.
document.addEventListener("visibilitychange", () => {
  for (const stream of document.querySelectorAll("[sse-connect]")) {
    if (document.hidden) htmx.trigger(stream, "htmx:beforeCleanupElement");
    else openStream(stream);
  }
});

// A part that is loaded again must neither close what the reader has opened nor undo what is chosen, and elements of
// scripts own what is in them.
Object.assign(Idiomorph.defaults.callbacks, {
  beforeAttributeUpdated: (name, element) => !(name === "open" && element.tagName === "DETAILS") && name !== "checked",
  beforeNodeMorphed: (element) => !element.localName?.includes("-"),
});

// A checkbox with data-picks="NAME" chooses all checkboxes with that name.
document.addEventListener("change", ({ target }) => {
  if (!target.dataset?.picks) return;
  for (const box of document.getElementsByName(target.dataset.picks)) box.checked = target.checked;
});

// A message stays until it is closed or another one follows.
document.addEventListener("click", ({ target }) => {
  if (target.matches?.("[data-dismiss]")) document.getElementById("messages").replaceChildren();
});

// A button with data-leave opens a page for its form's fields, where htmx would load a part of this one.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-leave]");
  if (!button) return;
  event.preventDefault();
  const chosen = new FormData(button.form).getAll("ids");
  if (chosen.length < 2) {
    document.getElementById("messages").textContent = "Choose two simulations of one dataset, or more.";
  } else {
    const address = new URL(button.formAction); // which may name a project
    for (const id of chosen) address.searchParams.append("simulation", id);
    location.assign(address);
  }
});

// A dialog with data-opens opens when it is put into the page, and is removed when it is answered: its form's answer is a
// message. The focus then returns to where it was.
document.body.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  const dialog = target.querySelector?.(":scope > dialog[data-opens]");
  if (!dialog) return;
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("htmx:afterRequest", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (!event.target.closest("[data-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.showModal();
});
