// One log: followed over a WebSocket, read by plain requests while that fails. Everything that
// a backend printed is put on the page as text, never as markup.
(() => {
  const log = document.getElementById("log");
  const part = (name) => log.querySelector(`[data-${name}]`);
  const list = part("lines");
  const AGAIN_AFTER = 3000;
  const MOST = 5000; // lines on the page; a browser gets slow long before it gets full
  const key = encodeURIComponent(log.dataset.log);
  const rest = `/api/nodes/${log.dataset.node}/backend-logs/${key}`;
  const asked = new URLSearchParams(location.search);
  const wanted = { stream: asked.get("stream") || "", q: asked.get("q") || "" };
  let waiting = []; // arrived, not yet on the page
  let whole = false; // and it is all there is, not what came on top
  let paused = false;
  let cleared = ""; // nothing up to this moment is shown again
  let last = "";

  const moment = (line) => {
    const at = new Date(line.timestamp);
    return isNaN(at) ? "" : at.toISOString();
  };

  function say(words, tone) {
    part("log-state").innerText = words;
    part("log-dot").className = `cm-dot cm-${tone}`;
  }

  function passes(row) {
    const right = !wanted.stream || row.dataset.of === wanted.stream;
    return right && row.lastChild.textContent.toLowerCase().includes(wanted.q.toLowerCase());
  }

  function highlight(cell) {
    const text = cell.textContent;
    const [low, q] = [text.toLowerCase(), wanted.q.toLowerCase()];
    const parts = [];
    let from = 0;
    // Some letters change their length in lower case; then a mark would sit in the wrong place
    for (let at; q && low.length === text.length && (at = low.indexOf(q, from)) >= 0; ) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + q.length);
      parts.push(text.slice(from, at), mark);
      from = at + q.length;
    }
    cell.replaceChildren(...parts, text.slice(from));
  }

  function sift(rows) {
    for (const row of rows) {
      row.hidden = !passes(row);
      if (!row.hidden) highlight(row.lastChild);
    }
    const shown = list.querySelectorAll("li:not([hidden])").length;
    part("found").innerText = wanted.q ? `${shown} of ${list.children.length} lines` : "";
    const nothing = part("nothing");
    nothing.hidden = shown > 0;
    nothing.innerText = list.children.length
      ? "No line matches; change the search or the stream."
      : cleared ? "Cleared; new lines appear here." : "This process has printed nothing yet.";
  }

  function rowOf(line) {
    const row = document.createElement("li");
    row.dataset.of = line.stream;
    row.dataset.at = moment(line);
    const [time, stream, text] = ["time", "span", "span"].map((tag) => document.createElement(tag));
    time.textContent = row.dataset.at.slice(11, 23) || line.timestamp;
    time.title = line.timestamp;
    stream.textContent = line.stream;
    stream.className = "cm-stream";
    text.textContent = line.text;
    row.append(time, stream, text);
    return row;
  }

  function show() {
    if (paused) {
      part("pause").innerText = waiting.length ? `Resume (${waiting.length} new)` : "Resume";
      return;
    }
    if (whole) list.replaceChildren();
    whole = false;
    const rows = waiting.map(rowOf).filter((row) => !cleared || row.dataset.at > cleared);
    waiting = [];
    list.append(...rows);
    while (list.children.length > MOST) list.firstChild.remove();
    last = list.lastChild?.dataset.at || last;
    sift(rows);
    if (part("scroll").checked) list.scrollTop = list.scrollHeight;
  }

  function replace(lines) {
    waiting = lines;
    whole = true;
    show();
  }

  let drawing = false;
  function arrive(line) {
    waiting.push(line);
    if (waiting.length > MOST) waiting.shift();
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      show();
    });
  }

  async function read() {
    try {
      const reply = await fetch(rest, { headers: { Accept: "application/json" } });
      const body = await reply.json();
      if (reply.ok) replace(body);
      return reply.ok ? "" : body.detail;
    } catch {
      return "The manager does not answer.";
    }
  }

  function follow() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(
      `${scheme}://${location.host}/ws/nodes/${log.dataset.node}/backend-logs/${key}`,
    );
    let live = false;
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (!live) say("Live", "good");
      live = true;
      if (frame.type === "initial") replace(frame.lines || []);
      else if (frame.type === "line") arrive(frame.line);
    };
    socket.onopen = () => say("Connected, waiting for the worker …", "warn");
    socket.onclose = async (event) => {
      const trouble = await read();
      if (trouble && !list.children.length) {
        part("nothing").hidden = false;
        part("nothing").innerText = trouble;
      }
      const how = trouble ? "Not live, trying again every 3 s" : "Not live, refreshed every 3 s";
      const why = trouble || event.reason || "the connection was lost.";
      say(list.children.length ? `${how}: ${why}` : how, "bad");
      setTimeout(follow, AGAIN_AFTER);
    };
  }

  function remember() {
    const url = new URL(location);
    for (const [name, value] of Object.entries(wanted)) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    history.replaceState(null, "", url);
    for (const link of log.querySelectorAll("[data-download]")) {
      const sieve = Object.entries(wanted).filter(([, value]) => value);
      link.href = `${rest}?${new URLSearchParams([["format", link.dataset.download], ...sieve])}`;
    }
    for (const button of log.querySelectorAll("[data-stream]")) {
      button.classList.toggle("cm-current", button.dataset.stream === wanted.stream);
      button.setAttribute("aria-pressed", button.dataset.stream === wanted.stream);
    }
    sift(list.children);
  }

  log.addEventListener("click", (event) => {
    const button = event.target.closest("[data-stream]");
    if (!button) return;
    wanted.stream = button.dataset.stream;
    remember();
  });
  part("search").value = wanted.q;
  part("search").addEventListener("input", (event) => {
    wanted.q = event.target.value;
    remember();
  });
  part("text-only").addEventListener("change", (event) =>
    list.classList.toggle("cm-text-only", event.target.checked),
  );
  part("pause").addEventListener("click", (event) => {
    paused = !paused;
    event.target.setAttribute("aria-pressed", paused);
    event.target.innerText = paused ? "Resume" : "Pause";
    if (!paused) show();
  });
  part("clear").addEventListener("click", () => {
    cleared = last;
    list.replaceChildren();
    waiting = [];
    sift([]);
  });
  part("jump").addEventListener("change", (event) => {
    const rows = [...list.querySelectorAll("li:not([hidden])")];
    const target = rows.find((row) => row.dataset.at.slice(11, 19) >= event.target.value);
    if (!target) return;
    part("scroll").checked = false;
    list.scrollTop = target.offsetTop - list.offsetTop;
  });
  list.addEventListener("wheel", () => {
    // Who scrolls up wants to read, not to be carried away by the next line
    part("scroll").checked = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  });

  remember();
  part("nothing").hidden = true;
  follow();
})();
