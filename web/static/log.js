// The element <log-view src>: the lines of a log.

import { FollowedText } from "./followed_text.js";

const MOST = 20_000; // lines that are kept in the page; the whole log is a download

class LogView extends FollowedText {
  static label = "Log";

  /** Read the log from its begin; a connection that is lost is opened again by the next toggle or visit. */
  async read(signal) {
    this.lines = [];
    this.dropped = 0;
    try {
      const answer = await fetch(this.getAttribute("src"), { signal });
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
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = null;
      this.show(this.lines.join("\n"));
    });
  }
}

customElements.define("log-view", LogView);
