// The element <log-view src>: the lines of a log, followed while it is shown and the reader is at its end.

const MOST = 20_000; // lines that are kept in the page; the whole log is a download

class LogView extends HTMLElement {
  connectedCallback() {
    this.replaceChildren();
    this.text = document.createElement("pre");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "log");
    this.text.setAttribute("aria-label", "Log");
    this.note = document.createElement("p");
    this.note.className = "small muted";
    this.append(this.note, this.text);
    this.lines = [];
    const details = this.closest("details");
    const follow = () => (details && !details.open ? this.stop() : this.follow());
    details?.addEventListener("toggle", follow);
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.stop(); else follow(); });
    follow();
  }

  disconnectedCallback() {
    this.stop();
  }

  stop() {
    this.reading?.abort();
    this.reading = null;
  }

  /** Read the log from its begin; a connection that is lost is opened again by the next toggle or visit. */
  async follow() {
    if (this.reading) return;
    const reading = (this.reading = new AbortController());
    this.lines = [];
    this.dropped = 0;
    this.note.textContent = "Loading …";
    try {
      const answer = await fetch(this.getAttribute("src"), { signal: reading.signal });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n");
        rest = parts.pop();
        this.add(parts.filter((line) => line));
      }
      this.add(rest ? [rest] : []);
      this.note.textContent = this.lines.length ? this.kept("The log is complete.") : "The log is empty.";
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = `The log cannot be read: ${error.message}.`;
    }
  }

  kept(message) {
    return this.dropped ? `${message} The last ${MOST} lines are shown; ${this.dropped} are before them.` : message;
  }

  add(lines) {
    this.lines.push(...lines);
    if (this.lines.length > MOST) this.dropped += this.lines.splice(0, this.lines.length - MOST).length;
    this.note.textContent = this.kept("Following …");
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = null;
      const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 20;
      this.text.textContent = this.lines.join("\n");
      if (atEnd) this.text.scrollTop = this.text.scrollHeight;
    });
  }
}

customElements.define("log-view", LogView);
