// Parts of the elements that send files: their buttons and drops, numbers of bytes, and the tus library.

import { element } from "./replay/dom.js";

/** Milliseconds after which a request that failed is sent again; then the reader is asked. */
export const RETRIES = [0, 1000, 3000, 5000, 10_000];

export function button(text, action) {
  const made = element("button", { type: "button" }, text);
  made.addEventListener("click", action);
  return made;
}

/** Let files be dropped onto an element; `taken` gets what was dropped. */
export function takeDrops(target, taken) {
  target.addEventListener("dragover", (event) => {
    event.preventDefault();
    target.classList.add("over");
  });
  target.addEventListener("dragleave", () => target.classList.remove("over"));
  target.addEventListener("drop", (event) => {
    event.preventDefault();
    target.classList.remove("over");
    taken(event.dataTransfer);
  });
}

/** Format a number of bytes. */
export function size(bytes) {
  const [unit, name] = bytes >= 1 << 20 ? [1 << 20, "MiB"] : bytes >= 1024 ? [1024, "KiB"] : [1, "bytes"];
  return `${Number((bytes / unit).toPrecision(3))} ${name}`;
}

/** Load the tus library with the first file: most visits of the page need none. */
export function library(source) {
  if (window.tus) return window.tus;
  return new Promise((resolve, reject) => {
    const script = element("script", { src: source });
    script.addEventListener("load", () => resolve(window.tus));
    script.addEventListener("error", () => reject(new Error("The upload script cannot be loaded. Reload the page.")));
    document.head.append(script);
  });
}
