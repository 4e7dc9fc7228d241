// The element <copy-text>: a button that copies the text of the code within it.

class CopyText extends HTMLElement {
  connectedCallback() {
    if (this.querySelector("button") || !navigator.clipboard) return; // plain HTTP has no clipboard except on loopback
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    this.prepend(button);
  }
}

customElements.define("copy-text", CopyText);
