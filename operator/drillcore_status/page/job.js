// One job, kept fresh by its stream.

import { ApiError, jobPath, stream } from "./api.js";
import { throughputChart } from "./chart.js";
import { element, facts, table } from "./dom.js";
import { age, bytes, count, duration } from "./format.js";
import { bar, explanation, pause, phase } from "./jobs.js";

const RECONNECT_MS = 3000;
const MAX_SHARDS_SHOWN = 200;
const PHASE_ORDER = ["Failed", "Running", "Pending", "Committed"];

/** Shows the job and follows it until `signal` aborts; errors go to `fail`, news about the connection to `tell`. */
export async function showJob(main, namespace, name, signal, fail, tell) {
  const view = new JobView(main, namespace, name);
  let over = false;
  const listen = (kind, data) => {
    if (kind === "gone") {
      over = true;
      tell("This job was deleted.");
    } else if (kind === "error") {
      throw new ApiError(data);
    } else if (kind === "unavailable") {
      tell(data.message);
    } else {
      tell("");
      view.take(kind, data);
    }
  };
  while (!over && !signal.aborted) {
    try {
      await stream(`${jobPath(namespace, name)}/stream`, listen, signal);
    } catch (error) {
      if (signal.aborted || !fail(error)) return;
    }
    if (!over) await pause(RECONNECT_MS, signal);
  }
}

class JobView {
  constructor(main, namespace, name) {
    this.shards = new Map();
    this.parts = Object.fromEntries(
      ["head", "throughput", "shards", "conditions", "events", "spec"].map((part) => [part, element("section")]));
    const back = element("a", { href: `#/${encodeURIComponent(namespace)}` }, `All jobs of ${namespace}`);
    main.replaceChildren(element("p", {}, back), element("h2", {}, name), ...Object.values(this.parts));
  }

  take(kind, data) {
    if (kind === "job") this.drawJob(data);
    else if (kind === "throughput") this.put("throughput", "Throughput", throughputChart(data.items));
    else if (kind === "events") this.put("events", "Events", eventTable(data.items));
    else if (kind === "shards") this.drawShards(data.items);
  }

  drawJob({ metadata, spec, status }) {
    const why = explanation(status);
    this.parts.head.replaceChildren(
      element("p", {}, phase(status.phase), " ", bar(status.progress, "Progress")),
      ...(why ? [element("div", { class: `why ${why.status === "False" ? "Failed" : ""}`, id: "why" },
        element("strong", {}, why.reason), why.message ? `: ${why.message}` : "")] : []),
      summary(metadata, status));
    this.put("conditions", "Conditions", conditionTable(status.conditions ?? []));
    this.parts.spec.replaceChildren(element("details", { open: this.parts.spec.querySelector("details[open]") !== null },
      element("summary", {}, "Spec"), element("pre", {}, JSON.stringify(spec, null, 2))));
  }

  drawShards(changed) {
    for (const shard of changed) this.shards.set(shard.index, shard);
    const order = (shard) => PHASE_ORDER.indexOf(shard.phase);
    const sorted = [...this.shards.values()].sort((a, b) => order(a) - order(b) || a.index - b.index);
    const hidden = sorted.length - MAX_SHARDS_SHOWN;
    this.put("shards", "Shards", shardTable(sorted.slice(0, MAX_SHARDS_SHOWN)),
      hidden > 0 ? element("p", { class: "dim" }, `and ${count(hidden)} more`) : null);
  }

  put(part, title, ...content) {
    this.parts[part].replaceChildren(element("h3", {}, title), ...content.filter((node) => node !== null));
  }
}

function summary(metadata, status) {
  const progress = status.progress ?? {};
  const total = progress.rowsTotal === null || progress.rowsTotal === undefined ? "?" : count(progress.rowsTotal);
  const remaining = progress.estimatedRemainingSeconds;
  return facts([
    ["Rows", `${count(progress.rowsDone)} of ${total}`],
    ["Quarantined rows", count(progress.rowsQuarantined)],
    ["Tokens", count(progress.tokens)],
    ["Written", bytes(progress.bytes)],
    ["Shards done", status.shards?.summary],
    ["Failed shards", status.shards?.failedIndexes],
    ["Retries", status.retries ? count(status.retries) : null],
    ["Time to go", remaining === null || remaining === undefined || status.completionTime ? null : duration(remaining)],
    ["Age", age(metadata.creationTimestamp)],
    ["Output", status.output?.uri],
  ]);
}

const conditionTable = (conditions) => table("Conditions", [
  ["Condition", (condition) => condition.type],
  ["Status", (condition) => condition.status],
  ["Reason", (condition) => condition.reason],
  ["Message", (condition) => condition.message],
  ["Since", (condition) => age(condition.lastTransitionTime), "number"],
], conditions);

const shardTable = (shards) => table("Shards", [
  ["Shard", (shard) => String(shard.index), "number"],
  ["Phase", (shard) => phase(shard.phase)],
  ["Rows", (shard) => `${count(shard.rowsDone)} of ${shard.rowsTotal === null ? "?" : count(shard.rowsTotal)}`, "number"],
  ["Quarantined", (shard) => count(shard.rowsQuarantined), "number"],
  ["Written", (shard) => bytes(shard.bytes), "number"],
  ["Last failure", (shard) => [shard.reason, shard.message].filter(Boolean).join(": ")],
], shards);

const eventTable = (events) => events.length === 0 ? element("p", { class: "dim" }, "No events.") : table("Events", [
  ["Type", (event) => event.type],
  ["Reason", (event) => event.reason],
  ["Message", (event) => event.message],
  ["Count", (event) => count(event.count), "number"],
  ["Last seen", (event) => age(event.lastTime), "number"],
], [...events].reverse());
