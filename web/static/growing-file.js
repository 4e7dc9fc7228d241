// The element <growing-file src>: the end of a file of a task that runs.

import { FollowedText } from "./followed_text.js";

const TAIL = 100_000; // bytes of the end that are read first
const MOST = 1_000_000; // characters that are kept in the page
const WAIT = 20; // seconds that the server waits for more
const PAUSE = 2000; // milliseconds before a request that failed is repeated

class GrowingFile extends FollowedText {
  static label = "File";

  async read(signal) {
    let offset = -TAIL;
    let decoder = new TextDecoder();
    let content = "";
    while (!signal.aborted) {
      try {
        const wait = offset < 0 ? 0 : WAIT;
        const answer = await fetch(`${this.getAttribute("src")}&offset=${offset}&wait_seconds=${wait}`, { signal });
        if (answer.status === 503) {
          await new Promise((done) => setTimeout(done, PAUSE));
          continue;
        }
        if (!answer.ok) {
          const problem = await answer.json();
          this.note.textContent = problem.detail;
          return;
        }
        const start = Number(answer.headers.get("File-Offset"));
        const size = Number(answer.headers.get("File-Size"));
        const bytes = await answer.arrayBuffer();
        if (offset > size) { // it was written again from its beginning
          content = "";
          decoder = new TextDecoder();
          offset = 0;
          continue;
        }
        content = (content + decoder.decode(bytes, { stream: true })).slice(-MOST);
        offset = start + bytes.byteLength;
        this.note.textContent = `${size.toLocaleString("en")} bytes. Following …`;
        this.show(content);
      } catch (error) {
        if (error.name === "AbortError") return;
        this.note.textContent = `The file cannot be read: ${error.message}.`;
        await new Promise((done) => setTimeout(done, PAUSE));
      }
    }
  }
}

customElements.define("growing-file", GrowingFile);
