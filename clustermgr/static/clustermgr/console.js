// Two things the theme has no word for: copying a command, and owning up to a lost refresh.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.innerText);
    button.innerText = "Copied";
  } catch {
    // No clipboard without HTTPS: select it, the rest is one keystroke.
    getSelection().selectAllChildren(source);
    button.innerText = "Press Ctrl+C";
  }
});

// A number that looks live and is not would be worse than none. An expired session answers
// with the login page and status 200, hence the header.
let lastRefresh = new Date();
document.addEventListener("htmx:afterRequest", (event) => {
  const poller = event.target.closest?.("[data-live]");
  if (!poller) return;
  const well = event.detail.xhr?.getResponseHeader("X-Live") === "1";
  if (well) lastRefresh = new Date();
  poller.querySelector("[data-live-since]").innerText = lastRefresh.toLocaleTimeString();
  poller.querySelector(".cm-lost").hidden = well;
  document.body.classList.toggle("cm-not-live", !well);
});
