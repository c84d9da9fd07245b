// The list of a namespace's jobs.

import { jobsPath, read } from "./api.js";
import { element, table } from "./dom.js";
import { age } from "./format.js";

const INTERVAL_MS = 5000;

/** Shows the list and keeps it fresh until `signal` aborts; errors go to `fail`. */
export async function showJobs(main, namespace, signal, fail) {
  while (!signal.aborted) {
    try {
      draw(main, namespace, (await read(jobsPath(namespace), signal)).items);
    } catch (error) {
      if (signal.aborted || !fail(error)) return;
    }
    await pause(INTERVAL_MS, signal);
  }
}

/** The condition that tells how the job stands, with the message of the one that it points to. */
export function explanation(status) {
  const conditions = status.conditions ?? [];
  const summary = conditions.find((condition) => condition.type === "Succeeded");
  if (!summary || summary.status !== "Unknown") return summary;
  return conditions.find((condition) => condition.type !== "Succeeded" && condition.reason === summary.reason) ?? summary;
}

export function phase(name) {
  return element("span", { class: `phase ${/^[A-Za-z]+$/.test(name ?? "") ? name : ""}` }, name ?? "Pending");
}

export function bar(progress, label) {
  const percentage = progress?.percentage ?? 0;
  return element("span", {},
    element("progress", { max: 100, value: percentage, "aria-label": label }), ` ${percentage}%`);
}

/** Resolves after a while, or at once when `signal` aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

function draw(main, namespace, jobs) {
  const focused = document.activeElement?.getAttribute?.("href");
  const columns = [
    ["Name", (job) => element("a", { href: `#/${encodeURIComponent(namespace)}/${encodeURIComponent(job.metadata.name)}` }, job.metadata.name)],
    ["Phase", (job) => phase(job.status.phase)],
    ["Progress", (job) => bar(job.status.progress, `Progress of ${job.metadata.name}`)],
    ["Shards", (job) => job.status.shards?.summary ?? "", "number"],
    ["Reason", (job) => explanation(job.status)?.reason ?? ""],
    ["Age", (job) => age(job.metadata.creationTimestamp), "number"],
  ];
  const list = jobs.length
    ? table(`Jobs of ${namespace}`, columns, jobs)
    : element("p", {}, `There is no ExtractionJob in ${namespace}.`);
  main.replaceChildren(element("h2", {}, `Jobs of ${namespace}`), list);
  if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}
