// A text that grows, followed while it is shown and the reader is at its end: the base of <log-view> and <growing-file>.

export class FollowedText extends HTMLElement {
  /** What the text is, for those who do not see the page. */
  static label = "Text";

  connectedCallback() {
    this.note = document.createElement("p");
    this.note.className = "small muted";
    this.text = document.createElement("pre");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "log");
    this.text.setAttribute("aria-label", this.constructor.label);
    this.replaceChildren(this.note, this.text);
    const details = this.closest("details");
    const follow = () => (document.hidden || (details && !details.open) ? this.stop() : this.follow());
    details?.addEventListener("toggle", follow);
    document.addEventListener("visibilitychange", follow);
    follow();
  }

  disconnectedCallback() {
    this.stop();
  }

  stop() {
    this.reading?.abort();
    this.reading = null;
  }

  follow() {
    if (this.reading) return;
    this.reading = new AbortController();
    this.note.textContent = "Loading …";
    this.read(this.reading.signal);
  }

  /** Show the text; a reader at its end stays there. */
  show(content) {
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 20;
    this.text.textContent = content;
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}
