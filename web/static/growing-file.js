// The element <growing-file src>: the end of a file of a task that runs, followed while it is shown.

const TAIL = 100_000; // bytes of the end that are read first
const MOST = 1_000_000; // characters that are kept in the page
const WAIT = 20; // seconds that the server waits for more
const PAUSE = 2000; // milliseconds before a request that failed is repeated

class GrowingFile extends HTMLElement {
  connectedCallback() {
    this.note = document.createElement("p");
    this.note.className = "small muted";
    this.text = document.createElement("pre");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "log");
    this.text.setAttribute("aria-label", "File");
    this.replaceChildren(this.note, this.text);
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.stop(); else this.follow(); });
    this.follow();
  }

  disconnectedCallback() {
    this.stop();
  }

  stop() {
    this.reading?.abort();
    this.reading = null;
  }

  async follow() {
    if (this.reading) return;
    const reading = (this.reading = new AbortController());
    let offset = -TAIL;
    let decoder = new TextDecoder();
    let content = "";
    this.note.textContent = "Loading …";
    while (!reading.signal.aborted) {
      try {
        const wait = offset < 0 ? 0 : WAIT;
        const answer = await fetch(`${this.getAttribute("src")}&offset=${offset}&wait=${wait}`, { signal: reading.signal });
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

  show(content) {
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 20;
    this.text.textContent = content;
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}

customElements.define("growing-file", GrowingFile);
