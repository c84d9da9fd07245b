// Numbers, sizes and times for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const INTEGER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const count = (number) => INTEGER.format(number ?? 0);
export const short = (number) => SHORT.format(number ?? 0);

export function bytes(size) {
  let unit = 0;
  let value = size ?? 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Seconds as the two largest units: 2 h 5 min. */
export function duration(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.max(0, Math.round(seconds));
  const words = [];
  for (const [unit, size] of parts) {
    const number = Math.floor(left / size);
    left -= number * size;
    if (number > 0) words.push(`${number} ${unit}`);
  }
  return words.slice(0, 2).join(" ") || "0 s";
}

/** How long ago an RFC 3339 time was. */
export const age = (time) => (time ? duration((Date.now() - Date.parse(time)) / 1000) : "");
