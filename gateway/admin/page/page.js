// The live page: asks the gateway every two seconds and shows what it says.
// All texts are set as text, never as markup.

import { draw, roundUp } from "./charts.js";

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const SHOWN_DECISIONS = 25;
const WORKER_TONES = { ready: "good", joining: "idle", suspect: "warn", draining: "idle", down: "bad" };
const TONES = ["bad", "warn", "idle", "good"];
const FEED_TONES = { live: "good", estimated: "idle", replaying: "warn", degraded: "warn", silent: "bad" };

const byId = (id) => document.getElementById(id);
const number = (value) => (value ?? null) === null ? "–" : Math.round(value).toLocaleString("en");
const percent = (value) => (value ?? null) === null ? "–" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
const share = (part, whole) => (whole ? part / whole : null);
const sum = (list, key) => list.reduce((total, one) => total + (one[key] ?? 0), 0);

function seconds(value) {
  if ((value ?? null) === null) return "–";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  return `${Math.round(value / 60)} min`;
}

const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

/** An element with a class and children; strings become text. */
function el(name, classes, ...children) {
  const element = document.createElement(name);
  if (classes) element.className = classes;
  element.append(...children.filter((child) => child !== null));
  return element;
}

async function ask(path, options = {}) {
  // Not relative to the address: one that holds a key may not be asked for by a script.
  const url = new URL(path, location.origin + location.pathname);
  const response = await fetch(url, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error?.message ?? `status ${response.status}`);
  return body;
}

function showStatus(workers) {
  // Several processes of a gateway each see every worker.
  const all = new Set(workers.map((worker) => worker.url)).size;
  const not = new Set(workers.filter((worker) => worker.state !== "ready").map((worker) => worker.url));
  const ready = all - not.size;
  const status = byId("status");
  status.textContent = `${ready} of ${all} workers ready`;
  status.className = ready ? "" : "bad";
}

function showFleet(recent) {
  const { slots } = recent;
  const prompt = sum(slots, "prompt_tokens");
  const times = slots.map((slot) => slot.first_token_p95_s);
  const totals = [
    ["hit rate", percent(share(sum(slots, "delivered_hit_tokens"), prompt))],
    ["best possible", percent(share(sum(slots, "best_hit_tokens"), prompt))],
    ["prompt tokens not prefilled", number(sum(slots, "delivered_hit_tokens"))],
    ["first token, 95 %, of late", seconds(times.findLast((time) => time !== null))],
  ];
  byId("totals").replaceChildren(...totals.map(([name, value]) =>
    el("div", "", el("dt", "", name), el("dd", "", value))));
  const size = { slots: recent.of, slotSeconds: recent.slot_s };
  const hits = ["best", "predicted", "delivered"].map((kind) =>
    [kind, slots.map((slot) => [slot.age, share(slot[`${kind}_hit_tokens`], slot.prompt_tokens)])]);
  draw(byId("hits"), hits, { ...size, top: 1, label: percent });
  const waits = ["p95", "p50"].map((kind) =>
    [kind, slots.map((slot) => [slot.age, slot[`first_token_${kind}_s`]])]);
  draw(byId("times"), waits, { ...size, top: roundUp(times), label: seconds });
}

function tag(text, tone) {
  return el("span", `tag ${tone ?? "idle"}`, text);
}

function row(name, ...value) {
  return [el("dt", "", name), el("dd", "", ...value)];
}

function feedRows(feed, several, capacity) {
  const name = several ? `events, rank ${feed.rank}` : "events";
  const rows = row(name, tag(feed.state, FEED_TONES[feed.state]), ` for ${seconds(feed.state_s)}`);
  if (feed.reason) rows.push(el("dd", "long", feed.reason));
  const doubt = feed.suspect_blocks ? `, ${number(feed.suspect_blocks)} in doubt` : "";
  const most = capacity && !several ? ` of ${number(capacity)}` : "";
  rows.push(...row("blocks", `${number(feed.blocks)}${most}${doubt}`));
  return rows;
}

function forwardingRows(forwarding) {
  if (forwarding.allowed) return row("token ids", tag("go along", "good"), ` by ${forwarding.proven_by}`);
  const rows = row("token ids", tag(forwarding.reason, forwarding.reason === "switched_off" ? "idle" : "warn"));
  if (forwarding.detail) rows.push(el("dd", "long", forwarding.detail));
  return rows;
}

function hitRows(worker) {
  const fates = worker.prompt_token_fates ?? {};
  const prompt = Object.values(fates).reduce((total, tokens) => total + tokens, 0);
  const told = worker.reports_cached_tokens === false ? "not reported" : percent(share(worker.delivered_hit_tokens, prompt));
  const apart = worker.agreement && worker.agreement !== "agrees" ? worker.agreement.replace("_", " ") : null;
  return row("hit rate", told, apart ? " " : null, apart ? tag(apart, "warn") : null);
}

/** The worst of what is said of a worker colours its card. */
function worst(worker) {
  const { allowed, reason } = worker.forwarding;
  const said = [WORKER_TONES[worker.state], ...worker.feeds.map((feed) => FEED_TONES[feed.state])];
  if (!allowed && reason !== "switched_off") said.push("warn");
  return TONES.find((tone) => tone !== "idle" && said.includes(tone)) ?? "idle";
}

function card(worker) {
  const tone = WORKER_TONES[worker.state];
  const process = worker.process === undefined ? null : `as process ${worker.process} sees it`;
  const about = [worker.engine, worker.version, ...worker.models, process].filter(Boolean).join(" · ");
  return el("article", `card ${worst(worker)}`,
    el("h3", "", worker.url, " ", tag(worker.state, tone)),
    el("p", "about", about || "not known yet"),
    worker.state === "ready" ? null : el("p", "about", worker.reason),
    el("dl", "",
      ...row("in flight", `${counted(worker.inflight_requests, "request")}, ${number(worker.inflight_tokens)} tokens to prefill`),
      ...row("prefill rate", `${number(worker.prefill_rate)} tokens/s (${worker.prefill_rate_source})`),
      ...hitRows(worker),
      ...worker.feeds.flatMap((feed) => feedRows(feed, worker.feeds.length > 1, worker.cache_blocks)),
      ...forwardingRows(worker.forwarding)));
}

/** The worst first; workers of one tone stay in the gateway's order. */
function byTone(workers) {
  return workers.toSorted((one, other) => TONES.indexOf(worst(one)) - TONES.indexOf(worst(other)));
}

function showWorkers(workers) {
  byId("workers").replaceChildren(...byTone(workers).map(card));
  const names = [...new Set(workers.flatMap((worker) => worker.models))];
  const select = byId("model");
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
}

function cells(...values) {
  return values.map((value) => typeof value === "string" ? el("td", "", value) : value);
}

const figure = (text) => el("td", "number", text);

function decisionRow(decision) {
  const rank = decision.rank ? ` rank ${decision.rank}` : "";
  return el("tr", "", ...cells(
    figure(seconds(decision.ago_s)), decision.worker + rank,
    figure(number(decision.prompt_tokens)), figure(number(decision.predicted_hit_tokens)),
    figure(number(decision.delivered_hit_tokens)), figure(seconds(decision.first_token_s)),
    decision.end, el("td", "why", decision.why)));
}

function showDecisions(decisions) {
  const rows = decisions.slice(0, SHOWN_DECISIONS).map(decisionRow);
  const none = el("td", "empty", "none yet");
  none.colSpan = 8;
  byId("decisions").tBodies[0].replaceChildren(...(rows.length ? rows : [el("tr", "", none)]));
}

let lastRecent = null;

async function refresh() {
  try {
    const [{ workers }, recent] = await Promise.all([ask("workers"), ask("recent")]);
    lastRecent = recent;
    showStatus(workers);
    showFleet(recent);
    showWorkers(workers);
    showDecisions(recent.decisions);
    document.body.dataset.shown = "yes";
  } catch (error) {
    byId("status").textContent = `the gateway does not answer: ${error.message}`;
    byId("status").className = "bad";
  }
}

/** The body to explain: JSON as it is, anything else as one user's message. */
function bodyOf(text, model) {
  try {
    const body = JSON.parse(text);
    if (body !== null && typeof body === "object" && !Array.isArray(body)) {
      return { model, ...body };
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return { model, messages: [{ role: "user", content: text }] };
}

function candidateRow(candidate, chosen) {
  const here = candidate.url === chosen.url && candidate.rank === chosen.rank;
  return el("tr", here ? "chosen" : "", ...cells(
    `${candidate.url} rank ${candidate.rank}`, candidate.knowledge,
    figure(number(candidate.hit_tokens)), figure(number(candidate.uncached_tokens)),
    figure(number(candidate.inflight_tokens)), figure(seconds(candidate.cost_s))));
}

function unknown(found) {
  if (!found) return el("p", "", "All of the prompt is known.");
  const known = `Known up to token ${number(found.token)}, ${counted(found.block, "block")} of ${found.block_size}:`;
  const where = found.token ? known : "Nothing of it is known anywhere:";
  if (found.text_before === undefined) return el("p", "", where);
  return el("pre", "", `${where}\n… ${found.text_before}`, el("mark", "", " ▌"), `${found.text_after} …`);
}

function explained(page) {
  const names = ["worker", "knowledge", "held", "to prefill", "in flight", "cost"];
  const head = el("tr", "", ...names.map((name, at) => el("th", at > 1 ? "number" : "", name)));
  const rows = page.workers.map((candidate) => candidateRow(candidate, page.chosen));
  const ids = page.would_forward_ids ? "Token ids go along." : `Token ids stay: ${page.ids_reason}.`;
  const others = page.not_weighed.map((other) => `${other.url}: ${other.reason}`);
  return [
    el("p", "", `${page.why}. ${ids}`, others.length ? ` Not weighed: ${others.join("; ")}.` : null),
    el("div", "scroll", el("table", "", el("thead", "", head), el("tbody", "", ...rows))),
    page.rendered ? unknown(page.unknown_from) : el("p", "", `Not rendered: ${page.reason}.`),
  ];
}

async function explain(event) {
  event.preventDefault();
  const body = bodyOf(byId("body").value, byId("model").value);
  const headers = { "Content-Type": "application/json" };
  const shown = byId("explained");
  try {
    const page = await ask("explain", { method: "POST", headers, body: JSON.stringify(body) });
    shown.replaceChildren(...explained(page));
  } catch (error) {
    shown.replaceChildren(el("p", "", error.message));
  }
}

async function keepOn() {
  // What the reader has marked stays, to be copied.
  if (!document.hidden && getSelection().isCollapsed) await refresh();
  setTimeout(keepOn, EVERY_MS);
}

addEventListener("resize", () => lastRecent && showFleet(lastRecent));
byId("explain").addEventListener("submit", explain);
keepOn();
