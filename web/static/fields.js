// Errors of a form's fields: each stands at its field, and goes when that is changed. What the page finds while the reader
// writes (`data-field` in an answer for the form) stands there too, for as long as it is found.

function controlOf(error) {
  return document.querySelector(`[aria-describedby="${CSS.escape(error.id)}"]`);
}

/** Show a text at a field; an empty one removes what stands there, and its line in the reasons of the refusal. */
function mark(error, text, live = false) {
  error.textContent = text;
  error.toggleAttribute("data-live", live);
  const control = controlOf(error);
  if (text) control?.setAttribute("aria-invalid", "true");
  else control?.removeAttribute("aria-invalid");
  if (text) return;
  const refusal = document.getElementById("refusal");
  refusal?.querySelector(`[data-error="${CSS.escape(error.id)}"]`)?.remove();
  if (refusal && !refusal.querySelector("li")) refusal.remove();
}

document.addEventListener("input", ({ target }) => {
  const error = document.getElementById(target.getAttribute?.("aria-describedby") ?? "");
  if (error?.matches(".field-error") && error.textContent) mark(error, "");
});

document.body.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  if (target.id !== "request") return;
  const found = target.querySelector("[data-field]");
  const place = found && document.getElementById(`error-${found.dataset.field}`);
  for (const error of document.querySelectorAll(".field-error[data-live]")) if (error !== place) mark(error, "");
  if (place) mark(place, found.textContent, true);
});
