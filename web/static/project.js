// The project that the page is in: what a script asks for, or opens, names it. Without accounts there is none.

const project = document.querySelector("meta[name=windtunnel-project]")?.content;

/** Headers that name the project of a request. */
export const projectHeaders = project ? { "Windtunnel-Project": project } : {};

/** Return an address of this server with the project. */
export function inProject(address) {
  return project ? `${address}${address.includes("?") ? "&" : "?"}project=${project}` : address;
}
