// Throughput over time: rates between neighbouring samples, as one line.

import { element, svg } from "./dom.js";
import { duration, short } from "./format.js";

const WIDTH = 600;
const HEIGHT = 100;

/** `[seconds since the first sample, rate]` for each sample but the first. */
export function rates(samples, field) {
  return samples.slice(1).map((sample, i) => {
    const seconds = Math.max(sample.timeSeconds - samples[i].timeSeconds, 1e-3);
    return [sample.timeSeconds - samples[0].timeSeconds, (sample[field] - samples[i][field]) / seconds];
  });
}

export function throughputChart(samples) {
  const points = rates(samples, "tokens");
  if (points.length === 0) return element("p", { class: "dim" }, "No throughput yet.");
  const highest = Math.max(...points.map(([, rate]) => rate), 1e-9);
  const span = Math.max(points.at(-1)[0], 1e-3);
  const place = ([at, rate]) => `${(at / span) * WIDTH},${HEIGHT - 4 - (rate / highest) * (HEIGHT - 8)}`;
  const line = [[0, points[0][1]], ...points].map(place).join(" ");
  const rows = rates(samples, "rowsDone").at(-1)[1];
  const text = `${short(points.at(-1)[1])} tokens/s and ${short(rows)} rows/s now, `
    + `at most ${short(highest)} tokens/s in the last ${duration(span)}`;
  return element("figure", {},
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": text },
      svg("polyline", { points: line })),
    element("figcaption", {}, text));
}
