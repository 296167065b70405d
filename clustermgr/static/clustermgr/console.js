// What the theme has no word for: copying a command, owning up to a lost refresh, and a refresh
// that knows when it is wanted.
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
const loaded = new Date().toLocaleTimeString();
document.addEventListener("htmx:afterRequest", (event) => {
  const poller = event.target.closest?.("[data-live]");
  if (!poller) return;
  const well = event.detail.xhr?.getResponseHeader("X-Live") === "1";
  if (well) poller.dataset.since = new Date().toLocaleTimeString();
  poller.querySelector("[data-live-since]").innerText = poller.dataset.since ?? loaded;
  poller.querySelector(".cm-lost").hidden = well;
  // A page may have two: it is live only if both are.
  const lost = document.querySelector("[data-live] .cm-lost:not([hidden])") !== null;
  document.body.classList.toggle("cm-not-live", lost);
});

// What has not changed stays: a button must not be swapped while somebody presses it.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const fresh = event.detail.fragment.firstElementChild;
  if (fresh?.id && fresh.innerHTML === event.target.innerHTML && fresh.value === event.target.value)
    event.detail.shouldSwap = false;
});

// Operations: the server says with each answer how soon to ask again (X-Next, in milliseconds;
// 0: nothing is under way). A hidden page does not ask. The event stream, where there is one,
// only makes the next question come sooner: what is shown always comes from an answer.
const SOONEST = 1000;
document.addEventListener("DOMContentLoaded", () => {
  const poller = document.getElementById("operations-live");
  if (!poller) return;
  let pace = Number(poller.dataset.pace);
  let timer = 0;
  let last = Date.now();
  const ask = () => {
    if (document.visibilityState !== "visible") return;
    last = Date.now();
    htmx.trigger(poller, "refresh");
  };
  const plan = (delay) => {
    clearTimeout(timer);
    if (delay > 0) timer = setTimeout(ask, delay);
  };
  poller.addEventListener("htmx:afterRequest", (event) => {
    const next = event.detail.xhr?.getResponseHeader("X-Next");
    if (next != null) pace = Number(next);
    plan(pace);
  });
  let stream = null;
  let newest = 0;
  const listen = () => {
    stream?.close();
    stream = document.hidden ? null : new EventSource(poller.dataset.events);
    if (!stream) return;
    const sooner = () => plan(Math.max(1, SOONEST - (Date.now() - last)));
    stream.addEventListener("reset", sooner);
    stream.onmessage = (event) => {
      // After a reconnect some are told again: only what is newer is news.
      if (Number(event.lastEventId) <= newest) return;
      newest = Number(event.lastEventId);
      sooner();
    };
  };
  document.addEventListener("visibilitychange", () => {
    listen();
    plan(document.hidden ? 0 : 1);
  });
  addEventListener("pagehide", () => stream?.close());
  listen();
  plan(pace);
});
