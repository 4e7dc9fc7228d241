// Requests of replays: repeats while the server computes a replay, and turns every failure into a message.

/** Seconds between two requests if the server names none, and at most. */
const PAUSE = 1;
const LONGEST_WAIT = 15;

/** A failure in words for users: what is wrong, and the next step. */
export class ReplayProblem extends Error {
  constructor(title, detail) {
    super(detail);
    this.title = title;
  }
}

/** Return the document at an address. Call `waiting` with the seconds so far while it is computed. */
export async function loadReplay(address, { signal, waiting }) {
  const begun = performance.now();
  for (;;) {
    const response = await answerOf(address, signal);
    if (response.status !== 202) return documentOf(response);
    waiting((performance.now() - begun) / 1000);
    const pause = Number(response.headers.get("Retry-After")) || PAUSE;
    await sleep(Math.min(pause, LONGEST_WAIT), signal);
  }
}

async function answerOf(address, signal) {
  try {
    return await fetch(address, { signal, credentials: "same-origin", headers: { Accept: "application/json" } });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ReplayProblem("The server does not answer", "Check the connection, then try again.");
  }
}

async function documentOf(response) {
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null && typeof body === "object") return body;
  if (response.ok) throw new ReplayProblem("The replay cannot be read", "The response is not JSON. Try again.");
  throw new ReplayProblem(
    body?.title ?? `The server answered ${response.status}`,
    body?.detail ?? "Try again; if it fails again, the log of the server has the reason.",
  );
}

function sleep(length, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, length * 1000);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
