// Numbers, sizes, durations and lists as text.

const LANGUAGE = "en";
const whole = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 0 });

export const count = (n) => whole.format(n);
export const many = (n, what) => `${count(n)} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;
export const share = (p) => (100 * p).toFixed(1);
export const percent = (p) => `${share(p)}\u00a0%`;
export const range = (lower, upper) => `${share(lower)}–${share(upper)}`;

export function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB"];
  const power = n < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(n) / 3));
  const value = n / 1000 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${units[power]}`;
}

export function duration(seconds) {
  const [size, name] = seconds >= 5400 ? [3600, "hour"] : seconds >= 90 ? [60, "minute"] : [1, "second"];
  return many(Math.max(1, Math.round(seconds / size)), name);
}

/** Return names separated by commas; a long list ends with the number of further names. */
export function listed(names, most = 8) {
  const shown = names.slice(0, names.length > most + 1 ? most : most + 1);
  const more = names.length - shown.length;
  return shown.join(", ") + (more ? ` and ${count(more)} more` : "");
}
