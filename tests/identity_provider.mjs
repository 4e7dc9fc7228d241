// The certified OpenID provider `oidc-provider` for tests. Arguments: its packages, its port, the client's callbacks.
// PEOPLE is a JSON file with claims by account; who is taken out of it is refused from then on, also a renewal.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, port, secret, ...callbacks] = process.argv.slice(2);
const require = createRequire(`${packages}/package.json`);
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);
const people = () => JSON.parse(readFileSync(process.env.PEOPLE, "utf8"));
const inToken = process.env.GROUPS_IN_TOKEN === "yes";

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "windtunnel", client_secret: secret, redirect_uris: callbacks,
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
  }],
  scopes: ["openid", "profile", "email", "offline_access"],
  claims: { openid: ["sub", "groups"], profile: ["name", "preferred_username"], email: ["email"] },
  conformIdTokenClaims: !inToken,
  features: { devInteractions: { enabled: false } },
  cookies: { keys: ["of the tests"] },
  pkce: { required: () => true },
  issueRefreshToken: (ctx, client, code) => client.grantTypeAllowed("refresh_token") && code.scopes.has("offline_access"),
  findAccount: (ctx, id) => {
    const claims = people()[id];
    return claims && { accountId: id, claims: () => ({ sub: id, ...claims }) };
  },
  interactions: { url: (ctx, interaction) => `/login/${interaction.uid}` },
  async loadExistingGrant(ctx) {
    const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
    grant.addOIDCScope("openid profile email offline_access");
    await grant.save();
    return grant;
  },
});

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith("/login/")) return next();
  if (ctx.method === "GET") {
    ctx.type = "html";
    ctx.body = `<!doctype html><title>Sign in</title><form method="post"><label>Account <input name="account"></label><button>Continue</button></form>`;
    return;
  }
  let body = "";
  for await (const part of ctx.req) body += part;
  const account = new URLSearchParams(body).get("account");
  const { prompt } = await provider.interactionDetails(ctx.req, ctx.res);
  const entered = people()[account] ? { login: { accountId: account } } : { error: "access_denied" };
  const result = prompt.name === "consent" ? { consent: {} } : entered;
  await provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: true });
  ctx.respond = false;
});

provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
