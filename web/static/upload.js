// The element <model-upload>: a model file is sent by tus, resumed after a break or a reload, and stored as a model.

import { projectHeaders } from "./project.js";
import { element } from "./replay/dom.js";
import { button, library, RETRIES, size, takeDrops } from "./upload_parts.js";

class ModelUpload extends HTMLElement {
  connectedCallback() {
    this.input = this.querySelector("input[type=file]");
    this.input.addEventListener("change", () => this.input.files[0] && this.begin(this.input.files[0]));
    takeDrops(this, ({ files: [file] }) => file && this.begin(file));
    this.bar = element("progress", { class: "whole", max: "1", value: "0", "aria-label": "Sent", hidden: "" });
    this.text = element("p", { role: "status", "aria-live": "polite" });
    this.pause = button("Pause", () => this.toggle());
    this.stop = button("Cancel the upload", () => this.cancel());
    this.append(this.bar, this.text, element("p", { class: "actions" }, this.pause, this.stop));
    this.show({});
    if (this.input.files[0]) this.begin(this.input.files[0]); // it was chosen before this script had come
  }

  /** Send a file; an upload of the same file that was interrupted is continued. */
  async begin(file) {
    await this.cancel();
    this.file = file;
    const upload = (this.upload = new (await library(this.getAttribute("src"))).Upload(file, {
      endpoint: "/v1/uploads",
      headers: projectHeaders,
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
      headers: { "Content-Type": "application/json", Accept: "application/json", ...projectHeaders },
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

customElements.define("model-upload", ModelUpload);
