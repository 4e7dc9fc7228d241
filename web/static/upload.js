// The element <model-upload>: a model file is sent by tus, resumed after a break or a reload, and stored as a model.

import { element } from "./replay/dom.js";

/** Milliseconds after which a request that failed is sent again; then the reader is asked. */
const RETRIES = [0, 1000, 3000, 5000, 10_000];

class ModelUpload extends HTMLElement {
  connectedCallback() {
    this.input = this.querySelector("input[type=file]");
    this.input.addEventListener("change", () => this.input.files[0] && this.begin(this.input.files[0]));
    this.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.classList.add("over");
    });
    this.addEventListener("dragleave", () => this.classList.remove("over"));
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      this.classList.remove("over");
      const [file] = event.dataTransfer.files;
      if (file) this.begin(file);
    });
    this.bar = element("progress", { class: "whole", max: "1", value: "0", "aria-label": "Sent", hidden: "" });
    this.text = element("p", { role: "status", "aria-live": "polite" });
    this.pause = button("Pause", () => this.toggle());
    this.stop = button("Cancel the upload", () => this.cancel());
    this.append(this.bar, this.text, element("p", { class: "actions" }, this.pause, this.stop));
    this.show({});
  }

  /** Send a file; an upload of the same file that was interrupted is continued. */
  async begin(file) {
    await this.cancel();
    this.file = file;
    const upload = (this.upload = new (await library(this.getAttribute("src"))).Upload(file, {
      endpoint: "/v1/uploads",
      retryDelays: RETRIES,
      metadata: { filename: file.name },
      removeFingerprintOnSuccess: true,
      onProgress: (sent, total) => this.progress(sent, total),
      onSuccess: () => this.store(upload.url),
      onError: (error) => this.fail(error),
    }));
    const [earlier] = await upload.findPreviousUploads();
    if (earlier) upload.resumeFromPreviousUpload(earlier);
    this.start();
  }

  start() {
    this.began = null;
    this.show({ running: true, text: `${this.file.name} is sent.` });
    this.upload.start();
  }

  progress(sent, total) {
    const now = performance.now();
    this.began ??= { sent, now };
    const rate = (1000 * (sent - this.began.sent)) / Math.max(now - this.began.now, 1);
    const left = rate > 0 ? `, ${size(rate)}/s, ${Math.ceil((total - sent) / rate)} s left` : "";
    this.bar.value = total ? sent / total : 1;
    this.show({ running: true, text: `${this.file.name}: ${size(sent)} of ${size(total)}${left}` });
  }

  /** Store the bytes as a model, and choose it in the form. */
  async store(address) {
    this.show({ text: `${this.file.name} is complete; its format is found out.` });
    const answer = await fetch("/v1/models", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ upload: address }),
    }).catch(() => null);
    const model = await answer?.json().catch(() => null);
    this.upload = null;
    if (!answer?.ok) {
      this.show({ failed: true, text: model?.detail ?? "The server does not answer. Choose the file again." });
      return;
    }
    this.show({ text: `${model.name}, version ${model.version}: format ${model.format}, ${size(model.size)}.` });
    const field = document.getElementById("model");
    field.value = `${model.name}@${model.version}`;
    for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
  }

  /** Show why an upload has stopped. The bytes that arrived are kept: it goes on from there. */
  fail(error) {
    const body = error.originalResponse?.getBody();
    let detail = "";
    try {
      detail = JSON.parse(body).detail;
    } catch {
      detail = error.originalResponse ? `The server answered ${error.originalResponse.getStatus()}.` : "The connection broke.";
    }
    this.show({ failed: true, paused: true, text: `${detail} What was sent is kept.` });
  }

  async toggle() {
    if (this.paused) {
      this.start();
    } else {
      await this.upload.abort();
      this.show({ paused: true, text: `${this.file.name} is paused.` });
    }
  }

  /** End the upload, and delete what was sent. */
  async cancel() {
    const upload = this.upload;
    this.upload = null;
    if (upload) await upload.abort(true).catch(() => null);
    this.show({ text: upload ? "The upload is cancelled." : "" });
  }

  show({ running = false, paused = false, failed = false, text = "" }) {
    this.paused = paused;
    this.bar.hidden = !running && !paused;
    this.pause.hidden = this.stop.hidden = !running && !paused;
    this.pause.textContent = paused ? "Continue" : "Pause";
    this.text.className = failed ? "problem" : "";
    if (this.text.textContent !== text) this.text.textContent = text;
  }
}

function button(text, action) {
  const made = element("button", { type: "button" }, text);
  made.addEventListener("click", action);
  return made;
}

/** Format a number of bytes. */
function size(bytes) {
  const [unit, name] = bytes >= 1 << 20 ? [1 << 20, "MiB"] : bytes >= 1024 ? [1024, "KiB"] : [1, "bytes"];
  return `${Number((bytes / unit).toPrecision(3))} ${name}`;
}

/** Load the tus library with the first file: most visits of the page need none. */
function library(source) {
  if (window.tus) return window.tus;
  return new Promise((resolve, reject) => {
    const script = element("script", { src: source });
    script.addEventListener("load", () => resolve(window.tus));
    script.addEventListener("error", () => reject(new Error("The upload script cannot be loaded. Reload the page.")));
    document.head.append(script);
  });
}

customElements.define("model-upload", ModelUpload);
