// Keeps the page as the pipeline is: parts arrive as HTML that the service made, when they differ from what is shown.
"use strict";

const $ = (id) => document.getElementById(id);
let allowed = document.body.dataset.allowed === "yes";
const hasToken = document.body.dataset.token === "yes";
const RETRY_SECONDS = [1, 2, 5, 10];
let token = sessionStorage.getItem("token") || "";
let failures = 0;

function headers(more) {
  return token ? { ...more, authorization: `Bearer ${token}` } : { ...more };
}

// -- what is live ---------------------------------------------------------------------------------------------------

function say(text) {
  if ($("connection").textContent !== text) $("connection").textContent = text;
}

function replacePart(name, html) {
  const place = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
  if (!place) location.reload();  // the service was started again, and has a follower that this page does not know
  if (!place || place.dataset.html === html) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  place.dataset.html = html;
  place.innerHTML = html;
  if (focused && $(focused)) $(focused).focus();
  if (name === "map") drawLines();
  if (name === "wrong") announce();
}

function announce() {
  const count = document.querySelectorAll("#part-wrong .problems li").length;
  const text = count ? `${count} ${count === 1 ? "thing is" : "things are"} wrong` : "all is well";
  if ($("announce").textContent !== text) $("announce").textContent = text;
  document.title = `${count ? `(${count}) ` : ""}${document.querySelector("h1").textContent} - driftless`;
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch("/live", { headers: headers(), cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) { say("the token is needed"); return; }
      if (answer.status === 429) throw new Error("too many wrong tokens");
      if (!answer.ok) throw new Error(`the service answers with ${answer.status}`);
      failures = 0;
      await readEvents(answer.body);
      throw new Error("the service has ended the connection");
    } catch (error) {
      say(`not connected: ${error.message}`);
    }
    const pause = RETRY_SECONDS[Math.min(failures++, RETRY_SECONDS.length - 1)];
    await new Promise((done) => setTimeout(done, pause * 1000));
  }
}

async function readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("");
      text = text.slice(end + 2);
      if (data) heed(JSON.parse(data));
    }
  }
}

function heed(event) {
  for (const [name, html] of Object.entries(event.parts || {})) replacePart(name, html);
  say(`live, as of ${event.at}`);
}

// Where reading needs the token, the page came without anything of the pipeline: it is asked for again.
async function fill() {
  const answer = await fetch("/", { headers: headers(), cache: "no-store" });
  const whole = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (whole.body.dataset.allowed !== "yes") { forgetToken(); say("this is not the token"); return; }
  allowed = true;
  document.querySelector("h1").textContent = whole.querySelector("h1").textContent;
  $("main").innerHTML = whole.getElementById("main").innerHTML;
  $("why-form").addEventListener("submit", why);
  begin();
}

function begin() {
  drawLines();
  announce();
  follow();
  updateCharts();
}

// -- the picture ----------------------------------------------------------------------------------------------------

function drawLines() {
  const svg = $("lines"), frame = svg.getBoundingClientRect(), paths = [];
  if (getComputedStyle(svg).display !== "none") {
    for (const box of document.querySelectorAll("[data-box]")) {
      for (const read of JSON.parse(box.dataset.reads)) {
        const from = document.querySelector(`[data-box="${CSS.escape(read)}"]`);
        if (!from) continue;
        const a = from.getBoundingClientRect(), b = box.getBoundingClientRect();
        const [x1, y1, x2, y2] = [a.right - frame.left, a.top + a.height / 2 - frame.top, b.left - frame.left, b.top + b.height / 2 - frame.top];
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("d", `M${x1},${y1} C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2} ${x2},${y2}`);
        paths.push(path);
      }
    }
  }
  svg.replaceChildren(...paths);
}

// -- charts ---------------------------------------------------------------------------------------------------------

async function updateCharts() {
  for (const place of document.querySelectorAll(".charts")) {
    const box = place.getBoundingClientRect();
    if (document.hidden || box.bottom < -200 || box.top > innerHeight + 200) continue;
    try {
      const answer = await fetch(`/history?follower=${encodeURIComponent(place.dataset.follower)}`, { headers: headers() });
      if (answer.ok) drawCharts(place, await answer.json());
    } catch { /* the connection's own line says so */ }
  }
}

// -- the token, and what needs it -----------------------------------------------------------------------------------

function askToken() {
  return new Promise((resolve) => {
    if (!hasToken) {
      $("token-text").textContent = "This service was started without a token, so it only shows. Set DRIFTLESS_SERVE_TOKEN and start it again.";
      $("token-input").closest("label").hidden = true;
    }
    const dialog = $("token");
    dialog.onclose = () => {
      if (dialog.returnValue === "yes" && $("token-input").value) {
        token = $("token-input").value.trim();
        sessionStorage.setItem("token", token);
        showToken();
      }
      $("token-input").value = "";
      resolve(token);
    };
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
  });
}

function forgetToken() {
  token = "";
  sessionStorage.removeItem("token");
  showToken();
}

function showToken() {
  if (hasToken) $("token-button").textContent = token ? "Forget the token" : "Enter the token";
}

async function withToken(ask) {
  if (!token && !(await askToken())) return null;
  const answer = await ask();
  if (answer.status === 401) forgetToken();
  return answer;
}

async function act(button) {
  const { action, follower, generation, ask } = button.dataset;
  $("ask-title").textContent = `${action} ${follower}${generation ? `, generation ${generation}` : ""}?`;
  $("ask-text").textContent = ask;
  $("ask-answer").textContent = "";
  $("ask-yes").textContent = action;
  $("ask-yes").hidden = false;
  $("ask-no").textContent = "Cancel";
  const dialog = $("ask");
  dialog.onclose = () => button.isConnected ? button.focus() : $(button.id)?.focus();
  $("ask-yes").onclick = async (event) => {
    event.preventDefault();
    $("ask-yes").hidden = true;
    $("ask-answer").textContent = "asked";
    try {
      const answer = await withToken(() => fetch(`/actions/${action}`, {
        method: "POST", headers: headers({ "content-type": "application/json" }),
        body: JSON.stringify({ follower, generation: generation ? Number(generation) : null }),
      }));
      const said = answer ? await answer.json() : { error: "without the token nothing is done" };
      $("ask-answer").textContent = said.error || said.done;
      $("ask-answer").className = said.error ? "bad" : "good";
    } catch (error) {
      $("ask-answer").textContent = `not connected: ${error.message}`;
    }
    $("ask-no").textContent = "Close";
    $("ask-no").focus();
  };
  dialog.showModal();
}

async function why(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  $("why-answer").textContent = "looking";
  try {
    const query = new URLSearchParams({ follower: form.get("follower"), key: form.get("key") });
    const answer = await withToken(() => fetch(`/why?${query}`, { headers: headers() }));
    if (!answer) $("why-answer").textContent = "the token is needed";
    else if (answer.ok) $("why-answer").innerHTML = await answer.text();
    else $("why-answer").textContent = (await answer.json()).error;
  } catch (error) {
    $("why-answer").textContent = `not connected: ${error.message}`;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-action]");
  if (button) act(button);
});
$("token-button").addEventListener("click", async () => {
  if (token) forgetToken();
  else if (await askToken() && !allowed) fill();
});
$("why-form").addEventListener("submit", why);
let waiting = 0;
function updateChartsSoon() { clearTimeout(waiting); waiting = setTimeout(updateCharts, 150); }
addEventListener("resize", () => { drawLines(); updateChartsSoon(); });
addEventListener("scroll", updateChartsSoon, { passive: true });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", updateCharts);
addEventListener("load", () => {
  showToken();
  setInterval(updateCharts, 5000);
  if (allowed) begin();
  else if (token) fill();
  else say("the token is needed");
});
