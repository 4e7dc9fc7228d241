// The elements <passkey-sign-in> and <new-passkey>: the browser signs with a passkey, or makes one (W3C WebAuthn).

async function send(address, body) {
  const answer = await fetch(address, {
    method: "POST", body: JSON.stringify(body ?? {}), headers: { "Content-Type": "application/json" },
  });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.detail);
  return document;
}

class PasskeyElement extends HTMLElement {
  connectedCallback() {
    if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) return; // an old browser, or plain HTTP
    this.hidden = false;
    this.begin();
  }

  /** Do what was asked for, and say why it failed. */
  async attempt(work) {
    const alert = this.querySelector("[role=alert]");
    const button = this.querySelector("button");
    alert.textContent = "";
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      alert.textContent = error.name === "NotAllowedError" ? "It was cancelled, or took too long." : error.message;
    } finally {
      button.disabled = false;
    }
  }
}

class PasskeySignIn extends PasskeyElement {
  begin() {
    this.querySelector("button").addEventListener("click", () => this.attempt(async () => {
      const { ticket, options } = await send("/v1/sign-in/passkey/question");
      const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
      const credential = await navigator.credentials.get({ publicKey });
      await send("/v1/sign-in/passkey", { ticket, credential: credential.toJSON() });
      location.assign(this.dataset.next);
    }));
  }
}

class NewPasskey extends PasskeyElement {
  begin() {
    const form = this.querySelector("form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(async () => {
        const address = `/v1/users/${this.dataset.user}/passkeys`;
        const { ticket, options } = await send(`${address}/question`);
        const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
        const credential = await navigator.credentials.create({ publicKey });
        await send(address, { name: form.elements.name.value, ticket, credential: credential.toJSON() });
        location.reload();
      });
    });
  }
}

customElements.define("passkey-sign-in", PasskeySignIn);
customElements.define("new-passkey", NewPasskey);
