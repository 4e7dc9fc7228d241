// An invitation in the part of the address after `#`, which no server is sent: it moves into the form.

const field = document.querySelector("#invitation");
if (location.hash.startsWith("#wti_")) {
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
}
