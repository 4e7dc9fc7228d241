// The element <dataset-upload>: files or a folder are sent by tus, and registered as a dataset, maps with a description.

import { inProject, projectHeaders } from "./project.js";
import { element } from "./replay/dom.js";
import { button, library, RETRIES, size, takeDrops } from "./upload_parts.js";

const ARCHIVE = /\.(tar|tar\.(gz|bz2|xz|zst)|tgz|tbz2|txz|zip)$/i;
/** Suffixes of maps, the longest first: docs/maps.md. */
const MAP = /\.(net\.xml|osm\.xml|xodr|osm|xml)(\.gz)?$/i;
const DESCRIPTION = "dataset.json";
/** What a name of a dataset has, besides letters and digits. */
const NAME = /[^A-Za-z0-9._-]+/g;
/** Most files that a registration by single uploads has; more come as an archive. */
const MOST = 10_000;

class DatasetUpload extends HTMLElement {
  connectedCallback() {
    this.form = this.querySelector("form");
    this.list = this.querySelector("[data-files]");
    this.generate = this.querySelector("[data-generate]");
    this.files = [];
    this.addresses = new Map(); // of files that are sent: after a refusal they are not sent again
    const inputs = [...this.querySelectorAll("input[type=file]")];
    const choices = (input) => [...input.files].map((file) => [pathOf(file), file]);
    for (const input of inputs) input.addEventListener("change", () => this.choose(choices(input)));
    takeDrops(this, (data) =>
      dropped(data).then((files) => this.choose(files), () => this.say("A folder cannot be read.", true)),
    );
    this.bar = element("progress", { class: "whole", max: "1", value: "0", "aria-label": "Sent", hidden: "" });
    this.text = element("p", { role: "status", "aria-live": "polite" });
    this.stop = button("Cancel the upload", () => this.cancel());
    this.stop.hidden = true;
    this.append(this.bar, this.text, element("p", { class: "actions" }, this.stop));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.choose(inputs.map(choices).find((files) => files.length) ?? []); // perhaps chosen before this script had come
  }

  /** Show which files are sent, and what is said of maps. */
  choose(files) {
    this.files = files.filter(([path]) => !path.split("/").some((part) => part.startsWith(".")));
    const total = this.files.reduce((sum, [, file]) => sum + file.size, 0);
    const hidden = files.length - this.files.length;
    this.list.textContent = this.files.length
      ? `${this.files.length === 1 ? this.files[0][0] : `${this.files.length} files`}, ${size(total)}${hidden ? `; ${hidden === 1 ? "a hidden file is" : `${hidden} hidden files are`} left out` : ""}`
      : "No file is chosen.";
    this.generate.hidden = !this.maps().length;
    const name = this.form.elements.name;
    if (!name.value && this.files.length) name.value = nameOf(this.files[0][0]);
    this.say("");
  }

  /** Return the paths of maps among files that bring no description of their own. */
  maps() {
    if (this.files.some(([path]) => path === DESCRIPTION)) return [];
    return this.files.map(([path]) => path).filter((path) => MAP.test(path));
  }

  /** Return the files that are sent: with maps, also a description that extends car_street by them. */
  described() {
    const maps = this.maps();
    if (!maps.length) return this.files;
    const names = new Set();
    const named = maps.map((file) => ({ file, name: mapName(file, names) }));
    const { count, seed } = this.form.elements;
    const content = { extends: "car_street", maps: named, generate: { count: Number(count.value || 200), seed: Number(seed.value || 0) } };
    return [[DESCRIPTION, new File([JSON.stringify(content)], DESCRIPTION)], ...this.files];
  }

  /** Send the files one after the other, register them, and show the registration. */
  async send() {
    const files = this.described();
    if (!files.length) return this.say("Choose or drop the files of the dataset first.", true);
    if (files.length > MOST) return this.say(`More than ${MOST} files: send them as an archive (tar or zip).`, true);
    const total = files.reduce((sum, [, file]) => sum + file.size, 0);
    const uploads = [];
    let before = 0;
    this.cancelled = false;
    this.busy(true);
    try {
      for (const [path, file] of files) {
        const upload = this.addresses.get(file) ?? (await this.sent(file, (sent) => this.progress(path, before + sent, total)));
        this.addresses.set(file, upload);
        uploads.push({ path, upload });
        before += file.size;
      }
      this.say("All files are sent; the dataset is registered.");
      const [{ path, upload }] = uploads;
      const source = uploads.length === 1 && ARCHIVE.test(path) ? { upload } : { uploads };
      const tags = this.form.elements.tags.value.split(/[\s,]+/).filter(Boolean);
      const document = { name: this.form.elements.name.value.trim(), source, ...(tags.length ? { tags } : {}) };
      location.assign(inProject(`/data/${encodeURIComponent(await registered(document))}`));
    } catch (error) {
      this.busy(false);
      this.say(this.cancelled ? "The upload is cancelled." : `${error.message} What was sent is kept.`, !this.cancelled);
    }
  }

  /** Send one file; return the address of its upload. */
  async sent(file, onProgress) {
    const tus = await library(this.getAttribute("src"));
    return new Promise((resolve, reject) => {
      const upload = (this.upload = new tus.Upload(file, {
        endpoint: "/v1/uploads",
        headers: projectHeaders,
        retryDelays: RETRIES,
        metadata: { filename: file.name },
        storeFingerprintForResuming: false,
        onProgress: (sent) => onProgress(sent),
        onSuccess: () => resolve(upload.url),
        onError: (error) => reject(new Error(reasonOf(error))),
      }));
      this.abort = async () => {
        await upload.abort(true).catch(() => null);
        reject(new Error("cancelled"));
      };
      upload.start();
    });
  }

  /** End the upload, and delete what was sent. */
  async cancel() {
    this.cancelled = true;
    await this.abort?.();
    for (const address of this.addresses.values()) {
      await fetch(address, { method: "DELETE", headers: { "Tus-Resumable": "1.0.0", ...projectHeaders } }).catch(() => null);
    }
    this.addresses.clear();
  }

  progress(path, sent, total) {
    this.bar.value = total ? sent / total : 1;
    this.say(`${path}: ${size(sent)} of ${size(total)} are sent.`);
  }

  busy(running) {
    this.bar.hidden = this.stop.hidden = !running;
    for (const control of this.form.elements) control.disabled = running;
  }

  say(text, failed = false) {
    this.text.className = failed ? "problem" : "";
    if (this.text.textContent !== text) this.text.textContent = text;
  }
}

/** Register a dataset; return the id of the version, or throw what the problem says. */
async function registered(document) {
  const answer = await fetch("/v1/datasets", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", ...projectHeaders },
    body: JSON.stringify(document),
  }).catch(() => null);
  const body = await answer?.json().catch(() => null);
  if (!answer?.ok) throw new Error(body?.detail ?? "The server does not answer. Send it once more.");
  return body.id;
}

/** Return why an upload was refused: the detail of its problem, if it has one. */
function reasonOf(error) {
  try {
    return JSON.parse(error.originalResponse.getBody()).detail;
  } catch {
    return error.originalResponse ? `The server answered ${error.originalResponse.getStatus()}.` : "The connection broke. Send it once more.";
  }
}

/** Return the path of a file in the folder that was chosen; its name, if it was chosen by itself. */
function pathOf(file) {
  return file.webkitRelativePath ? file.webkitRelativePath.split("/").slice(1).join("/") : file.name;
}

/** Return the files that were dropped, with their paths; those of a folder that was dropped alone without its name. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => [file.name, file]);
  const alone = entries.length === 1 && entries[0].isDirectory;
  const found = await Promise.all(entries.map((entry) => filesOf(entry)));
  return found.flat().map(([path, file]) => [alone ? path.split("/").slice(1).join("/") : path, file]);
}

async function filesOf(entry) {
  const path = entry.fullPath.replace(/^\//, "");
  if (entry.isFile) return [[path, await new Promise((resolve, reject) => entry.file(resolve, reject))]];
  const reader = entry.createReader();
  const inside = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // up to 100 at once
    if (!some.length) break;
    inside.push(...some);
  }
  return (await Promise.all(inside.map((child) => filesOf(child)))).flat();
}

/** Return a name for a dataset of a file. */
function nameOf(path) {
  const base = path.split("/")[0].replace(ARCHIVE, "").replace(MAP, "");
  return base.replace(NAME, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 100);
}

/** Return what scenarios call a map: lower-case letters, digits and `_`, each name once. */
function mapName(path, taken) {
  const base = path.split("/").at(-1).replace(MAP, "").toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "").slice(0, 36) || "map";
  let name = base;
  for (let number = 2; taken.has(name); number += 1) name = `${base}_${number}`;
  taken.add(name);
  return name;
}

customElements.define("dataset-upload", DatasetUpload);
